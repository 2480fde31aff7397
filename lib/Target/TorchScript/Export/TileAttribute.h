//===- TileAttribute.h - The tile as an attribute of a file -----*- C++ -*-===//
//
// A method that koila has written in tiles reads how many samples a tile has
// from an attribute of the module, so that one file serves any budget.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_TILEATTRIBUTE_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_TILEATTRIBUTE_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <optional>
#include <string>
#include <torch/csrc/jit/api/module.h>

namespace koila::torchscript {

class GraphEmitter;

/// The attribute of the first method in tiles; others have their name behind
/// it.
inline constexpr llvm::StringLiteral kTileAttribute = "koila_tile";
/// With an `s` behind it, what is known of the tiles, as JSON: of the report
/// `function`, `device`, `batch`, `by_tile` and `replan_bytes`.
inline constexpr llvm::StringLiteral kTableSuffix = "s";

/// The attribute that `method`, which koila wrote, takes its tile from; empty
/// if its tiles are constants.
std::string findTileAttribute(const torch::jit::Module &module,
                              const std::string &method);

/// The attribute for `name`, with the tile of `function` in it and what
/// `report` says of others; empty if its loops do not say what tiles they have,
/// as those of files that earlier versions wrote. Throws Refusal where the name
/// is another's. `own`: whether koila wrote the method before.
std::string addTileAttribute(torch::jit::Module &module,
                             mlir::func::FuncOp function,
                             const std::string &name, bool own,
                             llvm::StringRef report);

/// Sets the loops of `function`, which a file carries, to the tile that the
/// file has. Throws Refusal where that is none.
void applyTileAttribute(const torch::jit::Module &module,
                        mlir::func::FuncOp function, const std::string &path);

/// Emits what raises unless the attribute is a tile that `function` may have.
void requireTile(GraphEmitter &emitter, const std::string &attribute,
                 mlir::func::FuncOp function);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_TILEATTRIBUTE_H
