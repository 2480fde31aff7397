//===- TensorIterator.cpp - What elementwise operators allocate -----------===//
//
// TensorIterator casts operands into the common type of all, one by one.
//
//===----------------------------------------------------------------------===//

#include "../Models.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/ElementwiseOp.h"

using namespace mlir;
using namespace koila;
using namespace koila::rules;

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

/// The type of the number argument `name`; null: unknown.
static Type getArgumentType(WorkspaceRule &rule, StringRef name) {
  Operation *op = rule.getOp();
  if (Value dynamic = OperatorArguments(op).getDynamic(name))
    return getNumberType(rule, dynamic);
  auto typed = dyn_cast_or_null<TypedAttr>(op->getAttr(name));
  return typed ? typed.getType() : Type();
}

namespace {
/// The operands of an elementwise kernel, but for conditions.
struct ElementwiseOperands {
  explicit ElementwiseOperands(bool wraps) : wraps(wraps) {}

  /// In the order of the iterator; numbers are 0-dim.
  SmallVector<ConcreteTensor, 3> all;
  /// What decides the common type.
  SmallVector<TensorInfo> infos;
  SmallVector<Type> numbers;
  /// Whether numbers become tensors on the way.
  bool wraps;

  void addNumber(Type type) {
    numbers.push_back(type);
    if (wraps)
      all.push_back(kernels::getNumber(type));
  }
  void addTensor(ConcreteTensor tensor) {
    TensorInfo info;
    info.elementType = tensor.elementType;
    info.dims.emplace(tensor.dims.size(),
                      DimExpr::constant(tensor.elementType.getContext(), 1));
    infos.push_back(std::move(info));
    all.push_back(std::move(tensor));
  }
};
} // namespace

/// None if a shape is unknown.
static std::optional<ElementwiseOperands>
collectOperands(WorkspaceRule &rule, const Elementwise &kind, bool wraps) {
  Operation *op = rule.getOp();
  OperandRange tensors = rules::getTensors(op);
  ElementwiseOperands operands(wraps);
  auto addNumbers = [&](bool beforeTensors) {
    for (StringRef name : kind.numbers)
      if ((name == "self") == beforeTensors && OperatorArguments(op).has(name))
        operands.addNumber(getArgumentType(rule, name));
  };
  addNumbers(/*beforeTensors=*/true);
  for (auto [index, value] : llvm::enumerate(tensors)) {
    auto tensor = rule.tensor(value);
    if (!tensor)
      return std::nullopt;
    if (index < kind.conditions)
      continue;
    if (rules::isNumber(op, kind, index))
      operands.addNumber(getNumberType(tensor->elementType));
    else if (index < tensors.size() - kind.weights)
      operands.addTensor(std::move(*tensor));
    else
      operands.all.push_back(std::move(*tensor));
  }
  addNumbers(/*beforeTensors=*/false);
  if (kind.reversed || isa<RsubScalarOp>(op))
    std::reverse(operands.all.begin(), operands.all.end());
  return operands;
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

/// Where what is held is not known to the byte.
static void doubtWorkspace(WorkspaceRule &rule,
                           const ElementwiseOperands &operands) {
  Operation *op = rule.getOp();
  if (operands.wraps && llvm::is_contained(operands.numbers, Type()))
    rule.setBound("of which type a number is, is not known");
  // pow of base 1 fills the result; native/Pow.cpp.
  if (isa<PowScalarOp>(op) && mayBeOne(op))
    rule.setBound("a base of 1 is not computed, any other is");
  // A tensor of one bool is compared as it is, or cast first (measured).
  const TensorInfo &first = operands.infos.front();
  if (rules::isInPlace(op) && first.dims->empty() &&
      first.elementType.isInteger(1))
    rule.setBound("a 0-dim bool that is written in place");
}

/// Bytes of a temporary that an in-place form computes into: `written` is of
/// another type than `computed`.
static int64_t getWrittenBytes(const Elementwise &kind,
                               const ConcreteTensor &written, Type computed) {
  // What compares writes bools as they are.
  if (kind.result == Elementwise::Bool && written.elementType.isInteger(1))
    return 0;
  return kernels::getCastBytes(written, computed);
}

/// What the operator allocates where it computes in the type `computed`.
static AllocationTrace traceElementwise(Operation *op, const Elementwise &kind,
                                        const ElementwiseOperands &operands,
                                        const ConcreteTensor &result,
                                        Type computed) {
  AllocationTrace trace;
  kernels::TensorIteration iteration{operands.all, computed};
  // A complex result is computed before its part is taken. Source:
  // unary_op_impl_with_complex_to_float_out in native/UnaryOps.cpp.
  bool takesPart =
      isa<ComplexType>(computed) && (kind.result == Elementwise::Real ||
                                     kind.result == Elementwise::RealFloat);
  // What is there before all steps. Sources: abs in native/UnaryOps.cpp and
  // pow_Scalar_out in native/Pow.cpp.
  bool hasResult =
      isa<PowScalarOp>(op) || (takesPart && kind.result == Elementwise::Real);
  if (rules::isInPlace(op))
    iteration.writtenBytes = getWrittenBytes(kind, result, computed);
  else if (!hasResult)
    iteration.resultBytes = result.numBytes();
  SmallVector<AllocationTrace::Block, 1> numbers;
  if (operands.wraps)
    for (Type number : operands.numbers)
      numbers.push_back(kernels::allocateNumber(trace, number));
  AllocationTrace::Block whole;
  if (takesPart)
    whole = trace.allocate(kernels::countBytes(result, computed));
  // Source: CREATE_COMPARISON_SCALAR_TENSOR_META_FUNC in native/BinaryOps.cpp.
  AllocationTrace::Block last;
  if (kind.result == Elementwise::Bool && !numbers.empty())
    last = numbers.pop_back_val();
  iteration.replay(trace, last);
  trace.free(whole);
  for (AllocationTrace::Block number : numbers)
    trace.free(number);
  return trace;
}

/// Whether nothing is cast, so that only the result is allocated.
static bool isOfOneType(Operation *op, const ElementwiseOperands &operands,
                        const ConcreteTensor &result, Type computed) {
  return (!operands.wraps || operands.numbers.empty()) &&
         !isa<ComplexType>(computed) &&
         (!rules::isInPlace(op) || result.elementType == computed) &&
         llvm::all_of(operands.all, [&](const ConcreteTensor &operand) {
           return operand.elementType == computed;
         });
}

/// Whether the types in the IR say that nothing is cast: all tensors are of one
/// type of floating point, and none stands for a number. Most calls are such,
/// and need no extents.
static bool isOfOneTypeInIR(Operation *op, const Elementwise &kind) {
  Type element = getElementTypeOrSelf(op->getResult(0));
  return isa<FloatType>(element) &&
         llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
           auto tensor = dyn_cast<RankedTensorType>(operand.get().getType());
           return tensor && tensor.getElementType() == element &&
                  !rules::isNumber(op, kind, operand.getOperandNumber());
         });
}

static void describeElementwise(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto elementwise = cast<ElementwiseOpInterface>(op);
  const Elementwise kind = elementwise.getElementwise();
  bool wraps = elementwise.wrapsNumbers();
  if ((!wraps || kind.numbers.empty()) && isOfOneTypeInIR(op, kind))
    return;
  auto operands = collectOperands(rule, kind, wraps);
  auto result = rule.tensor(op->getResult(0));
  if (!operands || !result)
    return rule.setInexact("a shape of the operator is unknown");
  Type computed = getComputedType(
      kind.result, getCommonType(operands->infos, operands->numbers));
  if (!isTorchType(computed))
    return rule.setInexact("an element type is unknown");
  if (!isOfOneType(op, *operands, *result, computed))
    rule.setTrace(traceElementwise(op, kind, *operands, *result, computed));
  doubtWorkspace(rule, *operands);
}

void kernels::addElementwiseModels(KernelLibrary &library,
                                   MLIRContext &context) {
  for (RegisteredOperationName name : context.getRegisteredOperationsByDialect(
           KoilaDialect::getDialectNamespace()))
    if (name.hasInterface<ElementwiseOpInterface>() &&
        !library.find(name.getTypeID()).forward)
      library.insert(name.getTypeID(), name.getStringRef(),
                     {describeElementwise, nullptr, nullptr});
}
