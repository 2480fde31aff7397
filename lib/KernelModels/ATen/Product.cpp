//===- Product.cpp - What a product holds inside --------------------------===//
//
// Sources: native/LinearAlgebra.cpp, native/Linear.cpp, native/Blas.cpp.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "OpReplay.h"
#include "ProductKernels.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"

using namespace mlir;
using namespace koila;
using namespace koila::blas;

const ProductKernels *blas::getKernels(const WorkspaceRule &rule) {
  const LeafKernels *leaves = rule.getTarget().leaves;
  return leaves ? leaves->getProducts() : nullptr;
}

/// Held while a vector is added to each row of a product; nothing if none is.
static AllocationTrace::Block allocateForBias(AllocationTrace &trace,
                                              const WorkspaceRule &rule,
                                              const Factor &lhs,
                                              const Factor &rhs, bool isAdded) {
  const ProductKernels *kernels = isAdded ? getKernels(rule) : nullptr;
  return trace.allocate(kernels ? kernels->getBiasBytes(rule, lhs, rhs) : 0);
}

/// An empty inner dim: what is added is scaled by a 0-dim tensor, unless the
/// result is empty as well (measured).
static void describeScale(WorkspaceRule &rule, Type type,
                          const ConcreteTensor &result) {
  if (result.numElements() == 0)
    return;
  AllocationTrace trace;
  trace.allocate(8);
  if (isa<FloatType>(type))
    trace.allocate(getElementBytes(type));
  rule.setTrace(std::move(trace), 0);
}

/// The first factor of linear. With a bias, a contiguous one is viewed as a
/// matrix, whatever the strides of its dims of one are. Source:
/// _flatten_nd_linear in native/Linear.cpp.
static std::optional<Factor> getLinearInput(const WorkspaceRule &rule,
                                            LinearOp op) {
  auto input = getFactor(rule, op.getInput());
  auto tensor = rule.tensor(op.getInput());
  if (!input || !op.getBias() || !tensor->contiguous || input->getRank() <= 2)
    return input;
  int64_t stride = 1;
  for (size_t dim = input->dims.size(); dim-- > 0;) {
    input->strides[dim] = stride;
    stride *= input->dims[dim];
  }
  return input;
}

static void describeLinear(WorkspaceRule &rule) {
  auto op = cast<LinearOp>(rule.getOp());
  auto input = getLinearInput(rule, op),
       weight = getFactor(rule, op.getWeight());
  auto result = rule.tensor(op.getResult());
  if (!checkFactors(rule, input, weight) || !result)
    return;
  bool isMatrix = input->getRank() == 2 && weight->getRank() == 2;
  // With a bias, what is a matrix or three dims goes to addmm.
  if (op.getBias() && input->getRank() > 1 && input->dims.back() == 0) {
    if (input->getRank() <= 3)
      describeScale(rule, input->type, *result);
    return;
  }
  // Of the transposed weight; a bias is added in place.
  Factor right = weight->getRank() == 2 ? transpose(*weight) : *weight;
  bool isAddmm = op.getBias() && weight->getRank() == 2 &&
                 (isMatrix || rule.tensor(op.getInput())->contiguous);
  AllocationTrace trace;
  AllocationTrace::Block own =
      allocateForBias(trace, rule, *input, right, isAddmm);
  if (isMatrix)
    allocateMm(trace, rule, *input, right);
  else
    allocateMatmul(trace, rule, *input, right);
  trace.free(own);
  rule.setTrace(std::move(trace));
}

/// The product of the first two operands.
static void describePair(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto lhs = getFactor(rule, op->getOperand(0)),
       rhs = getFactor(rule, op->getOperand(1));
  if (!checkFactors(rule, lhs, rhs))
    return;
  AllocationTrace trace;
  allocateMatmul(trace, rule, *lhs, *rhs);
  rule.setTrace(std::move(trace));
}

static void describeBmm(WorkspaceRule &rule) {
  auto op = cast<BmmOp>(rule.getOp());
  auto lhs = getFactor(rule, op.getSelf()), rhs = getFactor(rule, op.getMat2());
  if (!checkFactors(rule, lhs, rhs))
    return;
  AllocationTrace trace;
  allocateBmm(trace, rule, *lhs, *rhs, Scale::One);
  rule.setTrace(std::move(trace));
}

static void describeBaddbmm(WorkspaceRule &rule) {
  auto op = cast<BaddbmmOp>(rule.getOp());
  auto lhs = getFactor(rule, op.getBatch1()),
       rhs = getFactor(rule, op.getBatch2());
  if (!checkFactors(rule, lhs, rhs))
    return;
  AllocationTrace trace;
  allocateBmm(trace, rule, *lhs, *rhs, getScale(op.getAlphaAttr()));
  rule.setTrace(std::move(trace));
  if (lhs->dims[2] == 0)
    rule.setInexact("nothing is added to what a number scales");
}

static void describeAddmv(WorkspaceRule &rule) {
  auto op = cast<AddmvOp>(rule.getOp());
  auto result = rule.tensor(op.getResult());
  auto vector = rule.tensor(op.getVec());
  if (!result || !vector || result->numElements() == 0 ||
      vector->numElements() == 0)
    return rule.setInexact("addmv of nothing");
  auto mat = getFactor(rule, op.getMat()), vec = getFactor(rule, op.getVec());
  if (!checkFactors(rule, mat, vec))
    return;
  AllocationTrace trace;
  allocateMv(trace, rule, *mat, *vec, getScale(op.getAlphaAttr()));
  rule.setTrace(std::move(trace));
}

static void describeDot(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto lhs = getFactor(rule, op->getOperand(0)),
       rhs = getFactor(rule, op->getOperand(1));
  // Of complex numbers both are dot products of BLAS.
  if (!lhs || !rhs)
    return;
  AllocationTrace trace;
  allocateDot(trace, rule, *lhs, *rhs);
  rule.setTrace(std::move(trace));
}

static void describeAddmm(WorkspaceRule &rule) {
  auto op = cast<AddmmOp>(rule.getOp());
  auto lhs = getFactor(rule, op.getMat1()), rhs = getFactor(rule, op.getMat2());
  auto result = rule.tensor(op.getResult());
  if (!checkFactors(rule, lhs, rhs) || !result)
    return;
  if (lhs->dims[1] == 0 && !isa<FloatType>(lhs->type))
    return rule.setInexact("integers to which nothing is added");
  // A sum that nothing is kept of is filled with zeros.
  if (lhs->dims[1] == 0 && getScale(op.getBetaAttr()) == Scale::Zero)
    return;
  if (lhs->dims[1] == 0)
    return describeScale(rule, lhs->type, *result);
  // What is added becomes the result first.
  auto self = rule.tensor(op.getSelf());
  bool isCopied = self && self->dims == result->dims;
  bool isVector = self && self->dims.size() == 1 && self->contiguous &&
                  self->dims[0] == result->dims[1] &&
                  getScale(op.getBetaAttr()) == Scale::One;
  AllocationTrace trace;
  trace.allocateTemporary(isCopied ? kernels::getBlockBytes(rule, *self) : 0);
  AllocationTrace::Block own =
      allocateForBias(trace, rule, *lhs, *rhs, isVector);
  allocateMm(trace, rule, *lhs, *rhs, getScale(op.getAlphaAttr()));
  trace.free(own);
  rule.setTrace(std::move(trace));
}

/// Tensor::permute and reshape to a matrix of `rows` dims and all others; a
/// copy stays in `trace`.
static Factor makeMatrix(AllocationTrace &trace, const Factor &factor,
                         ArrayRef<int64_t> rows, ArrayRef<int64_t> columns) {
  Factor matrix{{}, {}, factor.type};
  bool isView = true;
  for (ArrayRef<int64_t> group : {rows, columns}) {
    SmallVector<int64_t> extents, strides;
    int64_t extent = 1, stride = 1;
    for (int64_t dim : group) {
      extents.push_back(factor.dims[dim]);
      strides.push_back(factor.strides[dim]);
      extent *= factor.dims[dim];
      if (factor.dims[dim] != 1)
        stride = factor.strides[dim];
    }
    isView &= isOneDim(extents, strides);
    matrix.dims.push_back(extent);
    matrix.strides.push_back(stride);
  }
  if (!isView) {
    matrix.strides = {matrix.dims[1], 1};
    trace.allocate(factor.numBytes());
  }
  return matrix;
}

/// The product over dims of both. Source: tensordot in native/Linear.cpp.
static void contract(WorkspaceRule &rule, const std::optional<Factor> &lhs,
                     const std::optional<Factor> &rhs,
                     ArrayRef<int64_t> leftDims, ArrayRef<int64_t> rightDims) {
  if (!checkFactors(rule, lhs, rhs))
    return;
  auto split = [](const Factor &factor, ArrayRef<int64_t> dims,
                  SmallVectorImpl<int64_t> &summed,
                  SmallVectorImpl<int64_t> &free) {
    int64_t rank = factor.getRank();
    for (int64_t dim : dims)
      summed.push_back(dim < 0 ? dim + rank : dim);
    for (int64_t dim = 0; dim < rank; ++dim)
      if (!llvm::is_contained(summed, dim))
        free.push_back(dim);
  };
  SmallVector<int64_t> leftSummed, leftFree, rightSummed, rightFree;
  split(*lhs, leftDims, leftSummed, leftFree);
  split(*rhs, rightDims, rightSummed, rightFree);
  for (auto [left, right] : llvm::zip(leftSummed, rightSummed))
    if (lhs->dims[left] == 1 || rhs->dims[right] == 1)
      return rule.setInexact("tensordot over a dim of one element");
  if (lhs->numBytes() == 0 || rhs->numBytes() == 0)
    return rule.setInexact("tensordot of nothing");
  AllocationTrace trace;
  Factor left = makeMatrix(trace, *lhs, leftFree, leftSummed);
  Factor right = makeMatrix(trace, *rhs, rightSummed, rightFree);
  // Of a dim of one element the stride is not what is read.
  if (llvm::is_contained(left.dims, 1) || llvm::is_contained(right.dims, 1))
    return rule.setInexact("tensordot of vectors");
  int64_t result =
      Factor{{left.dims[0], right.dims[1]}, {}, left.type}.numBytes();
  trace.allocate(result);
  allocateMm(trace, rule, left, right);
  rule.setTrace(std::move(trace), result);
}

static void describeTensordot(WorkspaceRule &rule) {
  auto op = cast<TensordotOp>(rule.getOp());
  contract(rule, getFactor(rule, op.getSelf()), getFactor(rule, op.getOther()),
           op.getDimsSelf(), op.getDimsOther());
}

/// tensordot over the last dims, but of one number a product with it.
/// Source: inner in native/LinearAlgebra.cpp.
static void describeInner(WorkspaceRule &rule) {
  auto op = cast<InnerOp>(rule.getOp());
  auto lhs = getFactor(rule, op.getSelf()),
       rhs = getFactor(rule, op.getOther());
  bool isNumber = lhs && rhs && (lhs->dims.empty() || rhs->dims.empty());
  if (!isNumber)
    return contract(rule, lhs, rhs, /*leftDims=*/-1, /*rightDims=*/-1);
  if (lhs->type != rhs->type)
    rule.setInexact("inner of numbers of two types");
}

/// The products are added to the result, one after the other.
/// Source: addbmm_impl_ in native/LinearAlgebra.cpp.
static void describeAddbmm(WorkspaceRule &rule) {
  auto op = cast<AddbmmOp>(rule.getOp());
  auto self = rule.tensor(op.getSelf()), result = rule.tensor(op.getResult());
  auto lhs = getFactor(rule, op.getBatch1()),
       rhs = getFactor(rule, op.getBatch2());
  if (!checkFactors(rule, lhs, rhs) || !self || !result)
    return;
  // Of more matrices the list would be too long.
  constexpr int64_t kMost = 1 << 12;
  int64_t matrices = lhs->dims.front();
  if (matrices == 0 || matrices > kMost || lhs->dims.back() == 0)
    return rule.setInexact("addbmm of nothing, or of very many matrices");
  auto getMatrix = [](Factor factor) {
    factor.dims.erase(factor.dims.begin());
    factor.strides.erase(factor.strides.begin());
    return factor;
  };
  // What is added becomes the result first.
  bool isCopied = !rules::isInPlace(op) && self->dims == result->dims &&
                  getScale(op.getBetaAttr()) != Scale::Zero;
  AllocationTrace trace;
  trace.allocateTemporary(isCopied ? kernels::getBlockBytes(*self) : 0);
  for (int64_t matrix = 0; matrix < matrices; ++matrix)
    allocateMm(trace, rule, getMatrix(*lhs), getMatrix(*rhs),
               getScale(op.getAlphaAttr()));
  rule.setTrace(std::move(trace));
}

/// Of three matrices the two come first that make the fewer products.
/// Source: multi_dot_impl in native/LinearAlgebra.cpp.
static void describeMultiDot(WorkspaceRule &rule) {
  SmallVector<Factor> factors;
  for (Value value : rule.getOp()->getOperands()) {
    auto factor = getFactor(rule, value);
    if (!checkFactors(rule, factor, factor))
      return;
    factors.push_back(*factor);
  }
  auto isMatrix = [](const Factor &factor) {
    return factor.getRank() == 2 && factor.numBytes() > 0;
  };
  if (factors.size() > 3 || !llvm::all_of(factors, isMatrix))
    return rule.setInexact("a product of more than three matrices, of vectors "
                           "or of nothing");
  AllocationTrace trace;
  if (factors.size() == 2) {
    allocateMatmul(trace, rule, factors[0], factors[1]);
    return rule.setTrace(std::move(trace));
  }
  int64_t rows = factors[0].dims[0], columns = factors[2].dims[1];
  auto [left, right] = std::pair(factors[1].dims[0], factors[1].dims[1]);
  bool isRightFirst =
      rows * right * (left + columns) > left * columns * (rows + right);
  size_t first = isRightFirst ? 1 : 0;
  Factor pair{{factors[first].dims[0], factors[first + 1].dims[1]},
              {factors[first + 1].dims[1], 1},
              factors[first].type};
  AllocationTrace::Block made =
      allocateMatmul(trace, rule, factors[first], factors[first + 1]).result;
  if (isRightFirst)
    allocateMatmul(trace, rule, factors[0], pair);
  else
    allocateMatmul(trace, rule, pair, factors[2]);
  trace.free(made);
  rule.setTrace(std::move(trace));
}

/// The features of each result are added up by themselves: by the first input,
/// then by the second. Source: bilinear and _trilinear in native/Linear.cpp.
static void describeBilinear(WorkspaceRule &rule) {
  auto op = cast<BilinearOp>(rule.getOp());
  auto tensors = kernels::getRealTensors(
      rule, {op.getInput1(), op.getInput2(), op.getWeight()});
  auto result = rule.tensor(op.getResult());
  if (!tensors)
    return;
  bool isPlain = llvm::all_of(*tensors, [](const ConcreteTensor &tensor) {
    return tensor.contiguous && kernels::isPlain(tensor.elementType);
  });
  if (!isPlain || !result || result->numElements() == 0)
    return rule.setInexact("bilinear of strided or empty tensors, or of "
                           "another type than float32 and float64");
  ConcreteTensor rows = *result;
  rows.dims.pop_back();
  AllocationTrace trace;
  trace.allocate(result->numBytes());
  // Of more features the list would be too long.
  constexpr int64_t kMost = 1 << 12;
  int64_t features = result->dims.back();
  for (int64_t feature = 0; feature < std::min(features, kMost); ++feature) {
    auto product = trace.allocate(rows.numBytes() * (*tensors)[1].dims.back());
    auto sum = trace.allocate(rows.numBytes());
    trace.free(product);
    trace.free(sum);
  }
  // The sum with a bias is a new tensor.
  if (op.getBias())
    trace.allocate(result->numBytes());
  if (features > kMost)
    return rule.setTransient(trace.getPeak() - result->numBytes());
  rule.setTrace(std::move(trace), result->numBytes());
}

/// The product of views that broadcast.
static void describeKron(WorkspaceRule &rule) {
  auto op = cast<KronOp>(rule.getOp());
  auto factors = kernels::getRealTensors(rule, {op.getSelf(), op.getOther()});
  auto result = rule.tensor(op.getResult());
  if (!factors || !result)
    return rule.setInexact("a factor of kron is unknown or complex");
  AllocationTrace trace;
  for (const ConcreteTensor &factor : *factors)
    trace.allocate(kernels::getCastBytes(factor, result->elementType));
  trace.allocate(result->numBytes());
  rule.setTrace(std::move(trace), result->numBytes());
}

void blas::saveFactors(SavedRule &rule, Value first,
                       const MatmulCopies &copies) {
  // Of a product of a tensor with itself the left one comes first.
  bool isLeftSaved = false;
  saveDifferentiated(rule, [&](Value factor) {
    bool isLeft = factor == first && !std::exchange(isLeftSaved, true);
    return isLeft ? copies.left : copies.right;
  });
}

static void saveProduct(SavedRule &rule) {
  Operation *op = rule.getOp();
  Value first = op->getOperand(0), second = op->getOperand(1);
  auto linear = dyn_cast<LinearOp>(op);
  auto lhs = linear ? getLinearInput(rule, linear) : getFactor(rule, first);
  auto rhs = getFactor(rule, second);
  if (!checkFactors(rule, lhs, rhs))
    return;
  MatmulCopies copies;
  if (!linear)
    copies = getMatmulCopies(rule, *lhs, *rhs);
  else if (lhs->getRank() != 2 || rhs->getRank() != 2)
    copies = getMatmulCopies(rule, *lhs,
                             rhs->getRank() == 2 ? transpose(*rhs) : *rhs);
  saveFactors(rule, first, copies);
  // _flatten_nd_linear returns a view of what addmm makes of the rows.
  if (linear)
    if (auto input = rule.tensor(first))
      if (linear.getBias() && lhs->getRank() != 2 && input->contiguous)
        rule.setViewed();
}

void kernels::addProductModels(KernelLibrary &library) {
  library.add<AddbmmOp>({.forward = describeAddbmm});
  library.add<AddmmOp>({.forward = describeAddmm});
  library.add<AddmvOp>({.forward = describeAddmv});
  library.add<AddrOp, CrossOp, GerOp, LinalgCrossOp, OuterOp>(
      {.forward = allocateNothing});
  library.add<BaddbmmOp>({.forward = describeBaddbmm});
  library.add<BilinearOp>({.forward = describeBilinear});
  library.add<BmmOp>({.forward = describeBmm});
  library.add<DotOp, VdotOp>({.forward = describeDot});
  library.add<EinsumOp>(
      {rules::describeEinsumWorkspace, rules::describeEinsumSaved});
  library.add<InnerOp>({.forward = describeInner});
  library.add<KronOp>({.forward = describeKron});
  library.add<LinalgMatmulOp, MatmulOp>({describePair, saveProduct});
  library.add<LinalgMultiDotOp>({.forward = describeMultiDot});
  library.add<LinearOp>({describeLinear, saveProduct});
  library.add<MmOp, MvOp>({.forward = describePair});
  library.add<TensordotOp>({.forward = describeTensordot});
}
