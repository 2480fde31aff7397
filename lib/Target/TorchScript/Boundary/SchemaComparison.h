//===- SchemaComparison.h - Schemas next to LibTorch's ----------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_BOUNDARY_SCHEMACOMPARISON_H
#define KOILA_TARGET_TORCHSCRIPT_BOUNDARY_SCHEMACOMPARISON_H

#include "Operators.h"

namespace koila::torchscript {

/// Whether it is an operation of an extension.
bool isForeign(const OperatorInfo &info);

/// What a form of the operation, functional or in place, says of `found`,
/// LibTorch's schema of that name, and is not so; one line each.
std::vector<std::string> compareSchema(const OperatorInfo &info, bool inPlace,
                                       const c10::FunctionSchema &found);

/// One line per schema that differs from LibTorch's. `unchecked` gets one per
/// operation of an extension whose library of operators is not loaded.
std::vector<std::string> compareSchemas(const OperatorTable &table,
                                        std::vector<std::string> &unchecked);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_BOUNDARY_SCHEMACOMPARISON_H
