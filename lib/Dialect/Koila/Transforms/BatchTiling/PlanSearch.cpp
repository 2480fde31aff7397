//===- PlanSearch.cpp - Which way to write a program fits -----------------===//

#include "PlanSearch.h"
#include "../Specialize.h"
#include "BatchNormStatistics.h"
#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

remark::RemarkOpts koila::getTilingRemark(FunctionOpInterface function) {
  return remark::RemarkOpts::name("BatchTiling")
      .category("koila-tile-batch")
      .function(function.getName());
}

LogicalResult
koila::forEachTile(FunctionOpInterface function, TiledFunction &tiled,
                   TiledPeaks &peaks, StringRef symbol, int64_t batch,
                   llvm::function_ref<void(int64_t tile, int64_t peak,
                                           ArrayRef<int64_t> phases)>
                       callback) {
  for (int64_t tile = batch > 0 ? llvm::bit_floor<uint64_t>(batch) : 1;
       tile >= tiled.getLeastTile(); tile /= 2) {
    tiled.setTile(tile);
    SmallVector<int64_t> phases;
    auto peak = peaks.getPeakUpTo(symbol, batch, &phases);
    if (!peak)
      return function.emitError()
             << "the peak of the program at tile " << tile << " is not known";
    callback(tile, *peak, phases);
  }
  return success();
}

/// What autograd may keep for a part of a backward pass: the ways that are
/// looked at whatever the budget is.
static constexpr double kShares[] = {1. / 4, 1. / 16, 1. / 64};
/// All whole tensors are kept.
static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

namespace {
class PlanSearch {
public:
  PlanSearch(FunctionOpInterface function, const TilingOptions &options,
             StringRef symbol, int64_t batch)
      : function(function), options(options), symbol(symbol), batch(batch),
        budget(*options.budget), backup(function->clone()) {}

  std::unique_ptr<Search> run() {
    std::unique_ptr<Search> found = find();
    if (found && found->tiled.getRecompute() == RecomputeMode::Auto)
      found->replanBytes = leastAbove;
    return found;
  }

private:
  /// A way to write it.
  struct Plan {
    /// Of whole tensors, and of `beside` where that is known.
    int64_t bytes;
    /// Of what autograd may keep for a part of a backward pass.
    double share = 1;
    std::vector<TileMemory> beside = {};
    /// Whether it is looked at whatever the budget is, unless one before it
    /// fits: what it takes is a budget that works.
    bool isFixed = false;
    /// In segments, where it could run without them.
    bool splits = false;
  };

  std::unique_ptr<Search> find();
  std::unique_ptr<Search> searchTiles(const Plan &plan, bool isTrial);
  /// The function as it was; the backup stays.
  void restore() {
    OwningOpRef<Operation *> copy(backup->clone());
    function->setAttrs(copy->getAttrDictionary());
    function.getFunctionBody().takeBody(copy->getRegion(0));
  }
  void attempt(Plan plan, bool isTrial = true);
  bool fits() const { return search && (search->chosen || !search->least); }
  bool runsInSegments() const {
    return !search || search->tiled.getRecomputed().segments > 0;
  }
  std::vector<TileMemory> measureTiles() const;
  void balance();
  void keepLess();
  void runInParts(int64_t bytes);

  FunctionOpInterface function;
  const TilingOptions &options;
  StringRef symbol;
  int64_t batch, budget;
  /// Of all plans from now on.
  bool splits = false;
  /// The function before it is rewritten.
  OwningOpRef<Operation *> backup;
  /// Of what is written now; null where it could not be.
  std::unique_ptr<Search> search;
  Plan now{};
  /// The fixed one that takes least, and what its best tile takes.
  std::optional<std::pair<Plan, int64_t>> best;
  /// The least above the budget that one takes.
  std::optional<int64_t> leastAbove;
};
} // namespace

/// Writes the function in tiles, and looks at the peaks of all. Null after an
/// error.
std::unique_ptr<Search> PlanSearch::searchTiles(const Plan &plan,
                                                bool isTrial) {
  FailureOr<TiledFunction> tiled = TiledFunction::create(
      function, symbol, options.random, options.statistics, options.recompute,
      isTrial,
      RecomputeBudget{batch, plan.bytes, plan.share, &options.costs,
                      plan.beside, plan.splits});
  if (failed(tiled))
    return nullptr;
  auto found =
      std::make_unique<Search>(function, std::move(*tiled), options.analysis);
  auto consider = [&](int64_t tile, int64_t peak, ArrayRef<int64_t> phases) {
    found->ofTiles.push_back({tile, peak, llvm::to_vector(phases)});
    remark::analysis(function.getLoc(), getTilingRemark(function))
        << remark::metric("Tile", tile) << remark::metric("PeakBytes", peak)
        << remark::metric("BudgetBytes", budget);
    if (!found->least || peak < *found->least) {
      found->least = peak;
      found->leastTile = tile;
    }
    // One tile of all samples only where none of fewer fits.
    if (peak <= budget && (!found->chosen || *found->chosen == batch))
      found->chosen = tile;
  };
  if (failed(forEachTile(function, found->tiled, found->peaks, symbol, batch,
                         consider)))
    return nullptr;
  return found;
}

void PlanSearch::attempt(Plan plan, bool isTrial) {
  // What one plan makes again may be what cannot be written.
  ScopedDiagnosticHandler quiet(
      function->getContext(), [](Diagnostic &diagnostic) {
        return success(diagnostic.getSeverity() == DiagnosticSeverity::Error);
      });
  search.reset();
  restore();
  now = std::move(plan);
  now.splits |= splits;
  search = searchTiles(now, isTrial);
  if (search && search->least && *search->least > budget)
    leastAbove = std::min(leastAbove.value_or(*search->least), *search->least);
  if (search && search->least && now.isFixed &&
      (!best || *search->least < best->second))
    best = {now, *search->least};
}

/// What the loops of the plan that is written hold beside whole tensors.
std::vector<TileMemory> PlanSearch::measureTiles() const {
  ArrayRef<int64_t> whole = search->tiled.getRecomputed().wholeBytesAt;
  std::vector<TileMemory> found;
  for (const TilePeak &row : search->ofTiles) {
    TileMemory &memory = found.emplace_back();
    memory.tile = row.tile;
    memory.bytesAt.assign(whole.size(), 0);
    for (auto [phase, peak] :
         llvm::zip_equal(search->tiled.getPhases(), row.phases))
      if (phase.step && *phase.step < static_cast<int64_t>(whole.size())) {
        int64_t &bytes = memory.bytesAt[*phase.step];
        bytes = std::max(bytes, peak - whole[*phase.step]);
      }
  }
  return found;
}

/// Plans again by what tiles of each segment take beside whole tensors: smaller
/// tiles leave room to keep more, and take more time themselves.
void PlanSearch::balance() {
  constexpr int kMostPlans = 3;
  int64_t bytes = budget;
  for (int plan = 0; plan < kMostPlans && search && search->least; ++plan) {
    attempt({bytes, 1, measureTiles()});
    if (fits() || !search || !search->least)
      return;
    bytes -= *search->least - budget;
  }
}

/// Keeps less of the whole tensors that segments of a backward pass read. What
/// is beside them is known once it is written.
void PlanSearch::keepLess() {
  constexpr int kMostPlans = 4;
  for (int plan = 1; plan < kMostPlans && search && !fits() && now.bytes > 0;
       ++plan) {
    int64_t whole = 0;
    for (int64_t bytes : search->tiled.getRecomputed().wholeBytesAt)
      whole = std::max(whole, bytes);
    whole = std::min(whole, now.bytes);
    attempt({std::max<int64_t>(whole - (*search->least - budget), 0)});
  }
  // Two ways that do not depend on the budget.
  for (int64_t bytes : {kAll, int64_t(0)})
    if (!fits())
      attempt({bytes, 1, {}, /*isFixed=*/true});
}

/// Runs backward passes in parts: in as large ones as fit.
void PlanSearch::runInParts(int64_t bytes) {
  // The peak need not fall with the parts, whose starts are kept.
  double bad = 1;
  for (double share : kShares) {
    attempt({bytes, share, {}, /*isFixed=*/true});
    // Nothing can be cut.
    if (fits() || (search && search->tiled.getRecomputed().parts == 1))
      break;
    bad = share;
  }
  if (!fits())
    return;
  // Between what fits and what does not.
  constexpr int kMostSteps = 4;
  double good = now.share;
  for (int step = 0; step < kMostSteps; ++step) {
    attempt({bytes, (good + bad) / 2});
    (fits() ? good : bad) = now.share;
  }
  if (!fits())
    attempt({bytes, good});
}

std::unique_ptr<Search> PlanSearch::find() {
  // What is kept depends on the budget in segments alone.
  attempt({budget}, /*isTrial=*/false);
  bool inSegments = runsInSegments();
  if (!inSegments && search && search->least)
    best = {now, *search->least};
  // Normalisations by the batch that nothing differentiates have run whole.
  if (!inSegments && !fits() && options.recompute == RecomputeMode::Auto &&
      options.statistics == StatisticsMode::Exact &&
      options.analysis.mode == PeakMemoryMode::Train &&
      normalisesByBatch(backup.get())) {
    splits = true;
    attempt({budget});
    inSegments = splits = search && search->least && runsInSegments();
    if (!splits)
      attempt({budget});
  }
  // With tiles as small as these there may be a faster one.
  constexpr int64_t kGoodTile = 16;
  bool isSmall = search && search->chosen && *search->chosen < kGoodTile;
  if (inSegments && (!fits() || isSmall)) {
    bool fitted = fits();
    balance();
    if (!fits() && fitted)
      attempt({budget});
  }
  if (inSegments && !fits())
    keepLess();
  if (!fits() && options.recompute == RecomputeMode::Auto && best &&
      options.analysis.mode == PeakMemoryMode::Train)
    runInParts(inSegments ? 0 : budget);
  if (fits())
    return std::move(search);
  // Where none can be written, the first says why.
  if (!best) {
    restore();
    return searchTiles({budget}, /*isTrial=*/false);
  }
  splits = best->first.splits;
  attempt(best->first);
  return std::move(search);
}

std::unique_ptr<Search> koila::searchPlans(FunctionOpInterface function,
                                           const TilingOptions &options,
                                           StringRef symbol, int64_t batch) {
  return PlanSearch(function, options, symbol, batch).run();
}

std::optional<int64_t> koila::computeFloor(ModuleOp module,
                                           const PeakMemoryOptions &options,
                                           int64_t batch) {
  StringRef symbol = getBatchSymbol(module);
  if (symbol.empty() || batch < 1 ||
      options.mode == PeakMemoryMode::ForwardWithGrad)
    return std::nullopt;
  // Why it cannot be tiled, only who wants to tile asks for.
  ScopedDiagnosticHandler quiet(module.getContext(),
                                [](Diagnostic &) { return success(); });
  std::optional<int64_t> least;
  // Returns what was written; nothing where it cannot be.
  auto look = [&](int64_t bytes,
                  double share) -> std::optional<RecomputeFigures> {
    OwningOpRef<ModuleOp> copy(module.clone());
    FunctionOpInterface function = findFunction(*copy, options.function);
    if (!function || function->hasAttr(KoilaDialect::kTiledAttr) ||
        failed(decideControlFlow(*copy, function)))
      return std::nullopt;
    FailureOr<TiledFunction> tiled = TiledFunction::create(
        function, symbol, RandomMode::Refuse, StatisticsMode::Exact,
        RecomputeMode::Auto, /*isTrial=*/true,
        RecomputeBudget{batch, bytes, share});
    if (failed(tiled))
      return std::nullopt;
    TiledPeaks peaks(function, *tiled, options);
    if (failed(forEachTile(function, *tiled, peaks, symbol, batch,
                           [&](int64_t, int64_t peak, ArrayRef<int64_t>) {
                             least = std::min(least.value_or(peak), peak);
                           })))
      return std::nullopt;
    return tiled->getRecomputed();
  };
  auto found = look(0, 1);
  // Segments are parts already, of which each look takes long.
  if (found && options.mode == PeakMemoryMode::Train && found->segments == 0)
    for (double share : kShares)
      if (auto parts = look(0, share); !parts || parts->parts == 1)
        break;
  return least;
}
