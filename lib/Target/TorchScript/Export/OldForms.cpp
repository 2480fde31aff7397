//===- OldForms.cpp - What earlier versions wrote -------------------------===//
//
// Attributes and methods were opaque operators with their names among the
// arguments, and literals there that are operands now.
//
//===----------------------------------------------------------------------===//

#include "OldForms.h"
#include "../Boundary/DiagnosticJSON.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
using llvm::Twine;

/// The operand that an argument names, or a literal as an operation; null if it
/// is neither.
static Value getArgument(OpBuilder &builder, TorchOpaqueOp op,
                         Attribute argument) {
  if (auto operand = dyn_cast<OperandAttr>(argument))
    return op->getOperand(operand.getIndex());
  if (isa<BoolAttr, IntegerAttr, FloatAttr>(argument))
    return arith::ConstantOp::create(builder, op.getLoc(),
                                     cast<TypedAttr>(argument));
  llvm::StringRef type = isa<UnitAttr>(argument)         ? "NoneType"
                         : isa<StringAttr>(argument)     ? "str"
                         : isa<DictionaryAttr>(argument) ? "Device"
                                                         : "";
  if (type.empty())
    return {};
  return ConstantOp::create(builder, op.getLoc(),
                            TorchType::get(op.getContext(), type), argument);
}

/// What takes the place of `op`; null if its arguments are not those of one.
static Operation *upgrade(OpBuilder &builder, TorchOpaqueOp op) {
  llvm::ArrayRef<Attribute> arguments = op.getArguments().getValue();
  llvm::SmallVector<Value> values;
  auto takeValues = [&](llvm::ArrayRef<Attribute> literals) {
    for (Attribute literal : literals)
      values.push_back(getArgument(builder, op, literal));
    return llvm::all_of(values, [](Value value) { return !!value; });
  };
  auto getName = [&](size_t index) {
    return index < arguments.size() ? dyn_cast<StringAttr>(arguments[index])
                                    : StringAttr();
  };
  size_t count = arguments.size();
  if (op.getCallee() == "prim::SetAttr") {
    // [object], name, value.
    StringAttr name = count >= 2 ? getName(count - 2) : StringAttr();
    if (!name || count > 3 || op->getNumResults() != 0 ||
        !takeValues(arguments.drop_back(2)) ||
        !takeValues(arguments.take_back()))
      return nullptr;
    return AttrSetOp::create(builder, op.getLoc(), name,
                             count == 3 ? values.front() : Value(),
                             values.back());
  }
  // Others have their name last.
  StringAttr name = count >= 1 ? getName(count - 1) : StringAttr();
  if (!name || op->getNumResults() != 1 || !takeValues(arguments.drop_back()))
    return nullptr;
  Type type = op->getResultTypes().front();
  if (op.getCallee() == "prim::GetAttr") {
    if (values.size() > 1)
      return nullptr;
    return AttrGetOp::create(builder, op.getLoc(), type, name,
                             values.empty() ? Value() : values.front());
  }
  if (values.empty())
    return nullptr;
  return CallMethodOp::create(builder, op.getLoc(), type, name, values.front(),
                              ValueRange(values).drop_front());
}

void koila::torchscript::upgradeOldForms(ModuleOp module) {
  llvm::SmallVector<TorchOpaqueOp> found;
  module.walk([&](TorchOpaqueOp op) {
    if (llvm::is_contained(
            {"prim::GetAttr", "prim::SetAttr", "prim::CallMethod"},
            op.getCallee()))
      found.push_back(op);
  });
  for (TorchOpaqueOp op : found) {
    OpBuilder builder(op);
    Operation *upgraded = upgrade(builder, op);
    if (upgraded)
      upgraded->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    if (!upgraded || failed(verify(upgraded, /*verifyRecursively=*/false)))
      refuse(op.getLoc(), Twine("'") + op.getCallee() +
                              "' has other arguments than an object, a name "
                              "and values");
    op->replaceAllUsesWith(upgraded);
    op.erase();
  }
}
