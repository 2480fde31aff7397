//===- EinsumSteps.h - The products of einsum -------------------*- C++ -*-===//
//
// Private to lib/KernelModels. einsum multiplies its operands two at a time,
// from the left to the right; its gradients go the same way back. Sources:
// einsum and sumproduct_pair in native/Linear.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_EINSUMSTEPS_H
#define KOILA_KERNELMODELS_ATEN_EINSUMSTEPS_H

#include "../ATenCPU/GemmOperandCopies.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include <optional>
#include <vector>

namespace koila::einsum {

using blas::Factor;

/// Dims that are not summed, by the factors that have them.
struct Groups {
  llvm::SmallVector<int64_t> both, onlyLeft, onlyRight;
  /// Whether the factors are exchanged, and so are these.
  bool isSwapped = false;
};

/// The product of two operands: what it copies, the factors of three dims that
/// it multiplies, none where it is elementwise, and what comes of it.
struct PairProduct {
  blas::MatmulCopies copies;
  /// Of the operands as they are multiplied: copies in rows, or casts.
  int64_t leftCopy = 0, rightCopy = 0;
  /// Whether the operand on the right is the first factor.
  bool isSwapped = false;
  Factor left, right;
  Factor result;
};

/// The operands, with dims in one order: those of the result, then the summed.
struct Operands {
  llvm::SmallVector<Factor> factors;
  int64_t resultRank = 0;
};

/// What is summed of the product of two operands: the dims of which no operand
/// is left. What only one of both has is summed before, into a new tensor.
struct Sums {
  llvm::SmallVector<int64_t> dims;
  int64_t left = 0, right = 0;
};

/// One product of a chain.
struct Step {
  Factor left, right;
  Sums sums;
  PairProduct product;
  bool isLeftTrained = false, isRightTrained = false;
  /// What autograd keeps in the place of operands, for the gradient of the
  /// other factor.
  AllocationTrace::Block keptLeft = {}, keptRight = {};
};

/// What a product has saved: an operand, if no block is in its place.
struct SavedFactor {
  AllocationTrace::Block block;
  unsigned operand;
};

Groups getGroups(const Factor &left, const Factor &right,
                 llvm::ArrayRef<int64_t> sums);
/// The labels of the result, then those that are summed, in their order.
llvm::SmallVector<int> getOrder(const rules::Labels &labels);
/// None where a step is not known, and then the rule says so.
std::optional<Operands> readOperands(WorkspaceRule &rule);
/// From the left to the right, two operands at a time. None where a step is not
/// known, and then the rule says so.
std::optional<std::vector<Step>> getSteps(WorkspaceRule &rule,
                                          const Operands &operands);
/// The products, the last of which is left, and what autograd keeps of them.
void writeChain(AllocationTrace &trace, WorkspaceRule &rule,
                llvm::MutableArrayRef<Step> steps);
/// In the order in which they go: bmm and mul let the second factor go first.
llvm::SmallVector<SavedFactor, 2> listSaved(const Step &step, unsigned index);

} // namespace koila::einsum

#endif // KOILA_KERNELMODELS_ATEN_EINSUMSTEPS_H
