//===- Reproducible.cpp - Equal inputs give equal files -------------------===//

#include "Reproducible.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/Transforms/FilePlans.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"
#include <ATen/core/class_type.h>
#include <torch/csrc/jit/api/function_impl.h>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

namespace {
/// Names whatever a class mentions, in the order in which it is met.
class Namer {
public:
  void visit(const c10::TypePtr &type);

private:
  void visit(c10::ClassType &type);
  void visit(tj::Function &function);
  void visit(tj::Block *block);
  void visit(const c10::FunctionSchema &schema);
  c10::QualifiedName getName(const c10::QualifiedName &name);

  llvm::DenseSet<const void *> seen;
  llvm::StringMap<std::string> names;
  llvm::StringSet<> taken;
  unsigned numMangled = 0;
};
} // namespace

// LibTorch has no calls that give types and functions another name.

static void setName(tj::Function &function, const c10::QualifiedName &name) {
  if (auto *graph = dynamic_cast<tj::GraphFunction *>(&function))
    const_cast<c10::QualifiedName &>(graph->qualname()) = name;
}

c10::QualifiedName Namer::getName(const c10::QualifiedName &name) {
  auto [entry, isNew] = names.try_emplace(name.qualifiedName());
  if (!isNew)
    return entry->second;
  constexpr llvm::StringRef kMangled = "___torch_mangle_";
  std::vector<std::string> atoms = name.atoms();
  llvm::erase_if(atoms, [&](const std::string &atom) {
    return llvm::StringRef(atom).starts_with(kMangled);
  });
  entry->second = c10::QualifiedName(atoms).qualifiedName();
  if (!taken.insert(entry->second).second) {
    atoms.insert(atoms.end() - 1, (kMangled + llvm::Twine(numMangled++)).str());
    entry->second = c10::QualifiedName(atoms).qualifiedName();
  }
  return entry->second;
}

void Namer::visit(const c10::FunctionSchema &schema) {
  for (const c10::Argument &argument : schema.arguments())
    visit(argument.type());
  for (const c10::Argument &result : schema.returns())
    visit(result.type());
}

void Namer::visit(tj::Block *block) {
  for (tj::Value *input : block->inputs())
    visit(input->type());
  for (tj::Node *node : block->nodes()) {
    for (tj::Value *output : node->outputs())
      visit(output->type());
    for (c10::Symbol name : node->attributeNames()) {
      if (node->kindOf(name) == tj::AttributeKind::ty)
        visit(node->ty(name));
      else if (node->kindOf(name) == tj::AttributeKind::tys)
        llvm::for_each(node->tys(name), [&](auto &type) { visit(type); });
    }
    for (tj::Block *inner : node->blocks())
      visit(inner);
  }
}

void Namer::visit(tj::Function &function) {
  if (!seen.insert(&function).second)
    return;
  visit(function.getSchema());
  if (auto *graph = tj::tryToGraphFunction(function))
    visit(graph->graph()->block());
}

void Namer::visit(c10::ClassType &type) {
  for (size_t i = 0; i < type.numAttributes(); ++i)
    visit(type.getAttribute(i));
  std::vector<tj::Function *> functions = type.methods();
  llvm::append_range(functions, type.getForwardHooks());
  llvm::append_range(functions, type.getForwardPreHooks());
  for (tj::Function *function : functions) {
    setName(*function, c10::QualifiedName(*type.name(), function->name()));
    visit(*function);
  }
  std::map<std::string, c10::IValue> constants;
  for (size_t i = 0; i < type.numConstants(); ++i)
    constants[type.getConstantName(i)] = type.getConstant(i);
  for (const auto &[name, value] : constants) {
    type.unsafeRemoveConstant(name);
    type.addConstant(name, value);
  }
}

void Namer::visit(const c10::TypePtr &type) {
  if (!seen.insert(type.get()).second)
    return;
  auto named = type->cast<c10::NamedType>();
  if (named && named->name())
    const_cast<std::optional<c10::QualifiedName> &>(named->name()) =
        getName(*named->name());
  if (auto function = type->cast<c10::FunctionType>()) {
    setName(*function->function(), *named->name());
    visit(*function->function());
  }
  if (auto object = type->cast<c10::ClassType>())
    visit(*object);
  for (const c10::TypePtr &part : type->containedTypes())
    visit(part);
}

void koila::torchscript::giveCanonicalNames(const tj::Module &module) {
  Namer().visit(module.type());
}

//===----------------------------------------------------------------------===//
// Paths
//===----------------------------------------------------------------------===//

static void replaceFile(ModuleOp module, llvm::StringRef from,
                        llvm::StringRef to) {
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [&](FileLineColLoc place) -> std::optional<Attribute> {
        if (place.getFilename() != from)
          return std::nullopt;
        return FileLineColLoc::get(module.getContext(), to, place.getLine(),
                                   place.getColumn());
      });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/false,
                                        /*replaceLocs=*/true);
}

std::string koila::torchscript::getPortableBytecode(ModuleOp module,
                                                    llvm::StringRef path) {
  OwningOpRef<ModuleOp> copy = module.clone();
  replaceFile(*copy, path, "");
  constexpr llvm::StringLiteral kReport = KoilaDialect::kReportAttr;
  for (ModuleOp plan : getPlans(*copy)) {
    plan->removeAttr(KoilaDialect::kArchiveAttr);
    if (auto report = plan->getAttrOfType<StringAttr>(kReport))
      plan->setAttr(kReport, StringAttr::get(module.getContext(),
                                             getPortableReport(report, path)));
  }
  std::string bytes;
  llvm::raw_string_ostream os(bytes);
  return succeeded(writeBytecodeToFile(*copy, os)) ? bytes : std::string();
}

/// Texts that name a place: `file` of locations, `name` of lines.
static void removePath(llvm::json::Value &value, llvm::StringRef path) {
  if (auto *array = value.getAsArray())
    for (llvm::json::Value &element : *array)
      removePath(element, path);
  auto *object = value.getAsObject();
  if (!object)
    return;
  for (auto &[key, part] : *object) {
    if (auto text = part.getAsString();
        text && llvm::StringRef(key) == "file" && *text == path)
      part = "";
    removePath(part, path);
  }
  if (auto *lines = object->getArray("by_line"))
    for (llvm::json::Value &line : *lines)
      if (auto name = line.getAsObject()->getString("name");
          name && name->starts_with((path + ":").str()))
        (*line.getAsObject())["name"] = "unknown place";
}

std::string koila::torchscript::getPortableReport(llvm::StringRef json,
                                                  llvm::StringRef path) {
  auto report = llvm::json::parse(json);
  if (!report) {
    llvm::consumeError(report.takeError());
    return json.str();
  }
  removePath(*report, path);
  std::string text;
  llvm::raw_string_ostream os(text);
  os << *report;
  return text;
}

void koila::torchscript::setArchivePath(ModuleOp module, llvm::StringRef path) {
  replaceFile(module, "", path);
}
