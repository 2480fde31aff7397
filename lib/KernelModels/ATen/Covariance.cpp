//===- Covariance.cpp - What covariances hold inside ----------------------===//
//
// Source: native/Correlation.cpp.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "../Models.h"
#include "Backward/AutogradReplay.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using blas::Factor;
using Result = AutogradReplay::Result;

/// The elements of a vector as one row.
static Term viewAsRow(const Term &term) {
  auto strides = term.getStrides();
  Term row = AutogradReplay::view(term, {1, term.numElements()});
  int64_t stride = strides->empty() ? 1 : strides->front();
  row.strides = SmallVector<int64_t>{row.dims[1] * stride, stride};
  return row;
}

/// rows * rows^T, of dense rows.
static Term multiply(AutogradReplay &steps, WorkspaceRule &rule,
                     const Term &rows) {
  int64_t variables = rows.dims[0], observations = rows.dims[1];
  Factor lhs{rows.dims, {observations, 1}, rows.elementType};
  Factor rhs{{observations, variables}, {1, observations}, rows.elementType};
  Term product = steps.allocate({{variables, variables}, rows.elementType});
  steps.allocateTemporary(blas::getMmBytes(rule, lhs, rhs));
  steps.record("mm", {rows, rows}, product);
  return product;
}

/// Of rows without weights.
static Term covary(AutogradReplay &steps, WorkspaceRule &rule,
                   const Term &rows) {
  Type integer = IntegerType::get(rule.getOp()->getContext(), 64);
  Term count = steps.allocate({{}, integer});
  Term sum = steps.sum(rows, 1);
  Term average = steps.compute("div.Tensor", {sum, count}, Result::Float);
  steps.free(sum);
  Term corrected = steps.allocate({{}, integer});
  // Whether it is positive: as two tensors of one bool.
  steps.allocateTemporary(2);
  Term column = AutogradReplay::view(average, {average.dims[0], 1});
  Term centered = steps.compute("sub.Tensor", {rows, column});
  Term product = multiply(steps, rule, centered);
  Term result =
      steps.compute("div.Tensor", {product, corrected}, Result::Float);
  steps.free({product, centered, corrected, average, count});
  return result;
}

/// Each row and each column divided by its deviation, and clipped.
static Term normalize(AutogradReplay &steps, const Term &covariance) {
  if (covariance.dims.size() < 2) {
    Term result = steps.compute("div.Tensor", {covariance, covariance});
    steps.free(covariance);
    return result;
  }
  int64_t variables = covariance.dims[0];
  Term diagonal = AutogradReplay::view(covariance, variables);
  Term deviations = steps.compute("sqrt", diagonal, Result::Float);
  Term byRows = steps.compute(
      "div.Tensor",
      {covariance, AutogradReplay::view(deviations, {variables, 1})});
  Term divided = steps.compute(
      "div.Tensor", {byRows, AutogradReplay::view(deviations, {1, variables})});
  steps.free(byRows);
  Term result = steps.compute("clamp", divided);
  // The diagonal, a view of the covariances, lives as long.
  steps.free({divided, deviations, covariance});
  return result;
}

static void describeCovariance(WorkspaceRule &rule, SavedRule *saved) {
  Operation *op = rule.getOp();
  AutogradReplay steps(rule, saved);
  if (op->getNumOperands() > 1)
    return rule.setInexact("a covariance of observations that have weights");
  auto terms = readReals(steps, rule, op->getOperands(), /*needsStrides=*/true);
  if (!terms)
    return;
  Term rows = terms->front();
  if (rows.dims.size() < 2)
    rows = viewAsRow(rows);
  if (rows.numElements() == 0 ||
      (rows.numElements() == 1 && isHalf(rows.elementType)))
    return rule.setInexact("a covariance of nothing, or of one half number");
  Term result = covary(steps, rule, rows);
  if (rows.dims[0] == 1)
    result = AutogradReplay::view(result, {});
  if (isa<CorrcoefOp>(op))
    result = normalize(steps, result);
  steps.finish(result);
  // The order of its blocks is not known.
  rule.setTransient(rule.getTransient());
}

void kernels::addCovarianceModels(KernelLibrary &library) {
  library.add<CorrcoefOp, CovOp>({.forward = forwardOf<describeCovariance>,
                                  .saved = savedOf<describeCovariance>});
}
