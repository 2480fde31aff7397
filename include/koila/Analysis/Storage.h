//===- Storage.h - Alias classes and tie resolution -------------*- C++ -*-===//
//
// Which storage every tensor lives in. A tie is a permission to reuse an
// operand's storage; this analysis decides where it may be used, and both the
// memory analyses and emission ask it.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_STORAGE_H
#define KOILA_ANALYSIS_STORAGE_H

#include "koila/Analysis/DimAnalysis.h"
#include "mlir/Pass/AnalysisManager.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <memory>
#include <string>

namespace koila {

/// One storage: all values that may live in it.
struct Storage {
  /// The values that allocate it, in program order; more than one only where
  /// a loop or branch merges storages.
  llvm::SmallVector<mlir::OpResult, 1> allocations;
  /// Belongs to the caller or the module: arguments, weights. Never counted.
  bool external = false;
  llvm::SmallVector<mlir::Value> values;
  /// Lists, tuples and dicts that it is in.
  llvm::SmallVector<mlir::Value, 1> holders;
};

/// Whether values of that type may be lists, tuples or dicts with tensors in
/// them, however deep.
bool isContainerOfTensors(mlir::Type type);
/// As isContainerOfTensors, or a tensor, or one that may be None.
bool mayHoldTensors(mlir::Type type);

/// On an opaque operator all of whose results are views or what was put into
/// its operands, as its schema says.
inline constexpr llvm::StringLiteral kViewsAttr = "koila.views";

class StorageAnalysis {
public:
  /// With `ties`, which know less of the sizes, operations reuse storage where
  /// they do there; what the assumptions rule out hands nothing on. A program
  /// that is emitted without a guard runs that, too.
  StorageAnalysis(mlir::Operation *function, const DimAnalysis &dims,
                  const StorageAnalysis *ties = nullptr);
  /// For passes: `getAnalysis<StorageAnalysis>()`, on the DimAnalysis there.
  StorageAnalysis(mlir::Operation *function, mlir::AnalysisManager &manager);
  ~StorageAnalysis();

  /// The storage of a value; null for values without bytes (integers,
  /// containers).
  const Storage *lookup(mlir::Value value) const;
  llvm::ArrayRef<std::unique_ptr<Storage>> getStorages() const {
    return storages;
  }
  /// True if `op`, which is tied, may write into its operand's storage: no
  /// later operation uses the operand or a view of it, and the storage was
  /// allocated in this function by exactly one operation.
  bool mayReuse(mlir::Operation *op) const { return reusing.contains(op); }
  /// Where the analysis had to guess between view and copy, and why.
  llvm::ArrayRef<std::pair<mlir::Operation *, std::string>> getGuesses() const {
    return guesses;
  }
  /// It goes with the dims that it was made of.
  bool
  isInvalidated(const mlir::AnalysisManager::PreservedAnalyses &preserved) {
    return !preserved.isPreserved<StorageAnalysis>() ||
           !preserved.isPreserved<DimAnalysis>();
  }

private:
  class Builder;
  llvm::DenseMap<mlir::Value, Storage *> byValue;
  llvm::SmallVector<std::unique_ptr<Storage>> storages;
  llvm::SmallPtrSet<mlir::Operation *, 16> reusing;
  llvm::SmallVector<std::pair<mlir::Operation *, std::string>> guesses;
};

} // namespace koila

#endif // KOILA_ANALYSIS_STORAGE_H
