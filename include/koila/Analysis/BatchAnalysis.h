//===- BatchAnalysis.h - Where the batch is in every value ------*- C++ -*-===//

#ifndef KOILA_ANALYSIS_BATCHANALYSIS_H
#define KOILA_ANALYSIS_BATCHANALYSIS_H

#include "koila/Analysis/DimAnalysis.h"

namespace koila {

/// Runs the batch rules over one function. Arguments carry the batch where
/// their dims are a multiple of the batch symbol.
class BatchAnalysis {
public:
  BatchAnalysis(mlir::Operation *function, const DimAnalysis &dims,
                llvm::StringRef batchSymbol);

  const BatchFact &lookup(mlir::Value value) const;

private:
  llvm::DenseMap<mlir::Value, BatchFact> values;
};

/// Name of the symbol of `module` that is the batch; empty if there is none.
llvm::StringRef getBatchSymbol(mlir::ModuleOp module);

} // namespace koila

#endif // KOILA_ANALYSIS_BATCHANALYSIS_H
