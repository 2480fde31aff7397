//===- PeakMemoryPass.cpp - Report the peak of live memory ----------------===//

#include "AnalysisPass.h"
#include "PassOptions.h"
#include "koila/Analysis/DeviceSnapshot.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Analysis/Target.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "koila/Dialect/Koila/Transforms/Passes.h"
#include "koila/Support/OutputFile.h"
#include "mlir/IR/Remarks.h"
#include "llvm/Support/FormatVariadic.h"

namespace koila {
#define GEN_PASS_DEF_PEAKMEMORYPASS
#include "koila/Dialect/Koila/Transforms/Passes.h.inc"
} // namespace koila

using namespace mlir;
using namespace koila;

namespace {
struct PeakMemoryPass : public koila::impl::PeakMemoryPassBase<PeakMemoryPass> {
  using Base::Base;
  // Read by PassOptions.h.
  using Base::allocator, Base::device, Base::function, Base::grads, Base::isa,
      Base::loss, Base::mode, Base::optimizer, Base::threads, Base::torch,
      Base::workspaces;

  LogicalResult write(const PeakReport &report) {
    if (format == "attribute") {
      std::string text;
      llvm::raw_string_ostream(text) << report.toJSON();
      getOperation()->setAttr(KoilaDialect::kReportAttr,
                              StringAttr::get(&getContext(), text));
      return success();
    }
    return write([&](llvm::raw_ostream &os) {
      if (format == "json")
        os << llvm::formatv("{0:2}", report.toJSON()) << "\n";
      else if (format == "html")
        report.printPage(os);
      else
        report.print(os);
    });
  }

  LogicalResult write(llvm::function_ref<void(llvm::raw_ostream &)> print) {
    if (!output.empty())
      return write(output, print);
    // Passes of several modules may run at the same time.
    std::string text;
    llvm::raw_string_ostream os(text);
    print(os);
    llvm::errs() << text;
    return success();
  }

  LogicalResult write(StringRef path,
                      llvm::function_ref<void(llvm::raw_ostream &)> print) {
    std::string problem;
    if (!writeOutputFile(path, print, problem))
      return getOperation().emitError() << problem;
    return success();
  }

  LogicalResult writeEvents(FunctionOpInterface function,
                            const PeakMemoryAnalysis &analysis,
                            const PeakReport &report) {
    std::string missing;
    auto fail = [&] {
      return function.emitError()
             << "format=events needs a value for symbol '" << missing
             << "' (--batch " << missing << "=N)";
    };
    if (samples.empty()) {
      auto events = analysis.listEvents(missing);
      if (!events)
        return fail();
      return write([&](llvm::raw_ostream &os) { printEvents(*events, os); });
    }
    if (report.batchSymbol.empty())
      return function.emitError()
             << "samples=" << samples << ": no symbol is the batch";
    std::vector<BatchEvents> batches;
    for (StringRef text : llvm::split(StringRef(samples), ',')) {
      int64_t batch;
      if (text.trim().getAsInteger(10, batch) || batch < 1)
        return function.emitError()
               << "samples=" << samples << ": '" << text.trim()
               << "' is no number of samples";
      llvm::StringMap<int64_t> symbols;
      symbols[report.batchSymbol] = batch;
      auto events = analysis.listEvents(missing, symbols);
      if (!events)
        return fail();
      batches.push_back({batch, std::move(*events)});
    }
    return write([&](llvm::raw_ostream &os) { printEvents(batches, os); });
  }

  /// What asked for the caching allocator.
  StringRef getRequest() {
    return allocator == "cuda" ? "allocator=cuda" : "a snapshot";
  }

  /// Whether the caching allocator is simulated, which is that of CUDA's
  /// devices.
  FailureOr<bool> checkAllocator() {
    ModuleOp module = getOperation();
    if (failed(checkChoice(module, "allocator", allocator,
                           {"exact", "cuda", "auto"}, {})))
      return failure();
    bool isAsked = allocator == "cuda" || !snapshot.empty();
    if (allocator == "exact" && !isAsked)
      return false;
    if (allocator == "exact")
      return module.emitError()
             << "a snapshot is what an allocator does; use allocator=cuda";
    PeakMemoryOptions options;
    options.device = device;
    TargetAttr target = getTarget(module, options);
    bool isOfCUDA = target && getCUDALibrary(module, target.getDevice());
    if (isAsked && !isOfCUDA)
      return module.emitError()
             << getRequest()
             << " belongs to a device of CUDA; use device=cuda, or the name of "
                "a card";
    if (isAsked && !budget.empty())
      return module.emitError() << getRequest()
                                << " with a budget is not supported yet; leave "
                                   "the budget out";
    return isOfCUDA && budget.empty();
  }

  LogicalResult simulate(FunctionOpInterface function,
                         const PeakMemoryOptions &options, PeakReport &report) {
    std::string missing;
    CachingAllocatorSettings settings;
    Snapshot recorded;
    report.deviceMemory =
        snapshot.empty()
            ? simulateDevice(function, options, settings, report, missing)
            : recordDevice(function, options, settings, report, recorded,
                           missing);
    if (!report.deviceMemory && allocator == "auto" && snapshot.empty())
      return success();
    if (!report.deviceMemory)
      return function.emitError()
             << getRequest() << " needs a value for symbol '" << missing
             << "' (--batch " << missing << "=N)";
    if (snapshot.empty())
      return success();
    return write(snapshot,
                 [&](llvm::raw_ostream &os) { writeSnapshot(os, recorded); });
  }

  LogicalResult run() {
    ModuleOp module = getOperation();
    auto options = getAnalysisOptions(
        *this, module, {"inference", "forward-with-grad", "train"}, {});
    if (failed(options) ||
        failed(checkChoice(module, "format", format,
                           {"text", "json", "html", "events", "attribute"},
                           {})))
      return failure();
    if (!samples.empty() && format != "events")
      return module.emitError()
             << "samples=" << samples << " belongs to format=events";
    FailureOr<bool> simulates = checkAllocator();
    if (failed(simulates))
      return failure();
    auto limit = getBudget(budget, device, module);
    if (failed(limit))
      return failure();
    FunctionOpInterface function = findFunction(module, options->function);
    if (!function)
      return failure();
    if (options->mode == PeakMemoryMode::Train &&
        failed(checkTrainStep(function, loss)))
      return failure();
    if (batches < 0)
      return module.emitError()
             << "batches=" << static_cast<int64_t>(batches) << " is negative";
    // No list of events has the peaks of other batches.
    options->batches = format == "events" ? 0 : batches.getValue();
    options->frames = frames;
    options->budgetBytes = *limit;
    PeakMemoryAnalysis analysis(function, *options,
                                getChildAnalysis<DimAnalysis>(function));
    if (!analysis.isValid() || failed(verifyGivenSizes(function)))
      return failure();
    PeakReport report = analysis.report();
    if (*simulates && failed(simulate(function, *options, report)))
      return failure();
    if (*limit && !report.peakBytes)
      return function.emitError()
             << "budget needs a value for symbol '" << report.missing
             << "' (--batch " << report.missing << "=N)";
    if (floor && format != "events" && report.peakBytes)
      report.floorBytes =
          computeFloor(module, *options, report.batchValue.value_or(0));
    if (failed(format == "events" ? writeEvents(function, analysis, report)
                                  : write(report)))
      return failure();
    if (report.peakBytes)
      remark::analysis(function.getLoc(), remark::RemarkOpts::name("PeakMemory")
                                              .category("koila-peak-memory")
                                              .function(function.getName()))
          << remark::metric("PeakBytes", *report.peakBytes)
          << remark::metric("Exact", report.exact());
    if (*limit && *report.peakBytes > **limit)
      return function.emitError()
             << "the peak of " << formatBytes(*report.peakBytes)
             << " exceeds the budget of " << formatBytes(**limit);
    return success();
  }

  std::optional<std::string> getTrainingLoss() const override {
    return mode == "train" ? std::optional<std::string>(loss) : std::nullopt;
  }

  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace

TypeID AnalysisPass::getPeakMemoryID() { return TypeID::get<PeakMemoryPass>(); }
