//===- Containers.cpp - Rules of lists, tuples and dicts ------------------===//

#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace koila;

LogicalResult koila::ConstantOp::inferShapes(ShapeRule &rule) {
  ValueInfo info;
  info.literal = getValue();
  rule.setInfo(0, info);
  return success();
}

//===----------------------------------------------------------------------===//
// construct
//===----------------------------------------------------------------------===//

LogicalResult ConstructOp::inferShapes(ShapeRule &rule) {
  ValueInfo info;
  OperandRange elements = getElements();
  bool isDict = getContainer() == Container::Dict;
  if (isDict && elements.size() % 2 != 0)
    return rule.emitError() << "a dict needs a value for each key";
  // What is in a list or dict that changes, its maker does not know.
  if (isOrdered(*this) && getContainer() != Container::Tuple)
    return success();
  for (unsigned i = isDict; i < elements.size(); i += isDict ? 2 : 1)
    info.elements.push_back(rule.info(elements[i]));
  if (getContainer() == Container::List &&
      llvm::all_of(elements, [](Value element) {
        return element.getType().isInteger(64);
      })) {
    info.list.emplace();
    for (const ValueInfo &element : info.elements)
      info.list->push_back(element.integer);
  }
  rule.setInfo(0, std::move(info));
  return success();
}

void ConstructOp::inferBatch(BatchRule &rule) {
  // A list of integers may have one that is a number of samples.
  std::optional<BatchFact> found;
  bool single = getContainer() == Container::List;
  for (auto [index, element] : llvm::enumerate(getElements())) {
    BatchFact fact = rule.fact(element);
    if (fact.isFree())
      continue;
    single &= !found && fact.isAt() && element.getType().isInteger(64);
    found = BatchFact::at(index, fact.factor);
  }
  if (single && found)
    return rule.setResult(0, *found);
  rule.mix("what is taken out of a container again has no batch rule");
}

void ConstructOp::describeStorage(StorageRule &rule) { rule.setKeeps(0); }

//===----------------------------------------------------------------------===//
// unpack, element
//===----------------------------------------------------------------------===//

LogicalResult UnpackOp::inferShapes(ShapeRule &rule) {
  ValueInfo info = rule.info(getContainer());
  if (info.elements.empty())
    return success();
  if (info.elements.size() != getNumResults())
    return rule.emitError()
           << "takes " << getNumResults() << " elements out of a container of "
           << info.elements.size();
  for (auto [index, element] : llvm::enumerate(info.elements))
    rule.setInfo(index, element);
  return success();
}

/// Of a list of integers, the element that is a number of samples.
static BatchFact getElementFact(const BatchFact &list, Value element,
                                int64_t index) {
  return element.getType().isInteger(64) && list.dim == index
             ? BatchFact::at(-1, list.factor)
             : BatchFact::free();
}

void UnpackOp::inferBatch(BatchRule &rule) {
  BatchFact list = rule.fact(getContainer());
  for (auto [index, element] : llvm::enumerate(getResults()))
    if (element.getType().isInteger(64))
      rule.setResult(index, getElementFact(list, element, index));
}

void UnpackOp::describeStorage(StorageRule &rule) {
  for (unsigned index = 0; index < getNumResults(); ++index)
    rule.setKeeps(index);
}

/// The position of `key` in a dict; none if the keys are not known.
static std::optional<size_t> findKey(Value dict, StringAttr key) {
  if (auto construct = dict.getDefiningOp<ConstructOp>()) {
    for (unsigned i = 0; i + 1 < construct.getElements().size(); i += 2) {
      auto constant = construct.getElements()[i].getDefiningOp<ConstantOp>();
      if (!constant)
        return std::nullopt;
      if (constant.getValue() == key)
        return i / 2;
    }
    return std::nullopt;
  }
  auto argument = dyn_cast<BlockArgument>(dict);
  auto function =
      argument
          ? dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp())
          : FunctionOpInterface();
  if (!function)
    return std::nullopt;
  auto value = function.getArgAttrOfType<DictionaryAttr>(
      argument.getArgNumber(), KoilaDialect::kValueAttr);
  auto keys = value ? value.getAs<ArrayAttr>("keys") : ArrayAttr();
  if (!keys)
    return std::nullopt;
  for (auto [index, candidate] : llvm::enumerate(keys))
    if (candidate == key)
      return index;
  return std::nullopt;
}

LogicalResult ElementOp::inferShapes(ShapeRule &rule) {
  ValueInfo info = rule.info(getContainer());
  // Of numbers, which an operator gave.
  if (info.elements.empty() && info.list)
    for (DimExpr number : *info.list)
      info.elements.emplace_back().integer = number;
  if (info.elements.empty())
    return success();
  if (auto key = dyn_cast<StringAttr>(getAt())) {
    if (auto position = findKey(getContainer(), key);
        position && *position < info.elements.size())
      rule.setInfo(0, info.elements[*position]);
    return success();
  }
  int64_t size = info.elements.size(), at = cast<IntegerAttr>(getAt()).getInt();
  if (at < -size || at >= size)
    return rule.emitError()
           << "index " << at << " is out of range for a container of " << size;
  rule.setInfo(0, info.elements[at < 0 ? at + size : at]);
  return success();
}

void ElementOp::inferBatch(BatchRule &rule) {
  BatchFact list = rule.fact(getContainer());
  auto at = dyn_cast<IntegerAttr>(getAt());
  if (at && at.getInt() >= 0 && getResult().getType().isInteger(64))
    rule.setResult(0, getElementFact(list, getResult(), at.getInt()));
}

void ElementOp::describeStorage(StorageRule &rule) { rule.setKeeps(0); }

//===----------------------------------------------------------------------===//
// Casts
//===----------------------------------------------------------------------===//

LogicalResult UpcastOp::inferShapes(ShapeRule &rule) {
  rule.setInfo(0, rule.info(getSource()));
  return success();
}

void UpcastOp::inferBatch(BatchRule &rule) {
  rule.setResult(0, rule.fact(getSource()));
}

void UpcastOp::describeStorage(StorageRule &rule) {
  rule.setAlias(0, getSource());
}

LogicalResult UncheckedCastOp::inferShapes(ShapeRule &rule) {
  ValueInfo info = rule.info(getSource());
  // From here on it is not None.
  if (isa_and_nonnull<DynamicAttr>(info.literal))
    info.literal = {};
  rule.setInfo(0, std::move(info));
  return success();
}

void UncheckedCastOp::inferBatch(BatchRule &rule) {
  rule.setResult(0, rule.fact(getSource()));
}

void UncheckedCastOp::describeStorage(StorageRule &rule) {
  rule.setAlias(0, getSource());
}

//===----------------------------------------------------------------------===//
// uninitialized
//===----------------------------------------------------------------------===//

/// Nothing: the analyses leave the value as if it was never visited.
LogicalResult UninitializedOp::inferShapes(ShapeRule &) { return success(); }
void UninitializedOp::inferBatch(BatchRule &) {}

/// It has no storage.
void UninitializedOp::describeStorage(StorageRule &rule) { rule.setKeeps(0); }
