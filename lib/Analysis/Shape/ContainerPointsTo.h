//===- ContainerPointsTo.h - What goes into lists and dicts -----*- C++ -*-===//
//
// Lists and dicts change, and several values may be the same one. Values that
// may be are one container here, whatever the order in which things happen
// (as in Steensgaard's points-to analysis): what comes out of a container is
// among all that ever goes in. A container that something unknown may change is
// none.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_SHAPE_CONTAINERPOINTSTO_H
#define KOILA_ANALYSIS_SHAPE_CONTAINERPOINTSTO_H

#include "koila/Analysis/MetaKernelShapes.h"
#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace koila {

class ContainerPointsTo {
public:
  explicit ContainerPointsTo(mlir::Operation *function);

  /// The value that stands for the list or dict that `value` is; null if it is
  /// none or something unknown may change it.
  mlir::Value getContainer(mlir::Value value) const;
  /// An element that an operation puts into a container; null if it may hold
  /// containers, which change.
  struct Put {
    mlir::Value element, container;
  };
  llvm::SmallVector<Put> getPuts(mlir::Operation *op) const;
  /// The container that the result of an operation was taken out of; null if
  /// there is none or it is not known.
  mlir::Value getSource(mlir::Value result) const;
  /// The container that the result is if its operation made it with elements
  /// that nobody put there; null otherwise.
  mlir::Value getMade(mlir::Value result) const;
  /// Values that stand for containers.
  llvm::SmallVector<mlir::Value> getContainers() const;

  /// How many elements `list` has when `reader` runs: `start` of them, and one
  /// for each time that one of `growths` ran before.
  struct Length {
    int64_t start = 0;
    llvm::SmallVector<mlir::Operation *> growths;
    /// Where the list was made; growths are there, or in loops there.
    mlir::Block *block = nullptr;
  };
  std::optional<Length> getLength(mlir::Value list,
                                  mlir::Operation *reader) const;

private:
  /// Of values that may be, or hold, the same containers. Nodes are merged.
  struct Node {
    unsigned parent;
    /// The node of the elements, if they hold containers; else ~0.
    unsigned elements = ~0u;
    /// Something else may change it.
    bool unknown = false;
    llvm::SmallVector<mlir::Value, 1> members;
    /// Operations that add one element.
    llvm::SetVector<mlir::Operation *> growths;
    bool changesOtherwise = false;
  };

  unsigned makeNode();
  unsigned find(unsigned node) const;
  unsigned getNode(mlir::Value value);
  unsigned getElements(unsigned node);
  void unite(unsigned lhs, unsigned rhs);
  /// Nothing is known of what is in the container, however deep.
  void forget(unsigned node);

  void visit(mlir::Operation *op);
  void visitRegions(mlir::RegionBranchOpInterface op);
  void visitOpaque(TorchOpaqueOp op);
  void visitGeneric(TorchOpaqueOp op, const ElementFlow &flow);
  void visitUnknown(mlir::Operation *op);
  void put(mlir::Operation *op, mlir::Value element, mlir::Value container);
  void take(mlir::Value result, mlir::Value container);

  std::vector<Node> nodes;
  llvm::DenseMap<mlir::Value, unsigned> numbers;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Put, 2>> puts;
  llvm::DenseMap<mlir::Value, mlir::Value> sources;
  llvm::DenseSet<mlir::Value> made;
};

} // namespace koila

#endif // KOILA_ANALYSIS_SHAPE_CONTAINERPOINTSTO_H
