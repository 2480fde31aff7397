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

#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"

namespace koila::kernels {

/// A tensor that a replay has made, and its block.
struct MadeTensor : ConcreteTensor {
  MadeTensor() = default;
  MadeTensor(ConcreteTensor tensor, AllocationTrace::Block block)
      : ConcreteTensor(std::move(tensor)), block(block) {}

  AllocationTrace::Block block;
};

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
  MadeTensor allocate(ConcreteTensor tensor);
  void free(const MadeTensor &tensor) { AllocationTrace::free(tensor.block); }
  void free(std::initializer_list<MadeTensor> tensors) {
    for (const MadeTensor &tensor : tensors)
      free(tensor);
  }
  /// The last ones that are as large.
  void free(const ConcreteTensor &tensor) {
    AllocationTrace::free(tensor.numBytes());
  }
  void free(Tensors tensors);

  /// A new tensor, elementwise from operands that broadcast.
  MadeTensor compute(Tensors operands, Result kind = Result::Common,
                     Number number = Number::None);
  /// The in-place form, which writes the first operand.
  void write(Tensors operands, Number number = Number::None);
  /// `number - tensor`, which is a new tensor full of the number, written.
  MadeTensor subtractFromNumber(const ConcreteTensor &tensor);
  /// where(mask, lhs, rhs).
  MadeTensor select(const ConcreteTensor &mask, const ConcreteTensor &lhs,
                    const ConcreteTensor &rhs);
  /// The sum over all dims, or over one.
  MadeTensor sum(const ConcreteTensor &tensor,
                 std::optional<int64_t> dim = std::nullopt,
                 bool keepdim = false);
  MadeTensor mean(const ConcreteTensor &tensor);
  /// What a loss makes of one value for each element: 0 the values, 1 their
  /// mean, 2 their sum.
  MadeTensor reduce(const MadeTensor &tensor, int64_t reduction);
  /// The norm over the last dim of the difference of two tensors.
  MadeTensor computeDistance(const ConcreteTensor &lhs,
                             const ConcreteTensor &rhs, bool keepdim);

  /// The type in which `compute` computes.
  static mlir::Type getComputedType(Tensors operands, Result kind,
                                    Number number);

  /// Sets the bytes beyond the results, of which `kept` bytes are left.
  void finish(int64_t kept) { rule.setTrace(*this, kept); }

private:
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
