//===- koila-run.cpp - Run, measure and compare TorchScript programs ------===//

#include "Calibrate.h"
#include "Inputs.h"
#include "Load.h"
#include "Replay.h"
#include "Report.h"
#include "koila/InitAllDialects.h"
#include "koila/InitAllExtensions.h"
#include "koila/Target/TorchScript/InProcess.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "mlir/IR/Diagnostics.h"
#include "support/Supervisor.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Config/llvm-config.h"
#include <algorithm>

using namespace koila;
using namespace koila::run;

/// Prints each warning once, with the file it is from.
static void reportWarnings(const std::string &path,
                           const std::vector<std::string> &warnings,
                           std::vector<std::string> &known) {
  for (const std::string &warning : warnings) {
    if (llvm::is_contained(known, warning))
      continue;
    known.push_back(warning);
    llvm::errs() << path << ": warning: " << warning << '\n';
  }
}

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle]
                           : (values[middle - 1] + values[middle]) / 2;
}

/// The method to call of `module`: in mode train its step, which is made if the
/// file has none.
static std::string prepareMethod(torch::jit::Module &module,
                                 const std::string &path,
                                 const Options &options) {
  getMethod(module, path, options.method);
  if (!options.trains)
    return options.method;
  std::string step = torchscript::kTrainStep;
  bool hasStep = module.find_method(step).has_value();
  if (hasStep && !options.loss.empty() && options.paths.size() == 1)
    throw UserError("'" + path + "' has a train_step of its own, and with it " +
                    "the loss; leave out --loss");
  if (!hasStep)
    if (auto why = torchscript::addTrainStep(
            module, {options.method, options.loss,
                     getGradientArguments(options.call.inputs)}))
      throw UserError("'" + path + "': " + *why);
  return step;
}

static void finishOutput() {
  llvm::outs().flush();
  if (llvm::outs().has_error()) {
    std::string reason = llvm::outs().error().message();
    llvm::outs().clear_error();
    throw UserError("cannot write the report: " + reason);
  }
}

static int replayRecording(const Options &options) {
  bool agrees = replay(llvm::outs(), options);
  finishOutput();
  if (!agrees)
    llvm::errs()
        << "koila-run: error: the simulation and the recording differ\n";
  return agrees ? 0 : 1;
}

static int runTool(Options options) {
  configureExecution(options.threads);
  koilaTorchAllowSetState(options.archives.allowSetState);
  if (std::string problem = options.archives.openLibraries(); !problem.empty())
    throw UserError(problem);
  c10::Device device = openDevice(options.device);
  RunReport report{options, {}, {}, {}, std::nullopt};
  WarningLog log;
  mlir::DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  torchscript::registerMetaKernels(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  mlir::ScopedDiagnosticHandler diagnostics(
      &context, [](mlir::Diagnostic &diagnostic) {
        llvm::errs() << "koila-run: error: " << diagnostic << '\n';
        return mlir::success();
      });

  if (!options.calibrate.empty()) {
    calibrate(options, &context);
    return 0;
  }
  std::vector<Program> programs;
  std::string name;
  for (const std::string &path : options.paths) {
    programs.push_back(
        {path, load(path, options, /*restoreShapes=*/false), false, false, {}});
    programs.back().hasStep =
        programs.back().module.find_method(torchscript::kTrainStep).has_value();
    name = prepareMethod(programs.back().module, path, options);
    programs.back().isTiled =
        programs.back().module.find_method(name + "_untiled").has_value();
  }
  if (options.call.inputs.empty() && programs[0].isTiled) {
    options.call.inputs =
        getCompiledInputs(options.paths[0], options, &context);
    for (const InputSpec &spec : options.call.inputs)
      llvm::errs() << "note: using the inputs that '" << options.paths[0]
                   << "' was compiled for: --input='" << spec.name << '='
                   << spec.str() << "'\n";
  }
  // Recorded shapes are wanted only without specs; they would also become
  // types that the executor relies on, so they come from a copy.
  torch::jit::Module described = programs[0].module;
  if (options.call.inputs.empty()) {
    described = load(options.paths[0], options, /*restoreShapes=*/true);
    prepareMethod(described, options.paths[0], options);
  }
  log.take();
  Signature signature(getMethod(described, options.paths[0], name), options,
                      &context);
  report.symbols = signature.getSymbols();
  report.batch = signature.getBatch();
  torch::jit::Method method =
      getMethod(programs[0].module, options.paths[0], name);
  std::vector<c10::IValue> inputs = makeInputs(method, signature, options.seed);
  CallMode mode{name, options.gradMode, options.seed, device};

  if (programs.size() == 2)
    report.comparison = compare(programs[0], programs[1], mode, inputs,
                                report.batch.second, log);
  for (Program &program : programs) {
    ProgramResult result;
    result.path = program.path;
    reportWarnings(program.path, program.warnings, result.warnings);
    result.prediction =
        predictPeak(program.path, options, &context, program.hasStep);
    // The text report says so itself.
    if (options.json && !result.prediction.peakBytes)
      llvm::errs() << program.path
                   << ": note: no prediction: " << result.prediction.reason
                   << '\n';
    log.take();
    std::vector<c10::IValue> own =
        device.is_cpu() ? cloneInputs(inputs) : putOn(device, inputs);
    result.measured = measurePeak(program.module, program.path, mode, own);
    reportWarnings(program.path, log.take(), result.warnings);
    report.programs.push_back(std::move(result));
  }
  // Not before: what is measured has them once.
  if (!device.is_cpu())
    inputs = putOn(device, inputs);
  // Interleaved, so that both meet the same state of the machine.
  std::vector<std::vector<double>> times(programs.size());
  for (int64_t run = 0; run < options.repeat; ++run)
    for (size_t index = 0; index < programs.size(); ++index)
      times[index].push_back(measureTime(programs[index].module,
                                         programs[index].path, mode, inputs));
  for (size_t index = 0; index < programs.size(); ++index)
    report.programs[index].milliseconds = median(times[index]);

  if (options.json)
    printJSON(llvm::outs(), report);
  else
    printText(llvm::outs(), report);
  finishOutput();
  bool good = !report.comparison ||
              (report.comparison->equal && !report.comparison->vacuous);
  if (!good)
    llvm::errs() << "koila-run: error: "
                 << (report.comparison->equal ? "the comparison is vacuous: "
                                              : "the results are unequal: ")
                 << report.comparison->reason << '\n';
  return good ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc == 2 && llvm::StringRef(argv[1]) == "--version") {
    llvm::outs() << "koila " KOILA_VERSION ", LLVM " LLVM_VERSION_STRING
                    ", LibTorch "
                 << kTorchVersion << "\n";
    return 0;
  }
  try {
    Options options = parseOptions(argc, argv);
    if (options.help) {
      llvm::outs() << kHelp;
      return 0;
    }
    startSupervised("koila-run");
    return options.replay.empty() ? runTool(options) : replayRecording(options);
  } catch (const DiagnosedError &) {
  } catch (const UserError &error) {
    llvm::errs() << "koila-run: error: " << error.what() << '\n';
  } catch (const c10::Error &error) {
    llvm::errs() << "koila-run: error: " << error.what_without_backtrace()
                 << '\n';
  } catch (const std::exception &error) {
    llvm::errs() << "koila-run: error: " << error.what() << '\n';
  }
  return 1;
}
