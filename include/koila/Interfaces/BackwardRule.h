//===- BackwardRule.h - What the gradient of an operation takes -*- C++ -*-===//
//
// The backward pass of an operation that autograd recorded, over byte counts:
// from the gradients that arrive for its results, which gradients of its
// operands are tensors of their own, which are the same tensor or a view of it,
// and what is held on the way. What is left to the engine is not said here:
// sums over dims that were broadcast, gradients that add up, and when what was
// saved is freed, but for what a model frees by freeSaved() and freeKept().
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INTERFACES_BACKWARDRULE_H
#define KOILA_INTERFACES_BACKWARDRULE_H

#include "koila/Interfaces/Rules.h"

#include <tuple>

namespace koila {

class BackwardRule : public WorkspaceRule {
public:
  /// `gradients` are those that arrive for the results of `op`, with their
  /// strides; none where none arrives.
  BackwardRule(mlir::Operation *op, const WorkspaceTarget &target,
               Lookup lookup, Wants wants,
               llvm::ArrayRef<std::optional<ConcreteTensor>> gradients)
      : WorkspaceRule(op, target, lookup, wants), gradients(gradients) {}

  /// The gradient of result `index`; null where none arrives.
  const ConcreteTensor *getGradient(unsigned index = 0) const {
    return index < gradients.size() && gradients[index] ? &*gradients[index]
                                                        : nullptr;
  }
  /// Whether the gradient of operand `index` is asked for.
  bool wantsOperand(unsigned index) const {
    return wantsGradient(getOp()->getOperand(index));
  }

  /// A gradient of an operand.
  struct Output {
    unsigned operand;
    /// Before the engine sums over dims that the operand does not have.
    ConcreteTensor tensor;
    /// The result whose gradient it is or views; none for a new tensor.
    std::optional<unsigned> of;
    /// Whether it is that very tensor, not a view of it.
    bool isSame = false;
    /// Whether a new tensor is handed on as a view of it, which the engine does
    /// not add to in place.
    bool isViewed = false;
    /// The bytes of a new tensor where its storage has others than it has
    /// elements: more, or fewer where it is expanded.
    int64_t storageBytes = 0;
    /// The block of a new tensor in the trace, if that is known.
    AllocationTrace::Block block = {};
  };
  /// A new tensor, or a view of a new tensor.
  void setNew(unsigned operand, ConcreteTensor tensor, bool isViewed = false,
              int64_t storageBytes = 0, AllocationTrace::Block block = {}) {
    outputs.push_back({operand, std::move(tensor), std::nullopt, false,
                       isViewed, storageBytes, block});
  }
  /// The tensor that arrives for result `of`.
  void forwardGrad(unsigned operand, unsigned of = 0) {
    outputs.push_back({operand, *gradients[of], of, true, false, 0});
  }
  /// PyTorch makes no node: the operation gave operand `operand` back as it is.
  void setAbsent(unsigned operand) {
    forwardGrad(operand);
    absent = true;
  }
  bool isIdentity() const { return absent; }
  /// A view of it.
  void setView(unsigned operand, ConcreteTensor view, unsigned of = 0) {
    outputs.push_back({operand, std::move(view), of, false, false, 0});
  }
  /// Only the shape of operand `index` is read, so that it gets no gradient.
  void setUnread(unsigned index) { unread.push_back(index); }
  bool isUnread(unsigned index) const {
    return llvm::is_contained(unread, index);
  }
  llvm::ArrayRef<Output> getOutputs() const { return outputs; }
  /// Gradients reach their nodes in the order of the operands, but for this
  /// one.
  void accumulateFirst(unsigned operand) { first = operand; }
  /// The gradient of this operand comes from a node of its own: after the
  /// others and those named before, when what they complete has been handed on.
  /// Dims that were broadcast are summed there.
  void splitIntoOwnNode(unsigned operand) { apart.push_back(operand); }
  bool isApart(unsigned operand) const {
    return llvm::is_contained(apart, operand);
  }
  /// Where an operand stands in the order of delivery.
  std::tuple<size_t, bool, unsigned> getPlace(unsigned operand) const {
    size_t turn = llvm::find(apart, operand) - apart.begin();
    return {isApart(operand) ? turn + 1 : 0, first != operand, operand};
  }

  /// What is freed when the gradient of the first result is dropped before the
  /// end; 0 if something else holds it.
  int64_t getReleasableBytes() const { return releasable; }
  void setReleasableBytes(int64_t bytes) { releasable = bytes; }
  /// The bytes of operand `index` if nothing but this node keeps it: of several
  /// nodes of one operation the first may free it. After the operands those of
  /// results are counted.
  int64_t getSavedBytes(unsigned index) const {
    return index < savedBytes.size() ? savedBytes[index] : 0;
  }
  void setSavedBytes(llvm::SmallVector<int64_t> bytes) {
    savedBytes = std::move(bytes);
  }
  /// Whether both, operands or results, have the same bytes.
  bool sharesStorage(unsigned lhs, unsigned rhs) const {
    return lhs < storages.size() && rhs < storages.size() && storages[lhs] &&
           storages[lhs] == storages[rhs];
  }
  /// What stands for the storage of each; null if it is not known.
  void setStorages(llvm::SmallVector<const void *> found) {
    storages = std::move(found);
  }
  /// What a trace frees of before, where others may be as large.
  struct Freed {
    /// The number of its event in the trace.
    size_t event;
    /// An operand or result; null for what the operation has kept inside, of
    /// which it is block `number` of `count` in the order of allocations; 0:
    /// however many there are, which is not checked.
    mlir::Value value;
    size_t number = 0, count = 1;
  };
  /// `steps`, which will be the trace, frees what only this node keeps of that,
  /// unless one of `later`, which go afterwards, has the same bytes.
  void freeSaved(AllocationTrace &steps, unsigned index,
                 llvm::ArrayRef<unsigned> later = {}) {
    int64_t bytes = getSavedBytes(index);
    if (bytes == 0 || llvm::any_of(later, [&](unsigned other) {
          return sharesStorage(index, other);
        }))
      return;
    unsigned operands = getOp()->getNumOperands();
    freed.push_back({steps.getEvents().size(),
                     index < operands
                         ? getOp()->getOperand(index)
                         : mlir::Value(getOp()->getResult(index - operands))});
    steps.freeOutside(bytes);
  }
  /// The same of what the operation has kept inside.
  void freeKept(AllocationTrace &steps, int64_t bytes, size_t number,
                size_t count = 0) {
    if (bytes == 0)
      return;
    freed.push_back({steps.getEvents().size(), {}, number, count});
    steps.freeOutside(bytes);
  }
  llvm::ArrayRef<Freed> getFreed() const { return freed; }
  /// Another trace will take the place of the one that was written.
  void restart() { freed.clear(); }
  /// Whether operand `index` is a weight that has a gradient, to which this one
  /// is added at once.
  bool isAccumulated(unsigned index) const {
    return llvm::is_contained(accumulated, index);
  }
  void setAccumulated(unsigned index) { accumulated.push_back(index); }
  /// Whether the gradient of operand `index` is added to one that is there.
  bool isAdded(unsigned index) const {
    return llvm::is_contained(added, index);
  }
  void setAdded(unsigned index) { added.push_back(index); }

  /// What the backward pass allocates. Of the blocks that are left the new
  /// gradients have theirs, or where that is not said those of their bytes.
  void setTrace(AllocationTrace steps) {
    trace = std::move(steps);
    peak = trace.getPeak();
  }
  /// Bytes held at the worst moment, the new gradients included, of which no
  /// more is known.
  void setPeak(int64_t bytes) {
    trace = AllocationTrace();
    trace.lump(bytes);
    peak = bytes;
    freed.clear();
    for (Output &output : outputs)
      output.block = {};
  }
  int64_t getPeak() const { return peak; }

private:
  llvm::ArrayRef<std::optional<ConcreteTensor>> gradients;
  llvm::SmallVector<Output, 2> outputs;
  std::optional<unsigned> first;
  llvm::SmallVector<unsigned, 2> apart;
  llvm::SmallVector<unsigned, 2> accumulated, added, unread;
  llvm::SmallVector<int64_t> savedBytes;
  llvm::SmallVector<const void *> storages;
  llvm::SmallVector<Freed, 4> freed;
  int64_t releasable = 0, peak = 0;
  bool absent = false;
};

} // namespace koila

#endif // KOILA_INTERFACES_BACKWARDRULE_H
