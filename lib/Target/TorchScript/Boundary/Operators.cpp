//===- Operators.cpp - Operations by ATen schema --------------------------===//

#include "Operators.h"
#include "Archive.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/MLIRContext.h"
#include <mutex>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

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
static std::shared_ptr<c10::FunctionSchema>
parse(mlir::RegisteredOperationName name, llvm::StringRef text) {
  static std::mutex mutex;
  static auto *known =
      new llvm::StringMap<std::shared_ptr<c10::FunctionSchema>>();
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<c10::FunctionSchema> &schema = (*known)[text];
  if (schema)
    return schema;
  try {
    schema = std::make_shared<c10::FunctionSchema>(
        torch::jit::parseSchema(text.str()));
  } catch (const std::exception &error) {
    refuse(llvm::Twine("'") + name.getStringRef() + "' has the schema '" +
           text + "', which LibTorch cannot read: " + getFirstLine(error));
  }
  return schema;
}

OperatorTable::OperatorTable(mlir::MLIRContext *context) {
  for (mlir::RegisteredOperationName name :
       context->getRegisteredOperations()) {
    auto *concept_ = name.getInterface<koila::TorchOperatorInterface>();
    if (!concept_)
      continue;
    auto info = std::make_unique<OperatorInfo>(
        OperatorInfo{name, parse(name, concept_->getTorchSchema()), nullptr});
    info->hasSegments = info->isAttribute("operandSegmentSizes");
    info->takesDynamic = concept_->takesDynamic();
    byName[getQualifiedName(*info->schema)] = {info.get(), false};
    if (llvm::StringRef inPlace = concept_->getInPlaceSchema();
        !inPlace.empty()) {
      info->inPlaceSchema = parse(name, inPlace);
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
