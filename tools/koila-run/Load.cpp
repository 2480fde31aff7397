//===- Load.cpp - Programs from archives ----------------------------------===//

#include "Load.h"
#include "koila/Target/TorchScript/InProcess.h"
#include "support/Supervisor.h"
#include "llvm/Support/JSON.h"
#include <torch/csrc/jit/serialization/import.h>

using namespace koila;
using namespace koila::run;
using llvm::StringRef;

/// One sentence of what LibTorch said.
static std::string getFirstSentence(const std::string &text) {
  return text.substr(0, std::min(text.find('\n'), text.find(". ")));
}

std::string koila::run::getFirstError(StringRef messages) {
  std::string fallback = "the import failed";
  while (!messages.empty()) {
    auto [line, rest] = messages.split('\n');
    messages = rest;
    llvm::Expected<llvm::json::Value> value = llvm::json::parse(line);
    if (!value) {
      llvm::consumeError(value.takeError());
      continue;
    }
    const llvm::json::Object *object = value->getAsObject();
    if (!object || object->getString("severity").value_or("") != "error")
      continue;
    return object->getString("message").value_or(fallback).str();
  }
  return fallback;
}

static void checkArchive(const std::string &path) {
  KoilaTorchBuffer messages = {nullptr, 0};
  int failed = koilaTorchCheckArchive(path.c_str(), &messages);
  std::string error = getFirstError(StringRef(messages.data, messages.size));
  koilaTorchFree(&messages);
  if (failed)
    throw UserError(error);
}

torch::jit::Module koila::run::load(const std::string &path,
                                    const Options &options,
                                    bool restoreShapes) {
  Stage stage("reading '" + path + "'", options.archives.timeoutSeconds);
  checkArchive(path);
  std::string what;
  try {
    auto unit = std::make_shared<torch::jit::CompilationUnit>();
    torch::jit::ExtraFilesMap extra;
    torch::jit::Module module = torch::jit::import_ir_module(
        unit, path, c10::Device(options.device), extra,
        /*load_debug_files=*/true, restoreShapes);
    torchscript::followDeviceOfArchive(module, path);
    return module;
  } catch (const c10::Error &error) {
    what = error.what_without_backtrace();
  } catch (const std::exception &error) {
    what = error.what();
  }
  throw UserError("cannot load '" + path +
                  "' as a TorchScript file (torch.jit.save writes one): " +
                  getFirstSentence(what));
}

torch::jit::Method koila::run::getMethod(const torch::jit::Module &module,
                                         const std::string &path,
                                         const std::string &name) {
  if (auto method = module.find_method(name))
    return *method;
  std::string known;
  for (const torch::jit::Method &method : module.get_methods())
    known += (known.empty() ? "" : ", ") + method.name();
  throw UserError("'" + path + "' has no method '" + name + "'; it has " +
                  (known.empty() ? "none" : known));
}
