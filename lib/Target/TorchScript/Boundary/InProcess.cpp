//===- InProcess.cpp - TorchScript modules of this process ----------------===//

#include "koila/Target/TorchScript/InProcess.h"
#include "../Export/Emit.h"
#include "../Export/Reproducible.h"
#include "../Import/HostArguments.h"
#include "../Import/Import.h"
#include "../Import/MetaKernels.h"
#include "../Import/ProgramDevice.h"
#include "ArchiveValidator.h"
#include "CompilationUnit.h"
#include "CustomOperators.h"
#include "DiagnosticJSON.h"
#include "TracedDevices.h"
#include "koila/Analysis/HostResults.h"
#include "koila/Analysis/MetaKernelShapes.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/InitAllDialects.h"
#include "koila/InitAllExtensions.h"
#include "koila/InitAllPasses.h"
#include "koila/InputSpec/InputSpec.h"
#include "koila/Target/TorchScript/ImportArchive.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/ScopeExit.h"
#include <mutex>
#include <torch/csrc/jit/passes/shape_analysis.h>
#include <utility>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
using llvm::Twine;

namespace {
/// Asks LibTorch for the shapes of operators that koila has no rule for.
class MetaKernels : public MetaKernelShapeSource {
public:
  using MetaKernelShapeSource::MetaKernelShapeSource;
  std::optional<std::string> answer(llvm::StringRef request) const override {
    try {
      return runMeta(request);
    } catch (...) {
      return std::nullopt;
    }
  }
};

struct MetaKernelsExtension
    : DialectExtension<MetaKernelsExtension, KoilaDialect> {
  void apply(MLIRContext *, KoilaDialect *dialect) const override {
    dialect->addInterface<MetaKernels>();
  }
};

} // namespace

void torchscript::registerMetaKernels(DialectRegistry &registry) {
  registry.addExtensions<MetaKernelsExtension>();
}

namespace {
/// Decisions of passes become messages.
class RemarkCollector : public remark::detail::MLIRRemarkStreamerBase {
public:
  explicit RemarkCollector(Messages &messages) : messages(messages) {}
  void streamOptimizationRemark(const remark::detail::Remark &remark) override {
    llvm::json::Object arguments;
    std::string text;
    for (const auto &argument : remark.getArgs()) {
      if (argument.key != "Remark" && argument.key != "Reason") {
        arguments[llvm::json::fixUTF8(argument.key)] =
            llvm::json::fixUTF8(argument.val);
        continue;
      }
      if (!text.empty())
        text += ": ";
      text += argument.val;
    }
    messages.addRemark(text, remark.getLocation(), remark.getRemarkTypeString(),
                       remark.getRemarkName(), std::move(arguments));
  }

private:
  Messages &messages;
};

/// What one call needs. Messages come first: the context tells its handlers of
/// the end.
struct Session {
  Session() {
    DialectRegistry registry;
    registerAllDialects(registry);
    registerAllExtensions(registry);
    registerMetaKernels(registry);
    addCustomOperators(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.printOpOnDiagnostic(false);
    context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
      messages.addDiagnostic(diagnostic);
      return success();
    });
    constexpr const char *kAny = ".*";
    remark::RemarkCategories categories{kAny, kAny, kAny, kAny, kAny};
    if (failed(remark::enableOptimizationRemarks(
            context, std::make_unique<RemarkCollector>(messages),
            std::make_unique<remark::RemarkEmittingPolicyAll>(), categories)))
      refuse("remarks of passes cannot be collected");
  }

  Messages messages;
  MLIRContext context{MLIRContext::Threading::DISABLED};
};
} // namespace

static CallSpec readCall(const InProcessOptions &options) {
  CallSpec call;
  call.batchSymbol = options.batchSymbol;
  std::string error;
  for (const std::string &text : options.inputs)
    if (!call.addInput(text, error))
      refuse(Twine("input '") + text + "': " + error);
  for (const std::string &text : options.batch)
    if (!call.addBatch(text, error))
      refuse(Twine("batch ") + text + ": " + error);
  return call;
}

/// Writes inputs and the values of symbols into `module`.
static void applyCall(ModuleOp module, const CallSpec &call,
                      Messages &messages) {
  std::string notes;
  llvm::raw_string_ostream os(notes);
  if (failed(call.apply(module, /*function=*/"", os)))
    refuse("the inputs do not fit the method");
  if (!notes.empty())
    messages.add("remark", llvm::StringRef(notes).trim());
}

static void runPasses(ModuleOp module, const InProcessOptions &options) {
  static std::once_flag registered;
  std::call_once(registered, registerAllPasses);
  auto manager = PassManager::on<ModuleOp>(module.getContext());
  std::string problem;
  llvm::raw_string_ostream os(problem);
  if (failed(parsePassPipeline(options.pipeline, manager, os)))
    refuse(Twine("the passes '") + options.pipeline +
           "' cannot be read: " + llvm::StringRef(problem).trim());
  if (failed(manager.run(module)))
    refuse("the passes failed");
}

/// Runs `body` in a session; nothing thrown leaves. What `body` refuses is
/// behind what diagnostics have said, and left out if they said an error.
static InProcessResult
runGuarded(llvm::function_ref<void(Session &, InProcessResult &)> body) {
  InProcessResult result;
  try {
    Session session;
    try {
      body(session, result);
      result.succeeded = true;
    } catch (const Refusal &refusal) {
      if (!session.messages.hasError())
        session.messages.add(refusal);
    } catch (const std::exception &error) {
      session.messages.add("error", "LibTorch failed: " + getFirstLine(error));
    }
    result.messages = session.messages.getText();
  } catch (...) {
    result.succeeded = false;
    result.messages =
        "{\"severity\": \"error\", \"message\": \"out of memory\"}\n";
  }
  if (!result.succeeded)
    result.module.reset();
  return result;
}

/// Inputs, passes, and what they left on `module`; the report, too, where its
/// peak is above a budget.
static void process(ModuleOp module, const CallSpec &call,
                    const InProcessOptions &options, Session &session,
                    InProcessResult &result) {
  auto takeReport = llvm::scope_exit([&] {
    if (auto report =
            module->getAttrOfType<StringAttr>(KoilaDialect::kReportAttr))
      result.report = report.str();
  });
  applyCall(module, call, session.messages);
  runPasses(module, options);
  for (auto function : module.getOps<func::FuncOp>())
    if (auto tiled =
            function->getAttrOfType<DictionaryAttr>(KoilaDialect::kTiledAttr))
      result.tile = tiled.getAs<IntegerAttr>("tile").getInt();
}

/// Nodes that koila made come from no text, which the interpreter takes for
/// granted where it warns. A file gives them its own.
static void giveSources(const tj::Module &module, const std::string &name) {
  tj::SourceRange range(std::make_shared<tj::Source>("", name, 0), 0, 0);
  for (const tj::Method &method : module.get_methods()) {
    std::vector<tj::Node *> nodes;
    collectNodes(tj::toGraphFunction(method.function()).graph()->block(),
                 nodes);
    for (tj::Node *node : nodes)
      if (!node->sourceRange().source())
        node->setSourceRange(range);
  }
}

/// Figures hold for the executor without profiling. Each method gets it when it
/// first runs, most never, and other programs of the process keep theirs.
static void chooseExecutors(const tj::Module &module) {
  for (const tj::Method &method : module.get_methods())
    tj::toGraphFunction(method.function())
        ._set_initial_executor_execution_mode(
            tj::ExecutorExecutionMode::SIMPLE);
}

/// Lets the program begin with copies of what is on the CPU.
static void moveFromHost(const tj::Module &module,
                         const InProcessOptions &options, TrainStepSpec &step) {
  if (options.fromHost.empty())
    return;
  tj::Method method = module.get_method(options.method);
  llvm::SmallVector<size_t> own(options.fromHost.begin(),
                                options.fromHost.end());
  size_t count = method.function().getSchema().arguments().size() - 1;
  // Behind the arguments of the program is the target of its loss.
  llvm::erase_if(own, [&](size_t position) {
    if (position == count && !step.loss.empty())
      step.targetDevice = options.device;
    return position >= count;
  });
  moveArguments(method, own, c10::Device(options.device));
}

/// PyTorch's memory for that is CUDA's.
static void stageInPinnedMemory(const tj::Module &module,
                                const InProcessOptions &options) {
  c10::Device device(options.device);
  if (options.fromHost.empty() || !device.is_cuda())
    return;
  for (const tj::Method &method : module.get_methods())
    pinRows(*tj::toGraphFunction(method.function()).graph(), device);
}

void koila::torchscript::followDeviceOfArchive(const tj::Module &module,
                                               const std::string &path) {
  try {
    Archive archive = inspectArchive(path);
    // Of the CPU it stands there rightly.
    if (std::string device = findDevice(archive); device != "cpu")
      followDevice(module, device, archive.hasRecord("traced_inputs.pkl"));
  } catch (...) {
    // Whoever analyses the file says why.
  }
}

/// The same for a module that is on another device now. What its values had
/// where they were traced says the device again.
static void followOwnDevice(const tj::Module &module) {
  for (const at::Tensor &weight : module.parameters()) {
    if (weight.device().is_cpu())
      return;
    for (const tj::Module &part : module.modules())
      for (const tj::Method &method : part.get_methods())
        if (auto *function = tj::tryToGraphFunction(method.function()))
          tj::EraseShapeInformation(function->graph());
    return followDevice(module, weight.device().str(), /*isTraced=*/true);
  }
}

InProcessResult
koila::torchscript::runInProcess(const tj::Module &module,
                                 const InProcessOptions &options, bool emit) {
  return runGuarded([&](Session &session, InProcessResult &result) {
    Archive origin;
    origin.path = options.name;
    session.context.getLoadedDialect<KoilaDialect>()
        ->addInterface<ProgramDevice>(c10::Device(options.device),
                                      !options.fromHost.empty());
    getMethod(module, options.method, origin.path);
    GuardedMethods methods(options.method);
    if (module.find_method(methods.guarded) &&
        module.find_method(methods.untiled))
      refuse(Twine("'") + origin.path + "': koila has rewritten '" +
             options.method +
             "' already; compile the original program instead");
    if (options.loss && module.find_method(kTrainStep))
      refuse(Twine("'") + origin.path + "' has a method '" + kTrainStep +
             "', a name that koila needs for the step that it writes; compile "
             "the original program instead, or rename that method");
    CallSpec call = readCall(options);
    // Other types than the caller's, and the same tensors.
    tj::Module copy = cloneIntoOwnUnit(module);
    followOwnDevice(copy);
    TrainStepSpec step{options.method, options.loss.value_or(""),
                       getGradientArguments(call.inputs)};
    moveFromHost(copy, options, step);
    if (options.loss)
      if (auto why = addTrainStep(copy, step))
        refuse(*why);
    OperatorTable operators(&session.context);
    ImportedFunction imported =
        importFunction(origin, copy, options.loss ? kTrainStep : options.method,
                       operators, &session.context);
    if (!options.fromHost.empty())
      for (auto function : imported.module->getOps<func::FuncOp>())
        function->setAttr(kHostResultsAttr, UnitAttr::get(&session.context));
    OwningOpRef<ModuleOp> program =
        emit ? OwningOpRef<ModuleOp>(imported.module->clone())
             : std::move(imported.module);
    if (options.loss)
      setTrainStep(*program, step);
    process(*program, call, options, session, result);
    if (!emit)
      return;
    rebuildMethod(
        *program, *program->getOps<func::FuncOp>().begin(), origin, copy,
        operators, /*isForFile=*/false, result.report,
        [&](const tj::Module &built, const Expectation &) {
          stageInPinnedMemory(built, options);
          giveSources(built, origin.path);
          chooseExecutors(built);
          result.module = built;
        },
        std::move(imported));
  });
}

InProcessResult
koila::torchscript::runOnArchive(const std::string &path,
                                 const InProcessOptions &options,
                                 const std::string &output) {
  return runGuarded([&](Session &session, InProcessResult &result) {
    CallSpec call = readCall(options);
    std::string gradients = getGradientArguments(call.inputs), texts;
    KoilaTorchProgram *kept = nullptr;
    auto release = llvm::scope_exit([&] { koilaTorchRelease(kept); });
    KoilaTorchImportOptions import{
        path.c_str(), options.method.c_str(),
        options.loss ? options.loss->c_str() : nullptr, gradients.c_str(),
        output.empty() ? nullptr : &kept};
    OwningOpRef<ModuleOp> program =
        importArchive(import, &session.context, texts);
    session.messages.append(texts);
    if (!program)
      refuse(Twine("'") + path + "' cannot be read");
    process(*program, call, options, session, result);
    if (output.empty())
      return;
    std::string bytes;
    llvm::raw_string_ostream os(bytes);
    if (mlir::failed(writeBytecodeToFile(*program, os)))
      refuse("the program cannot be written as bytecode");
    KoilaTorchEmitOptions emit{
        bytes.data(),   bytes.size(),          nullptr,
        output.c_str(), result.report.c_str(), std::exchange(kept, nullptr)};
    KoilaTorchBuffer messages{};
    int failed = koilaTorchEmit(&emit, &messages);
    session.messages.append(
        llvm::StringRef(messages.data ? messages.data : "", messages.size));
    koilaTorchFree(&messages);
    if (failed)
      refuse(Twine("'") + output + "' cannot be written");
    // As the output has it.
    result.report = getPortableReport(result.report, path);
  });
}
