//===- ImportObjects.cpp - Attributes, classes and methods ----------------===//
//
// What a module or an object holds. An attribute that the function nowhere
// writes is a weight or a value of the archive; one that it writes is read
// where the program reads it, in order with the writes.
//
//===----------------------------------------------------------------------===//

#include "../Boundary/DiagnosticJSON.h"
#include "Import.h"
#include "koila/Analysis/AttributeState.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "koila/Target/TorchScript/Types.h"
#include <sstream>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
using llvm::Twine;

std::optional<std::string> FunctionImporter::getPath(const Node *node) const {
  const std::string &name = node->s(c10::attr::name);
  const TorchValue *owner = node->input(0);
  if (owner == result.graph.graph->inputs()[0])
    return name;
  if (owner->node()->kind() != prim::GetAttr)
    return std::nullopt;
  auto path = getPath(owner->node());
  return path ? std::optional(*path + "." + name) : std::nullopt;
}

/// The object that a chain of attribute reads leads to when the function
/// starts; null for other values.
const c10::ivalue::Object *
FunctionImporter::getOwner(const TorchValue *value) const {
  if (value == result.graph.graph->inputs()[0])
    return module._ivalue().get();
  if (value->node()->kind() != prim::GetAttr)
    return nullptr;
  const c10::ivalue::Object *owner = getOwner(value->node()->input());
  if (!owner)
    return nullptr;
  c10::IValue found = owner->getAttr(value->node()->s(c10::attr::name));
  // The module, which outlives the import, holds the object.
  return found.isObject() ? found.toObject().get() : nullptr;
}

void FunctionImporter::findWrittenAttributes() {
  for (const Node *node : result.graph.nodes) {
    // By object: two paths may lead to the same one.
    if (node->kind() == prim::SetAttr)
      if (const c10::ivalue::Object *owner = getOwner(node->input(0)))
        writtenAttributes.insert({owner, node->s(c10::attr::name)});
    // Under another grad mode an equal operation is not the same.
    if (node->kind() == prim::Enter ||
        node->kind() == c10::Symbol::fromQualString("aten::set_grad_enabled"))
      orderAll = true;
  }
}

void FunctionImporter::importGetAttr(Node *node) {
  const std::string &name = node->s(c10::attr::name);
  const ModuleAttribute *owner = getModuleAttribute(node->input());
  TorchValue *output = node->output();
  std::string path;
  bool written = false;
  if (owner && owner->value.isObject()) {
    path = owner->path.empty() ? name : owner->path + "." + name;
    written = writtenAttributes.count({owner->value.toObject().get(), name});
  }
  if (!path.empty() && !written) {
    c10::IValue value = owner->value.toObject()->getAttr(name);
    attributes[output] = {value, path};
    std::string name = "'" + path + "' of the module";
    if (value.isTensor())
      aliases.setKnown(output, name, value.toTensor());
    else if (isShared(output->type()) && !value.isModule())
      aliases.setForeign(output, name);
    return;
  }
  // Read where the program reads it.
  Value object = path.empty() ? getValue(node->input()) : Value();
  auto op =
      AttrGetOp::create(builder, location, convertType(output->type(), context),
                        path.empty() ? name : path, object);
  op->setAttr(KoilaDialect::kReadsAttr, builder.getUnitAttr());
  if (!path.empty()) {
    c10::IValue value = owner->value.toObject()->getAttr(name);
    if (value.isNone() || value.isBool() || value.isInt() || value.isString())
      op->setAttr(kInitialAttr, getAttr(value));
    if (value.isTensor() && value.toTensor().defined() &&
        value.toTensor().layout() == at::kStrided &&
        value.toTensor().is_contiguous() && !value.toTensor().requires_grad())
      op->setAttr(kInitialAttr,
                  TypeAttr::get(getTensorType(value.toTensor(), context)));
  }
  if (path.empty()) {
    uniteCarried(output, node->input());
  } else if (isShared(output->type())) {
    aliases.setForeign(output, "'" + path + "' of the module");
    const TorchValue *&known = attributeValues[path];
    if (known)
      aliases.unite(known, output);
    known = output;
  }
  defineResults(node, op, /*written=*/nullptr);
}

Attribute FunctionImporter::getNodeAttributes(const Node *node) {
  std::ostringstream text;
  for (tj::Symbol name : node->attributeNames()) {
    // A serial number that the parser gives.
    if (name == c10::attr::warn_id)
      continue;
    text << (text.tellp() > 0 ? ", " : "") << name.toUnqualString() << " = ";
    switch (node->kindOf(name)) {
    case tj::AttributeKind::s:
      text << node->s(name);
      break;
    case tj::AttributeKind::i:
      text << node->i(name);
      break;
    case tj::AttributeKind::ty:
      text << node->ty(name)->annotation_str();
      break;
    case tj::AttributeKind::tys:
      for (const c10::TypePtr &type : node->tys(name))
        text << type->annotation_str() << ";";
      break;
    default:
      refuse(location, Twine("'") + node->kind().toQualString() +
                           "' is not supported yet");
    }
  }
  return text.str().empty() ? Attribute() : builder.getStringAttr(text.str());
}

Operation *FunctionImporter::importSetAttr(Node *node) {
  auto path = getPath(node);
  const TorchValue *assigned = node->input(1);
  Value object = path ? Value() : getValue(node->input(0));
  Value value = getArgument(assigned);
  if (!path) {
    seenWrites.push_back(node->input(0));
    uniteCarried(node->input(0), assigned);
  } else if (isShared(assigned->type())) {
    // From here on the caller can see it.
    aliases.setForeign(assigned, "'" + *path + "' of the module");
    const TorchValue *&known = attributeValues[*path];
    if (known)
      aliases.unite(known, assigned);
    known = assigned;
  }
  return AttrSetOp::create(builder, location,
                           path ? *path : node->s(c10::attr::name), object,
                           value);
}

/// Through an interface: which method runs, the archive decides.
Operation *FunctionImporter::importCallMethod(Node *node) {
  Value object = getValue(node->input(0));
  llvm::SmallVector<Value> inputs;
  for (const TorchValue *input : node->inputs().slice(1))
    inputs.push_back(getArgument(input));
  for (const TorchValue *input : node->inputs())
    if (mayHoldTensor(input->type())) {
      seenWrites.push_back(input);
      aliases.setForeign(input, "an argument of a call");
    }
  return CallMethodOp::create(builder, location,
                              convertType(node->output()->type(), context),
                              node->s(c10::attr::name), object, inputs);
}

Operation *FunctionImporter::importSpecial(Node *node) {
  if (node->kind() == prim::SetAttr)
    return importSetAttr(node);
  if (node->kind() == prim::CallMethod)
    return importCallMethod(node);
  if (node->kind() != prim::Enter && node->kind() != prim::Exit)
    return nullptr;
  llvm::SmallVector<Value> operands;
  llvm::SmallVector<Attribute> arguments;
  for (const TorchValue *input : node->inputs())
    arguments.push_back(encodeOperand(input, /*literalLists=*/false, operands));
  llvm::SmallVector<Type> types;
  for (const TorchValue *output : node->outputs())
    types.push_back(convertType(output->type(), context));
  return createOpaque(node->kind().toQualString(), arguments, operands,
                      Effects::Unknown, types);
}
