//===- Loading.cpp - Extensions of this process ---------------------------===//

#include "koila/Extension/Loading.h"
#include "koila/Extension/Extension.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include <dlfcn.h>
#include <mutex>

using namespace mlir;
using namespace koila;

namespace {
struct Loaded {
  std::string path;
  void *handle;
  DialectPluginLibraryInfo plugin;
};

/// Never freed: contexts may outlive what is destroyed at exit.
struct Extensions {
  std::mutex mutex;
  std::vector<Loaded> list;

  void registerIn(DialectRegistry &registry) const {
    for (const Loaded &loaded : list)
      loaded.plugin.registerDialectRegistryCallbacks(&registry);
  }
};
} // namespace

static Extensions &getExtensions() {
  static auto *extensions = new Extensions;
  return *extensions;
}

template <typename Function>
static Function *lookup(void *handle, const char *name) {
  return reinterpret_cast<Function *>(dlsym(handle, name));
}

/// `22.1` of `22.1.3`: what the name of MLIR's shared library says.
static StringRef getRelease(StringRef version) {
  auto [major, rest] = version.split('.');
  return version.take_front(major.size() + 1 + rest.split('.').first.size());
}

/// Why an extension that was built with `info` cannot be used here; empty if it
/// can.
static std::string checkBuild(const ExtensionInfo &info) {
  ExtensionInfo own = ExtensionInfo::get();
  // The first member alone is in every version.
  if (info.apiVersion != own.apiVersion)
    return "was built with version " + std::to_string(info.apiVersion) +
           " of koila's interfaces, and this koila has version " +
           std::to_string(own.apiVersion) +
           "; build it with the headers of this koila";
  if (getRelease(info.llvmVersion) != getRelease(own.llvmVersion))
    return ("was built with LLVM " + Twine(info.llvmVersion) +
            ", and this koila with " + own.llvmVersion +
            "; build it with the same")
        .str();
  if (info.dialect != own.dialect || info.interface != own.interface)
    return "is linked to copies of koila or MLIR of its own; link it to the "
           "shared libraries alone (Koila::Koila of find_package(Koila))";
  return {};
}

/// The operators of PyTorch that the operations of a context stand for, by name
/// with overload, and which operation it is.
using Operators = llvm::StringMap<std::string>;

/// Adds those of `context` to `operators`, but for operations of dialects that
/// `known` has. Returns what is wrong with one; empty if nothing is.
static std::string addOperators(MLIRContext &context, MLIRContext *known,
                                Operators &operators) {
  for (RegisteredOperationName name : context.getRegisteredOperations()) {
    auto *torch = name.getInterface<TorchOperatorInterface>();
    if (!torch ||
        (known && known->getLoadedDialect(name.getDialectNamespace())))
      continue;
    std::string operation = name.getStringRef().str();
    SmallVector<StringRef, 2> schemas{torch->getTorchSchema()};
    if (StringRef twin = torch->getInPlaceSchema(); !twin.empty())
      schemas.push_back(twin);
    for (StringRef schema : schemas) {
      StringRef callee = schema.take_until([](char c) { return c == '('; });
      if (!callee.contains("::") || callee.size() == schema.size() ||
          !schema.contains("->"))
        return "has an operation '" + operation + "' with the schema '" +
               schema.str() +
               "', which is none; a schema is 'mylib::name(Tensor x) -> "
               "Tensor'";
      auto [entry, isNew] = operators.try_emplace(callee, operation);
      if (!isNew)
        return "has an operation '" + operation + "' for the operator '" +
               callee.str() + "', which is '" + entry->second + "' already";
    }
  }
  return {};
}

/// Why the dialects of `plugin` cannot stand beside those that there are; empty
/// if they can.
static std::string checkDialects(const DialectPluginLibraryInfo &plugin,
                                 const Extensions &extensions) {
  DialectRegistry added, present;
  plugin.registerDialectRegistryCallbacks(&added);
  present.insert<KoilaDialect, arith::ArithDialect, func::FuncDialect,
                 scf::SCFDialect, tensor::TensorDialect>();
  extensions.registerIn(present);
  MLIRContext own(added, MLIRContext::Threading::DISABLED);
  MLIRContext known(present, MLIRContext::Threading::DISABLED);
  own.loadAllAvailableDialects();
  known.loadAllAvailableDialects();
  for (Dialect *dialect : own.getLoadedDialects()) {
    Dialect *other = known.getLoadedDialect(dialect->getNamespace());
    if (!other || other->getTypeID() == dialect->getTypeID())
      continue;
    std::string problem = ("has a dialect '" + dialect->getNamespace() +
                           "', and there is another one of this name already")
                              .str();
    for (const Loaded &loaded : extensions.list) {
      DialectRegistry theirs;
      loaded.plugin.registerDialectRegistryCallbacks(&theirs);
      if (theirs.getDialectAllocator(dialect->getNamespace()))
        problem += ", of '" + loaded.path + "'";
    }
    return problem;
  }
  Operators operators;
  (void)addOperators(known, /*known=*/nullptr, operators);
  return addOperators(own, &known, operators);
}

/// Whose entry points `handle` has, checked; a message for what is wrong.
static std::string check(void *handle, PluginKind kind,
                         const Extensions &extensions,
                         DialectPluginLibraryInfo &plugin) {
  auto *describe =
      lookup<const ExtensionInfo *()>(handle, "koilaGetExtensionInfo");
  auto *getPlugin =
      lookup<DialectPluginLibraryInfo()>(handle, "mlirGetDialectPluginInfo");
  if (!getPlugin)
    return "is no extension: it has no mlirGetDialectPluginInfo, which "
           "KOILA_EXTENSION declares (a library of PyTorch operators is loaded "
           "by torch.ops.load_library or --load-library)";
  if (!describe && kind == PluginKind::Extension)
    return "is a dialect plugin of MLIR and no extension of koila, which "
           "KOILA_EXTENSION declares";
  if (describe)
    if (std::string problem = checkBuild(*describe()); !problem.empty())
      return problem;
  plugin = getPlugin();
  if (plugin.apiVersion != MLIR_PLUGIN_API_VERSION)
    return "was built for version " + std::to_string(plugin.apiVersion) +
           " of MLIR's plugins, and this MLIR has version " +
           std::to_string(MLIR_PLUGIN_API_VERSION);
  if (!plugin.registerDialectRegistryCallbacks)
    return "registers no dialects";
  return describe ? checkDialects(plugin, extensions) : std::string();
}

llvm::Error koila::loadExtension(StringRef path, PluginKind kind) {
  auto fail = [&](const Twine &why) {
    return llvm::createStringError("'" + path + "' " + why);
  };
  // Not a name that the linker would look for elsewhere.
  SmallString<256> real;
  if (std::error_code error = llvm::sys::fs::real_path(path, real))
    return fail("cannot be loaded: " + error.message());
  if (llvm::sys::fs::is_directory(real))
    return fail("cannot be loaded: it is a folder");
  Extensions &extensions = getExtensions();
  std::lock_guard<std::mutex> lock(extensions.mutex);
  void *handle = dlopen(real.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    StringRef why = dlerror();
    why.consume_front((real + ": ").str());
    return fail("cannot be loaded: " + why);
  }
  // Also under another name.
  for (const Loaded &loaded : extensions.list)
    if (loaded.handle == handle) {
      dlclose(handle);
      return llvm::Error::success();
    }
  DialectPluginLibraryInfo plugin{};
  if (std::string problem = check(handle, kind, extensions, plugin);
      !problem.empty()) {
    dlclose(handle);
    return fail(problem);
  }
  extensions.list.push_back({real.str().str(), handle, plugin});
  return llvm::Error::success();
}

void koila::registerExtensions(DialectRegistry &registry) {
  // A plugin may register all of koila's dialects itself, and is one of them.
  static thread_local bool isRegistering = false;
  if (isRegistering)
    return;
  isRegistering = true;
  Extensions &extensions = getExtensions();
  {
    std::lock_guard<std::mutex> lock(extensions.mutex);
    extensions.registerIn(registry);
  }
  isRegistering = false;
}
