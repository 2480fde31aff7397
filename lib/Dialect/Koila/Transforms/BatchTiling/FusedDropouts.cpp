//===- FusedDropouts.cpp - Dropouts that are one kernel on a GPU ----------===//
//
// Sources: aten/src/ATen/native/Dropout.cpp (is_fused_kernel_acceptable);
// aten/src/ATen/native/cuda/Dropout.cu (get_vector_size: which kernel runs, and
// in which order it goes through the elements).
//
//===----------------------------------------------------------------------===//

#include "FusedDropouts.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;

bool koila::isFusedDropout(Operation *op) {
  auto dropout = dyn_cast<DropoutOp>(op);
  return dropout && dropout.draws() && !dropout.getTied();
}

bool koila::drawsByOperands(Operation *op) {
  return isa<RandomOpInterface, BernoulliOp, BernoulliTensorOp, MultinomialOp,
             NativeDropoutOp, NormalFloatFloatOp, NormalFloatTensorOp,
             NormalTensorFloatOp, NormalTensorTensorOp, PoissonOp, RandOp,
             RandintLowOp, RandintOp, RandnOp, RandpermOp>(op);
}

BlockArgument FusedDropouts::getArgument(Value input) const {
  if (auto leaf = input.getDefiningOp<LeafOp>())
    input = leaf.getSource();
  auto argument = dyn_cast<BlockArgument>(input);
  return argument && argument.getOwner()->getParentOp() == function
             ? argument
             : BlockArgument();
}

/// The number of elements; null if it is not known.
static DimExpr count(const std::optional<TensorInfo> &info, MLIRContext *at) {
  if (!info || !info->hasRank())
    return {};
  DimExpr product = DimExpr::constant(at, 1);
  for (DimExpr dim : *info->dims) {
    if (!dim)
      return {};
    product = product * dim;
  }
  return product;
}

FusedDropouts::Source FusedDropouts::findSource(Value input) const {
  if (getArgument(input))
    return Source::Argument;
  MLIRContext *context = function->getContext();
  const std::optional<TensorInfo> &info = dims.lookup(input).tensor;
  DimExpr elements = count(info, context);
  if (!elements)
    return Source::Unknown;
  bool depends = false;
  for (DimExpr dim : *info->dims)
    dim.forEachSymbol([&](DimSymbol) { depends = true; });
  if (!depends)
    return Source::Whole;
  const Storage *entry = storage.lookup(input);
  if (!entry || entry->external || entry->allocations.empty() ||
      !info->getDenseOrder())
    return Source::Unknown;
  bool isAll = llvm::all_of(entry->allocations, [&](OpResult allocation) {
    // The backend that a GPU chooses may return a part of a wider tensor.
    bool isAttention = isa<ScaledDotProductAttentionOp>(allocation.getOwner());
    return !isAttention &&
           count(dims.lookup(allocation).tensor, context) == elements;
  });
  return isAll ? Source::New : Source::Unknown;
}
