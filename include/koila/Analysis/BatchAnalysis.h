//===- BatchAnalysis.h - Where the batch is in every value ------*- C++ -*-===//

#ifndef KOILA_ANALYSIS_BATCHANALYSIS_H
#define KOILA_ANALYSIS_BATCHANALYSIS_H

#include "koila/Analysis/DimAnalysis.h"

namespace koila {

/// Runs the batch rules over one function. Arguments carry the batch where
/// their dims are a multiple of the batch symbol.
class BatchAnalysis {
public:
  enum class Barriers {
    /// Where samples have met, every later value is mixed.
    Spread,
    /// What mixes samples runs whole; its results are there as arguments are,
    /// and carry the batch again where one of their dims is a multiple of it.
    Cut
  };
  using Operations = llvm::SmallPtrSet<mlir::Operation *, 4>;
  /// Operations in `whole` do not make results whose samples are interleaved
  /// (Inner): there, samples are mixed.
  BatchAnalysis(mlir::Operation *function, const DimAnalysis &dims,
                llvm::StringRef batchSymbol,
                Barriers barriers = Barriers::Spread,
                const Operations &whole = {});

  /// What the operation that makes `value` says of it.
  const BatchFact &lookup(mlir::Value value) const;
  /// What the readers of `value` may rely on: not mixed where barriers cut and
  /// the extents say where the batch is.
  const BatchFact &lookupRead(mlir::Value value) const;

private:
  llvm::DenseMap<mlir::Value, BatchFact> values, read;
};

/// Name of the symbol of `module` that is the batch; empty if there is none.
llvm::StringRef getBatchSymbol(mlir::ModuleOp module);

} // namespace koila

#endif // KOILA_ANALYSIS_BATCHANALYSIS_H
