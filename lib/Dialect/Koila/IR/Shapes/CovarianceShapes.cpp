//===- CovarianceShapes.cpp - Shapes of covariances -----------------------===//
//
// Source: aten/src/ATen/native/Correlation.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Rules/MatmulRules.h"
#include "../Rules/ReductionRules.h"

using namespace mlir;
using namespace koila;

/// One number for each observation.
static LogicalResult checkWeights(ShapeRule &rule, const TensorInfo &weights,
                                  DimExpr observations, bool areCounts) {
  StringRef name = areCounts ? "fweights" : "aweights";
  if (weights.hasRank() &&
      (weights.getRank() != 1 ||
       (observations &&
        proveEqual(weights.dim(0), observations) == TriBool::No)))
    return rule.emitError()
           << name << " must have one element for each observation";
  if (weights.elementType && (areCounts ? !weights.elementType.isInteger() ||
                                              weights.elementType.isInteger(1)
                                        : !isa<FloatType>(weights.elementType)))
    return rule.emitError()
           << name << " must be " << (areCounts ? "integers" : "floating-point")
           << ", got " << weights.elementType;
  return success();
}

LogicalResult rules::inferCovariance(ShapeRule &rule, Value self, Value counts,
                                     Value weights) {
  TensorInfo info = rule.tensor(self);
  if (info.elementType && info.elementType.isInteger(1))
    return rule.emitError() << "takes no bool";
  if (info.hasRank() && info.getRank() > 2)
    return rule.emitError() << "takes at most two dims, got " << info.getRank();
  DimExpr one = rule.constant(1);
  DimExpr variables = !info.hasRank()       ? DimExpr()
                      : info.getRank() == 2 ? info.dim(0)
                                            : one;
  DimExpr observations = !info.hasRank()       ? DimExpr()
                         : info.getRank() == 0 ? one
                                               : info.dim(info.getRank() - 1);
  Type type = getFloatType(info.elementType);
  if (counts &&
      failed(checkWeights(rule, rule.tensor(counts), observations, true)))
    return failure();
  if (weights) {
    TensorInfo amounts = rule.tensor(weights);
    if (failed(checkWeights(rule, amounts, observations, false)))
      return failure();
    type = type && amounts.elementType
               ? promoteTypes(type, true, amounts.elementType, true)
               : Type();
  }
  TensorInfo result;
  result.elementType = type;
  if (variables)
    result = variables.isConstant(1)
                 ? TensorInfo::contiguous({}, type)
                 : TensorInfo::contiguous({variables, variables}, type);
  rule.setResult(0, result);
  return success();
}
