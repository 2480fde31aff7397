//===- RulesFactoryMemory.cpp - What making a tensor holds inside ---------===//
//
// Sources: torch/csrc/jit/runtime/register_special_ops.cpp (torch.tensor),
// native/TensorFactories.cpp.
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"
#include "koila/Dialect/Koila/IR/KoilaFactoryOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;

/// The element type of torch.tensor without `dtype`; null: unknown.
static Type getOwnType(Operation *op) {
  MLIRContext *context = op->getContext();
  Type integer = IntegerType::get(context, 64);
  Type floating = Float32Type::get(context), boolean = IntegerType::get(context, 1);
  Attribute data = op->getAttr("data");
  if (isa_and_nonnull<DenseI64ArrayAttr>(data))
    return integer;
  if (isa_and_nonnull<DenseF64ArrayAttr>(data))
    return floating;
  if (isa_and_nonnull<DenseBoolArrayAttr>(data))
    return boolean;
  Type type;
  if (auto number = dyn_cast_or_null<TypedAttr>(op->getAttr("t")))
    type = number.getType();
  if (!type)
    return {};
  return isa<FloatType>(type) ? floating : type.isInteger(1) ? boolean : integer;
}

/// A tensor of the numbers' own type, cast to `dtype`.
void rules::describeNumberTensorWorkspace(WorkspaceRule &rule) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  Type own = getOwnType(rule.getOp());
  if (!result || !own)
    return rule.setInexact("the type of the numbers is unknown");
  if (own != result->elementType)
    rule.setTransient(countBytes(*result, own));
}

void rules::describeRandomWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto result = rule.tensor(op->getResult(0));
  if (isa<MultinomialOp, NormalTensorFloatOp, NormalFloatTensorOp,
          NormalTensorTensorOp>(op) ||
      !result)
    return describeUnknownWorkspace(rule);
  // Whether the type can count so far is asked of a 0-dim tensor.
  if (isa<RandpermOp>(op))
    rule.setTransient(getElementBytes(result->elementType));
}
