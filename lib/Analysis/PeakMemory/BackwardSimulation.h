//===- BackwardSimulation.h - A backward pass over byte counts --*- C++ -*-===//

#ifndef KOILA_ANALYSIS_PEAKMEMORY_BACKWARDSIMULATION_H
#define KOILA_ANALYSIS_PEAKMEMORY_BACKWARDSIMULATION_H

#include "PeakMemoryImpl.h"
#include "koila/Interfaces/BackwardRule.h"
#include <map>

namespace koila {

/// What PyTorch's engine does from one call of backward() to its end. Nodes run
/// from the last record to the first: of those that are ready the one that was
/// made last. Source: autograd/engine.cpp, input_buffer.cpp,
/// functions/accumulate_grad.h.
class PeakMemoryAnalysis::Impl::BackwardSimulation {
public:
  BackwardSimulation(const Impl &impl, mlir::Operation &root, Run &run)
      : impl(impl), root(root), run(run) {
    if (run.log)
      for (const Run::Record &record : run.records)
        if (record.kept)
          ++keepers[record.kept];
  }

  /// From the loss, with a gradient of ones unless `gradient` is given.
  void execute(mlir::Value loss, mlir::Value gradient);

private:
  /// The bytes of a gradient: gone with the last tensor that has them.
  struct Bytes {
    const Storage *entry = nullptr;
    unsigned tensors = 0;
  };
  /// A tensor, which several nodes may hold.
  struct Tensor {
    size_t bytes = 0;
    unsigned holders = 0;
    /// A view holds the tensor that it is of.
    std::optional<size_t> base;
  };
  /// What waits for a node, or leaves one.
  struct Gradient {
    size_t tensor = 0;
    ConcreteTensor shape;
  };
  using Leaf = const void *;

  std::vector<size_t> findReachable(size_t last);
  /// Tells `rule` the bytes of operands and results that only this record
  /// keeps.
  void setSaved(const Run::Record &record, BackwardRule &rule) const;
  /// What goes with a node, which may free it before it ends: gradients that
  /// have arrived, and what it has saved, where nothing else has them.
  EventLog::Outside
  listFreed(const Run::Record &record, const BackwardRule &rule,
            llvm::ArrayRef<std::optional<Gradient>> arrived) const;
  void runNode(size_t index);
  /// The node of a view that was read after a write into what it is of.
  void runAsStrided(const Run::Record &record, const Gradient &arrived);
  /// What CopySlices holds while a write into a view is differentiated: a copy
  /// of the gradient of the tensor that is viewed, and of the part written.
  struct CopiedSlices {
    Gradient copied, slice;
  };
  std::optional<CopiedSlices> copySlices(const Run::Record &record);
  /// Puts the first in place of the gradient of what was there before.
  void finishSlices(
      const CopiedSlices &slices, mlir::Operation &op,
      llvm::MutableArrayRef<std::pair<const Run::Edge *, Gradient>> outputs);
  /// What `rule` says of the gradients of the operands, complete.
  llvm::SmallVector<std::pair<const Run::Edge *, Gradient>>
  makeOutputs(const Run::Record &record, const BackwardRule &rule,
              llvm::ArrayRef<std::optional<Gradient>> arrived);
  /// The engine's sum over dims that the operand does not have, and its cast.
  void fit(Gradient &gradient, const Run::Edge &edge, mlir::Operation &op);
  /// Whether PyTorch made no node, since the operation gave its operand back.
  bool isAbsent(size_t index);
  /// The edge that stands for `edge` once such records are passed over.
  const Run::Edge &follow(const Run::Edge &edge);
  /// No gradient comes by this edge.
  void skip(const Run::Edge &edge);
  void deliver(const Run::Edge &edge, Gradient gradient, mlir::Operation &op);
  /// A second gradient for the same tensor.
  Gradient add(Gradient first, Gradient second, mlir::Operation &op,
               unsigned operand);
  /// A weight got its whole gradient.
  void accumulate(Leaf leaf, const Run::Edge &edge, Gradient gradient,
                  mlir::Operation &op);

  /// With a storage of `storageBytes` where that is more.
  Gradient make(ConcreteTensor shape, mlir::Operation &op, unsigned operand,
                int64_t storageBytes = 0);
  Gradient view(const Gradient &gradient, ConcreteTensor shape);
  void drop(const Gradient &gradient, mlir::Operation &op);
  /// Whether nothing else has the tensor, or its bytes.
  bool isAlone(const Gradient &gradient) const;
  /// Whether its bytes go with it.
  bool isLast(const Gradient &gradient) const;
  Leaf getLeaf(const Run::Edge &edge) const;
  /// The record, and its result, whose gradient arrives by `edge`, no leaf's.
  std::pair<size_t, unsigned> getInput(const Run::Edge &edge) const;
  /// Whether what comes by `edge` is added to something that is there.
  bool isAdded(const Run::Edge &edge);
  /// Those that are there before are of weights.
  bool hasGradient(Leaf leaf, const Run::Edge &edge) const {
    return (impl.options.hasGradients &&
            edge.value.getDefiningOp<ParamGetOp>()) ||
           run.leaves.contains(leaf);
  }
  /// The node ends: drops what it added, and hands on the gradients that are
  /// complete.
  void finishLeaves(mlir::Operation &op);
  /// A moment at which `op` holds `bytes` beside what is live.
  void note(mlir::Operation &op, int64_t bytes);
  /// The place for what the gradient of an operand takes.
  const Storage *getEntry(mlir::Operation &op, unsigned operand);

  const Impl &impl;
  mlir::Operation &root;
  Run &run;
  /// Of the gradient that the caller gives, of which a leaf may get a view.
  const Storage *given = nullptr;
  /// For event lists: how many records have one storage for what they keep.
  llvm::DenseMap<const Storage *, unsigned> keepers;
  /// What was live when the node began.
  __int128 before = 0;
  std::vector<Bytes> bytes;
  std::vector<Tensor> tensors;
  /// By record and result.
  std::map<std::pair<size_t, unsigned>, Gradient> waiting;
  struct Pending {
    unsigned missing = 0;
    std::optional<Gradient> sum;
  };
  llvm::DenseMap<Leaf, Pending> leaves;
  /// What isAbsent() said, by record.
  llvm::DenseMap<size_t, bool> absent;
  /// Gradients that were added to others: they go when their node ends.
  llvm::SmallVector<Gradient> added;
  /// Weights whose gradient is complete, in order.
  llvm::SmallVector<std::pair<Leaf, const Run::Edge *>> ready;
};

} // namespace koila

#endif // KOILA_ANALYSIS_PEAKMEMORY_BACKWARDSIMULATION_H
