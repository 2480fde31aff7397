//===- DimAnalysis.h - Symbolic shapes of every value -----------*- C++ -*-===//
//
// A sparse forward dataflow over shape rules: every tensor's dims as
// expressions over symbols, its element type and strides, and every integer as
// an expression. Control flow comes through RegionBranchOpInterface.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_DIMANALYSIS_H
#define KOILA_ANALYSIS_DIMANALYSIS_H

#include "koila/Interfaces/Rules.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/DenseMap.h"
#include <memory>
#include <vector>

namespace koila {

/// Facts about the values of one function. Construction runs the analysis;
/// operands that a shape rule refuses are diagnosed at their operation and
/// make it invalid.
class DimAnalysis {
public:
  /// `fixed` are numbers for symbols of the arguments. Rules take a symbol for
  /// two or more; at one or none, where PyTorch decides some things otherwise,
  /// they must see the number.
  explicit DimAnalysis(mlir::Operation *function,
                       const SymbolMap &fixed = SymbolMap());
  /// As above, with the symbols of `other`, an analysis of the same function:
  /// `fixed` may also have some that it gave to values, as to the size of a
  /// tile.
  DimAnalysis(mlir::Operation *function, const SymbolMap &fixed,
              const DimAnalysis &other);
  ~DimAnalysis();

  bool isValid() const { return valid; }
  /// Facts of a value; nothing known for values the analysis never reached.
  /// Extents and integers that no rule gives are local symbols of their own.
  const ValueInfo &lookup(mlir::Value value) const;
  /// Whether no call that the assumptions hold for gets to `block`: it belongs
  /// to a branch whose condition is known.
  bool isDead(mlir::Block *block) const { return dead.contains(block); }
  bool hasDead() const { return !dead.empty(); }
  /// As isDead of the block of `op` or of a block around it.
  bool isDead(mlir::Operation *op) const;
  /// Whether both, which are of `function`, say the same of each of its values
  /// but those of operations that are `apart`.
  bool agreesWith(const DimAnalysis &other, mlir::Operation *function,
                  llvm::function_ref<bool(mlir::Operation *)> apart) const;

private:
  struct LocalSymbols;
  void run(mlir::Operation *function, const SymbolMap &fixed);

  std::unique_ptr<LocalSymbols> symbols;
  std::vector<ValueInfo> infos;
  /// Where in `infos` what is known of a value is.
  llvm::DenseMap<mlir::Value, size_t> places;
  llvm::DenseSet<mlir::Block *> dead;
  bool valid = true;
};

/// Fails, with a diagnostic at the operation, if a shape rule refuses operands
/// of the sizes that `koila.symbols` of the module around `function` gives:
/// what fits at some number of samples need not at this one.
llvm::LogicalResult verifyGivenSizes(mlir::Operation *function);

/// Whether `op` is in a branch, which a call need not get to.
bool isInBranch(mlir::Operation *op);

/// Facts of a function's argument from its type and `koila.` attributes.
ValueInfo getArgumentInfo(mlir::FunctionOpInterface function, unsigned index);

/// Writes what the analysis finds into the types of `module`, and the facts
/// about arguments as `koila.assume` at entry. What `--koila-infer-shapes`
/// runs. With `warns`, says where a trace may have baked its batch in.
llvm::LogicalResult inferShapes(mlir::ModuleOp module, bool warns = true);

/// The public function of `module` named `name`, or the only public one if
/// `name` is empty. Diagnoses and returns null if there is none.
mlir::FunctionOpInterface findFunction(mlir::ModuleOp module,
                                       llvm::StringRef name);

} // namespace koila

#endif // KOILA_ANALYSIS_DIMANALYSIS_H
