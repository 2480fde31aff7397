//===- TorchScriptLibrary.cpp - Opens libKoilaTorchScript when needed -----===//

#include "TorchScriptLibrary.h"
#include "koila/Target/TorchScript/TorchScript.h"
#include "support/Supervisor.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <dlfcn.h>
#include <utility>

using namespace koila;

/// `file:line:column: error: text`, as compilers print.
static void printMessages(const KoilaTorchBuffer &messages) {
  llvm::StringRef text(messages.data, messages.size);
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    text = rest;
    if (line.empty())
      continue;
    auto value = llvm::json::parse(line);
    if (!value) {
      llvm::consumeError(value.takeError());
      llvm::errs() << line << "\n";
      continue;
    }
    const llvm::json::Object *message = value->getAsObject();
    if (!message)
      continue;
    if (auto file = message->getString("file"); file && !file->empty()) {
      llvm::errs() << *file << ":";
      if (auto number = message->getInteger("line"))
        llvm::errs() << *number << ":";
      if (auto column = message->getInteger("column"))
        llvm::errs() << *column << ":";
      llvm::errs() << " ";
    }
    llvm::errs() << message->getString("severity").value_or("error") << ": "
                 << message->getString("message").value_or("") << "\n";
  }
}

template <typename Function>
static Function *lookup(void *handle, const char *name) {
  return reinterpret_cast<Function *>(dlsym(handle, name));
}

std::optional<TorchScriptLibrary>
TorchScriptLibrary::open(const char *executable, const ArchiveOptions &options,
                         bool quiet) {
  std::string path = llvm::sys::fs::getMainExecutable(
      executable, reinterpret_cast<void *>(&printMessages));
  llvm::SmallString<256> beside(
      llvm::sys::path::parent_path(llvm::sys::path::parent_path(path)));
  llvm::sys::path::append(beside, "lib", "libKoilaTorchScript.so");
  TorchScriptLibrary library;
  library.handle = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::string first = library.handle ? "" : dlerror();
  if (!library.handle)
    library.handle = dlopen("libKoilaTorchScript.so", RTLD_NOW | RTLD_LOCAL);
  if (!library.handle && quiet)
    return std::nullopt;
  if (!library.handle) {
    llvm::errs() << "error: TorchScript files need libKoilaTorchScript.so, "
                    "which cannot be opened ("
                 << first
                 << "); build koila with -DKOILA_ENABLE_TORCH=ON, or work on "
                    ".mlir\n";
    return std::nullopt;
  }
  auto *version = lookup<decltype(koilaTorchAbiVersion)>(
      library.handle, "koilaTorchAbiVersion");
  if (!version || version() != KOILA_TORCH_ABI_VERSION) {
    llvm::errs() << "error: libKoilaTorchScript.so is of another version than "
                    "koila-opt; rebuild both\n";
    return std::nullopt;
  }
  library.timeoutSeconds = options.timeoutSeconds;
  lookup<decltype(koilaTorchAllowSetState)>(
      library.handle, "koilaTorchAllowSetState")(options.allowSetState);
  if (std::string problem = options.openLibraries(); !problem.empty()) {
    llvm::errs() << "error: " << problem << "\n";
    return std::nullopt;
  }
  return library;
}

std::optional<std::string>
TorchScriptLibrary::import(llvm::StringRef path, llvm::StringRef function,
                           const std::optional<std::string> &loss,
                           const std::string &gradients, bool willEmit) {
  std::string pathText = path.str(), functionText = function.str();
  KoilaTorchImportOptions options{
      pathText.c_str(), functionText.c_str(), loss ? loss->c_str() : nullptr,
      gradients.c_str(), willEmit ? &program : nullptr};
  KoilaTorchBuffer bytecode{}, messages{};
  Stage stage("reading '" + pathText + "'", timeoutSeconds);
  int failed = lookup<decltype(koilaTorchImport)>(handle, "koilaTorchImport")(
      &options, &bytecode, &messages);
  printMessages(messages);
  std::string result(bytecode.data ? bytecode.data : "", bytecode.size);
  auto *release = lookup<decltype(koilaTorchFree)>(handle, "koilaTorchFree");
  release(&bytecode);
  release(&messages);
  if (failed)
    return std::nullopt;
  return result;
}

bool TorchScriptLibrary::emit(llvm::StringRef bytecode, llvm::StringRef weights,
                              llvm::StringRef output, llvm::StringRef report) {
  std::string weightsText = weights.str(), outputText = output.str(),
              reportText = report.str();
  KoilaTorchEmitOptions options{
      bytecode.data(),
      bytecode.size(),
      weightsText.empty() ? nullptr : weightsText.c_str(),
      outputText.c_str(),
      reportText.empty() ? nullptr : reportText.c_str(),
      std::exchange(program, nullptr)};
  KoilaTorchBuffer messages{};
  Stage stage("writing '" + outputText + "'", timeoutSeconds);
  int failed = lookup<decltype(koilaTorchEmit)>(handle, "koilaTorchEmit")(
      &options, &messages);
  printMessages(messages);
  lookup<decltype(koilaTorchFree)>(handle, "koilaTorchFree")(&messages);
  return !failed;
}

std::optional<std::string>
TorchScriptLibrary::runMeta(llvm::StringRef request) {
  KoilaTorchBuffer answer{};
  std::string requestText = request.str();
  Stage stage("asking LibTorch for shapes", timeoutSeconds);
  int failed = lookup<decltype(koilaTorchRunMeta)>(handle, "koilaTorchRunMeta")(
      requestText.c_str(), &answer);
  std::string text(answer.data ? answer.data : "", answer.size);
  lookup<decltype(koilaTorchFree)>(handle, "koilaTorchFree")(&answer);
  if (failed)
    return std::nullopt;
  return text;
}

bool TorchScriptLibrary::checkSchemas() {
  KoilaTorchBuffer messages{};
  int failed = lookup<decltype(koilaTorchCheckSchemas)>(
      handle, "koilaTorchCheckSchemas")(&messages);
  printMessages(messages);
  lookup<decltype(koilaTorchFree)>(handle, "koilaTorchFree")(&messages);
  return !failed;
}
