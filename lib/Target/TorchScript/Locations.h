//===- Locations.h - Places in the user's Python ----------------*- C++ -*-===//

#ifndef KOILA_LIB_TARGET_TORCHSCRIPT_LOCATIONS_H
#define KOILA_LIB_TARGET_TORCHSCRIPT_LOCATIONS_H

#include "mlir/IR/Location.h"

namespace torch::jit {
struct Node;
} // namespace torch::jit

namespace koila::torchscript {

/// `NameLoc(module path)` around the chain of Python frames, innermost first:
/// a `CallSiteLoc` per caller, each frame a `NameLoc(function)` around its
/// file and line. Unknown if the archive has no debug records.
mlir::Location getLocation(torch::jit::Node *node, mlir::MLIRContext *context);

/// The frame to show: the innermost outside of site-packages and the standard
/// library, else the innermost; null if there is none.
mlir::FileLineColLoc getUserPlace(mlir::Location location);

} // namespace koila::torchscript

#endif // KOILA_LIB_TARGET_TORCHSCRIPT_LOCATIONS_H
