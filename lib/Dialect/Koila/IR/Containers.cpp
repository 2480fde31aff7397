//===- Containers.cpp - Rules of lists, tuples and dicts ------------------===//

#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// construct
//===----------------------------------------------------------------------===//

LogicalResult ConstructOp::inferShapes(ShapeRule &rule) {
  ValueInfo info;
  OperandRange elements = getElements();
  bool isDict = getContainer() == Container::Dict;
  if (isDict && elements.size() % 2 != 0)
    return rule.emitError() << "a dict needs a value for each key";
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
  for (Value element : getElements())
    (void)rule.fact(element);
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
    return rule.emitError() << "takes " << getNumResults()
                            << " elements out of a container of "
                            << info.elements.size();
  for (auto [index, element] : llvm::enumerate(info.elements))
    rule.setInfo(index, element);
  return success();
}

void UnpackOp::inferBatch(BatchRule &) {}

void UnpackOp::describeStorage(StorageRule &rule) {
  for (unsigned index = 0; index < getNumResults(); ++index)
    rule.setKeeps(index);
}

/// The position of `key` in a dict; none if the keys are not known.
static std::optional<size_t> findKey(Value dict, StringAttr key) {
  if (auto construct = dict.getDefiningOp<ConstructOp>()) {
    for (unsigned i = 0; i + 1 < construct.getElements().size(); i += 2) {
      auto constant =
          construct.getElements()[i].getDefiningOp<ConstantOp>();
      if (!constant)
        return std::nullopt;
      if (constant.getValue() == key)
        return i / 2;
    }
    return std::nullopt;
  }
  auto argument = dyn_cast<BlockArgument>(dict);
  auto function = argument ? dyn_cast<FunctionOpInterface>(
                                 argument.getOwner()->getParentOp())
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
    return rule.emitError() << "index " << at
                            << " is out of range for a container of " << size;
  rule.setInfo(0, info.elements[at < 0 ? at + size : at]);
  return success();
}

void ElementOp::inferBatch(BatchRule &) {}

void ElementOp::describeStorage(StorageRule &rule) { rule.setKeeps(0); }
