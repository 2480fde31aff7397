//===- OpReplay.h - Operators that call others ------------------*- C++ -*-===//
//
// Private to lib/KernelModels. Many operators of PyTorch are expressions
// over others. An OpReplay replays one, in the order in which the compiled
// expression is evaluated: each step holds what the operator that it names
// does, and the caller frees what ends with a statement or a scope.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_OPREPLAY_H
#define KOILA_KERNELMODELS_ATEN_OPREPLAY_H

#include "AllocationTrace.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"

namespace koila::kernels {

class OpReplay : public AllocationTrace {
public:
  using Result = rules::Elementwise::Result;
  using Tensors = llvm::ArrayRef<ConcreteTensor>;
  /// A number of the expression, which becomes a 0-dim tensor.
  enum class Number { None, Integer, Float };

  explicit OpReplay(WorkspaceRule &rule) : rule(rule) {}

  using AllocationTrace::allocate;
  using AllocationTrace::free;
  /// A new tensor like this one.
  ConcreteTensor allocate(ConcreteTensor tensor);
  void free(const ConcreteTensor &tensor) {
    AllocationTrace::free(tensor.numBytes());
  }
  void free(Tensors tensors);

  /// A new tensor, elementwise from operands that broadcast.
  ConcreteTensor compute(Tensors operands, Result kind = Result::Common,
                         Number number = Number::None);
  /// The in-place form, which writes the first operand.
  void write(Tensors operands, Number number = Number::None);
  /// `number - tensor`, which is a new tensor full of the number, written.
  ConcreteTensor subtractFromNumber(const ConcreteTensor &tensor);
  /// where(mask, lhs, rhs).
  ConcreteTensor select(const ConcreteTensor &mask, const ConcreteTensor &lhs,
                        const ConcreteTensor &rhs);
  /// The sum over all dims, or over one.
  ConcreteTensor sum(const ConcreteTensor &tensor,
                     std::optional<int64_t> dim = std::nullopt,
                     bool keepdim = false);
  ConcreteTensor mean(const ConcreteTensor &tensor);
  /// What a loss makes of one value for each element: 0 the values, 1 their
  /// mean, 2 their sum.
  ConcreteTensor reduce(const ConcreteTensor &tensor, int64_t reduction);
  /// The norm over the last dim of the difference of two tensors.
  ConcreteTensor computeDistance(const ConcreteTensor &lhs,
                                 const ConcreteTensor &rhs, bool keepdim);

  /// Sets the bytes beyond the results, of which `kept` bytes are left.
  void finish(int64_t kept) { rule.setTransient(getPeak() - kept); }

private:
  ConcreteTensor make(ConcreteTensor result, int64_t casts);

  WorkspaceRule &rule;
};

/// Without dim `dim`, which may count from the end, or with an extent of one.
ConcreteTensor dropDim(ConcreteTensor tensor, int64_t dim, bool keepdim);
/// The tensors of `values`; none if a shape is unknown or an element type is
/// complex, and then the rule says so; with `needsStrides` also if the strides
/// are unknown.
std::optional<llvm::SmallVector<ConcreteTensor>>
getRealTensors(WorkspaceRule &rule, mlir::ValueRange values,
               bool needsStrides = false);

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_OPREPLAY_H
