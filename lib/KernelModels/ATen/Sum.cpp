//===- Sum.cpp - What a sum holds inside ----------------------------------===//

#include "Sum.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace koila;

/// Whether the dims that are reduced make more than one when those that lie one
/// behind the other are taken together; no answer where that depends on strides
/// that are not known. Source: reorder_dimensions and coalesce_dimensions in
/// TensorIterator.cpp.
static std::optional<bool> reducesApart(const ConcreteTensor &input,
                                        ArrayRef<bool> isReduced) {
  auto strides = input.getStrides();
  SmallVector<std::pair<int64_t, int64_t>> dims;
  for (auto [dim, extent] : llvm::enumerate(input.dims))
    if (isReduced[dim] && extent != 1)
      dims.push_back({strides ? (*strides)[dim] : 0, extent});
  if (dims.size() > 1 && !strides)
    return std::nullopt;
  llvm::stable_sort(dims, llvm::less_first());
  for (size_t index = 1; index < dims.size(); ++index)
    if (dims[index - 1].first * dims[index - 1].second != dims[index].first)
      return true;
  return false;
}

int64_t kernels::getSumBytes(WorkspaceRule &rule, const ConcreteTensor &input,
                             const ConcreteTensor &result,
                             ArrayRef<bool> isReduced) {
  bool mayCopy = isHalf(result.elementType) && input.numElements() != 0;
  auto isApart = mayCopy ? reducesApart(input, isReduced) : false;
  if (!isApart)
    rule.setInexact("a sum over dims of which the strides are unknown");
  if (!isApart || !*isApart)
    return getPartialBytes(rule, input, result);
  // By way of copies. Source: should_use_acc_buffer in native/ReduceOps.cpp.
  ConcreteTensor sum = result;
  sum.elementType = Float32Type::get(result.elementType.getContext());
  return getCastBytes(input, sum.elementType) + sum.numBytes() +
         getPartialBytes(rule, input, sum);
}
