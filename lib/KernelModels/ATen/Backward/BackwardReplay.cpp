//===- BackwardReplay.cpp - What backward formulas allocate ---------------===//

#include "BackwardReplay.h"
#include "koila/Interfaces/Layout.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

//===----------------------------------------------------------------------===//
// Strides
//===----------------------------------------------------------------------===//

ConcreteTensor
kernels::withStrides(ConcreteTensor tensor,
                     std::optional<SmallVector<int64_t>> strides) {
  tensor.contiguous = false;
  tensor.strides = std::move(strides);
  if (!tensor.strides)
    return tensor;
  int64_t expected = 1;
  tensor.contiguous = true;
  if (tensor.numElements() == 0)
    return tensor;
  for (size_t dim = tensor.dims.size(); dim-- > 0;) {
    tensor.contiguous &=
        tensor.dims[dim] == 1 || (*tensor.strides)[dim] == expected;
    expected *= tensor.dims[dim];
  }
  return tensor;
}

ConcreteTensor kernels::transposeDims(const ConcreteTensor &tensor,
                                      int64_t first, int64_t second) {
  int64_t rank = tensor.dims.size();
  if (rank < 2 || std::max(first, second) >= rank ||
      std::min(first, second) < -rank)
    return tensor;
  first += first < 0 ? rank : 0;
  second += second < 0 ? rank : 0;
  ConcreteTensor result = tensor;
  auto strides = tensor.getStrides();
  std::swap(result.dims[first], result.dims[second]);
  if (strides)
    std::swap((*strides)[first], (*strides)[second]);
  return withStrides(std::move(result), strides);
}

ConcreteTensor kernels::expandTo(ConcreteTensor tensor,
                                 ArrayRef<int64_t> dims) {
  if (tensor.dims.size() > dims.size())
    return tensor;
  auto strides = tensor.getStrides();
  size_t missing = dims.size() - tensor.dims.size();
  if (strides) {
    strides->insert(strides->begin(), missing, 0);
    for (size_t dim = missing; dim < dims.size(); ++dim)
      if (tensor.dims[dim - missing] != dims[dim])
        (*strides)[dim] = 0;
  }
  tensor.dims.assign(dims.begin(), dims.end());
  return withStrides(std::move(tensor), strides);
}

static SmallVector<DimExpr> toExprs(ArrayRef<int64_t> numbers,
                                    MLIRContext *context) {
  return llvm::map_to_vector(numbers, [&](int64_t number) {
    return DimExpr::constant(context, number);
  });
}

static std::optional<SmallVector<int64_t>>
toNumbers(const std::optional<SmallVector<DimExpr>> &exprs) {
  if (!exprs)
    return std::nullopt;
  SmallVector<int64_t> numbers;
  for (DimExpr expr : *exprs) {
    auto number = expr.getConstant();
    if (!number)
      return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

static TensorInfo toInfo(const ConcreteTensor &tensor) {
  MLIRContext *context = tensor.elementType.getContext();
  TensorInfo info;
  info.elementType = tensor.elementType;
  info.dims = toExprs(tensor.dims, context);
  if (auto strides = tensor.getStrides())
    info.strides = toExprs(*strides, context);
  return info;
}

ConcreteTensor kernels::toChannelsLast(ConcreteTensor tensor) {
  SmallVector<int64_t> strides(tensor.dims.size());
  int64_t next = 1;
  auto lay = [&](size_t dim) {
    strides[dim] = next;
    next *= std::max<int64_t>(1, tensor.dims[dim]);
  };
  lay(1);
  for (size_t dim = tensor.dims.size(); dim-- > 2;)
    lay(dim);
  lay(0);
  return withStrides(std::move(tensor), std::move(strides));
}

ConcreteTensor kernels::addStrides(const ConcreteTensor &lhs,
                                   const ConcreteTensor &rhs) {
  if (lhs.contiguous && rhs.contiguous)
    return lhs;
  MLIRContext *context = lhs.elementType.getContext();
  return withStrides(
      lhs, toNumbers(computeElementwiseStrides({toInfo(lhs), toInfo(rhs)},
                                               toExprs(lhs.dims, context))));
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

ConcreteTensor BackwardReplay::read(unsigned operand) {
  if (auto tensor = rule.tensor(rule.getOp()->getOperand(operand)))
    return *tensor;
  rule.setInexact("the shape of an operand is unknown");
  return getGradient();
}

/// A tensor that was made with other strides.
static MadeTensor layOut(MadeTensor tensor,
                         std::optional<SmallVector<int64_t>> strides) {
  AllocationTrace::Block block = tensor.block;
  return {withStrides(std::move(tensor), std::move(strides)), block};
}

MadeTensor BackwardReplay::compute(Tensors operands, Number number,
                                   Result kind) {
  MadeTensor result = OpReplay::compute(operands, kind, number);
  if (llvm::all_of(operands, [&](const ConcreteTensor &operand) {
        return operand.contiguous && operand.dims == result.dims;
      }))
    return result;
  Type computed = getComputedType(operands, kind, number);
  auto strides = computeElementwiseStrides(
      llvm::map_to_vector(operands,
                          [&](const ConcreteTensor &operand) {
                            return rules::getCastLayout(toInfo(operand),
                                                        computed);
                          }),
      toExprs(result.dims, result.elementType.getContext()));
  return layOut(std::move(result), toNumbers(strides));
}

MadeTensor BackwardReplay::mask(const ConcreteTensor &mask,
                                const ConcreteTensor &gradient) {
  MadeTensor result = select(mask, gradient, gradient);
  // The mask is the first operand of the iterator (where_self in
  // native/TensorCompare.cpp).
  auto strides = computeElementwiseStrides(
      {toInfo(mask), toInfo(gradient)},
      toExprs(result.dims, result.elementType.getContext()));
  return layOut(std::move(result), toNumbers(strides));
}

MadeTensor BackwardReplay::makeNumber(const ConcreteTensor &like) {
  return allocate({{}, like.elementType});
}

MadeTensor BackwardReplay::makeLike(const ConcreteTensor &tensor) {
  auto strides = toNumbers(computePreservedStrides(toInfo(tensor)));
  return layOut(allocate(tensor), strides);
}

AllocationTrace::Block BackwardReplay::findLast(int64_t bytes) const {
  for (size_t index = getNumBlocks(); index-- > 0;)
    if (Block block(index); isLeft(block) && getBytes(block) == bytes &&
                            !llvm::is_contained(given, block))
      return block;
  return {};
}

void BackwardReplay::free(int64_t bytes) {
  Block block = findLast(bytes);
  block.isEmpty() ? AllocationTrace::free(bytes) : AllocationTrace::free(block);
}

void BackwardReplay::free(ArrayRef<MadeTensor> tensors) {
  for (const MadeTensor &tensor : llvm::reverse(tensors))
    free(tensor);
}

void BackwardReplay::free(Tensors tensors) {
  for (const ConcreteTensor &tensor : llvm::reverse(tensors))
    free(tensor);
}

void BackwardReplay::give(unsigned operand, MadeTensor tensor, bool isViewed) {
  given.push_back(tensor.block);
  rule.setNew(operand, tensor, isViewed, /*storageBytes=*/0, tensor.block);
}

void BackwardReplay::give(unsigned operand, ConcreteTensor tensor,
                          bool isViewed) {
  Block block = findLast(tensor.numBytes());
  give(operand, {std::move(tensor), block}, isViewed);
}

void BackwardReplay::giveScattered(unsigned operand) {
  giveContiguous(operand);
  allocateBriefly(getWideBytes(read(operand)));
}

MadeTensor BackwardReplay::contiguous(const ConcreteTensor &tensor) {
  if (tensor.contiguous)
    return {tensor, Block()};
  MadeTensor rows = allocate(tensor);
  allocateBriefly(getBlockBytes(rule, tensor));
  return rows;
}

ConcreteTensor BackwardReplay::reshape(const ConcreteTensor &tensor,
                                       ArrayRef<int64_t> dims, bool &isCopy) {
  isCopy = false;
  ConcreteTensor result = tensor;
  result.dims.assign(dims.begin(), dims.end());
  // Of strides that are not those of rows dims of one keep theirs, which BLAS
  // reads.
  if (tensor.contiguous && !tensor.strides)
    return withStrides(
        result, ConcreteTensor{result.dims, result.elementType}.getStrides());
  if (!tensor.getStrides()) {
    rule.setInexact("the strides of a gradient are unknown");
    return withStrides(result, std::nullopt);
  }
  MLIRContext *context = tensor.elementType.getContext();
  ViewStrides view = computeViewStrides(toInfo(tensor), toExprs(dims, context));
  if (view.possible == TriBool::Yes)
    return withStrides(result, toNumbers(view.strides));
  isCopy = true;
  contiguous(tensor);
  return withStrides(
      result, ConcreteTensor{result.dims, result.elementType}.getStrides());
}
