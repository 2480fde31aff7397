//===- DeviceMemory.cpp - A process on a GPU ------------------------------===//

#include "DeviceRecorder.h"
#include "koila/Allocators/CachingAllocator.h"
#include "koila/Analysis/DeviceSnapshot.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Analysis/Target.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/KernelModels/KernelModel.h"
#include "koila/Support/ByteSize.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Format.h"
#include <map>

using namespace mlir;
using namespace koila;

namespace {
using Events = std::vector<MemoryEvent>;

class Process {
public:
  /// Both outlive it.
  Process(const CachingAllocatorSettings &settings, const PeakReport &report,
          DeviceRecorder &recorder)
      : recorder(recorder),
        allocator(settings, {kUnlimited, kUnlimited}, getOptions(recorder)) {
    for (const Inexactness &doubt : report.inexact) {
      const Inexactness *&known = doubts[doubt.op];
      if (!known || known->isBound)
        known = &doubt;
    }
  }

  /// A tensor that stays.
  void hold(int64_t bytes, const Twine &name) {
    recorder.enter(name.str());
    allocate(bytes, Trust::Exact);
  }
  void run(const Events &events);
  /// What the last run has left of these kinds goes.
  void drop(llvm::function_ref<bool(StringRef kind)> isDropped);
  DeviceMemory getFigures() const;
  const CachingAllocator &getAllocator() const { return allocator; }

private:
  /// More than any card has: whether it suffices is for the caller to say.
  static constexpr int64_t kUnlimited = int64_t(1) << 50;

  struct Block {
    CachingAllocator::Allocation allocation;
    int64_t bytes = 0;
    Trust trust = Trust::Exact;
    std::string left;
  };

  static CachingAllocatorOptions getOptions(DeviceRecorder &recorder) {
    CachingAllocatorOptions options;
    options.observer = recorder.getObserver();
    return options;
  }

  Block allocate(int64_t bytes, Trust trust);
  void free(const Block &block);
  const Inexactness *getDoubt(const MemoryEvent &event) const;

  DeviceRecorder &recorder;
  CachingAllocator allocator;
  /// Of each operator the worst.
  llvm::StringMap<const Inexactness *> doubts;
  llvm::StringSet<> shared;
  /// Of the run, by the numbers of its events, and of those before.
  std::map<unsigned, Block> blocks;
  std::vector<Block> left;
  int64_t live[3] = {}, atPeak[3] = {}, peak = 0;
};
} // namespace

Process::Block Process::allocate(int64_t bytes, Trust trust) {
  CachingAllocator::Result result = allocator.allocate(bytes);
  // Nothing has so many bytes.
  if (std::holds_alternative<AllocatorOutOfMemory>(result))
    return {};
  live[static_cast<size_t>(trust)] += bytes;
  int64_t allocated = allocator.getStats().allocatedBytes.all.current;
  if (allocated > peak) {
    peak = allocated;
    llvm::copy(live, atPeak);
  }
  return {std::get<CachingAllocator::Allocation>(result), bytes, trust, {}};
}

void Process::free(const Block &block) {
  live[static_cast<size_t>(block.trust)] -= block.bytes;
  llvm::cantFail(allocator.free(block.allocation));
}

const Inexactness *Process::getDoubt(const MemoryEvent &event) const {
  StringRef op = event.op;
  op.consume_back(" (backward)");
  return doubts.lookup(op);
}

static Trust getTrust(const MemoryEvent &event, const Inexactness *doubt) {
  if (event.isExact)
    return Trust::Exact;
  // It is not told block by block.
  return doubt && doubt->isBound ? Trust::UpperBound : Trust::Unknown;
}

void Process::run(const Events &events) {
  std::map<unsigned, int64_t> gone;
  for (const MemoryEvent &event : events) {
    const Inexactness *doubt = getDoubt(event);
    Trust trust = getTrust(event, doubt);
    recorder.enter(event, trust, doubt);
    if (!event.shared.empty()) {
      // Autograd's backward passes have a thread of their own.
      bool isBackward = StringRef(event.op).ends_with(" (backward)");
      if (shared.insert(event.shared + (isBackward ? " of backward" : ""))
              .second)
        allocate(event.bytes, Trust::Exact);
    } else if (!event.isFree) {
      Block block = allocate(event.bytes, trust);
      block.left = event.left;
      blocks[event.id] = block;
    } else if (auto found = blocks.find(event.id); found != blocks.end()) {
      // Of a lump a part may go before the rest.
      if ((gone[event.id] += event.bytes) < found->second.bytes)
        continue;
      free(found->second);
      blocks.erase(found);
    }
  }
  for (auto &[id, block] : std::exchange(blocks, {}))
    left.push_back(block);
}

void Process::drop(llvm::function_ref<bool(StringRef kind)> isDropped) {
  recorder.enter("what the call has left is dropped");
  std::vector<Block> kept;
  for (const Block &block : left)
    if (isDropped(block.left))
      free(block);
    else
      kept.push_back(block);
  left = std::move(kept);
}

DeviceMemory Process::getFigures() const {
  const CachingAllocatorStats &stats = allocator.getStats();
  auto get = [](const AllocatorPoolStat &stat) {
    return DeviceMemory::Figure{stat.all.current, stat.all.peak};
  };
  DeviceMemory memory;
  memory.requested = get(stats.requestedBytes);
  memory.allocated = get(stats.allocatedBytes);
  memory.active = get(stats.activeBytes);
  memory.reserved = get(stats.reservedBytes);
  if (memory.reserved.peak > 0)
    memory.fragmentation =
        1 - double(memory.allocated.peak) / double(memory.reserved.peak);
  memory.exactBytes = atPeak[0];
  memory.boundBytes = atPeak[1];
  memory.unknownBytes = atPeak[2];
  return memory;
}

/// The weights and buffers of the module, one for each storage, and the inputs.
static void holdResident(Process &process, Operation *function,
                         const PeakMemoryOptions &options) {
  llvm::StringSet<> seen;
  if (auto module = function->getParentOfType<ModuleOp>())
    for (auto param : module.getOps<ParamOp>()) {
      if (!param.getStorage().empty() &&
          !seen.insert(param.getStorage()).second)
        continue;
      auto type = cast<RankedTensorType>(param.getType());
      int64_t bytes = getElementBytes(type.getElementType());
      for (int64_t extent : type.getShape())
        bytes *= extent;
      process.hold(bytes, param.getSymName());
    }
  PeakMemoryAnalysis analysis(function, options);
  for (auto [index, bytes] : llvm::enumerate(analysis.listInputs()))
    process.hold(bytes, "input " + Twine(index + 1));
}

static std::optional<Events> list(Operation *function,
                                  PeakMemoryOptions options, bool hasGradients,
                                  std::string &missing) {
  options.hasGradients = hasGradients;
  return PeakMemoryAnalysis(function, options).listEvents(missing);
}

/// A step whose gradients are not there before, and whose optimizer has its
/// state.
static Events joinSteps(const Events &first, const Events &later,
                        const Optimizer &optimizer) {
  std::string step = (optimizer.getName() + ".step()").str();
  auto isOfOptimizer = [&](const MemoryEvent &event) {
    return event.op == step;
  };
  Events joined;
  unsigned next = 0;
  for (const MemoryEvent &event : first)
    if (!isOfOptimizer(event)) {
      joined.push_back(event);
      next = std::max(next, event.id + 1);
    }
  for (MemoryEvent event : later)
    if (isOfOptimizer(event)) {
      event.id += next;
      joined.push_back(std::move(event));
    }
  return joined;
}

/// What the card takes outside of the allocator; none if nobody has said.
static std::optional<int64_t>
getContextBytes(Operation *function, const PeakMemoryOptions &options) {
  TargetAttr target = getTarget(function, options);
  const KernelLibrary *library =
      target ? KernelLibraries::find(target.getDevice(), function) : nullptr;
  const DeviceProfile *profile = library ? library->getProfile() : nullptr;
  return profile ? profile->getProperties().contextBytes : std::nullopt;
}

/// `snapshot` may be null.
static std::optional<DeviceMemory>
simulate(Operation *function, const PeakMemoryOptions &options,
         const CachingAllocatorSettings &settings, const PeakReport &report,
         Snapshot *snapshot, std::string &missing) {
  bool isTraining = options.mode == PeakMemoryMode::Train;
  auto first = list(function, options, !isTraining, missing);
  auto later = isTraining ? list(function, options, true, missing) : first;
  if (!first || !later)
    return std::nullopt;
  // What the caller has of a call goes before the next; without gradients
  // between steps these go, too.
  bool keepsGradients = options.hasGradients;
  if (isTraining && !keepsGradients)
    later = options.optimizer ? joinSteps(*first, *later, *options.optimizer)
                              : first;
  DeviceRecorder recorder(snapshot);
  Process process(settings, report, recorder);
  recorder.setPhase("weights and inputs");
  holdResident(process, function, options);
  constexpr int kCalls = 3;
  for (int call = 0; call < kCalls; ++call) {
    recorder.setPhase((Twine(isTraining ? "step " : "call ") + Twine(call + 1) +
                       " of " + Twine(kCalls))
                          .str());
    process.run(call == 0 ? *first : *later);
    process.drop([&](StringRef kind) {
      return kind == "output" || (kind == "gradient" && !keepsGradients);
    });
  }
  DeviceMemory memory = process.getFigures();
  memory.contextBytes = getContextBytes(function, options);
  if (memory.contextBytes)
    memory.totalBytes = memory.reserved.peak + *memory.contextBytes;
  if (snapshot)
    addAllocator(*snapshot, process.getAllocator());
  return memory;
}

std::optional<DeviceMemory>
koila::simulateDevice(Operation *function, const PeakMemoryOptions &options,
                      const CachingAllocatorSettings &settings,
                      const PeakReport &report, std::string &missing) {
  return simulate(function, options, settings, report, /*snapshot=*/nullptr,
                  missing);
}

std::optional<DeviceMemory>
koila::recordDevice(Operation *function, const PeakMemoryOptions &options,
                    const CachingAllocatorSettings &settings,
                    const PeakReport &report, Snapshot &snapshot,
                    std::string &missing) {
  return simulate(function, options, settings, report, &snapshot, missing);
}

llvm::json::Value DeviceMemory::toJSON() const {
  auto orNull = [](std::optional<int64_t> bytes) {
    return bytes ? llvm::json::Value(*bytes) : llvm::json::Value(nullptr);
  };
  return llvm::json::Object{
      {"requested", requested.current},
      {"requested_peak", requested.peak},
      {"allocated", allocated.current},
      {"allocated_peak", allocated.peak},
      {"active", active.current},
      {"active_peak", active.peak},
      {"reserved", reserved.current},
      {"reserved_peak", reserved.peak},
      {"fragmentation", fragmentation},
      {"context_bytes", orNull(contextBytes)},
      {"device_total_bytes", orNull(totalBytes)},
      {"bytes_by_trust", llvm::json::Object{{"exact", exactBytes},
                                            {"bound", boundBytes},
                                            {"unknown", unknownBytes}}}};
}

void DeviceMemory::print(llvm::raw_ostream &os) const {
  os << "  allocated     " << formatBytes(allocated.peak) << " at most, "
     << formatBytes(requested.peak)
     << " of it as requested; with weights and inputs\n"
     << "  reserved      " << formatBytes(reserved.peak) << " at most, "
     << llvm::format("%.1f", 100 * fragmentation) << " % of it in no block\n";
  if (totalBytes)
    os << "  device        " << formatBytes(*totalBytes) << ", with "
       << formatBytes(*contextBytes) << " outside of the allocator\n";
  os << "  of these      " << formatBytes(exactBytes) << " are exact, "
     << formatBytes(boundBytes) << " a bound, " << formatBytes(unknownBytes)
     << " not known\n";
}
