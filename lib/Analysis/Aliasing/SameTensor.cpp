//===- SameTensor.cpp - Whether two values are one tensor -----------------===//

#include "koila/Analysis/SameTensor.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace koila;

namespace {
class Identity {
public:
  Identity(llvm::function_ref<bool(Block *)> isLive, ShapeRule::Lookup shapes)
      : isLive(isLive), shapes(shapes) {}

  bool isSame(Value lhs, Value rhs);
  bool isDifferent(Value lhs, Value rhs);

private:
  /// Where the storage of a value comes from.
  struct Origins {
    llvm::SmallPtrSet<Value, 4> made;
    /// There before the function began.
    bool external = false;
  };

  SmallVector<Value> getYielded(OpResult result) const;
  Value getObject(Value value) const;
  bool addOrigins(Value value, Origins &origins);
  bool addOriginsOfResult(OpResult result, Origins &origins);

  /// One question may not walk the whole program.
  bool mayGoOn() { return ++steps <= kMostSteps; }

  static constexpr unsigned kMostSteps = 64;
  llvm::function_ref<bool(Block *)> isLive;
  ShapeRule::Lookup shapes;
  unsigned steps = 0;
};
} // namespace

/// What the branches of an `scf.if` that a call may get to hand on; empty if
/// `result` is of something else.
SmallVector<Value> Identity::getYielded(OpResult result) const {
  SmallVector<Value> yielded;
  if (auto branch = dyn_cast<scf::IfOp>(result.getOwner()))
    for (Region *region : {&branch.getThenRegion(), &branch.getElseRegion()})
      if (!region->empty() && isLive(&region->front()))
        yielded.push_back(region->front().getTerminator()->getOperand(
            result.getResultNumber()));
  return yielded;
}

/// The value that the same object had before it got to `value`.
Value Identity::getObject(Value value) const {
  while (auto result = dyn_cast<OpResult>(value)) {
    Operation *op = result.getOwner();
    if (isa<RefineOp, UncheckedCastOp, UpcastOp, tensor::CastOp>(op)) {
      value = op->getOperand(0);
      continue;
    }
    SmallVector<Value> yielded = getYielded(result);
    if (yielded.size() != 1)
      break;
    value = yielded.front();
  }
  return value;
}

bool Identity::isSame(Value lhs, Value rhs) {
  lhs = getObject(lhs);
  rhs = getObject(rhs);
  if (lhs == rhs)
    return true;
  auto left = dyn_cast<OpResult>(lhs), right = dyn_cast<OpResult>(rhs);
  if (!left || !right || left.getOwner() != right.getOwner() || !mayGoOn())
    return false;
  // Two results of one branch: both come from the same side.
  SmallVector<Value> lefts = getYielded(left), rights = getYielded(right);
  return !lefts.empty() &&
         llvm::all_of(llvm::zip_equal(lefts, rights), [&](auto pair) {
           return isSame(std::get<0>(pair), std::get<1>(pair));
         });
}

/// False if it is not known where the storage of the result comes from.
bool Identity::addOriginsOfResult(OpResult result, Origins &origins) {
  Operation *op = result.getOwner();
  if (isa<ParamGetOp>(op)) {
    origins.external = true;
    return true;
  }
  if (isa<scf::IfOp>(op)) {
    SmallVector<Value> yielded = getYielded(result);
    return !yielded.empty() && llvm::all_of(yielded, [&](Value value) {
      return addOrigins(value, origins);
    });
  }
  // One tensor of TorchScript that is modelled as a number becomes a tensor
  // again at each of its uses.
  auto rule = dyn_cast<MemoryRuleInterface>(op);
  if (!rule || isa<NumToTensorOp>(op) || isOrderedWrite(op))
    return false;
  StorageRule storage(op, shapes);
  rule.describeStorage(storage);
  const StorageFact &fact = storage.getResults()[result.getResultNumber()];
  if (!fact.exact)
    return false;
  if (fact.kind == StorageFact::Kind::Alias)
    return addOrigins(fact.operand, origins);
  if (fact.kind != StorageFact::Kind::New)
    return false;
  origins.made.insert(result);
  return true;
}

bool Identity::addOrigins(Value value, Origins &origins) {
  if (!mayGoOn())
    return false;
  if (auto result = dyn_cast<OpResult>(value))
    return addOriginsOfResult(result, origins);
  // What a loop carries may come from an earlier iteration.
  Block *block = cast<BlockArgument>(value).getOwner();
  if (!isa<FunctionOpInterface>(block->getParentOp()) || !block->isEntryBlock())
    return false;
  origins.external = true;
  return true;
}

bool Identity::isDifferent(Value lhs, Value rhs) {
  Origins left, right;
  return addOrigins(lhs, left) && addOrigins(rhs, right) &&
         !(left.external && right.external) &&
         llvm::none_of(left.made,
                       [&](Value value) { return right.made.contains(value); });
}

std::optional<bool> koila::isNegatedIdentity(TorchOpaqueOp op) {
  bool negated = op.getCallee() == "aten::__isnot__";
  return negated || op.getCallee() == "aten::__is__" ? std::optional(negated)
                                                     : std::nullopt;
}

std::optional<std::pair<Value, Value>>
koila::getComparedTensors(TorchOpaqueOp op) {
  if (!isNegatedIdentity(op))
    return std::nullopt;
  SmallVector<Value, 2> compared;
  for (Attribute argument : op.getArguments()) {
    auto operand = dyn_cast<OperandAttr>(argument);
    Value value = operand ? op->getOperand(operand.getIndex()) : Value();
    Type type = value ? value.getType() : Type();
    if (auto optional = dyn_cast_or_null<OptionalType>(type))
      type = optional.getValueType();
    if (!isa_and_nonnull<TensorType>(type))
      return std::nullopt;
    compared.push_back(value);
  }
  if (compared.size() != 2 || op->getNumResults() != 1)
    return std::nullopt;
  return std::make_pair(compared[0], compared[1]);
}

TriBool koila::proveIdentical(Value lhs, Value rhs,
                              llvm::function_ref<bool(Block *)> isLive,
                              ShapeRule::Lookup shapes) {
  Identity identity(isLive, shapes);
  if (identity.isSame(lhs, rhs))
    return TriBool::Yes;
  return identity.isDifferent(lhs, rhs) ? TriBool::No : TriBool::Unknown;
}
