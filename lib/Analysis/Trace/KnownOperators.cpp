//===- KnownOperators.cpp - Operations from arguments ---------------------===//

#include "KnownOperators.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace koila;

/// The names of the arguments in `aten::cat(Tensor[] tensors, int dim=0) ->
/// ..`.
static SmallVector<StringRef> getArgumentNames(StringRef schema) {
  SmallVector<StringRef> names;
  size_t open = schema.find('('), close = schema.rfind(") ->");
  if (open == StringRef::npos || close == StringRef::npos)
    return names;
  StringRef rest = schema.slice(open + 1, close);
  while (!rest.empty()) {
    // Defaults may be lists, and types say what they alias.
    size_t end = 0;
    for (int depth = 0; end < rest.size(); ++end) {
      char letter = rest[end];
      depth += letter == '[' || letter == '(';
      depth -= letter == ']' || letter == ')';
      if (letter == ',' && depth == 0)
        break;
    }
    StringRef argument = rest.take_front(end).split('=').first.trim();
    rest = rest.drop_front(std::min(end + 1, rest.size()));
    if (argument != "*")
      names.push_back(argument.substr(argument.rfind(' ') + 1));
  }
  return names;
}

KnownOperators::KnownOperators(MLIRContext *context) {
  for (RegisteredOperationName name : context->getRegisteredOperations())
    if (auto *operation = name.getInterface<TorchOperatorInterface>()) {
      StringRef callee = operation->getTorchSchema().split('(').first;
      names.try_emplace(callee, name);
      overloads[callee.split('.').first].push_back(name);
    }
}

/// What the operation calls a literal of the interpreter.
static Attribute getAttribute(Attribute literal, MLIRContext *context) {
  auto list = dyn_cast<ArrayAttr>(literal);
  if (!list)
    return literal;
  SmallVector<int64_t> numbers;
  for (Attribute element : list) {
    auto number = dyn_cast<IntegerAttr>(element);
    if (!number || !number.getType().isInteger(64))
      return literal;
    numbers.push_back(number.getInt());
  }
  return DenseI64ArrayAttr::get(context, numbers);
}

Operation *KnownOperators::create(OpBuilder &builder, Location loc,
                                  StringRef callee,
                                  ArrayRef<OperatorArgument> arguments,
                                  TypeRange results) const {
  auto found = names.find(callee);
  return found == names.end()
             ? nullptr
             : create(builder, loc, found->second, arguments, results);
}

Operation *KnownOperators::createWithoutOut(
    OpBuilder &builder, Location loc, StringRef callee,
    ArrayRef<OperatorArgument> arguments, TypeRange results) const {
  Operation *only = nullptr;
  auto found = overloads.find(callee.split('.').first);
  if (found == overloads.end())
    return nullptr;
  for (RegisteredOperationName name : found->second) {
    Operation *made = create(builder, loc, name, arguments, results);
    if (made && only) {
      made->erase();
      only->erase();
      return nullptr;
    }
    only = made ? made : only;
  }
  return only;
}

Operation *KnownOperators::create(OpBuilder &builder, Location loc,
                                  RegisteredOperationName name,
                                  ArrayRef<OperatorArgument> arguments,
                                  TypeRange results) const {
  auto *operation = name.getInterface<TorchOperatorInterface>();
  SmallVector<StringRef> declared =
      getArgumentNames(operation->getTorchSchema());
  if (declared.size() != arguments.size())
    return nullptr;
  auto isAttribute = [&](StringRef argument) {
    return llvm::is_contained(name.getAttributeNames(),
                              builder.getStringAttr(argument));
  };
  OperationState state(loc, name);
  SmallVector<int32_t> segments;
  for (auto [argument, label] : llvm::zip_equal(arguments, declared)) {
    bool isNone = isa_and_nonnull<UnitAttr>(argument.literal);
    if (isAttribute(label)) {
      if (isNone)
        continue;
      if (!argument.literal)
        return nullptr;
      state.addAttribute(label,
                         getAttribute(argument.literal, builder.getContext()));
      continue;
    }
    if (argument.literal && !isNone)
      return nullptr;
    SmallVector<bool> isThere;
    size_t before = state.operands.size();
    for (Value value : argument.values) {
      isThere.push_back(value != nullptr);
      if (value && !isa<TensorType>(value.getType()))
        return nullptr;
      if (value)
        state.operands.push_back(value);
    }
    segments.push_back(state.operands.size() - before);
    // Of a list of optional tensors the attribute says which are there.
    if (std::string mask = (label + "_mask").str(); isAttribute(mask))
      state.addAttribute(mask, builder.getDenseBoolArrayAttr(isThere));
    else if (llvm::is_contained(isThere, false))
      return nullptr;
  }
  if (isAttribute("operandSegmentSizes")) {
    if (operation->takesDynamic())
      segments.push_back(0);
    state.addAttribute("operandSegmentSizes",
                       builder.getDenseI32ArrayAttr(segments));
  }
  state.addTypes(results);
  Operation *op = builder.create(state);
  ScopedDiagnosticHandler quiet(builder.getContext(), [](Diagnostic &) {});
  if (succeeded(verify(op, /*verifyRecursively=*/false)))
    return op;
  op->erase();
  return nullptr;
}
