//===- PeakMemory.cpp - Peak of live memory of a call ---------------------===//
//
// Lifetimes are derived once from uses. For given values of the symbols the
// program is then run over byte counts instead of tensors: loops with known
// bounds run, so that every tile size is met, but a body whose sizes do not
// change between iterations is run once.
//
//===----------------------------------------------------------------------===//

#include "PeakMemoryImpl.h"
#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Support/CpuIsa.h"
#include <unistd.h>

using namespace mlir;
using namespace koila;

PeakMemoryAnalysis::Impl::Impl(Operation *function,
                               const PeakMemoryOptions &options)
    : function(function), batches(options.batches),
      budgetBytes(options.budgetBytes), dims(function),
      storage(function, dims) {
  target.threads =
      options.threads > 0 ? options.threads : getDefaultThreads();
  target.isa = options.isa.empty() ? getCpuIsa() : options.isa;
  // A machine that is only named has caches of unknown size.
  if (options.isa.empty()) {
    target.l1Bytes = std::max<long>(sysconf(_SC_LEVEL1_DCACHE_SIZE), 0);
    target.l2Bytes = std::max<long>(sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
  }
  if (!dims.isValid())
    return;
  collectSizes();
  collectUnmodelled();
  for (const std::unique_ptr<Storage> &entry : storage.getStorages())
    addLifetime(*entry);
  module = function->getParentOfType<ModuleOp>();
  if (module)
    batchSymbol = getBatchSymbol(module).str();
  if (auto symbols = module ? module->getAttrOfType<ArrayAttr>(
                                  KoilaDialect::kSymbolsAttr)
                            : ArrayAttr())
    for (auto symbol : symbols.getAsRange<SymbolAttr>())
      if (symbol.getValue() >= 0)
        given[symbol.getName()] = symbol.getValue();
}

void PeakMemoryAnalysis::Impl::collectSizes() {
  auto add = [&](Value value) {
    const ValueInfo &info = dims.lookup(value);
    if (!info.tensor)
      return;
    SizeFacts &facts = sizes[value];
    facts.elementType = info.tensor->elementType;
    facts.known = info.tensor->hasRank() && facts.elementType;
    if (!info.tensor->hasRank())
      return;
    facts.dims = *info.tensor->dims;
    facts.strides = info.tensor->strides;
    facts.alwaysContiguous =
        facts.strides &&
        facts.strides ==
            TensorInfo::contiguous(facts.dims, facts.elementType).strides;
  };
  function->walk<WalkOrder::PreOrder>([&](Operation *op) {
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), add);
    llvm::for_each(op->getResults(), add);
  });
}

void PeakMemoryAnalysis::Impl::forEachUser(Value value,
                 llvm::function_ref<void(Operation *)> callback) {
  SmallVector<Value> values{value};
  for (size_t index = 0; index < values.size(); ++index)
    for (Operation *user : values[index].getUsers()) {
      callback(user);
      for (Value result : user->getResults())
        if (!isa<TensorType>(result.getType()) &&
            !result.getType().isIntOrIndexOrFloat() &&
            !llvm::is_contained(values, result))
          values.push_back(result);
    }
}

static bool holdsTensors(Type type) {
  return isa<TensorType>(type) || isMutable(type);
}

void PeakMemoryAnalysis::Impl::collectUnmodelled() {
  function->walk([&](Operation *op) {
    auto opaque = dyn_cast<TorchOpaqueOp>(op);
    bool changes = isOrderedWrite(op) && op->getNumOperands() > 0 &&
                   !isa<TensorType>(op->getOperand(0).getType());
    // Objects may keep what they are given.
    bool mayKeep = opaque && opaque.getEffects() == Effects::Unknown &&
                   llvm::any_of(op->getOperandTypes(), holdsTensors);
    if (changes || mayKeep)
      unmodelled.try_emplace(
          op, "what a list or object that changes keeps alive is not known");
  });
}

void PeakMemoryAnalysis::Impl::addLifetime(const Storage &entry) {
  if (entry.allocations.empty())
    return;
  if (entry.external)
    for (OpResult allocation : entry.allocations)
      unmodelled.try_emplace(allocation.getOwner(),
                             "a branch or loop hands on this tensor or one "
                             "of the caller");
  Operation *first = entry.allocations.front().getOwner();
  for (OpResult allocation : entry.allocations)
    births[allocation.getOwner()].emplace_back(&entry, allocation);
  // A storage that a loop or branch hands on lives in the function's block:
  // which iteration's it is, only a run would tell.
  Block *block = first->getBlock();
  Block *functionBlock = &function->getRegion(0).front();
  bool handedOn = entry.allocations.size() > 1;
  for (Value value : entry.values)
    forEachUser(value, [&](Operation *user) {
      Operation *ancestor = block->findAncestorOpInBlock(*user);
      if (!ancestor || (block != functionBlock &&
                        ancestor->hasTrait<OpTrait::IsTerminator>()))
        handedOn = true;
    });
  if (handedOn && block != functionBlock) {
    block = functionBlock;
    first = block->findAncestorOpInBlock(*first);
  }
  if (handedOn)
    handedOnStorages.push_back(&entry);
  Operation *last = first;
  for (OpResult allocation : entry.allocations)
    if (Operation *ancestor =
            block->findAncestorOpInBlock(*allocation.getOwner()))
      if (last->isBeforeInBlock(ancestor))
        last = ancestor;
  for (Value value : entry.values)
    forEachUser(value, [&](Operation *user) {
      Operation *ancestor = block->findAncestorOpInBlock(*user);
      if (ancestor && last->isBeforeInBlock(ancestor))
        last = ancestor;
    });
  if (last->hasTrait<OpTrait::IsTerminator>() && block == functionBlock)
    returned.insert(&entry);
  else
    deaths[last].push_back(&entry);
}

PeakMemoryAnalysis::PeakMemoryAnalysis(Operation *function,
                                       const PeakMemoryOptions &options)
    : impl(std::make_unique<Impl>(function, options)) {}

PeakMemoryAnalysis::~PeakMemoryAnalysis() = default;

bool PeakMemoryAnalysis::isValid() const { return impl->dims.isValid(); }

std::optional<int64_t>
PeakMemoryAnalysis::evaluate(const llvm::StringMap<int64_t> &symbols) const {
  Impl::Run run = impl->start(symbols);
  impl->execute(run);
  if (!run.missing.empty())
    return std::nullopt;
  return run.peakBytes;
}

PeakReport
PeakMemoryAnalysis::report(const llvm::StringMap<int64_t> &symbols) const {
  PeakReport report;
  if (auto function = dyn_cast<FunctionOpInterface>(impl->function))
    report.function = function.getName().str();
  report.threads = impl->target.threads;
  report.isa = impl->target.isa;
  Impl::Run run = impl->start(symbols);
  run.detailed = true;
  if (impl->module) {
    report.batchSymbol = impl->batchSymbol;
    auto value = run.symbols.find(report.batchSymbol);
    if (value != run.symbols.end())
      report.batchValue = value->second;
  }
  impl->execute(run);
  report.missing = run.missing;
  impl->fillBytes(run, report);
  impl->fillCurve(symbols, report);
  if (!run.missing.empty())
    return report;
  report.peakBytes = run.peakBytes;
  impl->fillPlaces(run, report);
  impl->fillSpans(run, report);
  impl->fillLive(symbols, run.peakEvent, report);
  return report;
}

FailureOr<PeakReport>
koila::computePeakMemory(ModuleOp module, const PeakMemoryOptions &options) {
  FunctionOpInterface function = findFunction(module, options.function);
  if (!function)
    return failure();
  PeakMemoryAnalysis analysis(function, options);
  if (!analysis.isValid())
    return failure();
  return analysis.report();
}
