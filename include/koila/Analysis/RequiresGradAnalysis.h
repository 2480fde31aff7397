//===- RequiresGradAnalysis.h - Where a gradient flows ----------*- C++ -*-===//
//
// PyTorch's requires_grad, of every value of a function: forward from weights
// and arguments that require a gradient, through whatever passes one on.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_REQUIRESGRADANALYSIS_H
#define KOILA_ANALYSIS_REQUIRESGRADANALYSIS_H

#include "koila/Analysis/Storage.h"
#include "koila/Interfaces/Differentiation.h"
#include "llvm/ADT/DenseSet.h"

namespace koila {

/// On an operation that runs while nothing is recorded, as in
/// `torch.no_grad()`.
inline constexpr llvm::StringLiteral kUnrecordedAttr = "koila.unrecorded";

class RequiresGradAnalysis {
public:
  /// `dims` and `storage` are of `function`; both have to outlive this.
  RequiresGradAnalysis(mlir::Operation *function, const DimAnalysis &dims,
                       const StorageAnalysis &storage);

  /// Whether a gradient flows to `value`, also because something with one is
  /// written into its storage.
  bool wants(mlir::Value value) const { return wanting.contains(value); }
  /// The same without such writes.
  bool wantsUnwritten(mlir::Value value) const {
    return unwritten.contains(value);
  }

  /// Whether no gradient passes `op`, whose operands want one as `wants` says.
  bool isDetached(mlir::Operation &op, DifferentiationRule::Wants wants) const;
  /// The detached tensor that `value`, of a storage, is or is a view of; null
  /// where it comes of what was allocated without one in between.
  mlir::Value findDetached(mlir::Value value, const Storage &entry) const;

private:
  bool mark(mlir::Operation &op, bool followWrites);

  const DimAnalysis &dims;
  const StorageAnalysis &storage;
  llvm::DenseSet<mlir::Value> wanting, unwritten;
};

/// Whether all that reads `value` detaches it, so that no gradient flows to it
/// whatever it requires.
bool isOnlyDetached(mlir::Value value);

/// Whether `op` writes a tensor that autograd takes for one of its own though
/// it shares its storage: the parts that unsafe_split and unsafe_chunk make.
bool writesUntracked(mlir::Operation &op);

} // namespace koila

#endif // KOILA_ANALYSIS_REQUIRESGRADANALYSIS_H
