//===- Locations.h - Places in the user's Python ----------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_BOUNDARY_LOCATIONS_H
#define KOILA_TARGET_TORCHSCRIPT_BOUNDARY_LOCATIONS_H

#include "mlir/IR/Location.h"
#include "llvm/ADT/StringMap.h"

namespace torch::jit {
struct Node;
} // namespace torch::jit

namespace koila::torchscript {

/// Reads where nodes come from: `NameLoc(module path)` around the chain of
/// Python frames, innermost first: a `CallSiteLoc` per caller, each frame a
/// `NameLoc(function)` around its file and line. Unknown if the archive has no
/// debug records. Nodes of a traced program have the text of the whole stack
/// each; a line that they have in common is read once.
class LocationReader {
public:
  explicit LocationReader(mlir::MLIRContext *context) : context(context) {}

  mlir::Location read(torch::jit::Node *node);

private:
  /// The stack of a node of a traced program; null of others.
  mlir::LocationAttr readStack(const torch::jit::Node *node);

  mlir::MLIRContext *context;
  /// By the lines of stacks; null: such a line is no frame.
  llvm::StringMap<mlir::LocationAttr> places;
};

/// The same of one node.
mlir::Location getLocation(torch::jit::Node *node, mlir::MLIRContext *context);

/// The frame to show: the innermost outside of site-packages and the standard
/// library, else the innermost; null if there is none.
mlir::FileLineColLoc getUserPlace(mlir::Location location);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_BOUNDARY_LOCATIONS_H
