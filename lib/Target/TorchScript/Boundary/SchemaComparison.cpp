//===- SchemaComparison.cpp - Schemas next to LibTorch's ------------------===//

#include "SchemaComparison.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <ATen/core/dispatch/Dispatcher.h>
#include <sstream>
#include <torch/csrc/jit/runtime/operator.h>

using namespace koila;
using namespace koila::torchscript;

bool koila::torchscript::isForeign(const OperatorInfo &info) {
  return !mlir::isa<KoilaDialect>(info.name.getDialect());
}

/// LibTorch's schema of that name; null if there is none. The operators of the
/// interpreter, `prim::NumToTensor` for one, are not in the dispatcher.
static const c10::FunctionSchema *
findSchema(const c10::FunctionSchema &schema) {
  auto handle = c10::Dispatcher::singleton().findSchema(
      {schema.name(), schema.overload_name()});
  if (handle)
    return &handle->schema();
  for (const auto &candidate : torch::jit::getAllOperatorsFor(
           c10::Symbol::fromQualString(schema.name())))
    if (candidate->schema().overload_name() == schema.overload_name())
      return &candidate->schema();
  return nullptr;
}

/// Spells a schema as LibTorch does, so that two can be compared as text.
static std::string spell(const c10::FunctionSchema &schema) {
  std::ostringstream os;
  os << schema;
  std::string text = os.str();
  // The alias sets of one annotation, `(a|b)`, come in the order of a hash.
  for (size_t open = text.find('('); open != std::string::npos;
       open = text.find('(', open + 1)) {
    size_t close = text.find_first_of("()", open + 1);
    llvm::StringRef sets =
        llvm::StringRef(text).slice(open + 1, close).rtrim('!');
    if (!sets.contains('|') || text[close] != ')')
      continue;
    llvm::SmallVector<llvm::StringRef> names;
    sets.split(names, '|');
    llvm::sort(names);
    text.replace(open + 1, sets.size(), llvm::join(names, "|"));
  }
  return text;
}

/// Tensors are operands; whatever has a name of its own must not be lost.
static bool isOperand(const OperatorInfo &info, const c10::Argument &argument) {
  auto optional = c10::OptionalType::create(c10::TensorType::get());
  return argument.type()->isSubtypeOf(optional) ||
         argument.type()->isSubtypeOf(
             c10::ListType::create(c10::TensorType::get())) ||
         (argument.type()->isSubtypeOf(c10::ListType::create(optional)) &&
          info.isAttribute(argument.name() + "_mask"));
}

std::vector<std::string>
koila::torchscript::compareSchema(const OperatorInfo &info, bool inPlace,
                                  const c10::FunctionSchema &found) {
  std::vector<std::string> differences;
  const c10::FunctionSchema &schema =
      inPlace ? *info.inPlaceSchema : *info.schema;
  std::string operation = info.name.getStringRef().str();
  std::string ours = spell(schema), theirs = spell(found);
  if (ours != theirs)
    differences.push_back("'" + operation + "' says " + ours +
                          ", LibTorch has " + theirs);
  for (const c10::Argument &argument : info.schema->arguments())
    if (!isOperand(info, argument) && !info.isAttribute(argument.name()))
      differences.push_back("'" + operation + "' has no attribute '" +
                            argument.name() + "' of " + spell(*info.schema));
  return differences;
}

/// Whether a library registers operators with the prefix of `schema`.
static bool isLoaded(const c10::FunctionSchema &schema) {
  llvm::StringRef prefix = llvm::StringRef(schema.name()).split("::").first;
  return llvm::any_of(c10::Dispatcher::singleton().getAllOpNames(),
                      [&](const c10::OperatorName &name) {
                        return llvm::StringRef(name.name).split("::").first ==
                               prefix;
                      });
}

std::vector<std::string>
koila::torchscript::compareSchemas(const OperatorTable &table,
                                   std::vector<std::string> &unchecked) {
  std::vector<std::string> differences;
  auto compare = [&](const OperatorInfo &info, bool inPlace) {
    const c10::FunctionSchema &schema =
        inPlace ? *info.inPlaceSchema : *info.schema;
    if (const c10::FunctionSchema *found = findSchema(schema)) {
      llvm::append_range(differences, compareSchema(info, inPlace, *found));
      return;
    }
    std::string operation = "'" + info.name.getStringRef().str() + "'";
    if (isForeign(info) && !isLoaded(schema))
      unchecked.push_back(operation +
                          " was not compared: no library that "
                          "registers " +
                          getQualifiedName(schema) +
                          " is loaded; name it with --load-library=FILE");
    else
      differences.push_back(operation + ": LibTorch has no operator " +
                            getQualifiedName(schema));
  };
  for (const auto &info : table.getAll()) {
    compare(*info, /*inPlace=*/false);
    if (info->inPlaceSchema)
      compare(*info, /*inPlace=*/true);
  }
  return differences;
}
