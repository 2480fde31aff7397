//===- TileAttribute.h - The tile as an attribute of a file -----*- C++ -*-===//
//
// A method that koila has written in tiles reads how many samples a tile has
// from an attribute of the module, so that one file serves any budget. Of
// several plans another attribute says which one runs.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_TILEATTRIBUTE_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_TILEATTRIBUTE_H

#include "Emit.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <optional>
#include <string>
#include <torch/csrc/jit/api/module.h>

namespace koila::torchscript {

/// The attribute of the first method in tiles; others have their name behind
/// it.
inline constexpr llvm::StringLiteral kTileAttribute = "koila_tile";
/// The same of the plan.
inline constexpr llvm::StringLiteral kPlanAttribute = "koila_plan";
/// With an `s` behind it, what is known of the tiles, as JSON: of the report
/// `function`, `device`, `batch`, and of several plans `plans`, else `by_tile`
/// and `replan_bytes`.
inline constexpr llvm::StringLiteral kTableSuffix = "s";

/// The attribute that `method`, which koila wrote, takes its tile from; empty
/// if its tiles are constants.
std::string findTileAttribute(const torch::jit::Module &module,
                              const std::string &method);

/// The attributes for `name`, with the tile of the plan at `place` of `plans`
/// in them and what `report` says of others; empty if its loops do not say what
/// tiles they have, as those of files that earlier versions wrote. Throws
/// Refusal where a name is another's. `own`: whether koila wrote the method
/// before.
TileAttributes addTileAttributes(torch::jit::Module &module,
                                 llvm::ArrayRef<mlir::func::FuncOp> plans,
                                 int64_t place, const std::string &name,
                                 bool own, llvm::StringRef report);

/// Lets `carried`, of which a file has `method`, be the plan that the file has,
/// and its loops follow the tile. Throws Refusal where that is none.
void applyTileAttributes(const torch::jit::Module &module,
                         mlir::OwningOpRef<mlir::ModuleOp> &carried,
                         const std::string &method, const std::string &path);

/// Emits what raises unless the attributes are a plan and a tile that
/// `function` may have.
void requireTile(GraphEmitter &emitter, const TileAttributes &attributes,
                 mlir::func::FuncOp function);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_TILEATTRIBUTE_H
