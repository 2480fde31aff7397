//===- ParamShapes.h - Shapes of weights that were looked up ----*- C++ -*-===//
//
// The rule of an operation that reads a weight goes through all of them to find
// it. An analysis of a whole program has a table.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_PARAMSHAPES_H
#define KOILA_LIB_DIALECT_KOILA_IR_PARAMSHAPES_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/IR/SymbolTable.h"

namespace koila {

/// The rule of `get`, which reads `param`; null if there is none.
void inferParamShape(ParamGetOp get, ParamOp param, ShapeRule &rule);

/// The rule of `op`, with weights looked up in `symbols`.
llvm::LogicalResult inferShapes(ShapeRuleInterface op, ShapeRule &rule,
                                mlir::SymbolTableCollection &symbols);

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_IR_PARAMSHAPES_H
