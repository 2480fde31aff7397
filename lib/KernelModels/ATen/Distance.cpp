//===- Distance.cpp - What distances hold inside --------------------------===//
//
// Source: native/Distance.cpp.
//
//===----------------------------------------------------------------------===//

#include "../WorkspaceRules.h"
#include "AutogradReplay.h"
#include "BackwardFormulas.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/Interfaces/BackwardRule.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Result = AutogradReplay::Result;

using Tensors = ArrayRef<ConcreteTensor>;

//===----------------------------------------------------------------------===//
// pairwise_distance, cosine_similarity
//===----------------------------------------------------------------------===//

static void describePairwise(AutogradReplay &steps, WorkspaceRule &rule,
                             PairwiseDistanceOp op, AutogradReplay::Terms of) {
  if (op.getP().isZero())
    return rule.setInexact("a norm that counts elements");
  steps.finish(steps.computeDistance(of[0], of[1], op.getKeepdim()));
}

/// Both operands are divided by their norms, multiplied and summed.
static void describeCosine(AutogradReplay &steps, WorkspaceRule &rule,
                           CosineSimilarityOp op, AutogradReplay::Terms of) {
  ConcreteTensor common = OpReplay(rule).compute({of[0], of[1]});
  if (common.numElements() == 0)
    return rule.setInexact("similarities of nothing");
  // Integers are cast, then both are expanded.
  SmallVector<Term, 2> operands, norms;
  for (Term operand : of) {
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
  // The least norm is a 0-dim tensor, of float32 for half types (measured).
  Type type = common.elementType;
  steps.AllocationTrace::allocate(getElementBytes(
      isHalf(type) ? Float32Type::get(type.getContext()) : type));
  Term right = steps.compute("div.Tensor", {operands[1], norms[1]});
  Term left = steps.compute("div.Tensor", {operands[0], norms[0]});
  Term product = steps.compute("mul.Tensor", {left, right});
  steps.finish(steps.sum(product, op.getDim()));
}

/// Tells what is kept, if `saved` is there, and what the gradients take, if
/// `backward` is.
static void describeExpression(WorkspaceRule &rule, SavedRule *saved,
                               BackwardRule *backward = nullptr) {
  Operation *op = rule.getOp();
  AutogradReplay steps(rule, saved, backward);
  auto terms = readReals(steps, rule, op->getOperands());
  if (!terms)
    return;
  if (auto distance = dyn_cast<PairwiseDistanceOp>(op))
    describePairwise(steps, rule, distance, *terms);
  else
    describeCosine(steps, rule, cast<CosineSimilarityOp>(op), *terms);
}

//===----------------------------------------------------------------------===//
// cdist
//===----------------------------------------------------------------------===//

/// Tensor::expand(leading dims).contiguous()
static void copyExpanded(OpReplay &steps, const ConcreteTensor &tensor,
                         ArrayRef<int64_t> leading) {
  ConcreteTensor expanded = tensor;
  expanded.dims.assign(leading.begin(), leading.end());
  llvm::append_range(expanded.dims, ArrayRef(tensor.dims).take_back(2));
  if (expanded.numElements() == tensor.numElements())
    steps.makeContiguous(tensor);
  else
    steps.allocate(expanded);
}

/// |x|^2 - 2xy + |y|^2 as a product of matrices with two more columns.
static void addProduct(OpReplay &steps, ConcreteTensor lhs,
                       ConcreteTensor rhs) {
  auto addNorm = [&](const ConcreteTensor &tensor) {
    ConcreteTensor squares = steps.allocate(tensor);
    ConcreteTensor norm = steps.sum(squares, -1, /*keepdim=*/true);
    steps.free(squares);
    steps.allocate(norm);
    return norm;
  };
  auto widen = [&](ConcreteTensor tensor, const ConcreteTensor &norm) {
    tensor.dims.back() += 2;
    steps.allocate(tensor);
    steps.free({norm, norm});
  };
  ConcreteTensor leftNorm = addNorm(lhs), rightNorm = addNorm(rhs);
  ConcreteTensor scaled =
      steps.compute(lhs, Result::Common, OpReplay::Number::Integer);
  widen(lhs, leftNorm);
  steps.free(scaled);
  widen(rhs, rightNorm);
}

/// Whether distances are those of a product. Source: cdist_impl.
static bool isProductOfRows(Tensors of, std::optional<int64_t> mode,
                            const APFloat &p) {
  constexpr int64_t kManyRows = 25;
  return p.isExactlyValue(2.0) && mode != 2 &&
         (mode == 1 || of[0].dims.rbegin()[1] > kManyRows ||
          of[1].dims.rbegin()[1] > kManyRows);
}

static void describeCdist(WorkspaceRule &rule, Tensors of,
                          std::optional<int64_t> mode, const APFloat &p) {
  const ConcreteTensor &lhs = of[0], &rhs = of[1];
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result || lhs.dims.size() < 2 || rhs.dims.size() < 2)
    return rule.setInexact("a shape of the operator is unknown");
  ArrayRef<int64_t> leading = ArrayRef(result->dims).drop_back(2);
  int64_t rightRows = rhs.dims.rbegin()[1];
  OpReplay steps(rule);
  copyExpanded(steps, lhs, leading);
  copyExpanded(steps, rhs, leading);
  if (isProductOfRows(of, mode, p) && result->numElements() > 0 &&
      lhs.dims.back() > 0) {
    ConcreteTensor left = *result, right = *result;
    left.dims.back() = right.dims.back() = lhs.dims.back();
    right.dims.rbegin()[1] = rightRows;
    addProduct(steps, left, right);
  }
  steps.allocate(*result);
  steps.finish(result->numBytes());
}

/// Of the rows that are read in the place of an operand; 0 if it has them.
static int64_t getRowBytes(const WorkspaceRule &rule, Value operand) {
  auto tensor = rule.tensor(operand);
  return tensor && !tensor->contiguous ? tensor->numBytes() : 0;
}

/// Distances of products save the operands as they are expanded and copied; of
/// a single pair of matrices, the operands.
static void saveCdist(SavedRule &rule, CdistOp op) {
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

/// Rows, then the result.
static void describePdist(WorkspaceRule &rule, Tensors of) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result)
    return rule.setInexact("a shape of the operator is unknown");
  OpReplay steps(rule);
  steps.makeContiguous(of.front());
  steps.allocate(*result);
  steps.finish(result->numBytes());
}

void rules::describeDistanceWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  if (isa<PairwiseDistanceOp, CosineSimilarityOp>(op))
    return describeExpression(rule, /*saved=*/nullptr);
  auto tensors = getRealTensors(rule, op->getOperands(), /*needsStrides=*/true);
  if (!tensors)
    return;
  llvm::TypeSwitch<Operation *>(op)
      .Case<CdistOp, CdistForwardOp>([&](auto distance) {
        describeCdist(rule, *tensors, distance.getComputeMode(),
                      distance.getP());
      })
      .Case<PdistOp>([&](auto) { describePdist(rule, *tensors); })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}

void rules::describeDistanceBackward(BackwardRule &rule) {
  describeExpression(rule, /*saved=*/nullptr, &rule);
}

void rules::describeDistanceSaved(SavedRule &rule) {
  Operation *op = rule.getOp();
  if (isa<PairwiseDistanceOp, CosineSimilarityOp>(op))
    return describeExpression(rule, &rule);
  if (auto distance = dyn_cast<CdistOp>(op))
    return saveCdist(rule, distance);
  saveDifferentiated(rule, [&](Value value) {
    bool isRead = isa<PdistOp>(op) && value == op->getOperand(0);
    return isRead ? getRowBytes(rule, value) : 0;
  });
}
