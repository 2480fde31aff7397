//===- BackwardReplay.h - What backward formulas allocate -------*- C++ -*-===//
//
// Private to lib/KernelModels. An OpReplay that replays the backward
// formula of an operator, with the strides of what it makes: where a gradient
// comes back in other strides, a view of it may be a copy.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_BACKWARD_BACKWARDREPLAY_H
#define KOILA_KERNELMODELS_ATEN_BACKWARD_BACKWARDREPLAY_H

#include "../OpReplay.h"
#include "../Sum.h"
#include "koila/Interfaces/BackwardRule.h"

namespace koila::blas {
struct Factor;
} // namespace koila::blas

namespace koila::kernels {

/// `tensor` with these strides; none: unknown.
ConcreteTensor withStrides(ConcreteTensor tensor,
                           std::optional<llvm::SmallVector<int64_t>> strides);
/// `tensor` as a new one of channels-last strides, of four or five dims.
ConcreteTensor toChannelsLast(ConcreteTensor tensor);
/// What the sum of both is.
ConcreteTensor addStrides(const ConcreteTensor &lhs, const ConcreteTensor &rhs);
/// Tensor::transpose.
ConcreteTensor transposeDims(const ConcreteTensor &tensor, int64_t first,
                             int64_t second);
/// Tensor::expand, of which dims may be missing in front.
ConcreteTensor expandTo(ConcreteTensor tensor, llvm::ArrayRef<int64_t> dims);

/// The conjugate of a complex factor, which bmm copies whole: its bytes, and
/// then `factor` is the copy. Nothing for a real one.
int64_t resolveConjugate(BackwardRule &rule, blas::Factor &factor);

class BackwardReplay : public OpReplay {
public:
  explicit BackwardReplay(BackwardRule &rule) : OpReplay(rule), rule(rule) {}

  /// The gradient of the first result; there is one.
  const ConcreteTensor &getGradient() const { return *rule.getGradient(); }
  bool wants(unsigned operand) const { return rule.wantsOperand(operand); }
  /// An operand. Says so where its shape is unknown, and gives the gradient.
  ConcreteTensor read(unsigned operand);

  /// A new tensor, elementwise from operands that broadcast.
  MadeTensor compute(Tensors operands, Number number = Number::None,
                     Result kind = Result::Common);
  /// where(mask, gradient, 0), of a tensor for the number.
  MadeTensor mask(const ConcreteTensor &mask, const ConcreteTensor &gradient);
  /// A number as a 0-dim tensor of the type of `like`.
  MadeTensor makeNumber(const ConcreteTensor &like);
  /// Tensor::empty_like or clone(): dense strides stay.
  MadeTensor makeLike(const ConcreteTensor &tensor);
  /// Tensor::contiguous().
  MadeTensor contiguous(const ConcreteTensor &tensor);
  /// Frees what `contiguous` made of `tensor`.
  void freeContiguous(const ConcreteTensor &tensor) {
    free(getCopyBytes(tensor));
  }

  /// The last block of these bytes that was not given; one from outside if
  /// there is none.
  void free(int64_t bytes);
  void free(const MadeTensor &tensor) { OpReplay::free(tensor); }
  void free(const ConcreteTensor &tensor) { free(tensor.numBytes()); }
  /// What ends with a statement or a scope: C++ destroys the last first.
  void free(llvm::ArrayRef<MadeTensor> tensors);
  void free(std::initializer_list<MadeTensor> tensors) {
    free(llvm::ArrayRef<MadeTensor>(tensors));
  }
  void free(Tensors tensors);
  /// What the node alone has of an operand goes before the node ends.
  void freeSaved(unsigned operand) { rule.freeSaved(*this, operand); }
  /// The same of the block number `index` of those that the forward pass has
  /// kept inside.
  void freeKept(size_t index, int64_t bytes) {
    rule.freeKept(*this, bytes, index);
  }
  /// `bytes` for a moment, which may be several blocks.
  void allocateTemporary(int64_t bytes) { lump(bytes); }
  /// One block of `bytes` for a moment.
  void allocateBriefly(int64_t bytes) {
    AllocationTrace::allocateTemporary(bytes);
  }
  /// Tensor::reshape(); sets `isCopy` where the strides allow no view.
  ConcreteTensor reshape(const ConcreteTensor &tensor,
                         llvm::ArrayRef<int64_t> dims, bool &isCopy);

  /// What is left and is the gradient of an operand.
  void give(unsigned operand, MadeTensor tensor, bool isViewed = false);
  /// The same, of the last block that is as large.
  void give(unsigned operand, ConcreteTensor tensor, bool isViewed = false);
  /// A gradient of an operand of this shape, contiguous.
  void giveContiguous(unsigned operand) {
    give(operand, allocate(read(operand)));
  }
  /// Zeros for an operand, into which a kernel writes at the places of an
  /// index: half types by way of float32.
  void giveScattered(unsigned operand);
  void finish() { rule.setTrace(*this); }

private:
  /// The last block of these bytes that is there and was not given.
  Block findLast(int64_t bytes) const;

  BackwardRule &rule;
  llvm::SmallVector<Block, 2> given;
};

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_BACKWARD_BACKWARDREPLAY_H
