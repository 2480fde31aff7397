//===- RulesDistanceMemory.cpp - What distances hold inside ---------------===//
//
// Source: native/Distance.cpp.
//
//===----------------------------------------------------------------------===//

#include "Composition.h"
#include "koila/Dialect/Koila/IR/KoilaNormOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;
using Result = Composition::Result;

using Tensors = ArrayRef<ConcreteTensor>;

static void describePairwise(WorkspaceRule &rule, PairwiseDistanceOp op,
                             Tensors of) {
  if (op.getP().isZero())
    return rule.setInexact("a norm that counts elements");
  Composition steps(rule);
  steps.finish(
      steps.computeDistance(of[0], of[1], op.getKeepdim()).numBytes());
}

/// Both operands are divided by their norms, multiplied and summed.
static void describeCosine(WorkspaceRule &rule, CosineSimilarityOp op,
                           Tensors of) {
  Composition steps(rule);
  ConcreteTensor common = Composition(rule).compute(of);
  // Integers are cast, then both are expanded.
  SmallVector<ConcreteTensor, 2> operands, norms;
  for (ConcreteTensor operand : of) {
    if (isa<IntegerType>(operand.elementType)) {
      operand.elementType = common.elementType;
      steps.allocate(operand);
    }
    operand.dims = common.dims;
    operands.push_back(operand);
  }
  for (const ConcreteTensor &operand : operands) {
    ConcreteTensor norm =
        steps.allocate(dropDim(operand, op.getDim(), /*keepdim=*/true));
    norms.push_back(steps.allocate(norm));
    steps.free(norm);
  }
  // The least norm is a 0-dim tensor, of float32 for half types (measured).
  Type type = common.elementType;
  steps.allocate(getElementBytes(
      isHalf(type) ? Float32Type::get(type.getContext()) : type));
  ConcreteTensor right = steps.compute({operands[1], norms[1]});
  ConcreteTensor left = steps.compute({operands[0], norms[0]});
  ConcreteTensor product = steps.compute({left, right});
  steps.finish(steps.sum(product, op.getDim()).numBytes());
}

//===----------------------------------------------------------------------===//
// cdist
//===----------------------------------------------------------------------===//

/// Tensor::expand(leading dims).contiguous()
static void copyExpanded(Composition &steps, const ConcreteTensor &tensor,
                         ArrayRef<int64_t> leading) {
  ConcreteTensor expanded = tensor;
  expanded.dims.assign(leading.begin(), leading.end());
  llvm::append_range(expanded.dims, ArrayRef(tensor.dims).take_back(2));
  if (expanded.numElements() == tensor.numElements())
    steps.copyRows(tensor);
  else
    steps.allocate(expanded);
}

/// |x|^2 - 2xy + |y|^2 as a product of matrices with two more columns.
static void addProduct(Composition &steps, ConcreteTensor lhs,
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
  ConcreteTensor scaled = steps.compute(lhs, Result::Common,
                                        Composition::Number::Integer);
  widen(lhs, leftNorm);
  steps.free(scaled);
  widen(rhs, rightNorm);
}

static void describeCdist(WorkspaceRule &rule, Tensors of,
                          std::optional<int64_t> mode, const APFloat &p) {
  constexpr int64_t kManyRows = 25;
  const ConcreteTensor &lhs = of[0], &rhs = of[1];
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result || lhs.dims.size() < 2 || rhs.dims.size() < 2)
    return rule.setInexact("a shape of the operator is unknown");
  ArrayRef<int64_t> leading = ArrayRef(result->dims).drop_back(2);
  int64_t leftRows = lhs.dims.rbegin()[1], rightRows = rhs.dims.rbegin()[1];
  Composition steps(rule);
  copyExpanded(steps, lhs, leading);
  copyExpanded(steps, rhs, leading);
  bool isProduct =
      p.isExactlyValue(2.0) && mode != 2 &&
      (mode == 1 || leftRows > kManyRows || rightRows > kManyRows);
  if (isProduct && result->numElements() > 0 && lhs.dims.back() > 0) {
    ConcreteTensor left = *result, right = *result;
    left.dims.back() = right.dims.back() = lhs.dims.back();
    right.dims.rbegin()[1] = rightRows;
    addProduct(steps, left, right);
  }
  steps.allocate(*result);
  steps.finish(result->numBytes());
}

/// Rows, then the result.
static void describePdist(WorkspaceRule &rule, Tensors of) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result)
    return rule.setInexact("a shape of the operator is unknown");
  Composition steps(rule);
  steps.copyRows(of.front());
  steps.allocate(*result);
  steps.finish(result->numBytes());
}

void rules::describeDistanceWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto tensors = getRealTensors(rule, op->getOperands(),
                                isa<CdistOp, CdistForwardOp, PdistOp>(op));
  if (!tensors)
    return;
  llvm::TypeSwitch<Operation *>(op)
      .Case<PairwiseDistanceOp>(
          [&](auto distance) { describePairwise(rule, distance, *tensors); })
      .Case<CosineSimilarityOp>(
          [&](auto cosine) { describeCosine(rule, cosine, *tensors); })
      .Case<CdistOp, CdistForwardOp>([&](auto distance) {
        describeCdist(rule, *tensors, distance.getComputeMode(),
                      distance.getP());
      })
      .Case<PdistOp>([&](auto) { describePdist(rule, *tensors); })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}
