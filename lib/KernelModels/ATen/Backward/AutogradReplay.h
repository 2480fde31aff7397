//===- AutogradReplay.h - Operators that call others, recorded --*- C++ -*-===//
//
// Private to lib/KernelModels. An OpReplay that also replays autograd:
// each step is named by the operator that runs it, and leaves what the table of
// derivatives says where a gradient flows. What is saved outlives the name of
// the tensor; all records live as long as the result that they lead to.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_BACKWARD_AUTOGRADREPLAY_H
#define KOILA_KERNELMODELS_ATEN_BACKWARD_AUTOGRADREPLAY_H

#include "../OpReplay.h"

namespace koila {
class BackwardRule;
} // namespace koila

namespace koila::kernels {

/// A tensor of an expression. Copies and views name the same storage.
struct Term : ConcreteTensor {
  size_t storage = 0;
};

class AutogradReplay : public OpReplay {
public:
  using Terms = llvm::ArrayRef<Term>;

  /// `saved` is told at the end what is kept; null if only the bytes inside
  /// are asked for.
  AutogradReplay(WorkspaceRule &rule, SavedRule *saved,
                 BackwardRule *backward = nullptr)
      : OpReplay(rule), rule(rule), saved(saved), backward(backward) {}

  /// An operand; unknown shapes have been refused before.
  Term read(mlir::Value value);
  /// The storage of `term` with other dims.
  static Term view(Term term, llvm::ArrayRef<int64_t> dims);
  Term allocate(ConcreteTensor tensor);
  /// Ends the names: what is saved stays.
  void free(Terms terms);

  /// The operator of that schema, elementwise.
  Term compute(llvm::StringRef name, Terms operands,
               Result kind = Result::Common, Number number = Number::None);
  /// Its in-place form, which writes the first operand.
  void write(llvm::StringRef name, Terms operands,
             Number number = Number::None);
  /// `number - term`.
  Term subtractFromNumber(const Term &term);
  Term select(const Term &mask, const Term &lhs, const Term &rhs);
  Term sum(const Term &term, std::optional<int64_t> dim = std::nullopt,
           bool keepdim = false);
  Term reduce(const Term &term, int64_t reduction);
  /// The norm over the last dim of the difference of two tensors.
  Term computeDistance(const Term &lhs, const Term &rhs, bool keepdim);

  /// Tensor::contiguous().
  Term contiguous(const Term &term);

  bool wants(const Term &term) const { return storages[term.storage].wants; }
  /// The gradient of `term` needs it.
  void save(const Term &term) {
    if (!std::exchange(storages[term.storage].isSaved, true))
      savedOrder.push_back(term.storage);
  }
  /// A gradient flows to `result` if it does to one of `operands`.
  void follow(Terms operands, const Term &result);
  /// What the step that made `result` of `operands` leaves; `dim` is the one
  /// that it reduced.
  void record(llvm::StringRef name, Terms operands, const Term &result,
              std::optional<int64_t> dim = std::nullopt);
  /// Sets the bytes beyond the results, and tells what is kept. In the order of
  /// the operation's results.
  void finish(Terms results);

  struct Storage {
    int64_t bytes = 0;
    /// Of what is made inside.
    AllocationTrace::Block block = {};
    /// The operand it is of; null for what is made inside.
    mlir::Value operand;
    bool wants = false, isSaved = false;
  };
  /// A step that autograd recorded.
  struct Node {
    llvm::StringRef name;
    llvm::SmallVector<Term, 3> operands;
    /// Whether a gradient is asked for, by operand.
    llvm::SmallVector<bool, 3> wanted;
    Term result;
    std::optional<int64_t> dim;
    /// The storages that it has saved.
    llvm::SmallVector<size_t, 3> saved;
  };
  llvm::ArrayRef<Node> getNodes() const { return nodes; }
  const Storage &getStorage(size_t index) const { return storages[index]; }

private:
  Term add(MadeTensor made, mlir::Value operand = {});

  WorkspaceRule &rule;
  SavedRule *saved;
  BackwardRule *backward;
  llvm::SmallVector<Storage, 8> storages;
  llvm::SmallVector<size_t, 4> savedOrder;
  std::vector<Node> nodes;
};

/// The operands of an expression; none if a shape is unknown or an element type
/// is complex, and then the rule says so.
std::optional<llvm::SmallVector<Term>> readReals(AutogradReplay &steps,
                                                 WorkspaceRule &rule,
                                                 mlir::ValueRange values,
                                                 bool needsStrides = false);

/// The gradients of an expression whose steps have been recorded, from those
/// that arrive for its results.
void describeExpressionBackward(BackwardRule &rule, const AutogradReplay &of,
                                AutogradReplay::Terms results);

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_BACKWARD_AUTOGRADREPLAY_H
