//===- BackwardSplitter.h - A backward pass in segments ---------*- C++ -*-===//
//
// What BackwardSegments.cpp, which finds segments, and SegmentWriter.cpp, which
// writes them, share.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BACKWARDSPLITTER_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BACKWARDSPLITTER_H

#include "BackwardSegments.h"
#include "BatchNormStatistics.h"
#include "PhasePlan.h"
#include "RecomputePlan.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/Interfaces/BackwardOperator.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

namespace koila {

class BackwardSplitter {
public:
  BackwardSplitter(mlir::FunctionOpInterface function, llvm::StringRef symbol,
                   std::optional<RecomputeBudget> budget)
      : function(function), symbol(symbol), budget(budget), dims(function),
        storage(function, dims), gradients(function, dims, storage),
        costs(dims, symbol, budget ? budget->batch : kUnknownBatch,
              budget ? *budget->costs : CostTable::getShipped()),
        builder(function.getContext()) {}

  llvm::FailureOr<RecomputeFigures> run();

private:
  /// Part of the forward pass that is differentiated at once.
  struct Segment {
    llvm::SmallVector<mlir::Operation *> ops;
    llvm::SmallPtrSet<mlir::Operation *, 16> all;
    /// Those that autograd differentiates.
    llvm::SmallPtrSet<mlir::Operation *, 16> set;
    /// Values that are read elsewhere, or of which several of these are made,
    /// in order; see the head of this file.
    llvm::SetVector<mlir::Value> outputs;
    bool isWhole = false;
    int64_t number = 0;
  };
  /// A segment while it is written.
  struct Writer {
    const Segment &segment;
    /// Leaves of what the segment reads or cuts.
    llvm::MapVector<mlir::Value, mlir::Value> leaves;
    /// What stands for values of the forward pass, for each output.
    llvm::DenseMap<mlir::Value, mlir::IRMapping> clones;
    /// Values of the forward pass without records.
    mlir::IRMapping made;
  };

  llvm::LogicalResult collect();
  void collectBeside();
  void separateTowers();
  llvm::LogicalResult refuse(mlir::Operation *op,
                             const llvm::Twine &reason) const {
    return op->emitError() << "cannot run the backward pass over the batch '"
                           << symbol << "' in segments: " << reason
                           << describePlace(op);
  }
  bool isNorm(mlir::Operation *op) const {
    return op && op->hasAttr(kNormalisesBatchAttr);
  }
  /// Whether `op` gives views of samples that loops cannot hand on, as parts of
  /// channels: what they are of is kept.
  bool hasGaps(mlir::Operation *op) const {
    return op && makesNoTensor(*op, dims) &&
           llvm::any_of(op->getResults(), [&](mlir::Value result) {
             const std::optional<TensorInfo> &info = dims.lookup(result).tensor;
             return info && batch->lookup(result).isAt() &&
                    !info->getDenseOrder();
           });
  }
  /// Whether operators give the gradients of `op`, on the path.
  bool hasOperators(mlir::Operation *op) const {
    auto interface = mlir::dyn_cast<BackwardOperatorInterface>(op);
    // Rows of a sample lie together in what they sum over.
    auto isInOrder = [&](mlir::Value value) {
      const BatchFact &fact = batch->lookup(value);
      return !fact.isAt() || fact.dim == 0;
    };
    return interface && !whole.contains(op) && !isNorm(op) &&
           batch->lookup(op->getResult(0)).isAt() &&
           llvm::all_of(op->getOperands(), isInOrder) &&
           interface.hasBackwardOperator(
               [&](mlir::Value value) { return dims.lookup(value); });
  }
  /// Whether the backward pass of `op`, of `segment`, reads its operand
  /// `value`.
  bool isReadAgain(const Segment &segment, mlir::Operation *op,
                   mlir::Value value) const {
    return segment.set.contains(op) ||
           llvm::any_of(op->getOpOperands(), [&](mlir::OpOperand &operand) {
             return operand.get() == value &&
                    mlir::cast<BackwardOperatorInterface>(op).readsOperand(
                        operand.getOperandNumber());
           });
  }
  /// Whether a gradient flows from the loss to `value`.
  bool isOnPath(mlir::Value value) const { return path.contains(value); }
  /// What `op`, on the path, reads and hands its gradient to.
  llvm::SmallVector<mlir::Value> getSources(mlir::Operation *op) const;
  unsigned getLevel(mlir::Value value, bool isWholeReader) const;
  /// Whether `value` may be made again with its makers, though no gradient
  /// flows to it.
  bool isBeside(mlir::Value value) const {
    return beside.contains(value.getDefiningOp());
  }
  /// Whether the number or the tensor is known without the forward pass.
  bool isWeight(mlir::Value value) const {
    return isa_and_nonnull<ParamGetOp>(value.getDefiningOp());
  }
  void writeSegment(const Segment &segment);
  void writeNorm(BatchNormOp op);
  /// By level: what tiles run, what runs whole, and normalisations.
  using Level = std::array<llvm::SmallVector<mlir::Operation *>, 3>;
  llvm::LogicalResult findSegments();
  std::vector<llvm::SmallVector<mlir::Operation *>>
  splitApart(llvm::ArrayRef<mlir::Operation *> ops) const;
  llvm::LogicalResult findOutputs(Segment &segment);
  mlir::Value getLeaf(Writer &writer, mlir::Value value);
  bool isSmallerBefore(mlir::Operation *op) const;
  mlir::Value getLocal(Writer &writer, mlir::IRMapping &mapping,
                       mlir::Value value);
  void writeForward(Writer &writer, mlir::Value output);
  llvm::SmallVector<mlir::Operation *> findMakers(const Segment &segment,
                                                  mlir::Value output) const;
  void cloneRecorded(Writer &writer, llvm::ArrayRef<mlir::Operation *> ops,
                     mlir::IRMapping &mapping);
  std::vector<GradientAgain> findGradientsAgain(const Segment &segment) const;
  mlir::Value makeGradientAgain(Writer &writer, const GradientAgain &again);
  /// The sum of what has come for `value`, as part of `segment` if there is
  /// one; null if nothing has come.
  mlir::Value takeGradient(mlir::Value value, const Segment *segment = nullptr);
  void runBackward(mlir::ValueRange operands, const Segment &segment);
  /// Adds `gradient` to that of a value without batch, which is a weight or
  /// made of some.
  void addWeightGradient(mlir::Value weight, mlir::Value gradient);
  /// What `build` makes, which records nothing.
  llvm::SmallVector<mlir::Operation *>
  collectMade(llvm::function_ref<void()> build);
  /// `value` in the tiles of the segment, without a record.
  mlir::Value getForward(Writer &writer, mlir::Value value);
  Recompute getChoice(mlir::Value value, const Segment &segment) const;
  mlir::Value getLatest(mlir::Value value) const;
  void giveNormGradients(mlir::Value value, Writer *writer);
  void takeLeaf(Writer &writer, mlir::Value value);
  llvm::SmallVector<SegmentReads> describeSegments() const;
  void planRecomputation(RecomputeFigures &figures);
  /// Of the time of the forward pass, what has been written to run again.
  double getShareAgain();
  void writeOperators(Writer &writer, mlir::Operation *op);
  void writeOutput(Writer &writer, mlir::Value output);
  mlir::Operation *mark(mlir::Operation *op, const Segment &segment) const {
    op->setAttr(kSegmentAttr, builder.getI64IntegerAttr(segment.number));
    op->setAttr(kStepAttr, builder.getI64IntegerAttr(step));
    if (segment.isWhole)
      op->setAttr(kWholeSegmentAttr, builder.getUnitAttr());
    return op;
  }
  /// Makes values of the forward pass again for the next level.
  void runTwice();
  /// Returns the gradients that leaves of the program ask for.
  llvm::LogicalResult giveLeafGradients();
  /// Lets the forward pass read weights and arguments without their gradients.
  void detachForward();

  mlir::FunctionOpInterface function;
  llvm::StringRef symbol;
  std::optional<RecomputeBudget> budget;
  DimAnalysis dims;
  StorageAnalysis storage;
  RequiresGradAnalysis gradients;
  /// Of shares of times, which hardly depend on the batch.
  static constexpr int64_t kUnknownBatch = 64;
  CostEstimate costs;
  double timeAgain = 0;
  /// Of what is written now.
  int64_t step = 0;
  std::optional<BatchAnalysis> batch;
  mutable mlir::OpBuilder builder;
  BackwardOp backward;
  llvm::DenseSet<mlir::Value> path;
  /// Operations on the path, in order.
  llvm::SmallVector<mlir::Operation *> onPath;
  llvm::DenseMap<mlir::Operation *, unsigned> levels;
  /// Operations beside the path that are apart for each sample and of which
  /// some on it are made, as frozen layers, and how many cuts are before them.
  llvm::DenseMap<mlir::Operation *, unsigned> beside;
  llvm::DenseSet<mlir::Operation *> whole;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> contributions;
  llvm::SmallVector<LeafGradOp> leafGrads;
  /// From the last on: a segment, or normalisations.
  std::vector<std::pair<Segment, llvm::SmallVector<mlir::Operation *>>> plan;
  /// Operations that record nothing.
  llvm::SmallVector<mlir::Operation *> forward;
  int64_t segments = 0;
  /// Null without a budget.
  std::unique_ptr<RecomputePlanner> planner;
  /// What one segment has made again for those after it, too.
  mlir::IRMapping restored;
  /// What the last segment has made again for itself.
  mlir::IRMapping latest;
  /// By what is normalised.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<BatchNormGradient, 1>>
      normGradients;
  /// Of what segments have differentiated.
  llvm::DenseMap<mlir::Value, mlir::Value> outputGradients;
};

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BACKWARDSPLITTER_H
