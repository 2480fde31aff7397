//===- RulesElementwiseMemory.cpp - Composed elementwise operators --------===//
//
// What elementwise operators hold inside that call others. Sources:
// native/TensorCompare.cpp (where, isinf, isfinite), native/UnaryOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"
#include "koila/Dialect/Koila/IR/KoilaBinaryOps.h"
#include "koila/Dialect/Koila/IR/KoilaPointwiseOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;

/// Each number becomes a 0-dim tensor of the result's type, and the tensor is
/// cast to that type.
static void describeWhere(WorkspaceRule &rule, int64_t numbers,
                          Value tensor) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  auto operand = rule.tensor(tensor);
  if (!result || (tensor && !operand))
    return rule.setInexact("a shape of the operator is unknown");
  int64_t bytes = numbers * getElementBytes(result->elementType);
  if (operand)
    bytes += getCastBytes(*operand, result->elementType);
  rule.setTransient(bytes);
}

/// isinf is abs(self) == inf; isfinite is that and self == self.
static void describeQuery(WorkspaceRule &rule, const ConcreteTensor &input,
                          bool finite) {
  int64_t answer = input.numElements();
  // Integers are not asked.
  if (isa<IntegerType>(input.elementType))
    return;
  if (!isa<FloatType>(input.elementType))
    return rule.setInexact("a query of complex numbers");
  Footprint footprint;
  int64_t temporary = input.numBytes();
  footprint.allocate(temporary);
  footprint.allocate(answer);
  footprint.pass(getFloatBytes(input.elementType));
  if (finite) {
    temporary += 2 * answer;
    footprint.allocate(answer);
    footprint.allocate(answer);
  }
  footprint.free(temporary);
  rule.setTransient(footprint.getTransient());
}

void rules::describeComposedWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  if (!input)
    return rule.setInexact("a shape of the operator is unknown");
  llvm::TypeSwitch<Operation *>(op)
      .Case<WhereScalarOtherOp>(
          [&](auto where) { describeWhere(rule, 1, where.getSelf()); })
      .Case<WhereScalarSelfOp>(
          [&](auto where) { describeWhere(rule, 1, where.getOther()); })
      .Case<WhereScalarOp>([&](auto) { describeWhere(rule, 2, {}); })
      // A buffer as large as the result, and rows.
      .Case<LogSigmoidOp>([&](auto) {
        rule.setTransient(input->numBytes() + getCopyBytes(*input));
      })
      .Case<IsinfOp>([&](auto) { describeQuery(rule, *input, false); })
      .Case<IsfiniteOp>([&](auto) { describeQuery(rule, *input, true); })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}
