//===- TorchScript.cpp - The boundary of the library ----------------------===//

#include "koila/Target/TorchScript/TorchScript.h"
#include "../Export/Emit.h"
#include "../Export/ReadBack.h"
#include "../Export/Reproducible.h"
#include "../Export/TileAttribute.h"
#include "../Import/Import.h"
#include "../Import/MetaKernels.h"
#include "CustomOperators.h"
#include "DiagnosticJSON.h"
#include "SchemaComparison.h"
#include "koila/InitAllDialects.h"
#include "koila/InitAllExtensions.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/Parser/Parser.h"
#include <cstdlib>
#include <cstring>
#include <memory>
#include <torch/version.h>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
using llvm::Twine;

static void fill(KoilaTorchBuffer *buffer, llvm::StringRef text) {
  if (!buffer)
    return;
  buffer->data = static_cast<char *>(std::malloc(text.size() + 1));
  buffer->size = buffer->data ? text.size() : 0;
  if (!buffer->data)
    return;
  std::memcpy(buffer->data, text.data(), text.size());
  buffer->data[text.size()] = 0;
}

namespace {
/// The context of one call, whose diagnostics become messages.
struct Session {
  Session() {
    DialectRegistry registry;
    registerAllDialects(registry);
    registerAllExtensions(registry);
    addCustomOperators(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
      messages.addDiagnostic(diagnostic);
      return success();
    });
  }

  Messages messages;
  MLIRContext context{MLIRContext::Threading::DISABLED};
};
} // namespace

struct KoilaTorchProgram {
  // The context outlives what is in it.
  Session session;
  std::optional<LoadedProgram> loaded;
};

/// Runs `body` in the session of `program`, which is made where there is none;
/// nothing thrown leaves.
static int runGuarded(KoilaTorchBuffer *messages,
                      std::unique_ptr<KoilaTorchProgram> &program,
                      llvm::function_ref<void(Session &)> body) {
  try {
    if (!program)
      program = std::make_unique<KoilaTorchProgram>();
    Session &session = program->session;
    session.messages = Messages();
    int code = 1;
    try {
      body(session);
      code = 0;
    } catch (const Refusal &refusal) {
      session.messages.add(refusal);
    } catch (const std::exception &error) {
      session.messages.add("error", "LibTorch failed: " + getFirstLine(error));
    }
    fill(messages, session.messages.getText());
    return code;
  } catch (...) {
    fill(messages,
         "{\"severity\": \"error\", \"message\": \"out of memory\"}\n");
    return 1;
  }
}

static int runGuarded(KoilaTorchBuffer *messages,
                      llvm::function_ref<void(Session &)> body) {
  std::unique_ptr<KoilaTorchProgram> program;
  return runGuarded(messages, program, body);
}

/// The tiled module that an emitted archive carries; null if it has none. The
/// program it stands for must be the one in the archive.
static OwningOpRef<ModuleOp> readCarriedModule(const Archive &archive,
                                               const torch::jit::Module &module,
                                               torch::jit::ExtraFilesMap &files,
                                               const std::string &function,
                                               MLIRContext *context) {
  CarriedFiles names(function);
  llvm::StringRef bytes = files[names.module];
  if (bytes.empty())
    return nullptr;
  OwningOpRef<ModuleOp> carried = parseSourceString<ModuleOp>(
      bytes, ParserConfig(context, /*verifyAfterParse=*/true), names.module);
  if (!carried)
    refuse(Twine("'") + archive.path +
           "' carries a koila module that cannot "
           "be read; load the extensions that it was compiled with "
           "(--load-dialect-plugin), or emit it again with this version of "
           "koila");
  auto target = carried->lookupSymbol<func::FuncOp>(function);
  if (!target || !(target->hasAttr(KoilaDialect::kTiledAttr) ||
                   (target->hasAttr(KoilaDialect::kSpecializedAttr) &&
                    module.find_method(GuardedMethods(function).untiled))))
    return nullptr;
  if (files[names.fingerprint] != getFunctionFingerprint(module, function))
    refuse(Twine("'") + archive.path + "': method '" + function +
           "' was changed after koila wrote it, so its tiling cannot be "
           "analysed; import the untiled program with --function=" +
           GuardedMethods(function).untiled);
  applyTileAttributes(module, carried, function, archive.path);
  setArchivePath(*carried, archive.path);
  (*carried)->setAttr(
      KoilaDialect::kArchiveAttr,
      ArchiveAttr::get(context, archive.path, archive.fingerprint, function));
  return carried;
}

int koilaTorchAbiVersion(void) { return KOILA_TORCH_ABI_VERSION; }

const char *koilaTorchVersion(void) { return TORCH_VERSION; }

void koilaTorchFree(KoilaTorchBuffer *buffer) {
  if (!buffer)
    return;
  std::free(buffer->data);
  *buffer = {nullptr, 0};
}

void koilaTorchRelease(KoilaTorchProgram *program) { delete program; }

int koilaTorchImport(const KoilaTorchImportOptions *options,
                     KoilaTorchBuffer *bytecode, KoilaTorchBuffer *messages) {
  fill(bytecode, "");
  if (options->program)
    *options->program = nullptr;
  std::unique_ptr<KoilaTorchProgram> program;
  int code = runGuarded(messages, program, [&](Session &session) {
    std::string function = options->function ? options->function : "forward";
    Archive archive = inspectArchive(options->path);
    CarriedFiles carried(function);
    torch::jit::ExtraFilesMap files{{carried.module, ""},
                                    {carried.fingerprint, ""}};
    // Emission reads another method of what koila has written.
    bool keeps = options->program && !archive.carries(function);
    if (keeps)
      files = getExtraFiles(archive);
    torch::jit::Module module =
        loadArchive(archive, files, /*restoreExamples=*/true);
    TrainStepSpec step{function, options->loss ? options->loss : "",
                       options->gradients ? options->gradients : ""};
    // Tiles of koila record no gradients.
    std::string untiled = GuardedMethods(function).untiled;
    if (archive.carries(function) && module.find_method(untiled))
      step.method = untiled;
    if (options->loss) {
      getMethod(module, function, archive.path);
      if (archive.carries(kTrainStep))
        refuse(Twine("'") + archive.path +
               "' has a train_step of koila already; compile the original "
               "program instead");
      if (auto why = addTrainStep(module, step))
        refuse(*why);
      function = kTrainStep;
    }
    OperatorTable operators(&session.context);
    OwningOpRef<ModuleOp> result;
    if (!keeps)
      result =
          readCarriedModule(archive, module, files, function, &session.context);
    if (!result) {
      ImportedFunction imported = importFunction(archive, module, function,
                                                 operators, &session.context);
      if (keeps) {
        result = imported.module->clone();
        program->loaded = LoadedProgram{archive, module, std::move(files),
                                        function, std::move(imported)};
      } else {
        result = std::move(imported.module);
      }
    }
    if (options->loss)
      setTrainStep(*result, step);
    std::string bytes;
    llvm::raw_string_ostream os(bytes);
    if (failed(writeBytecodeToFile(*result, os)))
      refuse("the imported module cannot be written as bytecode");
    koilaTorchFree(bytecode);
    fill(bytecode, bytes);
  });
  if (code == 0 && program->loaded)
    *options->program = program.release();
  return code;
}

extern "C" KOILA_TORCH_EXPORT void koilaTorchAllowSetState(int allow) {
  setAllowSetState(allow != 0);
}

extern "C" KOILA_TORCH_EXPORT int
koilaTorchCheckArchive(const char *path, KoilaTorchBuffer *messages) {
  return runGuarded(messages, [&](Session &) { inspectArchive(path); });
}

int koilaTorchEmit(const KoilaTorchEmitOptions *options,
                   KoilaTorchBuffer *messages) {
  std::unique_ptr<KoilaTorchProgram> program(options->program);
  return runGuarded(messages, program, [&](Session &session) {
    llvm::StringRef bytes(options->bytecode, options->bytecodeSize);
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(
        bytes, ParserConfig(&session.context), "<module>");
    if (!module)
      refuse("the module to emit cannot be read");
    OperatorTable operators(&session.context);
    EmitOptions emitOptions;
    if (options->weightsPath)
      emitOptions.weightsPath = options->weightsPath;
    emitOptions.outputPath = options->outputPath;
    if (options->reportJson)
      emitOptions.reportJson = options->reportJson;
    emitModule(*module, emitOptions, operators, std::move(program->loaded));
  });
}

int koilaTorchCheckSchemas(KoilaTorchBuffer *messages) {
  return runGuarded(messages, [&](Session &session) {
    std::vector<std::string> unchecked;
    std::vector<std::string> differences =
        compareSchemas(OperatorTable(&session.context), unchecked);
    for (const std::string &text : unchecked)
      session.messages.add("warning", text);
    if (differences.empty())
      return;
    for (size_t i = 1; i < differences.size(); ++i)
      session.messages.add("error", differences[i]);
    refuse(differences.front());
  });
}

int koilaTorchRunMeta(const char *request, KoilaTorchBuffer *answer) {
  try {
    std::optional<std::string> text = runMeta(request);
    fill(answer, text.value_or(""));
    return !text;
  } catch (...) {
    return 1;
  }
}
