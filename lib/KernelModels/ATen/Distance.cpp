//===- Distance.cpp - What distances hold inside --------------------------===//
//
// Source: native/Distance.cpp.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "../Models.h"
#include "Backward/AutogradReplay.h"
#include "Backward/BackwardReplay.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Result = AutogradReplay::Result;

using Tensors = ArrayRef<ConcreteTensor>;

//===----------------------------------------------------------------------===//
// pairwise_distance, cosine_similarity
//===----------------------------------------------------------------------===//

static void describePairwise(WorkspaceRule &rule, SavedRule *saved,
                             BackwardRule *backward) {
  auto op = cast<PairwiseDistanceOp>(rule.getOp());
  AutogradReplay steps(rule, saved, backward);
  auto terms = readReals(steps, rule, op->getOperands());
  if (!terms)
    return;
  if (op.getP().isZero())
    return rule.setInexact("a norm that counts elements");
  steps.finish(
      steps.computeDistance(terms->front(), terms->back(), op.getKeepdim()));
}

/// Both operands are divided by their norms, multiplied and summed.
static void describeCosine(WorkspaceRule &rule, SavedRule *saved,
                           BackwardRule *backward) {
  auto op = cast<CosineSimilarityOp>(rule.getOp());
  AutogradReplay steps(rule, saved, backward);
  auto terms = readReals(steps, rule, op->getOperands());
  if (!terms)
    return;
  ConcreteTensor common =
      OpReplay(rule).compute({terms->front(), terms->back()});
  if (common.numElements() == 0)
    return rule.setInexact("similarities of nothing");
  // Integers are cast, then both are expanded.
  SmallVector<Term, 2> operands, norms;
  for (Term operand : *terms) {
    if (isa<IntegerType>(operand.elementType)) {
      operand.elementType = common.elementType;
      operand = steps.allocate(operand);
    }
    operands.push_back(AutogradReplay::view(operand, common.dims));
  }
  // A clone is clamped where no gradient is recorded.
  for (const Term &operand : operands) {
    Term norm = steps.allocate(dropDim(operand, op.getDim(), /*keepdim=*/true));
    steps.record("linalg_vector_norm", operand, norm, op.getDim());
    norms.push_back(steps.allocate(norm));
    steps.record("clone", norm, norms.back());
    steps.free(norm);
  }
  // The least norm is a 0-dim tensor, of float32 for half types (measured),
  // which both norms cast.
  Type type = common.elementType;
  ConcreteTensor number =
      getNumber(isHalf(type) ? Float32Type::get(type.getContext()) : type);
  AllocationTrace::Block least =
      steps.AllocationTrace::allocate(number.numBytes());
  for (size_t norm = 0; norm < norms.size(); ++norm)
    steps.allocateTemporary(getCastBytes(number, type));
  Term right = steps.compute("div.Tensor", {operands[1], norms[1]});
  Term left = steps.compute("div.Tensor", {operands[0], norms[0]});
  Term product = steps.compute("mul.Tensor", {left, right});
  Term result = steps.sum(product, op.getDim());
  steps.free({product, left, right});
  steps.AllocationTrace::free(least);
  steps.finish(result);
  // Which of two types is cast on the way is not told block by block.
  if (llvm::any_of(*terms,
                   [&](const Term &term) { return term.elementType != type; }))
    backward ? backward->setPeak(backward->getPeak())
             : rule.setTransient(rule.getTransient());
}

//===----------------------------------------------------------------------===//
// cdist
//===----------------------------------------------------------------------===//

/// Tensor::expand(leading dims) of rows.
static ConcreteTensor expandRows(ConcreteTensor tensor,
                                 ArrayRef<int64_t> leading) {
  SmallVector<int64_t> dims(leading);
  llvm::append_range(dims, ArrayRef(tensor.dims).take_back(2));
  tensor.dims = dims;
  return tensor;
}

/// The same, made contiguous.
static AllocationTrace::Block copyExpanded(OpReplay &steps,
                                           const ConcreteTensor &tensor,
                                           ArrayRef<int64_t> leading) {
  ConcreteTensor expanded = expandRows(tensor, leading);
  if (expanded.numElements() == tensor.numElements())
    return allocateContiguous(steps, tensor);
  return steps.allocate(expanded).block;
}

/// Both factors of |x|^2 - 2xy + |y|^2 as a product of matrices with two more
/// columns: {-2x, norm, ones} and {y, ones, norm}, each of which goes from the
/// last to the first. Source: _euclidean_dist.
static SmallVector<MadeTensor, 2>
makeFactors(OpReplay &steps, ConcreteTensor lhs, ConcreteTensor rhs) {
  auto makeNorm = [&](const ConcreteTensor &tensor) {
    MadeTensor squares = steps.allocate(tensor);
    MadeTensor norm = steps.sum(squares, -1, /*keepdim=*/true);
    steps.free(squares);
    return norm;
  };
  MadeTensor leftNorm = makeNorm(lhs), leftOnes = steps.allocate(leftNorm);
  MadeTensor rightNorm = makeNorm(rhs), rightOnes = steps.allocate(rightNorm);
  MadeTensor scaled =
      steps.compute(lhs, Result::Common, OpReplay::Number::Integer);
  lhs.dims.back() += 2;
  rhs.dims.back() += 2;
  MadeTensor left = steps.allocate(lhs);
  steps.free({leftOnes, leftNorm, scaled});
  MadeTensor right = steps.allocate(rhs);
  steps.free({rightNorm, rightOnes});
  return {left, right};
}

/// Whether distances are those of a product. Source: cdist_impl.
static bool isProductOfRows(Tensors of, std::optional<int64_t> mode,
                            const APFloat &p) {
  constexpr int64_t kManyRows = 25;
  return p.isExactlyValue(2.0) && mode != 2 &&
         (mode == 1 || of[0].dims.rbegin()[1] > kManyRows ||
          of[1].dims.rbegin()[1] > kManyRows);
}

template <typename OpT>
static void describeCdist(WorkspaceRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  auto tensors = getRealTensors(rule, op->getOperands(), /*needsStrides=*/true);
  if (!tensors)
    return;
  const ConcreteTensor &lhs = (*tensors)[0], &rhs = (*tensors)[1];
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result || lhs.dims.size() < 2 || rhs.dims.size() < 2)
    return rule.setInexact("a shape of the operator is unknown");
  ArrayRef<int64_t> leading = ArrayRef(result->dims).drop_back(2);
  int64_t rightRows = rhs.dims.rbegin()[1];
  OpReplay steps(rule);
  AllocationTrace::Block left = copyExpanded(steps, lhs, leading);
  AllocationTrace::Block right = copyExpanded(steps, rhs, leading);
  SmallVector<MadeTensor, 2> factors;
  if (isProductOfRows(*tensors, op.getComputeMode(), op.getP()) &&
      result->numElements() > 0 && lhs.dims.back() > 0) {
    ConcreteTensor first = *result, second = *result;
    first.dims.back() = second.dims.back() = lhs.dims.back();
    second.dims.rbegin()[1] = rightRows;
    factors = makeFactors(steps, first, second);
  }
  steps.allocate(*result);
  for (const MadeTensor &factor : llvm::reverse(factors))
    steps.free(factor);
  for (AllocationTrace::Block copy : {right, left})
    steps.AllocationTrace::free(copy);
  steps.finish(result->numBytes());
  // The nodes that sum what was expanded are not told apart.
  if (llvm::any_of(*tensors, [&](const ConcreteTensor &tensor) {
        return expandRows(tensor, leading).dims != tensor.dims;
      }))
    rule.setTransient(rule.getTransient());
}

/// Of the rows that are read in the place of an operand; 0 if it has them.
static int64_t getRowBytes(const WorkspaceRule &rule, Value operand) {
  auto tensor = rule.tensor(operand);
  return tensor && !tensor->contiguous ? tensor->numBytes() : 0;
}

/// Distances of products save the operands as they are expanded and copied; of
/// a single pair of matrices, the operands.
static void saveCdist(SavedRule &rule) {
  auto op = cast<CdistOp>(rule.getOp());
  auto tensors = getRealTensors(rule, {op.getX1(), op.getX2()});
  auto result = rule.tensor(op.getResult());
  if (!tensors || !result || tensors->front().dims.size() < 2 ||
      tensors->back().dims.size() < 2)
    return rule.setInexact("a shape of the operator is unknown");
  int64_t pairs = 1;
  for (int64_t extent : ArrayRef(result->dims).drop_back(2))
    pairs *= extent;
  bool isProduct = isProductOfRows(*tensors, op.getComputeMode(), op.getP()) &&
                   tensors->front().numElements() > 0 &&
                   tensors->back().numElements() > 0;
  saveDifferentiated(rule, [&](Value value) -> int64_t {
    if (value == op.getResult() || !isProduct || pairs <= 1)
      return 0;
    const ConcreteTensor &tensor =
        value == op.getX1() ? tensors->front() : tensors->back();
    int64_t matrix = tensor.dims.rbegin()[0] * tensor.dims.rbegin()[1];
    bool isExpanded = tensor.numElements() != pairs * matrix;
    return isExpanded ? pairs * matrix * getElementBytes(tensor.elementType)
                      : getRowBytes(rule, value);
  });
}

/// ratio = grad / distances, 0 where they are; then for both operands
/// x1 * ratio.sum(-1) - ratio @ x2, of which nothing goes before the end.
/// Source: _euclidean_dist_backward in FunctionsManual.cpp.
static void describeProductsBackward(BackwardRule &rule, BackwardReplay &steps,
                                     const ConcreteTensor &distances) {
  ConcreteTensor operands[] = {steps.read(0), steps.read(1)};
  int64_t rows = distances.dims.rbegin()[1], columns = distances.dims.back();
  int64_t pairs = distances.numElements() / (rows * columns);
  SmallVector<int64_t> leading{pairs};
  // A single pair is taken as it is.
  if (pairs == 1)
    leading.assign(distances.dims.begin(), distances.dims.end() - 2);
  auto lay = [&](ConcreteTensor tensor, int64_t height, int64_t width) {
    tensor.dims = leading;
    tensor.dims.append({height, width});
    tensor.contiguous = true;
    tensor.strides.reset();
    return tensor;
  };
  ConcreteTensor whole = lay(distances, rows, columns);
  bool isCopied = false;
  ConcreteTensor gradient =
      steps.reshape(steps.getGradient(), whole.dims, isCopied);
  // Each operand is a copy in rows, but where there is a single pair.
  bool isAsItIs = llvm::all_of(operands, [&](const ConcreteTensor &tensor) {
    return tensor.contiguous && tensor.elementType == distances.elementType &&
           (pairs > 1 || tensor.dims.size() == distances.dims.size());
  });
  auto strides = gradient.getStrides();
  bool isByPairs = pairs == 1 || !strides || strides->front() == 0 ||
                   strides->front() >= rows * columns;
  if (isCopied || !isAsItIs || !isByPairs)
    return rule.setInexact("the gradient of distances of strided rows");
  int64_t width = operands[0].dims.back();
  ConcreteTensor first = lay(operands[0], rows, width);
  ConcreteTensor second = lay(operands[1], columns, width);
  MadeTensor ratio = steps.compute({gradient, whole});
  steps.free(steps.compute(whole, OpReplay::Number::Integer, Result::Bool));
  SmallVector<MadeTensor> held{ratio};
  // What nobody asks for goes with what is returned.
  MadeTensor unread;
  auto toFactor = [](const ConcreteTensor &tensor) {
    return blas::Factor{tensor.dims, *tensor.getStrides(), tensor.elementType};
  };
  auto run = [&](unsigned operand, const ConcreteTensor &own,
                 const ConcreteTensor &other, const ConcreteTensor &ratio) {
    // The product is evaluated before what it is taken from.
    held.push_back(steps.allocate(own));
    MadeTensor sum = steps.allocate(lay(own, own.dims.rbegin()[1], 1));
    steps.allocateBriefly(getPartialBytes(rule, ratio, sum));
    held.append({sum, steps.compute({own, sum})});
    steps.allocateTemporary(
        blas::getMatmulCopies(rule, toFactor(ratio), toFactor(other)).bytes);
    MadeTensor made = steps.allocate(own);
    if (!steps.wants(operand)) {
      unread = made;
      return;
    }
    made.dims.assign(distances.dims.begin(), distances.dims.end() - 2);
    made.dims.append({own.dims.rbegin()[1], width});
    steps.give(operand, made, /*isViewed=*/pairs > 1);
  };
  if (!ratio.getStrides())
    return rule.setInexact("the strides of a gradient are unknown");
  run(0, first, second, ratio);
  run(1, second, first, transposeDims(ratio, -1, -2));
  steps.free(held);
  steps.free(unread);
  steps.finish();
}

/// A kernel for each operand reads the gradient, both operands and the
/// distances, all in rows; for the second one the latter are transposed.
/// Source: _cdist_backward in native/Distance.cpp, and derivatives.yaml.
template <typename OpT>
static void describeCdistBackward(BackwardRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  ConcreteTensor operands[] = {steps.read(0), steps.read(1)};
  auto distances = rule.tensor(op.getResult());
  const ConcreteTensor &gradient = steps.getGradient();
  if (!distances || distances->numElements() == 0 ||
      operands[0].dims.size() < 2 || operands[1].dims.size() < 2 ||
      operands[0].dims.back() == 0 || !gradient.getStrides() ||
      !operands[0].getStrides() || !operands[1].getStrides())
    return koila::detail::describeUnknownBackward(rule);
  if (std::is_same_v<OpT, CdistOp> &&
      isProductOfRows(operands, op.getComputeMode(), op.getP()))
    return isHalf(gradient.elementType)
               ? koila::detail::describeUnknownBackward(rule)
               : describeProductsBackward(rule, steps, *distances);
  ArrayRef<int64_t> leading = ArrayRef(distances->dims).drop_back(2);
  for (unsigned operand : {0u, 1u}) {
    if (!steps.wants(operand))
      continue;
    ConcreteTensor read[] = {
        operand == 0 ? gradient : transposeDims(gradient, -1, -2),
        operand == 0 ? *distances : transposeDims(*distances, -1, -2)};
    for (const ConcreteTensor &tensor : read)
      steps.contiguous(tensor);
    SmallVector<AllocationTrace::Block> copied;
    // Its own operand is the kernel's first one.
    for (unsigned read : {operand, 1 - operand})
      copied.push_back(copyExpanded(steps, operands[read], leading));
    ConcreteTensor made = operands[operand];
    made.dims.assign(leading.begin(), leading.end());
    llvm::append_range(made.dims,
                       ArrayRef(operands[operand].dims).take_back(2));
    steps.give(operand, steps.allocate(made), /*isViewed=*/true);
    for (AllocationTrace::Block copy : llvm::reverse(copied))
      steps.AllocationTrace::free(copy);
    for (const ConcreteTensor &tensor : read)
      steps.freeContiguous(tensor);
  }
  steps.finish();
}

//===----------------------------------------------------------------------===//
// pdist
//===----------------------------------------------------------------------===//

/// Rows, then the result.
static void describePdist(WorkspaceRule &rule) {
  auto tensors =
      getRealTensors(rule, rule.getOp()->getOperands(), /*needsStrides=*/true);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!tensors)
    return;
  if (!result)
    return rule.setInexact("a shape of the operator is unknown");
  OpReplay steps(rule);
  allocateContiguous(steps, tensors->front());
  steps.allocate(*result);
  steps.finish(result->numBytes());
}

static void savePdist(SavedRule &rule) {
  Value self = rule.getOp()->getOperand(0);
  saveDifferentiated(rule, [&](Value value) {
    return value == self ? getRowBytes(rule, value) : 0;
  });
}

void kernels::addDistanceModels(KernelLibrary &library) {
  library.add<CdistForwardOp>(
      {describeCdist<CdistForwardOp>,
       [](SavedRule &rule) { saveDifferentiated(rule); },
       describeCdistBackward<CdistForwardOp>});
  library.add<CdistOp>(
      {describeCdist<CdistOp>, saveCdist, describeCdistBackward<CdistOp>});
  library.add<CosineSimilarityOp>({forwardOf<describeCosine>,
                                   savedOf<describeCosine>,
                                   backwardOf<describeCosine>});
  library.add<PairwiseDistanceOp>({forwardOf<describePairwise>,
                                   savedOf<describePairwise>,
                                   backwardOf<describePairwise>});
  library.add<PdistOp>({.forward = describePdist, .saved = savePdist});
}
