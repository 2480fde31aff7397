//===- SharedGradients.cpp - Gradients that share memory ------------------===//
//
// PyTorch hands a leaf the gradient that comes first as it is where nobody else
// holds that tensor, also if it is a view: of the gradient that the pass was
// given, or of one that another leaf gets a view of, too. The next one is added
// to it in place (AccumulateGrad::accumulateGrad in
// torch/csrc/autograd/functions/accumulate_grad.h). The one backward pass of a
// program does not show that; in tiles leaves get several gradients. What is
// handed on as it is, without a view, is copied: who gave it holds it.
//
//===----------------------------------------------------------------------===//

#include "SharedGradients.h"
#include "GradientBuilder.h"
#include "PhasePlan.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Analysis/RequiresGradAnalysis.h"
#include "koila/Analysis/Storage.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Interfaces/BackwardRule.h"
#include "koila/KernelModels/KernelModel.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace koila;

namespace {
class GradientSeparator {
public:
  explicit GradientSeparator(FunctionOpInterface function)
      : function(function), builder(function->getContext()), dims(function),
        storage(function, dims), gradients(function, dims, storage),
        models(KernelLibraries::getOrAdd(
                   *function->getContext()->getOrLoadDialect<KoilaDialect>())
                   .lookup("cpu")) {}

  LogicalResult run();

private:
  /// What an operand gets of the gradient of a result: a tensor of its own, the
  /// same tensor, or a view of it.
  enum class Share { None, Same, View };
  struct Shares {
    /// Of each operand, or of all that regions read.
    SmallVector<Share> reads;
    /// Whether several may get the same elements, as those of a sum do. Those
    /// of a concatenation get each its part.
    bool overlap = true;
  };
  /// The leaves that get the gradient of a value; true where by a view.
  using Leaves = llvm::MapVector<Value, bool>;
  /// What one backward pass differentiates: all that is recorded, and who of it
  /// reads the leaves that need gradients of their own.
  struct Pass {
    BackwardOp op;
    llvm::SetVector<Operation *> recorded;
    llvm::MapVector<Value, SmallVector<Operation *>> readers;
  };

  std::optional<ConcreteTensor> getOneSample(Value value) const;
  Shares getShares(Operation &op) const;
  void spread(Operation &op);
  bool isReadLater(BackwardOp pass) const;
  Pass collect(BackwardOp op) const;
  LogicalResult giveOwnLeaf(const Pass &pass, Value leaf,
                            ArrayRef<Operation *> readers);

  FunctionOpInterface function;
  OpBuilder builder;
  DimAnalysis dims;
  StorageAnalysis storage;
  RequiresGradAnalysis gradients;
  /// Which gradients are views is that of formulas, the same on all devices:
  /// KernelLibraryTest compares them. Null, where no models are registered:
  /// anything may be a view.
  const KernelLibrary *models;
  llvm::DenseMap<Value, Leaves> sharing;
  /// Of which another leaf of the same pass gets the memory, too.
  llvm::SetVector<Value> shared;
};
} // namespace

/// The operands, of which several may be one value; of regions what they read.
static SmallVector<Value> listReads(Operation &op) {
  return op.getNumRegions() == 0 ? llvm::to_vector(op.getOperands())
                                 : getReads(&op);
}

static bool isLeaf(Operation *op) {
  return isa_and_nonnull<ParamGetOp, LeafOp>(op);
}

/// A tile may be one sample: what is summed over the samples of a larger one is
/// handed on as it is then.
std::optional<ConcreteTensor>
GradientSeparator::getOneSample(Value value) const {
  const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
  if (!info || !info->hasRank())
    return std::nullopt;
  ConcreteTensor tensor;
  tensor.elementType = info->elementType;
  for (DimExpr dim : *info->dims) {
    auto extent = dim.evaluate([](DimSymbol) { return int64_t(1); });
    if (!extent)
      return std::nullopt;
    tensor.dims.push_back(std::max<int64_t>(*extent, 0));
  }
  return tensor;
}

GradientSeparator::Shares GradientSeparator::getShares(Operation &op) const {
  // Of what nothing is known anything may be a view.
  Shares shares{SmallVector<Share>(listReads(op).size(), Share::View)};
  if (!models || !isa<MemoryRuleInterface>(op) || op.getNumRegions() > 0)
    return shares;
  SmallVector<std::optional<ConcreteTensor>> arrives;
  int64_t given = 0, taken = 0;
  for (Value result : op.getResults()) {
    arrives.push_back(getOneSample(result));
    if (!arrives.back())
      return shares;
    given += arrives.back()->numElements();
  }
  WorkspaceTarget target;
  auto lookup = [&](Value value) { return getOneSample(value); };
  auto wants = [&](Value value) { return gradients.wants(value); };
  BackwardRule rule(&op, target, lookup, wants, arrives);
  models->describeBackward(rule);
  for (const BackwardRule::Output &output : rule.getOutputs()) {
    shares.reads[output.operand] = !output.of      ? Share::None
                                   : output.isSame ? Share::Same
                                                   : Share::View;
    if (output.of)
      taken += output.tensor.numElements();
  }
  shares.overlap = taken > given;
  return shares;
}

/// Finds the leaves that get the gradients of the results of `op`.
void GradientSeparator::spread(Operation &op) {
  if (op.hasAttr(kUnrecordedAttr) || op.getNumResults() == 0)
    return;
  if (isLeaf(&op)) {
    if (gradients.wants(op.getResult(0)))
      sharing[op.getResult(0)][op.getResult(0)] = false;
    return;
  }
  auto isCarried = [&](Value value) { return sharing.contains(value); };
  if (llvm::none_of(op.getResults(),
                    [&](Value value) { return gradients.wants(value); }) ||
      llvm::none_of(listReads(op), isCarried))
    return;
  Leaves leaves;
  Shares shares = getShares(op);
  for (auto [read, share] : llvm::zip_equal(listReads(op), shares.reads))
    if (share != Share::None && gradients.wants(read))
      for (auto [leaf, isViewed] : sharing.lookup(read))
        leaves[leaf] |= isViewed || share == Share::View;
  if (leaves.empty())
    return;
  if (leaves.size() > 1 && shares.overlap)
    for (auto [leaf, isViewed] : leaves)
      if (isViewed)
        shared.insert(leaf);
  for (Value result : op.getResults())
    sharing[result] = leaves;
}

/// Whether something reads the memory of the gradient that `pass` is given when
/// the pass has run.
bool GradientSeparator::isReadLater(BackwardOp pass) const {
  Value given = pass.getGradient();
  // All of it again in the next iteration.
  Operation *maker = given.getDefiningOp();
  if (!maker || maker->getBlock() != pass->getBlock())
    return true;
  const Storage *entry = storage.lookup(given);
  if (!entry)
    return true;
  auto isLater = [&](Operation *user) {
    for (Operation *outer = pass; outer; outer = outer->getParentOp())
      if (Operation *other = outer->getBlock()->findAncestorOpInBlock(*user))
        return outer->isBeforeInBlock(other);
    return true;
  };
  return llvm::any_of(entry->values, [&](Value value) {
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      bool isView = llvm::any_of(user->getResults(), [&](Value result) {
        return storage.lookup(result) == entry;
      });
      return !isView && !isa<tensor::DimOp>(user) && isLater(user);
    });
  });
}

GradientSeparator::Pass GradientSeparator::collect(BackwardOp op) const {
  Pass pass{op, {}, {}};
  SmallVector<Operation *> left;
  auto visit = [&](Value value) {
    Operation *maker = value.getDefiningOp();
    if (maker && !isLeaf(maker) && gradients.wants(value) &&
        !maker->hasAttr(kUnrecordedAttr) && pass.recorded.insert(maker))
      left.push_back(maker);
  };
  visit(op.getSelf());
  while (!left.empty()) {
    Operation *recorded = left.pop_back_val();
    for (Value read : listReads(*recorded)) {
      if (shared.contains(read))
        pass.readers[read].push_back(recorded);
      visit(read);
    }
  }
  return pass;
}

/// Lets `pass` differentiate a leaf of its own, whose gradient is then added to
/// that of `leaf`: a copy of it, if it is the first.
LogicalResult GradientSeparator::giveOwnLeaf(const Pass &pass, Value leaf,
                                             ArrayRef<Operation *> readers) {
  Block *block = pass.op->getBlock();
  // In a branch that is not taken it would get none.
  if (llvm::any_of(readers, [&](Operation *reader) {
        return reader->getBlock() != block || reader->getNumRegions() > 0;
      }))
    return function.emitError()
           << "cannot tile the training step: gradients of what branches read "
              "would share memory with others";
  Operation *first =
      *llvm::min_element(readers, [](Operation *left, Operation *right) {
        return left->isBeforeInBlock(right);
      });
  builder.setInsertionPoint(first);
  Location loc = leaf.getLoc();
  auto own = LeafOp::create(builder, loc, leaf.getType(), leaf);
  for (Operation *reader : readers)
    reader->replaceUsesOfWith(leaf, own.getResult());
  builder.setInsertionPointAfter(pass.op);
  auto gradient =
      LeafGradOp::create(builder, loc, leaf.getType(), own.getResult());
  createBackward(builder, {leaf, gradient.getResult()});
  return success();
}

LogicalResult GradientSeparator::run() {
  if (!dims.isValid())
    return success();
  SmallVector<BackwardOp> passes;
  function->walk([&](Operation *op) {
    spread(*op);
    if (auto pass = dyn_cast<BackwardOp>(op))
      passes.push_back(pass);
  });
  for (BackwardOp pass : passes) {
    if (!pass.getGradient() || isLeaf(pass.getSelf().getDefiningOp()))
      continue;
    Leaves leaves = sharing.lookup(pass.getSelf());
    if (llvm::none_of(leaves, [](auto &entry) { return entry.second; }) ||
        !isReadLater(pass))
      continue;
    builder.setInsertionPoint(pass);
    Value given = pass.getGradient();
    pass.getGradientMutable().assign(
        CloneTensorOp::create(builder, given.getLoc(), given.getType(), given,
                              /*memory_format=*/nullptr));
  }
  if (shared.empty())
    return success();
  SmallVector<Pass> found;
  llvm::DenseMap<Value, unsigned> counts;
  for (BackwardOp op : passes) {
    found.push_back(collect(op));
    for (Value leaf : llvm::make_first_range(found.back().readers))
      ++counts[leaf];
  }
  for (const Pass &pass : found)
    for (const auto &[leaf, readers] : pass.readers) {
      // What lives for one pass gets one gradient, of which others read copies.
      Operation *maker = leaf.getDefiningOp();
      bool isOfPass = isa<LeafOp>(maker) && counts[leaf] == 1 &&
                      maker->getBlock() == pass.op->getBlock();
      if (!isOfPass) {
        if (failed(giveOwnLeaf(pass, leaf, readers)))
          return failure();
        continue;
      }
      for (Operation *user : llvm::make_early_inc_range(leaf.getUsers())) {
        auto read = dyn_cast<LeafGradOp>(user);
        if (!read)
          continue;
        builder.setInsertionPointAfter(read);
        auto copy = CloneTensorOp::create(builder, read.getLoc(),
                                          read.getType(), read.getResult(),
                                          /*memory_format=*/nullptr);
        read.getResult().replaceAllUsesExcept(copy.getResult(), copy);
      }
    }
  return success();
}

LogicalResult koila::separateGradients(FunctionOpInterface function) {
  bool isStep =
      function->walk([](BackwardOp) { return WalkResult::interrupt(); })
          .wasInterrupted();
  return isStep ? GradientSeparator(function).run() : success();
}
