//===- Sum.cpp - What a sum holds inside ----------------------------------===//

#include "Sum.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace koila;

/// Whether the dims that are reduced make more than one when those that lie one
/// behind the other are taken together. Strides that are not known are those of
/// a contiguous tensor. Source: reorder_dimensions and coalesce_dimensions in
/// TensorIterator.cpp.
static bool reducesApart(const ConcreteTensor &input,
                         ArrayRef<bool> isReduced) {
  auto strides = input.getStrides();
  SmallVector<std::pair<int64_t, int64_t>> dims;
  int64_t packed = 1;
  for (size_t dim = input.dims.size(); dim-- > 0;) {
    int64_t extent = input.dims[dim];
    if (isReduced[dim] && extent != 1)
      dims.push_back({strides ? (*strides)[dim] : packed, extent});
    packed *= extent;
  }
  llvm::stable_sort(dims, llvm::less_first());
  for (size_t index = 1; index < dims.size(); ++index)
    if (dims[index - 1].first * dims[index - 1].second != dims[index].first)
      return true;
  return false;
}

int64_t kernels::getSumBytes(const WorkspaceRule &rule,
                             const ConcreteTensor &input,
                             const ConcreteTensor &result,
                             ArrayRef<bool> isReduced) {
  if (!isHalf(result.elementType) || input.numElements() == 0 ||
      !reducesApart(input, isReduced))
    return getPartialBytes(rule, input, result);
  // By way of copies. Source: should_use_acc_buffer in native/ReduceOps.cpp.
  ConcreteTensor sum = result;
  sum.elementType = Float32Type::get(result.elementType.getContext());
  return getCastBytes(input, sum.elementType) + sum.numBytes() +
         getPartialBytes(rule, input, sum);
}
