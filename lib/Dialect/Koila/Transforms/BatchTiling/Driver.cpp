//===- Driver.cpp - A function whose batch runs in tiles ------------------===//
//
// Plans, and plans again while what makes rows are interleaved has to run
// whole; says what was decided; and finds the least batch for which all of it
// holds.
//
//===----------------------------------------------------------------------===//

#include "../Specialize.h"
#include "BackwardParts.h"
#include "BackwardSegments.h"
#include "BatchNormStatistics.h"
#include "PhasePlan.h"
#include "SharedGradients.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "koila/Interfaces/MutableStorage.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

/// Whether the shapes of `function` are those of `dims` where the batch is
/// `samples`, too.
static bool keepsShapes(FunctionOpInterface function, const DimAnalysis &dims,
                        StringRef symbol, int64_t samples) {
  // What is illegal there is illegal in the original as well.
  ScopedDiagnosticHandler quiet(function.getContext(),
                                [](Diagnostic &) { return success(); });
  SymbolMap fixed;
  fixed[DimSymbol::get(function.getContext(), symbol)] = samples;
  DimAnalysis there(function, fixed);
  if (!there.isValid())
    return false;
  auto isSame = [&](Value value) {
    const ValueInfo &expected = dims.lookup(value),
                    &found = there.lookup(value);
    if (!expected.tensor || !expected.tensor->hasRank())
      return true;
    if (!found.tensor || !found.tensor->hasRank() ||
        found.tensor->getRank() != expected.tensor->getRank())
      return false;
    auto lookup = [&](DimSymbol known) -> std::optional<int64_t> {
      return known.isNamed(symbol) ? std::optional(samples) : std::nullopt;
    };
    return llvm::all_of(
        llvm::zip_equal(*expected.tensor->dims, *found.tensor->dims),
        [&](auto pair) {
          auto [lhs, rhs] = pair;
          auto size = lhs ? lhs.evaluate(lookup) : std::nullopt;
          auto number = rhs ? rhs.getConstant() : std::nullopt;
          return !size || !number || size == number;
        });
  };
  bool same = true;
  function->walk(
      [&](Operation *op) { same &= llvm::all_of(op->getResults(), isSame); });
  return same;
}

bool koila::runsBackward(FunctionOpInterface function) {
  return function->walk([](BackwardOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

/// Values of which the loss is made in a way that has a gradient.
static llvm::DenseSet<Value> findOfLoss(FunctionOpInterface function,
                                        const RequiresGradAnalysis &gradients,
                                        const StorageAnalysis &storage) {
  llvm::DenseSet<Value> found;
  SmallVector<Value> work;
  SmallVector<Operation *> writes;
  function->walk([&](Operation *op) {
    if (auto backward = dyn_cast<BackwardOp>(op))
      work.push_back(backward.getSelf());
    if (isOrderedWrite(op) && op->getNumResults() > 0)
      writes.push_back(op);
  });
  auto pushOperands = [&](Operation *op) {
    op->walk([&](Operation *inner) {
      llvm::append_range(work, inner->getOperands());
    });
  };
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!gradients.wants(value) || !found.insert(value).second)
      continue;
    Operation *maker = value.getDefiningOp();
    pushOperands(maker ? maker : value.getParentBlock()->getParentOp());
    const Storage *entry = storage.lookup(value);
    for (Operation *write : writes)
      if (entry && storage.lookup(write->getResult(0)) == entry)
        pushOperands(write);
  }
  return found;
}

/// Fails with an error where no gradient comes to a leaf.
static LogicalResult checkLeaves(FunctionOpInterface function) {
  SmallVector<LeafGradOp> reads;
  function->walk([&](LeafGradOp op) { reads.push_back(op); });
  if (reads.empty())
    return success();
  DimAnalysis dims(function);
  if (!dims.isValid())
    return failure();
  StorageAnalysis storage(function, dims);
  RequiresGradAnalysis gradients(function, dims, storage);
  llvm::DenseSet<Value> ofLoss = findOfLoss(function, gradients, storage);
  for (LeafGradOp read : reads) {
    if (ofLoss.contains(read.getLeaf()))
      continue;
    return read.getLeafOp().emitError()
           << describeLeaf(read.getLeafOp())
           << " requires a gradient (@grad), and the loss does not depend on "
              "it, or not in a way that has one";
  }
  return success();
}

LogicalResult koila::checkTrainStep(FunctionOpInterface function,
                                    StringRef loss) {
  if (!runsBackward(function))
    return function.emitError()
           << "mode=train needs a training step, and there is no "
              "koila.backward; of an archive koila-opt makes one";
  auto module = function->getParentOfType<ModuleOp>();
  auto step = module->getAttrOfType<DictionaryAttr>(kTrainStepAttr);
  auto made = step ? step.getAs<StringAttr>("loss") : StringAttr();
  StringRef name = made ? made.getValue() : "";
  if (!loss.empty() && loss != name)
    return function.emitError()
           << "loss=" << loss << ": the training step was made with '" << name
           << "'";
  return checkLeaves(function);
}

/// Makes quotients of sums of the means whose tiles do not add up.
static void decomposeWeightedMeans(FunctionOpInterface function) {
  SmallVector<WeightedMeanInterface> means;
  function->walk([&](WeightedMeanInterface op) { means.push_back(op); });
  for (WeightedMeanInterface op : means) {
    OpBuilder builder(op);
    Value quotient = op.decomposeWeightedMean(builder);
    if (!quotient)
      continue;
    op->getResult(0).replaceAllUsesWith(quotient);
    op->erase();
  }
}

/// Remarks of what runs whole, what tiles add up to, and what is drawn.
static void reportPlan(FunctionOpInterface function, const PhasePlan &plan) {
  for (auto &[op, reason] : plan.getBarriers())
    remark::missed(op->getLoc(), remark::RemarkOpts::name("Barrier")
                                     .category("koila-tile-batch")
                                     .function(function.getName()))
        << remark::reason("{0}", reason)
        << remark::add("runs on the whole batch, outside of the loops");
  for (const TilePhase &phase : plan.getPhases())
    for (Operation *op : phase.combined)
      remark::passed(op->getLoc(), remark::RemarkOpts::name("Combined")
                                       .category("koila-tile-batch")
                                       .function(function.getName()))
          << remark::reason("{0}",
                            plan.getBatch().lookup(op->getResult(0)).reason)
          << remark::add("runs in the tiles, whose results are combined");
  reportDraws(function, plan);
  reportStatistics(plan);
}

/// Lets operations read tensors of known rank where import hid the rank from
/// them: loops hand on rows of ranked tensors.
static void readRanked(FunctionOpInterface function) {
  function->walk([](RefineOp refine) {
    Value source = refine.getSource();
    if (isa<RankedTensorType>(source.getType()) &&
        !isa<RankedTensorType>(refine.getType()))
      refine.getResult().replaceUsesWithIf(source, [](OpOperand &use) {
        return isa<ShapeRuleInterface>(use.getOwner()) &&
               !isa<RefineOp>(use.getOwner());
      });
  });
}

/// Lets operations without a gradient read what a leaf is made of: it is there
/// in every phase, and the leaf in that of the backward pass alone.
static void readSources(FunctionOpInterface function,
                        const RequiresGradAnalysis &gradients) {
  auto needsLeaf = [&](OpOperand &use) {
    Operation *user = use.getOwner();
    return isa<LeafGradOp>(user) || user->getNumResults() == 0 ||
           user->getNumRegions() > 0 ||
           llvm::any_of(user->getResults(),
                        [&](Value result) { return gradients.wants(result); });
  };
  function->walk([&](LeafOp leaf) {
    leaf.getResult().replaceUsesWithIf(
        leaf.getSource(), [&](OpOperand &use) { return !needsLeaf(use); });
  });
}

namespace {
/// A plan and the analyses that it looks at.
struct PlannedFunction {
  PlannedFunction(FunctionOpInterface function, bool trains)
      : dims(function), storage(function, dims) {
    if (trains)
      gradients.emplace(function, dims, storage);
  }

  DimAnalysis dims;
  StorageAnalysis storage;
  std::optional<RequiresGradAnalysis> gradients;
  std::optional<PhasePlan> plan;
};
} // namespace

/// Whether `op` only hands its operands on to the results of the function.
static bool isOfResults(Operation *op) {
  return op->hasTrait<OpTrait::IsTerminator>() ||
         (!isOrderedWrite(op) && !op->use_empty() &&
          (isa<DetachOp>(op) ||
           isa<mlir::TupleType>(op->getResult(0).getType())) &&
          llvm::all_of(op->getUsers(), isOfResults));
}

/// Tensors that become results of the function, also in tuples.
static SmallVector<Value> getResults(FunctionOpInterface function) {
  SmallVector<Value> found, work;
  llvm::append_range(
      work, function.getFunctionBody().front().getTerminator()->getOperands());
  while (!work.empty()) {
    Value value = work.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (isa<TensorType>(value.getType()))
      found.push_back(value);
    else if (op && isOfResults(op))
      llvm::append_range(work, op->getOperands());
  }
  return found;
}

/// Gives the results of the function operations of their own in the place of
/// those that interleave the batch: only a result has to have the rows of the
/// whole batch in order, and others that read them may do so in tiles. Results
/// that share storage stay as they are, and so do those of operations that do
/// more than copy rows. Returns whether there were any.
static bool separateResults(FunctionOpInterface function,
                            const PlannedFunction &planned) {
  const StorageAnalysis &storage = planned.storage;
  bool isAny = false;
  SmallVector<Value> results = getResults(function);
  for (Operation *op : planned.plan->getInterleaved()) {
    auto isOfResult = [](OpOperand &use) {
      return isOfResults(use.getOwner());
    };
    if (isOrderedWrite(op) || op->getNumResults() != 1 ||
        !isa<MemoryRuleInterface>(op) || !mayBeView(op, planned.dims) ||
        llvm::none_of(op->getUses(), isOfResult) ||
        llvm::all_of(op->getUses(), isOfResult))
      continue;
    const Storage *entry = storage.lookup(op->getResult(0));
    if (!entry || llvm::count_if(results, [&](Value result) {
                    return storage.lookup(result) == entry;
                  }) != 1)
      continue;
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    IRMapping mapping;
    for (Value operand : op->getOperands())
      if (isa<TensorType>(operand.getType()))
        mapping.map(operand, DetachOp::create(builder, op->getLoc(),
                                              operand.getType(), operand));
    Operation *copy = builder.clone(*op, mapping);
    op->getResult(0).replaceUsesWithIf(copy->getResult(0), isOfResult);
    isAny = true;
  }
  return isAny;
}

/// Null, after an error, where the batch of `function` cannot run in tiles.
static std::unique_ptr<PlannedFunction>
planFunction(FunctionOpInterface function, StringRef symbol, RandomMode random,
             bool trains) {
  auto planned = std::make_unique<PlannedFunction>(function, trains);
  if (trains)
    readSources(function, *planned->gradients);
  std::optional<PhasePlan> &found = planned->plan;
  BatchAnalysis::Operations whole;
  function->walk([&](Operation *op) {
    if (op->hasAttr(kWholeSegmentAttr))
      whole.insert(op);
  });
  do {
    size_t known = whole.size();
    if (found)
      whole.insert_range(found->getInterleaved());
    // Control flow hands rows on as they are.
    if (found && whole.size() == known) {
      (*found->getInterleaved().begin())->emitError()
          << "cannot tile the batch: it is interleaved in a result of control "
             "flow";
      return nullptr;
    }
    found.emplace(function, symbol, random, planned->dims, planned->storage,
                  planned->gradients ? &*planned->gradients : nullptr, whole);
    if (failed(found->compute()))
      return nullptr;
    if (separateResults(function, *planned))
      return planFunction(function, symbol, random, trains);
  } while (!found->getInterleaved().empty());
  return planned;
}

/// Runs `body`, and keeps its diagnostics in `kept` where it gives null.
template <typename BodyT>
static auto attempt(MLIRContext *context, SmallVectorImpl<Diagnostic> &kept,
                    BodyT body) {
  SmallVector<Diagnostic> found;
  auto result = [&] {
    ScopedDiagnosticHandler collect(context, [&](Diagnostic &diagnostic) {
      found.push_back(std::move(diagnostic));
    });
    return body();
  }();
  if (!result) {
    llvm::move(found, std::back_inserter(kept));
    return result;
  }
  for (Diagnostic &diagnostic : found)
    context->getDiagEngine().emit(std::move(diagnostic));
  return result;
}

/// Whether batch normalisations of `function` take the statistics of the batch
/// in tiles.
static bool takesStatistics(FunctionOpInterface function) {
  return function
      ->walk([](Operation *op) {
        return op->hasAttr(kNormalisesBatchAttr) ? WalkResult::interrupt()
                                                 : WalkResult::advance();
      })
      .wasInterrupted();
}

/// A plan for a training step: one backward pass a tile, or, where samples are
/// mixed on the way to the loss, a backward pass in segments.
static std::unique_ptr<PlannedFunction>
planStep(FunctionOpInterface function, StringRef symbol, RandomMode random,
         StatisticsMode statistics, RecomputeMode recompute,
         std::optional<RecomputeBudget> budget, RecomputeFigures &figures) {
  if (recompute == RecomputeMode::Never)
    return planFunction(function, symbol, random, /*trains=*/true);
  MLIRContext *context = function.getContext();
  bool mayMix =
      statistics == StatisticsMode::Exact || !normalisesByBatch(function);
  SmallVector<Diagnostic> problems, further;
  std::unique_ptr<PlannedFunction> planned;
  if (!mayMix || !budget || !budget->splits)
    planned = attempt(context, problems, [&] {
      return planFunction(function, symbol, random, /*trains=*/true);
    });
  if (!planned && mayMix)
    planned = attempt(context, further, [&] {
      decomposeBatchNorms(function);
      FailureOr<RecomputeFigures> split =
          splitBackward(function, symbol, budget);
      if (failed(split))
        return std::unique_ptr<PlannedFunction>();
      figures = *split;
      return planFunction(function, symbol, random, /*trains=*/true);
    });
  if (planned)
    return planned;
  if (problems.empty())
    problems = std::move(further);
  for (Diagnostic &problem : problems) {
    if (&problem == &problems.front())
      for (Diagnostic &other : further)
        if (other.getSeverity() == DiagnosticSeverity::Error)
          problem.attachNote(other.getLocation()) << other.str();
    context->getDiagEngine().emit(std::move(problem));
  }
  return nullptr;
}

FailureOr<TiledFunction>
TiledFunction::create(FunctionOpInterface function, StringRef batchSymbol,
                      RandomMode random, StatisticsMode statistics,
                      RecomputeMode recompute, bool isTrial,
                      std::optional<RecomputeBudget> budget) {
  // What is written is this function, with its own lives of tensors.
  function->walk([](KeepAliveOp op) { op.erase(); });
  if (statistics == StatisticsMode::PerTile)
    markStatistics(function);
  if (random == RandomMode::FullBatch && failed(separateDraws(function)))
    return failure();
  readRanked(function);
  countByArgument(function, batchSymbol);
  readDevicesOfArguments(function);
  bool trains = runsBackward(function);
  if (trains)
    decomposeWeightedMeans(function);
  // Of a forward pass alone, layers in training mode are a sum and a product
  // like any other; in a step it is tried first whether they need be.
  else if (statistics == StatisticsMode::Exact)
    decomposeBatchNorms(function);
  expandSelectedMeans(function);
  RecomputeFigures figures;
  std::unique_ptr<PlannedFunction> planned =
      trains ? planStep(function, batchSymbol, random, statistics, recompute,
                        budget, figures)
             : planFunction(function, batchSymbol, random, /*trains=*/false);
  if (!planned)
    return failure();
  const PhasePlan &plan = *planned->plan;
  if (!isTrial)
    reportPlan(function, plan);
  RandomMode drawn = RandomMode::Refuse;
  for (Operation *op : plan.getDraws())
    if (drawn != RandomMode::PerTile)
      drawn =
          plan.drawsInTiles(*op) ? RandomMode::PerTile : RandomMode::FullBatch;
  // Of no samples the untiled program runs.
  int64_t least = keepsShapes(function, planned->dims, batchSymbol, 1) &&
                          llvm::none_of(plan.getPhases(),
                                        [&](const TilePhase &phase) {
                                          return plan.needsPairs(phase);
                                        })
                      ? 1
                      : 2;
  StatisticsMode taken = plan.getStatistics().empty() ? StatisticsMode::Refuse
                                                      : StatisticsMode::PerTile;
  if (takesStatistics(function))
    taken = StatisticsMode::Exact;
  RecomputeFigures marked;
  if (trains && budget && budget->share < 1) {
    CostEstimate costs(planned->dims, batchSymbol, 1, *budget->costs);
    marked = markParts(function, planned->dims, *planned->gradients, costs,
                       budget->share);
  }
  SmallVector<PhaseLoops> loops = rewriteInTiles(function, plan);
  if (marked.parts > 1 && splitParts(function)) {
    figures.parts = marked.parts;
    figures.share += marked.share;
  }
  if (trains && failed(separateGradients(function)))
    return failure();
  TiledFunction result(std::move(loops), least, drawn, taken, figures);
  removeSegmentMarks(function);
  function->removeAttr(kLifetimesAttr);
  result.setTile(1);
  auto module = function->getParentOfType<ModuleOp>();
  // The program itself was looked at for batches that a trace baked in.
  if (failed(inferShapes(module, /*warns=*/false)))
    return failure();
  return result;
}

void TiledFunction::setTile(int64_t tile) {
  for (size_t phase = 0; phase < phases.size(); ++phase)
    setTile(phase, tile);
}

int64_t TiledFunction::getLeastTile() const {
  int64_t least = 1;
  for (const PhaseLoops &phase : phases)
    least = std::max(least, phase.least);
  return least;
}

void TiledFunction::setTile(size_t phase, int64_t tile) {
  int64_t least = phases[phase].least;
  tile = std::max(tile, least);
  tiles[phase] = tile;
  auto set = [](Operation *constant, int64_t number) {
    cast<arith::ConstantOp>(constant).setValueAttr(
        IntegerAttr::get(IndexType::get(constant->getContext()), number));
  };
  set(phases[phase].tile, tile);
  set(phases[phase].bits,
      static_cast<int64_t>(llvm::Log2_64(tile) - llvm::Log2_64(least)) + 1);
}
