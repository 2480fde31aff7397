//===- FilePlans.h - Several plans of one program ---------------*- C++ -*-===//
//
// A training step that runs parts of its forward pass again is written another
// way for another budget. A tiled module may hold such other plans: each is a
// module within it, of the same function and parameters.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_FILEPLANS_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_FILEPLANS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SmallVector.h"

namespace koila {

/// On a module that is one of several plans: its place among them, from 0.
inline constexpr llvm::StringLiteral kPlanAttr = "koila.plan";

/// So many plans a program has at most.
inline constexpr int64_t kMostPlans = 4;

/// The place of `module` among its plans.
int64_t getPlan(mlir::ModuleOp module);

/// The plans of a program by their places, `module` itself, which holds the
/// others, among them.
llvm::SmallVector<mlir::ModuleOp> getPlans(mlir::ModuleOp module);

/// Makes `plan` the module that holds the others. False if there is none, or
/// none behind another.
bool selectPlan(mlir::OwningOpRef<mlir::ModuleOp> &module, int64_t plan);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_FILEPLANS_H
