//===- koila-opt.cpp - mlir-opt that reads and writes TorchScript ---------===//

#include "TorchScriptLibrary.h"
#include "koila/Analysis/MetaKernelShapes.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Extension/Loading.h"
#include "koila/InitAllDialects.h"
#include "koila/InitAllExtensions.h"
#include "koila/InitAllPasses.h"
#include "koila/InputSpec/InputSpec.h"
#include "koila/Support/FileKind.h"
#include "koila/Support/OutputFile.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "support/Supervisor.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/SourceMgr.h"

#ifdef KOILA_INCLUDE_TESTS
#include "lib/TestPasses.h"
#endif

using namespace mlir;
using namespace koila;

namespace cl = llvm::cl;

static cl::OptionCategory koilaOptions("koila options");
static cl::list<std::string>
    inputSpecs("input",
               cl::desc("Shape and type of an argument, in order or by name: "
                        "--input='x=float32[B,3,224,224]'. A name in the dims "
                        "is a symbol; B is the batch"),
               cl::value_desc("spec"), cl::cat(koilaOptions));
static cl::list<std::string>
    batchValues("batch",
                cl::desc("Value of a symbol for analysis: --batch B=64. It "
                         "never specialises the program"),
                cl::value_desc("symbol=value"), cl::cat(koilaOptions));
static cl::opt<std::string>
    batchSymbol("batch-symbol", cl::desc("The symbol that is the batch"),
                cl::value_desc("name"), cl::cat(koilaOptions));
static cl::opt<std::string>
    functionName("function", cl::desc("The method to read from an archive"),
                 cl::init("forward"), cl::value_desc("name"),
                 cl::cat(koilaOptions));
static cl::opt<std::string>
    weightsFile("weights",
                cl::desc("Archive that gives weights and module tree when "
                         ".mlir is written as .pt"),
                cl::value_desc("file.pt"), cl::cat(koilaOptions));
static cl::opt<bool> allowSetState(
    "allow-setstate",
    cl::desc("Load archives that run code at load (__setstate__)"),
    cl::cat(koilaOptions));
static cl::opt<unsigned> archiveTimeout(
    "archive-timeout",
    cl::desc("Give up when LibTorch is busy with an archive for longer; 0 for "
             "no limit"),
    cl::init(600), cl::value_desc("seconds"), cl::cat(koilaOptions));
static cl::list<std::string> loadLibraries(
    "load-library",
    cl::desc("Library that registers custom operators of the program"),
    cl::value_desc("file.so"), cl::cat(koilaOptions));
static cl::opt<bool> checkSchemas(
    "koila-check-schemas",
    cl::desc("Compare the schema of every operation with LibTorch's and exit"),
    cl::cat(koilaOptions));

static const char kHelp[] =
    "koila: memory of TorchScript programs, and batches that fit\n\n"
    "  koila-opt model.pt --input='float32[B,3,224,224]' --batch B=64 \\\n"
    "      --koila-infer-shapes --koila-peak-memory -o out.mlir\n"
    "  koila-opt model.pt --input='float32[B,3,224,224]' --batch B=64 \\\n"
    "      --koila-compile='budget=78MiB' -o smaller.pt\n";

static int fail(const llvm::Twine &message) {
  llvm::errs() << "error: " << message << "\n";
  return EXIT_FAILURE;
}

/// An archive by content; an unreadable one still by its name, so that the
/// error speaks of archives.
static bool isArchive(llvm::StringRef path, llvm::StringRef content) {
  if (content.starts_with("PK\x03\x04") || content.starts_with("PK\x05\x06"))
    return true;
  return path.ends_with(".pt") || path.ends_with(".pth") ||
         path.ends_with(".pt2");
}

static std::string toBytecode(ModuleOp module) {
  std::string bytes;
  llvm::raw_string_ostream os(bytes);
  if (failed(writeBytecodeToFile(module, os)))
    bytes.clear();
  return bytes;
}

/// Whether the user asked for any pass.
static bool hasPasses(const MlirOptMainConfig &config, MLIRContext &context) {
  PassManager manager(&context);
  return succeeded(config.setupPassPipeline(manager)) && manager.size() > 0;
}

/// As koila::findTrainingLoss, of the passes that the user asked for.
static std::optional<std::string>
findTrainingLoss(const MlirOptMainConfig &config, MLIRContext &context) {
  PassManager manager(&context);
  if (failed(config.setupPassPipeline(manager)))
    return std::nullopt;
  return findTrainingLoss(manager);
}

/// Whether an argument has a shape that tracing recorded.
static bool hasExamples(ModuleOp module) {
  bool found = false;
  for (auto function : module.getOps<FunctionOpInterface>())
    for (unsigned index = 0; index < function.getNumArguments(); ++index)
      found |= function.getArgAttr(index, "koila.example") &&
               !function.getArgAttr(index, KoilaDialect::kDimsAttr);
  return found;
}

/// What --input, --batch and --batch-symbol say; none after an error.
static std::optional<CallSpec> readCall() {
  CallSpec call;
  call.batchSymbol = batchSymbol;
  std::string error;
  for (const std::string &text : inputSpecs)
    if (!call.addInput(text, error)) {
      fail("--input='" + text + "': " + error);
      return std::nullopt;
    }
  for (const std::string &text : batchValues)
    if (!call.addBatch(text, error)) {
      fail("--batch " + text + ": " + error);
      return std::nullopt;
    }
  return call;
}

/// Parses `source`, writes `call` into the module, and gives it back as
/// bytecode; none after an error.
static std::optional<std::string>
applyCall(const CallSpec &call, llvm::StringRef source, llvm::StringRef name,
          bool fromArchive, DialectRegistry &registry,
          const MlirOptMainConfig &config) {
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false);
  auto sourceManager = std::make_shared<llvm::SourceMgr>();
  sourceManager->AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(source, name), llvm::SMLoc());
  SourceMgrDiagnosticHandler handler(*sourceManager, &context);
  OwningOpRef<ModuleOp> module =
      parseSourceFile<ModuleOp>(sourceManager, ParserConfig(&context));
  if (!module)
    return std::nullopt;
  bool recorded =
      fromArchive && hasExamples(*module) && hasPasses(config, context);
  if (!call.isEmpty() || recorded) {
    // Of an archive there is one: the method, or the step made of it.
    llvm::StringRef function = !fromArchive && functionName.getNumOccurrences()
                                   ? llvm::StringRef(functionName)
                                   : llvm::StringRef();
    if (failed(call.apply(*module, function, llvm::errs())))
      return std::nullopt;
  }
  return toBytecode(*module);
}

/// The report that a pass left on the module.
static std::string getReport(llvm::StringRef bytecode,
                             DialectRegistry &registry) {
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(bytecode, ParserConfig(&context));
  if (!module)
    return {};
  auto report = (*module)->getAttrOfType<StringAttr>(KoilaDialect::kReportAttr);
  return report ? report.str() : std::string();
}

static void printVersion(llvm::raw_ostream &os) {
  os << "koila " KOILA_VERSION "\n";
  os.flush();
  cl::PrintVersionMessage();
}

/// LLVM's libraries register hundreds of options, of code generators for one.
/// --help-hidden lists them. To be called before MLIR's tool adds its own.
static void hideForeignOptions() {
  for (const auto &entry : cl::getRegisteredOptions()) {
    cl::Option *option = entry.second;
    bool isShown = llvm::any_of(
        option->Categories, [](const cl::OptionCategory *category) {
          return category == &koilaOptions ||
                 category->getName() == "Generic Options" ||
                 category->getName() == "Color Options";
        });
    if (!isShown)
      option->setHiddenFlag(cl::Hidden);
  }
}

/// mlir-opt appends the operation to each error; a whole function there hides
/// the message. The option still turns it on.
static void setQuietDiagnostics() {
  auto &options = cl::getRegisteredOptions();
  auto found = options.find("mlir-print-op-on-diagnostic");
  if (found != options.end() && found->second->getNumOccurrences() == 0)
    static_cast<cl::opt<bool> *>(found->second)->setValue(false);
}

/// Makes --load-dialect-plugin load extensions for the whole process, the
/// TorchScript library included, and not for `registry` alone. MLIR itself goes
/// on without a plugin that it cannot load; `problems` has why.
static void loadPluginsForProcess(DialectRegistry &registry,
                                  std::vector<std::string> &problems) {
  auto &options = cl::getRegisteredOptions();
  auto found = options.find("load-dialect-plugin");
  if (found == options.end())
    return;
  static_cast<cl::list<std::string> *>(found->second)
      ->setCallback([&](const std::string &path) {
        if (llvm::Error error = loadExtension(path, PluginKind::AnyDialect))
          problems.push_back(llvm::toString(std::move(error)));
        else
          registerExtensions(registry);
      });
}

namespace {
/// Asks LibTorch, which is opened only when a program has an operator that
/// koila has no rule for.
class MetaKernels : public MetaKernelShapeSource {
public:
  using Open = std::function<TorchScriptLibrary *()>;
  MetaKernels(Dialect *dialect, Open open)
      : MetaKernelShapeSource(dialect), open(std::move(open)) {}

  std::optional<std::string> answer(llvm::StringRef request) const override {
    TorchScriptLibrary *library = open();
    return library ? library->runMeta(request) : std::nullopt;
  }

private:
  Open open;
};

struct MetaKernelsExtension
    : DialectExtension<MetaKernelsExtension, KoilaDialect> {
  MetaKernelsExtension(MetaKernels::Open open) : open(std::move(open)) {}
  void apply(MLIRContext *, KoilaDialect *dialect) const override {
    dialect->addInterface<MetaKernels>(open);
  }
  MetaKernels::Open open;
};
} // namespace

int main(int argc, char **argv) {
  std::optional<llvm::InitLLVM> init;
  if (startSupervised("koila-opt")) {
    // What InitLLVM does, without the stack trace: the parent tells of a crash.
    // Without its handler for failed allocations, too: LibTorch throws.
    (void)llvm::sys::Process::FixupStandardFileDescriptors();
    llvm::sys::SetOneShotPipeSignalFunction(
        llvm::sys::DefaultOneShotPipeSignalHandler);
  } else {
    init.emplace(argc, argv);
  }
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  registerAllPasses();
  registerTransformsPasses();
#ifdef KOILA_INCLUDE_TESTS
  registerTestPasses();
#endif

  cl::SetVersionPrinter(printVersion);
  hideForeignOptions();
  setFilesWrittenOnce();
  std::string header = registerCLIOptions(kHelp, registry);
  std::vector<std::string> problems;
  loadPluginsForProcess(registry, problems);
  auto [inputPath, outputPath] = parseCLIOptions(argc, argv, header);
  for (const std::string &problem : problems)
    fail("--load-dialect-plugin: " + problem);
  if (!problems.empty())
    return EXIT_FAILURE;
  setQuietDiagnostics();
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();

  ArchiveOptions archiveOptions;
  archiveOptions.allowSetState = allowSetState;
  archiveOptions.timeoutSeconds = archiveTimeout;
  archiveOptions.libraries.assign(loadLibraries.begin(), loadLibraries.end());
  std::optional<TorchScriptLibrary> torch;
  auto openTorch = [&]() {
    if (!torch)
      torch = TorchScriptLibrary::open(argv[0], archiveOptions);
    return torch.has_value();
  };
  MetaKernels::Open openQuietly = [&]() -> TorchScriptLibrary * {
    if (!torch)
      torch = TorchScriptLibrary::open(argv[0], archiveOptions, /*quiet=*/true);
    return torch ? &*torch : nullptr;
  };
  registry.addExtension(TypeID::get<MetaKernelsExtension>(),
                        std::make_unique<MetaKernelsExtension>(openQuietly));
  if (checkSchemas)
    return openTorch() && torch->checkSchemas() ? EXIT_SUCCESS : EXIT_FAILURE;

  std::string problem;
  auto output = getOutputKind(outputPath, problem);
  if (!output)
    return fail(problem);
  bool toArchive = output == OutputKind::TorchScript;
  // Without mapping: a file that changes while it is read must not crash.
  auto file = openInputFile(inputPath, &problem);
  if (!file)
    return fail(problem);
  bool fromArchive = isArchive(inputPath, file->getBuffer());
  if (auto kind =
          fromArchive ? std::nullopt : describeForeignFile(file->getBuffer()))
    return fail("'" + inputPath + "' " + *kind);

  auto call = readCall();
  if (!call)
    return EXIT_FAILURE;
  std::string source;
  if (fromArchive) {
    if (!openTorch())
      return EXIT_FAILURE;
    MLIRContext context(registry, MLIRContext::Threading::DISABLED);
    auto imported = torch->import(
        inputPath, functionName, findTrainingLoss(config, context),
        getGradientArguments(call->inputs), toArchive);
    if (!imported)
      return EXIT_FAILURE;
    source = std::move(*imported);
  }
  if (fromArchive || !call->isEmpty()) {
    auto applied = applyCall(
        *call, fromArchive ? llvm::StringRef(source) : file->getBuffer(),
        inputPath, fromArchive, registry, config);
    if (!applied)
      return EXIT_FAILURE;
    source = std::move(*applied);
    file = llvm::MemoryBuffer::getMemBufferCopy(source, inputPath);
  }

  if (toArchive || output == OutputKind::Bytecode)
    config.emitBytecode(true);
  std::string result;
  llvm::raw_string_ostream os(result);
  if (failed(MlirOptMain(os, std::move(file), registry, config)))
    return EXIT_FAILURE;
  setLastOutput();
  if (toArchive) {
    if (!openTorch())
      return EXIT_FAILURE;
    return torch->emit(result, weightsFile, outputPath,
                       getReport(result, registry))
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
  }
  if (!writeOutputFile(
          outputPath, [&](llvm::raw_ostream &out) { out << result; }, problem))
    return fail(problem);
  return EXIT_SUCCESS;
}
