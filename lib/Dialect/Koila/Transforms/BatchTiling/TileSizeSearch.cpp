//===- TileSizeSearch.cpp - Choose a tile and keep the promise ------------===//
//
// The tile is the largest power of two whose re-analysed program fits the
// budget: what is proved is what is emitted. Peaks are not monotone in the
// tile, since a constant workspace can vanish at one sample, so every power of
// two is analysed.
//
//===----------------------------------------------------------------------===//

#include "../PassOptions.h"
#include "../Specialize.h"
#include "DrawnOffsets.h"
#include "FilePlans.h"
#include "PlanSearch.h"
#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Analysis/Target.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "koila/Support/ByteSize.h"
#include "mlir/IR/Remarks.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

using LoopPeaks = llvm::DenseMap<Operation *, int64_t>;

std::optional<int64_t> koila::getPeakUpTo(const PeakMemoryAnalysis &analysis,
                                          StringRef batchSymbol, int64_t batch,
                                          ArrayRef<int64_t> tiles,
                                          LoopPeaks *loops) {
  llvm::SmallSetVector<int64_t, 16> samplesOf;
  samplesOf.insert(batch);
  for (int64_t tile : tiles)
    for (int64_t size = tile; size >= 1; size /= 2) {
      // The largest batch up to `batch` that runs a tile of this size: the
      // batch itself if it has full tiles or this bit, else the next lower one
      // with all lower bits set.
      bool runs = size == tile ? batch >= size : (batch & size) != 0;
      int64_t samples = runs ? batch : batch / (2 * size) * (2 * size) - 1;
      if (samples >= 1)
        samplesOf.insert(samples);
    }
  int64_t most = 0;
  for (int64_t samples : samplesOf) {
    llvm::StringMap<int64_t> symbols;
    symbols[batchSymbol] = samples;
    LoopPeaks found;
    auto peak = analysis.evaluate(symbols, found);
    if (!peak)
      return std::nullopt;
    most = std::max(most, *peak);
    if (loops)
      for (auto [loop, bytes] : found) {
        int64_t &entry = (*loops)[loop];
        entry = std::max(entry, bytes);
      }
  }
  return most;
}

/// The lowest batch from which on the untiled program is within `budget` up to
/// `batch`. Its peak need not grow with the batch (oneDNN may take a larger
/// workspace for a single sample), so that each is looked at, down to a limit.
static int64_t getUntiledStart(const PeakMemoryAnalysis &analysis,
                               StringRef symbol, int64_t batch,
                               int64_t budget) {
  constexpr int64_t kMostBatches = 4096;
  int64_t start = batch;
  llvm::StringMap<int64_t> symbols;
  while (!symbol.empty() && start > 0 && batch - start < kMostBatches) {
    symbols[symbol] = start - 1;
    auto peak = analysis.evaluate(symbols);
    if (!peak || *peak > budget)
      break;
    --start;
  }
  return start;
}

/// The live tensors at the peak, largest first, as notes of an error.
static void attachLiveTensors(InFlightDiagnostic &error,
                              const PeakReport &report) {
  constexpr size_t kMost = 10;
  for (size_t index = 0; index < std::min(kMost, report.liveAtPeak.size());
       ++index) {
    const LiveTensor &tensor = report.liveAtPeak[index];
    Diagnostic &note = error.attachNote();
    note << "live at the peak: " << formatBytes(tensor.bytes) << ", "
         << tensor.kind << " of " << tensor.name;
    if (!tensor.type.empty())
      note << ", " << tensor.type;
    if (tensor.place.isKnown())
      note << ", at " << tensor.place.file << ":" << tensor.place.line;
  }
  if (report.liveAtPeak.size() > kMost)
    error.attachNote() << "and " << report.liveAtPeak.size() - kMost << " more";
}

/// For who handles the diagnostic: the text is for people.
static void attachField(InFlightDiagnostic &error, StringRef name,
                        Attribute value) {
  Builder builder(value.getContext());
  error.getUnderlyingDiagnostic()->getMetadata().push_back(DiagnosticArgument(
      builder.getDictionaryAttr(builder.getNamedAttr(name, value))));
}

static InFlightDiagnostic refusePromise(FunctionOpInterface function) {
  InFlightDiagnostic error = function.emitError();
  attachField(error, kIsUnpromised, BoolAttr::get(function.getContext(), true));
  error << "a budget cannot be promised: ";
  return error;
}

/// A figure that misses bytes cannot carry a promise.
static LogicalResult checkBounded(FunctionOpInterface function,
                                  const PeakReport &report) {
  const Inexactness *entry = report.getUnbounded();
  if (!entry)
    return success();
  InFlightDiagnostic error = refusePromise(function);
  error << "memory of '" << entry->op << "' is not known exactly ("
        << entry->reason << ")";
  if (entry->place.isKnown())
    error << " at " << entry->place.file << ":" << entry->place.line;
  return error << "; give tile=N instead";
}

namespace {
/// The record that emission needs, and the report that travels along.
class Result {
public:
  Result(ModuleOp module, FunctionOpInterface function,
         const TilingOptions &options)
      : module(module), function(function), options(options) {}

  /// `rows`: what the tile may be set to, as far as it is known.
  void writeRecord(const TiledFunction &tiled, StringRef symbol,
                   std::optional<int64_t> holdsTo, ArrayRef<TileRow> rows) {
    markLoops(tiled, rows);
    Builder builder(module.getContext());
    SmallVector<NamedAttribute> entries{
        builder.getNamedAttr("tile",
                             builder.getI64IntegerAttr(tiled.getTile())),
        builder.getNamedAttr("guard", builder.getStringAttr(options.guard)),
        builder.getNamedAttr("batch_symbol", builder.getStringAttr(symbol))};
    if (tiled.getLeastBatch() > 1)
      entries.push_back(builder.getNamedAttr(
          "least_batch", builder.getI64IntegerAttr(tiled.getLeastBatch())));
    for (auto [key, name] : getChoices(&tiled))
      entries.push_back(builder.getNamedAttr(key, builder.getStringAttr(name)));
    if (holdsTo)
      entries.push_back(builder.getNamedAttr(
          "holds_to", builder.getI64IntegerAttr(*holdsTo)));
    function->setAttr(KoilaDialect::kTiledAttr,
                      builder.getDictionaryAttr(entries));
  }

  /// Of the untiled program if `tiled` is null.
  void writeReport(const PeakReport &report,
                   const TiledFunction *tiled = nullptr,
                   ArrayRef<TileRow> rows = {},
                   std::optional<int64_t> replanBytes = std::nullopt) {
    llvm::json::Value json = report.toJSON();
    if (!rows.empty())
      (*json.getAsObject())["by_tile"] = toJSON(rows);
    if (replanBytes)
      (*json.getAsObject())["replan_bytes"] = *replanBytes;
    for (auto [key, name] : getChoices(tiled))
      (*json.getAsObject())[key] = name;
    if (tiled && tiled->getRecompute() == RecomputeMode::Auto) {
      (*json.getAsObject())["recomputed_share"] = tiled->getRecomputed().share;
      (*json.getAsObject())["costs"] =
          options.costs.machine.empty() ? "estimates" : options.costs.machine;
    }
    std::string text;
    llvm::raw_string_ostream os(text);
    os << json;
    module->setAttr(KoilaDialect::kReportAttr,
                    StringAttr::get(module.getContext(), text));
  }

private:
  /// Options and what was chosen, where the program has something to choose.
  static SmallVector<std::pair<StringRef, StringRef>>
  getChoices(const TiledFunction *tiled) {
    SmallVector<std::pair<StringRef, StringRef>> choices;
    if (tiled && tiled->getRandom() != RandomMode::Refuse)
      choices.emplace_back("random", tiled->getRandom() == RandomMode::PerTile
                                         ? "per-tile"
                                         : "full-batch-masks");
    if (tiled && tiled->getStatistics() == StatisticsMode::PerTile)
      choices.emplace_back("batchnorm", "per-tile");
    if (tiled && tiled->getStatistics() == StatisticsMode::Exact)
      choices.emplace_back("batchnorm", "exact");
    if (tiled && tiled->getRecompute() == RecomputeMode::Auto)
      choices.emplace_back("recompute", "auto");
    return choices;
  }

  ModuleOp module;
  FunctionOpInterface function;
  const TilingOptions &options;
};
} // namespace

/// A remark of what the backward pass runs again.
static void reportRecomputed(FunctionOpInterface function,
                             const TiledFunction &tiled) {
  const RecomputeFigures &figures = tiled.getRecomputed();
  if (figures.segments == 0 && figures.parts == 1)
    return;
  StringRef what =
      figures.parts > 1
          ? "the backward pass of a tile runs in parts, each of which runs "
            "again its part of the forward pass"
          : "the backward pass runs in segments between what mixes samples, "
            "which make again what of the forward pass is not kept for them";
  remark::passed(function.getLoc(), remark::RemarkOpts::name("Segments")
                                        .category("koila-tile-batch")
                                        .function(function.getName()))
      << remark::add("{0}", what)
      << remark::metric("Segments", figures.segments)
      << remark::metric("Parts", figures.parts)
      << remark::metric("RecomputedPercent",
                        static_cast<int64_t>(figures.share * 100 + 0.5));
}

static LogicalResult tileBySize(ModuleOp module, FunctionOpInterface function,
                                const TilingOptions &options,
                                StringRef symbol) {
  FailureOr<TiledFunction> tiled = TiledFunction::create(
      function, symbol, options.random, options.statistics, options.recompute);
  if (failed(tiled))
    return failure();
  if (options.tile < tiled->getLeastTile())
    return function.emitError()
           << "tile=" << options.tile << ": "
           << (tiled->getStatistics() == StatisticsMode::PerTile
                   ? "a single sample may have no variance to normalise by"
                   : "PyTorch may give wrong gradients of a normalisation for "
                     "a single sample")
           << "; use tile=" << tiled->getLeastTile() << " or more";
  tiled->setTile(options.tile);
  remark::passed(function.getLoc(), getTilingRemark(function))
      << remark::add("batch runs in tiles as asked")
      << remark::metric("Tile", options.tile);
  reportRecomputed(function, *tiled);
  Result result(module, function, options);
  TiledPeaks peaks(function, *tiled, options.analysis);
  PeakReport report = peaks.analyze().report();
  std::vector<TileRow> rows;
  if (auto batch = report.peakBytes ? report.batchValue : std::nullopt) {
    SmallVector<TilePeak> known;
    auto consider = [&](int64_t tile, int64_t peak, ArrayRef<int64_t> phases) {
      report.floorBytes = std::min(report.floorBytes.value_or(peak), peak);
      known.push_back({tile, peak, llvm::to_vector(phases)});
    };
    if (failed(forEachTile(function, *tiled, peaks, symbol, *batch, consider)))
      return failure();
    tiled->setTile(options.tile);
    rows = tabulateTiles(*tiled, peaks, known, symbol, *batch, /*grows=*/false);
  }
  result.writeRecord(*tiled, symbol, std::nullopt, rows);
  // Nobody may choose by figures that miss bytes.
  if (report.getUnbounded())
    rows.clear();
  result.writeReport(report, &*tiled, rows);
  return success();
}

/// Lets phases that need less run in larger tiles, with a remark for each.
static void growPhases(FunctionOpInterface function, Search &search,
                       StringRef symbol, int64_t batch, int64_t budget) {
  TiledFunction &tiled = search.tiled;
  int64_t common = tiled.getTile();
  constexpr int kMostTrials = 16;
  if (!growTiles(tiled, search.peaks, search.ofTiles, symbol, batch, budget,
                 kMostTrials))
    return;
  ArrayRef<PhaseLoops> phases = tiled.getPhases();
  for (auto [phase, tile] : llvm::enumerate(tiled.getTiles()))
    if (tile > std::max(common, phases[phase].least))
      remark::passed(phases[phase].loc, getTilingRemark(function))
          << remark::add("a phase that needs less runs in larger tiles")
          << remark::metric("Tile", tile) << remark::metric("Phase", phase);
}

static LogicalResult tileByBudget(ModuleOp module, FunctionOpInterface function,
                                  const TilingOptions &options,
                                  StringRef symbol) {
  int64_t budget = *options.budget;
  PeakMemoryAnalysis untiled(function, options.analysis);
  if (!untiled.isValid())
    return failure();
  PeakReport report = untiled.report();
  if (!report.peakBytes)
    return function.emitError()
           << "budget needs a value for symbol '" << report.missing
           << "' (--batch " << report.missing << "=N)";
  // The original may hold more than the function that was made of it: then only
  // what is rewritten can be promised.
  bool isOriginal = !function->hasAttr(kLifetimesAttr);
  if (isOriginal && failed(checkBounded(function, report)))
    return failure();
  Result result(module, function, options);
  int64_t batch = report.batchValue.value_or(0);
  if (isOriginal && *report.peakBytes <= budget) {
    report.promise = Promise{
        budget, batch, getUntiledStart(untiled, symbol, batch, budget), batch};
    report.floorBytes = computeFloor(module, options.analysis, batch);
    result.writeReport(report);
    remark::passed(function.getLoc(), getTilingRemark(function))
        << remark::add("enough memory: the batch is not split")
        << remark::metric("PeakBytes", *report.peakBytes)
        << remark::metric("BudgetBytes", budget);
    function.emitRemark() << "enough memory: the untiled peak of "
                          << formatBytes(*report.peakBytes)
                          << " is within the budget of " << formatBytes(budget)
                          << "; the batch is not split";
    return success();
  }
  if (symbol.empty() && !isOriginal)
    return refusePromise(function)
           << function->getAttrOfType<StringAttr>(kLifetimesAttr).getValue()
           << ", and no symbol is the batch, so that the program cannot be "
              "rewritten: give one by --input";
  if (symbol.empty())
    return function.emitError()
           << "the peak of " << formatBytes(*report.peakBytes)
           << " exceeds the budget of " << formatBytes(budget)
           << ", and no symbol is the batch: give one by --input";
  // Of no samples it is the untiled program that runs.
  llvm::StringMap<int64_t> none;
  none[symbol] = 0;
  auto peakOfNone = untiled.evaluate(none);
  int64_t holdsFrom = peakOfNone && *peakOfNone <= budget ? 0 : 1;
  std::unique_ptr<Search> search =
      searchPlans(function, options, symbol, batch);
  if (!search)
    return failure();
  TiledFunction *tiled = &search->tiled;
  TiledPeaks &peaks = search->peaks;
  const auto &[chosen, least] = std::tie(search->chosen, search->least);
  int64_t leastTile = search->leastTile;
  if (tiled->getLeastBatch() > 1)
    holdsFrom = tiled->getLeastBatch();
  if (!least)
    return function.emitError()
           << "the peak of " << formatBytes(*report.peakBytes)
           << " exceeds the budget of " << formatBytes(budget) << ", and "
           << symbol << " = " << batch << " is too small for tiles of "
           << tiled->getLeastTile() << " samples";
  tiled->setTile(chosen.value_or(leastTile));
  if (chosen)
    growPhases(function, *search, symbol, batch, budget);
  PeakReport final = peaks.analyze().report();
  final.floorBytes = least;
  if (!chosen) {
    InFlightDiagnostic error = function.emitError()
                               << "no tile fits the budget of "
                               << formatBytes(budget)
                               << ": the smallest budget that works is ";
    // Buffers and tiles of small outputs may take more than they save.
    bool isUntiled = isOriginal && *report.peakBytes <= *least;
    int64_t smallest = isUntiled ? *report.peakBytes : *least;
    error << formatBytes(smallest);
    if (isUntiled)
      error << ", untiled,";
    else
      error << ", with tile " << leastTile;
    error << " for " << symbol << " = " << batch;
    attachField(error, kSmallestBudget,
                Builder(function.getContext()).getI64IntegerAttr(smallest));
    attachLiveTensors(error, isUntiled ? report : final);
    return failure();
  }
  if (failed(checkBounded(function, final)))
    return failure();
  final.promise = Promise{budget, tiled->getTile(), holdsFrom, batch};
  reportRecomputed(function, *tiled);
  std::vector<TileRow> rows = tabulateTiles(*tiled, peaks, search->ofTiles,
                                            symbol, batch, /*grows=*/true);
  result.writeRecord(*tiled, symbol, batch, rows);
  result.writeReport(final, &*tiled, rows, search->replanBytes);
  remark::passed(function.getLoc(), getTilingRemark(function))
      << remark::add("the largest tile that fits the budget")
      << remark::metric("Tile", tiled->getTile())
      << remark::metric("PeakBytes", *final.peakBytes)
      << remark::metric("UntiledPeakBytes", *report.peakBytes)
      << remark::metric("BudgetBytes", budget);
  return success();
}

/// Whether `function` is what the mode is for.
static LogicalResult checkStep(FunctionOpInterface function,
                               const TilingOptions &options) {
  bool trains = options.analysis.mode == PeakMemoryMode::Train;
  if (!trains && runsBackward(function))
    return function.emitError()
           << "runs a backward pass: tile it with mode=train";
  return trains ? checkTrainStep(function, options.loss) : success();
}

static LogicalResult tile(ModuleOp module, FunctionOpInterface function,
                          const TilingOptions &options, StringRef symbol) {
  return options.budget ? tileByBudget(module, function, options, symbol)
                        : tileBySize(module, function, options, symbol);
}

/// Draws for the whole batch what the untiled program draws on the target.
static LogicalResult tileWithDraws(ModuleOp module,
                                   FunctionOpInterface function,
                                   const TilingOptions &options,
                                   StringRef symbol) {
  TargetAttr target = getTarget(module, options.analysis);
  if (!target)
    return failure();
  const KernelLibrary *gpu = getCUDALibrary(module, target.getDevice());
  const DeviceProfile *profile = gpu ? gpu->getProfile() : nullptr;
  auto device =
      profile ? PhiloxDevice::get(profile->getProperties()) : std::nullopt;
  auto untiled = device ? getPhiloxOffset(function, *device) : std::nullopt;
  function->setAttr(kDrawsOnAttr,
                    StringAttr::get(module.getContext(), gpu ? "cuda" : "cpu"));
  if (failed(tile(module, function, options, symbol)))
    return failure();
  if (!function->hasAttr(KoilaDialect::kTiledAttr)) {
    function->removeAttr(kDrawsOnAttr);
    return success();
  }
  return device ? reportPhiloxOffset(function, untiled, *device) : success();
}

LogicalResult koila::tileBatch(ModuleOp module, const TilingOptions &options) {
  FunctionOpInterface function =
      findFunction(module, options.analysis.function);
  if (!function)
    return failure();
  if (function->hasAttr(KoilaDialect::kTiledAttr)) {
    auto archive =
        module->getAttrOfType<ArchiveAttr>(KoilaDialect::kArchiveAttr);
    InFlightDiagnostic error = function.emitError();
    if (archive)
      error << "'" << archive.getPath() << "' ";
    return error << "is tiled already; compile the original program instead";
  }
  if (failed(checkStep(function, options)))
    return failure();
  StringRef symbol = getBatchSymbol(module);
  OwningOpRef<ModuleOp> original;
  if (options.budget && options.plans > 1)
    original = module.clone();
  if (failed(decideControlFlow(module, function)))
    return failure();
  if (!options.budget && symbol.empty())
    return function.emitError()
           << "no symbol is the batch: give one by --input, for example "
           << "--input='float32[B,3,224,224]'";
  if (failed(options.random == RandomMode::FullBatch
                 ? tileWithDraws(module, function, options, symbol)
                 : tile(module, function, options, symbol)))
    return failure();
  if (original)
    addPlans(module, *original, options);
  return success();
}
