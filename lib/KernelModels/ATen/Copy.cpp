//===- Copy.cpp - What copies and casts allocate --------------------------===//

#include "../WorkspaceRules.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace koila;

/// Whether `value` is all of the storage that it lives in, as far as operations
/// tell: an argument is, and what makes a tensor of its own.
static bool fillsStorage(Value value) {
  while (value.getDefiningOp()) {
    auto fact = kernels::getStorageFact(value);
    if (!fact || fact->kind != StorageFact::Kind::Tied)
      return fact && fact->kind == StorageFact::Kind::New && fact->exact;
    value = fact->operand;
  }
  return isa<FunctionOpInterface>(
      cast<BlockArgument>(value).getOwner()->getParentOp());
}

void rules::describeCopyWorkspace(WorkspaceRule &rule, Value from) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  auto source = rule.tensor(from);
  if (!result || !source)
    return rule.setInexact("a shape of the operator is unknown");
  // Not in place it starts as a copy of the storage of `self`, and of all that
  // is in there besides. Source: clone_preserve_strides in TensorShape.cpp.
  if (auto op = dyn_cast<CopyOp>(rule.getOp()); op && !op.getTied())
    if (auto self = rule.tensor(op.getSelf());
        !self || !self->contiguous || !fillsStorage(op.getSelf()))
      return rule.setInexact("a copy of a strided tensor, or of a part of one, "
                             "is as large as the storage around it");
  if (isa<ComplexType>(result->elementType) && !result->contiguous &&
      source->elementType != result->elementType)
    return rule.setInexact("a cast into complex numbers that are not "
                           "contiguous");
  // Only transposed matrices are copied through a block.
  // Source: copy_same_type_transpose_ in native/Copy.cpp.
  if (source->dims.size() != 2 || source->contiguous ||
      source->elementType != result->elementType)
    return;
  if (source->strides) {
    if (result->contiguous && result->dims == source->dims)
      rule.setTransient(kernels::getBlockBytes(*source));
    return;
  }
  constexpr int64_t kMost = 120 * 120;
  rule.setTransient(kMost * getElementBytes(result->elementType));
  rule.setBound("a matrix that is perhaps copied by transposed blocks");
}

void rules::describeConjugateWorkspace(WorkspaceRule &rule) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result || isa<ComplexType>(result->elementType))
    rule.setInexact("PyTorch conjugates where the result is read, which takes "
                    "a copy there");
}
