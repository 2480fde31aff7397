//===- ElementwiseBatch.cpp - Batch and memory, elementwise ---------------===//

#include "../Rules/ElementwiseRules.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;
using rules::Elementwise;

//===----------------------------------------------------------------------===//
// Batch
//===----------------------------------------------------------------------===//

void rules::inferBroadcastBatch(BatchRule &rule, ArrayRef<Value> operands) {
  rule.takeAnyRows();
  int64_t rank = 0;
  for (Value operand : operands) {
    TensorInfo info = rule.tensor(operand);
    if (!info.hasRank())
      return rule.mix("the rank of an operand is unknown");
    rank = std::max(rank, info.getRank());
  }
  std::optional<BatchFact> common;
  for (Value operand : operands) {
    BatchFact fact = rule.fact(operand);
    if (!fact.isAt())
      continue;
    fact.dim += rank - rule.tensor(operand).getRank();
    if (common && !(*common == fact))
      return rule.mix("the operands carry the batch in different dims, so "
                      "that every sample meets every other");
    common = fact;
  }
  if (!common)
    return rule.setAll(BatchFact::free());
  for (Value operand : operands) {
    TensorInfo info = rule.tensor(operand);
    int64_t dim = common->dim - (rank - info.getRank());
    if (rule.fact(operand).isAt() || dim < 0 || info.dim(dim).isConstant(1))
      continue;
    return rule.mix("an operand without the batch has extent " +
                    info.dim(dim).str() + " in the batch dim");
  }
  rule.setAll(*common);
}

void rules::inferElementwiseBatch(BatchRule &rule) {
  inferBroadcastBatch(rule, SmallVector<Value>(getTensors(rule.getOp())));
  for (Value number : OperatorArguments(rule.getOp()).getDynamic())
    if (!rule.fact(number).isFree())
      return rule.mix("a number depends on the number of samples; a tile has "
                      "another one");
}

//===----------------------------------------------------------------------===//
// Storage, workspace
//===----------------------------------------------------------------------===//

void rules::describeNewStorage(StorageRule &rule) {
  if (isInPlace(rule.getOp()))
    rule.setTied(0, rule.getOp()->getOperand(0));
}

void rules::describeMaskedStorage(StorageRule &rule, ArrayRef<bool> mask) {
  for (auto [index, isMade] : llvm::enumerate(mask))
    if (!isMade && index < rule.getOp()->getNumResults())
      rule.setKeeps(index);
}

/// What LibTorch makes a number of that a 0-dim tensor of `type` holds.
static Type getNumberType(Type type) {
  if (isa<FloatType>(type))
    return Float64Type::get(type.getContext());
  if (isa<IntegerType>(type) && !type.isInteger(1))
    return IntegerType::get(type.getContext(), 64);
  return type;
}

/// The type of a number that the program computes: what `item` reads is of the
/// tensor's. Null if it is not known.
static Type getNumberType(WorkspaceRule &rule, Value number) {
  Type type = number.getType();
  if (type.isInteger(64) || type.isF64() || type.isInteger(1))
    return type;
  auto *read = number.getDefiningOp();
  if (!isa_and_nonnull<ItemOp, ScalarImplicitOp>(read))
    return {};
  auto tensor = rule.tensor(read->getOperand(0));
  return tensor && isa<IntegerType, FloatType>(tensor->elementType)
             ? getNumberType(tensor->elementType)
             : Type();
}

/// The types of the numbers that take part in the common type; null: unknown.
static SmallVector<Type> getNumberTypes(WorkspaceRule &rule,
                                        const Elementwise &kind) {
  Operation *op = rule.getOp();
  SmallVector<Type> types;
  for (StringRef name : kind.numbers) {
    Attribute attr = op->getAttr(name);
    if (Value dynamic = OperatorArguments(op).getDynamic(name))
      types.push_back(getNumberType(rule, dynamic));
    else if (auto typed = dyn_cast_or_null<TypedAttr>(attr))
      types.push_back(typed.getType());
    else if (attr)
      types.push_back({});
  }
  return types;
}

/// Whether the number `self` is 1, or may be.
static bool mayBeOne(Operation *op) {
  Attribute self = op->getAttr("self");
  if (auto integer = dyn_cast_or_null<IntegerAttr>(self))
    return integer.getValue().isOne();
  if (auto number = dyn_cast_or_null<FloatAttr>(self))
    return number.getValue().isExactlyValue(1.0);
  return true;
}

void rules::describeElementwiseWorkspace(WorkspaceRule &rule,
                                         const Elementwise &kind, bool wraps) {
  // Those with a say in the type, as they are and as the promotion takes them.
  SmallVector<ConcreteTensor> operands;
  SmallVector<TensorInfo> infos;
  Operation *op = rule.getOp();
  MLIRContext *context = op->getContext();
  SmallVector<Type> numbers = getNumberTypes(rule, kind);
  OperandRange tensors = getTensors(op);
  SmallVector<ConcreteTensor> weights;
  for (auto [index, value] : llvm::enumerate(tensors)) {
    auto operand = rule.tensor(value);
    if (!operand)
      return rule.setInexact("a shape of the operator is unknown");
    if (index < kind.conditions)
      continue;
    if (isNumber(op, kind, index)) {
      numbers.push_back(getNumberType(operand->elementType));
      continue;
    }
    if (index >= tensors.size() - kind.weights) {
      weights.push_back(std::move(*operand));
      continue;
    }
    TensorInfo info;
    info.elementType = operand->elementType;
    info.dims.emplace(operand->dims.size(), DimExpr::constant(context, 1));
    infos.push_back(std::move(info));
    operands.push_back(std::move(*operand));
  }
  Type computed = getComputedType(kind.result, getCommonType(infos, numbers));
  if (!isTorchType(computed))
    return rule.setInexact("an element type is unknown");
  int64_t size = getElementBytes(computed), bytes = 0;
  // TensorIterator casts each operand of another type into a temporary; an
  // in-place form also computes into one.
  for (const auto *list : {&operands, &weights})
    for (const ConcreteTensor &operand : *list)
      if (operand.elementType != computed)
        bytes += operand.numElements() * size;
  // What compares writes bools as they are.
  bool writesBools = kind.result == Elementwise::Bool &&
                     operands.front().elementType.isInteger(1);
  if (isInPlace(op) && operands.front().elementType != computed && !writesBools)
    bytes += operands.front().numElements() * size;
  // A complex result is computed before its part is taken (measured).
  if (kind.result == Elementwise::Real || kind.result == Elementwise::RealFloat)
    if (isa<ComplexType>(computed))
      bytes += operands.front().numElements() * size;
  // A number becomes a 0-dim tensor, and that one is cast (measured).
  for (Type number : numbers) {
    if (!wraps)
      break;
    bytes += number ? getElementBytes(number) : 8;
    if (number != computed)
      bytes += size;
    if (!number)
      rule.setBound("of which type a number is, is not known");
  }
  // pow of base 1 fills the result; native/Pow.cpp.
  if (isa<PowScalarOp>(op) && mayBeOne(op))
    rule.setBound("a base of 1 is not computed, any other is");
  // A tensor of one bool is compared as it is, or cast first (measured).
  if (isInPlace(op) && operands.front().dims.empty() &&
      operands.front().elementType.isInteger(1))
    rule.setBound("a 0-dim bool that is written in place");
  rule.setTransient(bytes);
}
