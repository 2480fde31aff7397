//===- ReportDetails.cpp - What a report says beside the peak -------------===//

#include "../PeakMemoryImpl.h"
#include "koila/Analysis/AttributeState.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace koila;

/// What the user would call the value that `op` computes.
static std::string getTensorName(Operation *op) {
  SourcePlace place = getSourcePlace(op->getLoc());
  if (!place.module.empty())
    return place.module;
  if (auto opaque = dyn_cast<TorchOpaqueOp>(op))
    return opaque.getCallee().str();
  return op->getName().stripDialect().str();
}

static std::string toString(const ConcreteTensor &tensor) {
  std::string text = "tensor<";
  llvm::raw_string_ostream os(text);
  for (int64_t dim : tensor.dims)
    os << dim << 'x';
  os << tensor.elementType << '>';
  return text;
}

void PeakMemoryAnalysis::Impl::fillPlaces(Run &run, PeakReport &report) const {
  if (run.peakOp) {
    report.peakPlace = getSourcePlace(run.peakOp->getLoc());
    report.peakOp =
        getOperatorName(*run.peakOp) +
        (run.peakPhase == Run::Phase::Backward ? " (backward)" : "");
  }
  if (run.peakPhase == Run::Phase::Optimizer)
    report.peakOp = (options.optimizer->getName() + ".step()").str();
  for (auto &entry : run.timeline) {
    entry.second.index = report.timeline.size();
    report.timeline.push_back(entry.second);
  }
  // The gravest of an operation first.
  for (auto &[op, doubts] : run.doubts)
    for (Trust trust : {Trust::Unknown, Trust::UpperBound})
      for (const Doubt &doubt : doubts.getAll())
        if (doubt.trust == trust)
          report.inexact.push_back({getOperatorName(*op),
                                    getSourcePlace(op->getLoc()), doubt.reason,
                                    trust == Trust::UpperBound, doubt.source});
  fillHandedOn(run, report);
}

void PeakMemoryAnalysis::Impl::fillHandedOn(const Run &run,
                                            PeakReport &report) const {
  for (auto [entry, how] : handedOnStorages) {
    if (how == HandedOn::Once)
      continue;
    Operation *op = entry->allocations.front().getOwner();
    bool isBound = true;
    std::string reason =
        "a branch hands on this tensor or another; all are counted";
    if (auto found = carried.find(entry); found != carried.end()) {
      isBound = found->second.variables && !run.undercounted.contains(entry);
      reason = "its storage is handed on by a loop";
      if (isBound)
        reason += "; as many as the loop has variables are counted";
    }
    report.inexact.push_back(
        {getOperatorName(*op), getSourcePlace(op->getLoc()), reason, isBound});
  }
}

void PeakMemoryAnalysis::Impl::fillBatch(const Run &run,
                                         PeakReport &report) const {
  if (!module)
    return;
  report.anyExecutor = module->hasAttr(kTrainStepAttr);
  report.batchSymbol = batchSymbol;
  auto value =
      run.symbols.find(DimSymbol::get(function->getContext(), batchSymbol));
  if (value != run.symbols.end())
    report.batchValue = value->second;
}

void PeakMemoryAnalysis::Impl::fillCallDoubts(Run &run,
                                              PeakReport &report) const {
  if (auto why = function->getAttrOfType<StringAttr>(kLifetimesAttr))
    report.inexact.push_back({function->getName().getStringRef().str(),
                              getSourcePlace(function->getLoc()), why.str(),
                              false});
  auto tiled =
      function->getAttrOfType<DictionaryAttr>(KoilaDialect::kTiledAttr);
  auto record = tiled ? tiled.getAs<IntegerAttr>("least_batch") : IntegerAttr();
  int64_t least = record ? record.getInt() : 1;
  if (tiled && report.batchValue && *report.batchValue < least)
    report.inexact.push_back(
        {function->getName().getStringRef().str(),
         getSourcePlace(function->getLoc()),
         "a batch below " + std::to_string(least) +
             " runs the untiled program; this is the peak of the tiled one",
         false});
  if (replaced)
    report.inexact.push_back(
        {getOperatorName(*replaced), getSourcePlace(replaced->getLoc()),
         isa<AttrSetOp>(replaced)
             ? "what the attribute held before the call goes, which is not "
               "taken off"
             : "what the list or dict held before the call may go, which is "
               "not taken off",
         true});
  if (unsteady)
    report.inexact.push_back(
        {getOperatorName(*unsteady), getSourcePlace(unsteady->getLoc()),
         "no upper bound: the attribute may hold more after each call; this is "
         "the figure of the first call, on what the file has",
         false});
  if (late)
    report.inexact.push_back(
        {getOperatorName(*late), getSourcePlace(late->getLoc()),
         "no upper bound: the second call does not find yet what later ones "
         "find in the attribute; this is the figure of those",
         false});
  if (forked)
    report.inexact.push_back({getOperatorName(*forked),
                              getSourcePlace(forked->getLoc()),
                              "data decide which way a call goes; the one that "
                              "needs most is counted",
                              true});
  if (!recordingDoubt.empty())
    report.inexact.push_back({function->getName().getStringRef().str(),
                              getSourcePlace(function->getLoc()),
                              recordingDoubt.str(), false});
  checkArguments(run, report);
}

void PeakMemoryAnalysis::Impl::checkArguments(Run &run,
                                              PeakReport &report) const {
  for (BlockArgument argument : function->getRegion(0).getArguments())
    if (auto extent = getNegativeExtent(argument, run))
      report.inexact.push_back(
          {report.function, getSourcePlace(function->getLoc()),
           ("argument " + Twine(argument.getArgNumber()) +
            " would have extent " + Twine(*extent) + "; no such call runs")
               .str(),
           false});
}

LiveTensor PeakMemoryAnalysis::Impl::describe(const Storage &entry,
                                              int64_t bytes, Run &run) const {
  LiveTensor tensor;
  tensor.bytes = bytes;
  bool isGradient = ofGradients.contains(&entry);
  if (isGradient)
    tensor.kind = "gradient";
  if (entry.allocations.empty())
    return tensor;
  OpResult value = entry.allocations.front();
  tensor.name = getTensorName(value.getOwner());
  bool isKept = ofSaved.contains(&entry);
  if (auto concrete = isKept ? std::nullopt : getConcrete(value, run))
    tensor.type = toString(*concrete);
  if (!isGradient)
    tensor.kind = isKept                      ? "saved"
                  : returned.contains(&entry) ? "output"
                                              : "activation";
  tensor.place = getSourcePlace(value.getLoc());
  return tensor;
}

void PeakMemoryAnalysis::Impl::fillSpans(Run &run, PeakReport &report) const {
  for (auto [entry, span] : run.spans) {
    if (span.bytes == 0)
      continue;
    StorageSpan &storage = report.storages.emplace_back();
    storage.tensor = describe(*entry, span.bytes, run);
    storage.from = span.from;
    storage.to = span.freedBy ? span.to : report.timeline.size() - 1;
    if (!span.freedBy)
      continue;
    storage.freedBy = getOperatorName(*span.freedBy);
    storage.freedPlace = getSourcePlace(span.freedBy->getLoc());
  }
}

void PeakMemoryAnalysis::Impl::fillLive(const llvm::StringMap<int64_t> &symbols,
                                        uint64_t event,
                                        PeakReport &report) const {
  Run run = start(symbols);
  run.stopAt = event;
  execute(run);
  for (auto [entry, bytes] : run.live)
    if (bytes != 0)
      report.liveAtPeak.push_back(describe(*entry, bytes, run));
  if (run.transientAtStop > 0 && run.event == event)
    report.liveAtPeak.push_back({report.peakOp, run.transientAtStop, "",
                                 "workspace", report.peakPlace});
  // All that can differ: the same program gives the same report.
  auto key = [](const LiveTensor &tensor) {
    const SourcePlace &place = tensor.place;
    return std::tie(tensor.name, tensor.type, tensor.kind, place.file,
                    place.line, place.column, place.function, place.module);
  };
  llvm::sort(report.liveAtPeak, [&](const LiveTensor &lhs,
                                    const LiveTensor &rhs) {
    return lhs.bytes != rhs.bytes ? lhs.bytes > rhs.bytes : key(lhs) < key(rhs);
  });
}

void PeakMemoryAnalysis::Impl::fillBytes(Run &run, PeakReport &report) const {
  llvm::StringSet<> seen;
  if (module)
    for (auto param : ModuleOp(module).getOps<ParamOp>()) {
      // Tied weights are one declaration; views into one storage are several.
      if (!param.getStorage().empty() &&
          !seen.insert(param.getStorage()).second)
        continue;
      auto type = cast<RankedTensorType>(param.getType());
      __int128 bytes = getElementBytes(type.getElementType());
      for (int64_t extent : type.getShape())
        bytes = saturate(bytes * extent);
      report.parameterBytes = saturate(report.parameterBytes + bytes);
    }
  if (options.mode == PeakMemoryMode::Train) {
    SmallVector<TrainedWeight> weights = getTrainedWeights(run);
    for (const TrainedWeight &weight : weights)
      report.gradientBytes =
          saturate(__int128(report.gradientBytes) + weight.bytes);
    report.hasGradients = options.hasGradients;
    if (options.optimizer)
      report.optimizerBytes = options.optimizer->getStateBytes(weights);
  }
  auto sum = [&](auto &&values) -> std::optional<int64_t> {
    int64_t total = 0;
    llvm::SmallPtrSet<const Storage *, 4> counted;
    for (Value value : values) {
      if (!isa<TensorType>(value.getType()))
        continue;
      if (const Storage *entry = storage.lookup(value);
          entry && !counted.insert(entry).second)
        continue;
      auto tensor = getConcrete(value, run);
      // Nor can 64 bits count what does not fit in them.
      if (!tensor || tensor->numBytes() == std::numeric_limits<int64_t>::max())
        return std::nullopt;
      total = saturate(__int128(total) + tensor->numBytes());
    }
    return total;
  };
  Block &entry = function->getRegion(0).front();
  report.inputBytes = sum(llvm::make_filter_range(
      entry.getArguments(), [&](BlockArgument argument) {
        auto owner = dyn_cast<FunctionOpInterface>(function);
        return !owner || !owner.getArgAttr(argument.getArgNumber(), kLeftAttr);
      }));
  SmallVector<Value> outputs;
  for (const std::unique_ptr<Storage> &candidate : storage.getStorages())
    if (returned.contains(candidate.get()))
      outputs.push_back(candidate->allocations.front());
  report.outputBytes = sum(outputs);
}
