//===- Operators.cpp - Operations by ATen schema --------------------------===//

#include "Operators.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <ATen/core/dispatch/Dispatcher.h>
#include <mutex>
#include <sstream>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/runtime/operator.h>

using namespace koila::torchscript;

bool OperatorInfo::isAttribute(llvm::StringRef argument) const {
  for (mlir::StringAttr attribute : name.getAttributeNames())
    if (attribute == argument)
      return true;
  return false;
}

std::string
koila::torchscript::getQualifiedName(const c10::FunctionSchema &schema) {
  if (schema.overload_name().empty())
    return schema.name();
  return schema.name() + "." + schema.overload_name();
}

/// Parsed once in a process: LibTorch never frees the types that it parses.
static std::shared_ptr<c10::FunctionSchema> parse(llvm::StringRef text) {
  static std::mutex mutex;
  static auto *known =
      new llvm::StringMap<std::shared_ptr<c10::FunctionSchema>>();
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<c10::FunctionSchema> &schema = (*known)[text];
  if (!schema)
    schema = std::make_shared<c10::FunctionSchema>(
        torch::jit::parseSchema(text.str()));
  return schema;
}

OperatorTable::OperatorTable(mlir::MLIRContext *context) {
  for (mlir::RegisteredOperationName name :
       context->getRegisteredOperations()) {
    auto *concept_ = name.getInterface<koila::TorchOperatorInterface>();
    if (!concept_)
      continue;
    auto info = std::make_unique<OperatorInfo>(
        OperatorInfo{name, parse(concept_->getTorchSchema()), nullptr});
    info->hasSegments = info->isAttribute("operandSegmentSizes");
    info->takesDynamic = concept_->takesDynamic();
    byName[getQualifiedName(*info->schema)] = {info.get(), false};
    if (llvm::StringRef inPlace = concept_->getInPlaceSchema();
        !inPlace.empty()) {
      info->inPlaceSchema = parse(inPlace);
      byName[getQualifiedName(*info->inPlaceSchema)] = {info.get(), true};
    }
    byOperation[name.getStringRef()] = info.get();
    operators.push_back(std::move(info));
  }
}

OperatorTable::Match
OperatorTable::lookup(llvm::StringRef qualifiedName) const {
  return byName.lookup(qualifiedName);
}

const OperatorInfo *OperatorTable::lookup(mlir::OperationName name) const {
  return byOperation.lookup(name.getStringRef());
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

std::vector<std::string>
koila::torchscript::compareSchemas(const OperatorTable &table) {
  std::vector<std::string> differences;
  auto compare = [&](const OperatorInfo &info,
                     const c10::FunctionSchema &schema) {
    const c10::FunctionSchema *found = findSchema(schema);
    std::string operation = info.name.getStringRef().str();
    if (!found) {
      differences.push_back("'" + operation + "': LibTorch has no operator " +
                            getQualifiedName(schema));
      return;
    }
    std::string ours = spell(schema), theirs = spell(*found);
    if (ours != theirs)
      differences.push_back("'" + operation + "' says " + ours +
                            ", LibTorch has " + theirs);
    for (const c10::Argument &argument : info.schema->arguments()) {
      // Tensors are operands; whatever has a name of its own must not be lost.
      auto optional = c10::OptionalType::create(c10::TensorType::get());
      bool tensor =
          argument.type()->isSubtypeOf(optional) ||
          argument.type()->isSubtypeOf(
              c10::ListType::create(c10::TensorType::get())) ||
          (argument.type()->isSubtypeOf(c10::ListType::create(optional)) &&
           info.isAttribute(argument.name() + "_mask"));
      if (!tensor && !info.isAttribute(argument.name()))
        differences.push_back("'" + operation + "' has no attribute '" +
                              argument.name() + "' of " + spell(*info.schema));
    }
  };
  for (const auto &info : table.getAll()) {
    compare(*info, *info->schema);
    if (info->inPlaceSchema)
      compare(*info, *info->inPlaceSchema);
  }
  return differences;
}
