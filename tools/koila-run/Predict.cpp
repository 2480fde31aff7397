//===- Predict.cpp - koila's own figure for a program ---------------------===//

#include "Predict.h"
#include "Load.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Device/CpuIsa.h"
#include "koila/Device/GpuMemory.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/KernelModels/DeviceProfile.h"
#include "koila/Target/TorchScript/ImportArchive.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OwningOpRef.h"
#include "support/Supervisor.h"
#include "llvm/Support/raw_ostream.h"
#include <torch/version.h>

using namespace mlir;
using namespace koila;
using namespace koila::run;

/// Without `loss` the method as it is; with it, its training step.
static OwningOpRef<ModuleOp> import(const std::string &path,
                                    const Options &options,
                                    const std::string &method, const char *loss,
                                    MLIRContext *context, std::string &error) {
  Stage stage("reading '" + path + "'", options.archives.timeoutSeconds);
  std::string gradients = getGradientArguments(options.call.inputs);
  KoilaTorchImportOptions request = {path.c_str(), method.c_str(), loss,
                                     gradients.c_str(), nullptr};
  std::string messages;
  OwningOpRef<ModuleOp> module =
      torchscript::importArchive(request, context, messages);
  if (!module)
    error = getFirstError(messages);
  return module;
}

/// The kernel models of `cuda` or `cuda:1` here: those of the card, if koila
/// has a profile of it.
static std::string findTarget(StringRef device) {
  int64_t number = 0;
  if (device.consume_front("cuda:"))
    device.getAsInteger(10, number);
  auto card = getGpuCard(number);
  if (card)
    return DeviceProfile::find(card->name, card->major, card->minor,
                               card->multiprocessors)
        .str();
  llvm::consumeError(card.takeError());
  return "cuda";
}

Prediction koila::run::predictPeak(const std::string &path,
                                   const Options &options, MLIRContext *context,
                                   bool hasStep) {
  Prediction prediction;
  // Diagnostics become the reason; the first says most.
  std::string firstError;
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error &&
        firstError.empty())
      firstError = diagnostic.str();
    return success();
  });
  auto fail = [&](const std::string &fallback) {
    prediction.reason = firstError.empty() ? fallback : firstError;
    return prediction;
  };
  bool isOnCUDA = StringRef(options.device).starts_with("cuda");
  if (options.device != "cpu" && !isOnCUDA)
    return fail("koila has no figures of '" + options.device + "'");
  std::string error;
  std::string function =
      options.trains ? torchscript::kTrainStep : options.method;
  OwningOpRef<ModuleOp> module =
      import(path, options, hasStep ? function : options.method,
             options.trains && !hasStep ? options.loss.c_str() : nullptr,
             context, error);
  if (!module)
    return fail(error);
  if (failed(options.call.apply(*module, function, llvm::nulls())))
    return fail("the inputs do not fit");
  if (failed(inferShapes(*module)))
    return fail("the shapes cannot be inferred");
  PeakMemoryOptions analysis;
  if (isOnCUDA)
    analysis.device = findTarget(options.device);
  if (options.gradMode)
    analysis.mode = PeakMemoryMode::ForwardWithGrad;
  if (options.trains)
    analysis.mode = PeakMemoryMode::Train;
  analysis.function = function;
  analysis.threads = options.threads;
  // Caches are known of this machine only.
  if (options.isa != getCpuIsa())
    analysis.isa = options.isa;
  analysis.torch = TORCH_VERSION;
  analysis.workspaces = options.workspaces;
  FailureOr<PeakReport> report = computePeakMemory(*module, analysis);
  if (failed(report))
    return fail("the analysis failed");
  prediction.peakBytes = report->peakBytes;
  prediction.exact = report->exact();
  if (!report->peakBytes)
    prediction.reason = "symbol '" + report->missing + "' has no value";
  else if (!report->inexact.empty())
    prediction.reason =
        report->inexact.front().op + ": " + report->inexact.front().reason;
  return prediction;
}

/// `4*B` or a number as written in a spec; none for anything else.
static std::optional<InputDim> makeDim(DimExpr expr) {
  InputDim dim;
  if (std::optional<int64_t> extent = expr.getConstant()) {
    dim.factor = *extent;
    return dim;
  }
  expr.forEachSymbol(
      [&](DimSymbol symbol) { dim.symbol = symbol.getName().str(); });
  std::optional<int64_t> factor = expr.getMultipleOf(dim.symbol);
  if (!factor)
    return std::nullopt;
  dim.factor = *factor;
  return dim;
}

std::vector<InputSpec> koila::run::getCompiledInputs(const std::string &path,
                                                     const Options &options,
                                                     MLIRContext *context) {
  // What goes wrong here is said when the call needs inputs.
  ScopedDiagnosticHandler quiet(context,
                                [](Diagnostic &) { return success(); });
  std::string error;
  std::string method =
      options.trains ? torchscript::kTrainStep : options.method;
  OwningOpRef<ModuleOp> module =
      import(path, options, method, /*loss=*/nullptr, context, error);
  auto function =
      module ? module->lookupSymbol<func::FuncOp>(method) : func::FuncOp();
  std::vector<InputSpec> specs;
  if (!function)
    return specs;
  for (unsigned index = 0; index < function.getNumArguments(); ++index) {
    auto dims =
        function.getArgAttrOfType<DimsAttr>(index, KoilaDialect::kDimsAttr);
    auto name =
        function.getArgAttrOfType<StringAttr>(index, KoilaDialect::kNameAttr);
    auto type = dyn_cast<TensorType>(function.getArgumentTypes()[index]);
    if (!dims || !name || !type)
      continue;
    InputSpec &spec = specs.emplace_back();
    spec.kind = InputSpec::Kind::Tensor;
    spec.name = name.str();
    spec.dtype = getDTypeName(type.getElementType()).str();
    spec.channelsLast =
        function.getArgAttr(index, KoilaDialect::kMemoryFormatAttr) != nullptr;
    spec.requiresGrad =
        options.trains &&
        function.getArgAttr(index, KoilaDialect::kRequiresGradAttr) != nullptr;
    for (DimExprAttr expr : dims.getExprs()) {
      std::optional<InputDim> dim = makeDim(expr);
      if (!dim)
        return {};
      spec.dims.push_back(*dim);
    }
    if (auto range = function.getArgAttrOfType<RangeAttr>(
            index, KoilaDialect::kRangeAttr)) {
      std::optional<InputDim> from = makeDim(range.getFrom());
      std::optional<InputDim> to = makeDim(range.getTo());
      if (from && to)
        spec.range = InputRange{*from, *to};
    }
  }
  return specs;
}
