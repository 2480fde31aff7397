//===- PassOptions.h - Reading and refusing pass options --------*- C++ -*-===//
//
// An option that belongs to later work is refused, never ignored.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_TRANSFORMS_PASSOPTIONS_H
#define KOILA_LIB_DIALECT_KOILA_TRANSFORMS_PASSOPTIONS_H

#include "koila/Device/GpuMemory.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "koila/Dialect/Koila/Transforms/FilePlans.h"
#include "koila/KernelModels/KernelModel.h"
#include "koila/Support/ByteSize.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/MathExtras.h"

namespace koila {

/// Fails with an error unless `value` is `supported`; the rest of `known` is
/// "not supported yet".
inline llvm::LogicalResult
checkChoice(mlir::Operation *op, llvm::StringRef option, llvm::StringRef value,
            llvm::ArrayRef<llvm::StringRef> supported,
            llvm::ArrayRef<llvm::StringRef> later) {
  if (llvm::is_contained(supported, value))
    return mlir::success();
  // `cuda:0` and other spellings with an argument.
  llvm::StringRef head =
      value.take_until([](char c) { return c == ':' || c == '('; });
  mlir::InFlightDiagnostic error = op->emitError();
  if (llvm::is_contained(later, head))
    error << option << "=" << value << " is not supported yet";
  else
    error << "unknown " << option << "=" << value;
  error << "; use " << option << "=" << supported.front();
  for (llvm::StringRef other : supported.drop_front())
    error << " or " << option << "=" << other;
  return mlir::failure();
}

/// Fails with an error unless there are kernel models for `device`, or it is
/// left to the module.
inline llvm::LogicalResult checkDevice(mlir::Operation *op,
                                       llvm::StringRef device) {
  // What is on a device of this machine is not asked yet.
  if (device.starts_with("cuda:"))
    return checkChoice(op, "device", device, {"cpu", "cuda"}, {"cuda"});
  return mlir::success(device.empty() || KernelLibraries::find(device, op));
}

/// The library of `device` if its kernels are those of CUDA, else null.
inline const KernelLibrary *getCUDALibrary(mlir::Operation *op,
                                           llvm::StringRef device) {
  auto *libraries = op->getContext()
                        ->getOrLoadDialect<KoilaDialect>()
                        ->getRegisteredInterface<KernelLibraries>();
  const KernelLibrary *own = libraries ? libraries->lookup(device) : nullptr;
  for (const KernelLibrary *library = own; library;
       library = library->getBase())
    if (library->getName() == "cuda")
      return own;
  return nullptr;
}

/// `modes` are those of `pass` that it supports, `later` those that it does not
/// yet.
template <typename PassT>
llvm::FailureOr<PeakMemoryOptions>
getAnalysisOptions(PassT &pass, mlir::Operation *op,
                   llvm::ArrayRef<llvm::StringRef> modes,
                   llvm::ArrayRef<llvm::StringRef> later) {
  if (failed(checkChoice(op, "mode", pass.mode, modes, later)) ||
      failed(checkDevice(op, pass.device)) ||
      failed(checkChoice(op, "grads", pass.grads, {"present", "absent"}, {})))
    return mlir::failure();
  if (pass.mode != "train" && !pass.loss.empty())
    return op->emitError() << "loss=" << pass.loss
                           << " belongs to mode=train; leave it out, or train";
  if (pass.mode != "train" && pass.grads != "present")
    return op->emitError() << "grads=" << pass.grads
                           << " belongs to mode=train; leave it out, or train";
  if (pass.threads < 0)
    return op->emitError() << "threads=" << static_cast<int64_t>(pass.threads)
                           << " is negative";
  PeakMemoryOptions options;
  if (!pass.optimizer.empty()) {
    if (pass.mode != "train")
      return op->emitError() << "optimizer=" << pass.optimizer
                             << " belongs to mode=train; leave it out, or "
                                "train";
    std::string problem;
    options.optimizer = Optimizer::parse(pass.optimizer, problem);
    if (!options.optimizer)
      return op->emitError()
             << "optimizer=" << pass.optimizer << ": " << problem;
  }
  options.device = pass.device;
  options.function = pass.function;
  options.threads = pass.threads;
  options.isa = pass.isa;
  options.torch = pass.torch;
  if (!pass.workspaces.empty()) {
    auto table = WorkspaceTable::load(pass.workspaces);
    if (!table)
      return op->emitError()
             << "workspaces: " << llvm::toString(table.takeError());
    options.workspaces =
        std::make_shared<const WorkspaceTable>(std::move(*table));
  }
  if (pass.mode == "forward-with-grad")
    options.mode = PeakMemoryMode::ForwardWithGrad;
  if (pass.mode == "train")
    options.mode = PeakMemoryMode::Train;
  options.hasGradients = pass.grads == "present";
  return options;
}

/// What is free now where a program runs. On a GPU its process has a context of
/// its own, which is not there yet.
inline llvm::Expected<FreeMemory> getFreeMemory(mlir::Operation *op,
                                                llvm::StringRef device) {
  const KernelLibrary *library = getCUDALibrary(op, device);
  if (!library)
    return getFreeHostMemory();
  auto free = getFreeGpuMemory();
  if (!free)
    return free;
  const DeviceProfile *profile = library->getProfile();
  auto context = profile ? profile->getProperties().contextBytes : std::nullopt;
  free->bytes = std::max<int64_t>(0, free->bytes - context.value_or(0));
  free->source +=
      context ? ", less " + formatBytes(*context) + " for the context"
              : "; what a context takes there is not known, and not taken off";
  return free;
}

/// Bytes of a `budget=` option; none if it is empty. `auto` is what is free
/// now, with parameters and inputs there.
inline llvm::FailureOr<std::optional<int64_t>>
getBudget(llvm::StringRef text, llvm::StringRef device, mlir::Operation *op) {
  if (text.empty())
    return std::optional<int64_t>();
  if (text.trim().equals_insensitive("auto")) {
    auto free = getFreeMemory(op, device);
    if (!free)
      return op->emitError()
             << "budget=auto: " << llvm::toString(free.takeError())
             << "; give the bytes that are free, for example budget=6GiB";
    op->emitRemark() << "budget=auto: " << formatBytes(free->bytes)
                     << " are free, by " << free->source;
    return std::optional<int64_t>(free->bytes);
  }
  std::string problem;
  std::optional<int64_t> bytes = parseByteSize(text, problem);
  if (!bytes)
    return op->emitError() << "budget=" << text << ": " << problem;
  return bytes;
}

template <typename PassT>
llvm::FailureOr<TilingOptions> getTilingOptions(PassT &pass,
                                                mlir::Operation *op) {
  // What autograd keeps of one tile stays while the others run.
  auto analysis = getAnalysisOptions(pass, op, {"inference", "train"},
                                     {"forward-with-grad"});
  if (failed(analysis) ||
      failed(
          checkChoice(op, "allocator", pass.allocator, {"exact"}, {"cuda"})) ||
      failed(checkChoice(op, "guard", pass.guard, {"warn", "raise"}, {})) ||
      failed(checkChoice(op, "grad", pass.grad, {"guard"}, {"off"})) ||
      failed(checkChoice(op, "random", pass.random,
                         {"refuse", "full-batch-masks", "per-tile"}, {})) ||
      failed(checkChoice(op, "batchnorm", pass.batchnorm,
                         {"exact", "refuse", "per-tile"}, {})) ||
      failed(
          checkChoice(op, "recompute", pass.recompute, {"auto", "never"}, {})))
    return mlir::failure();
  auto budget = getBudget(pass.budget, pass.device, op);
  if (failed(budget))
    return mlir::failure();
  TilingOptions options;
  options.analysis = *analysis;
  options.guard = pass.guard;
  if (pass.random == "full-batch-masks")
    options.random = RandomMode::FullBatch;
  else if (pass.random == "per-tile")
    options.random = RandomMode::PerTile;
  if (pass.batchnorm == "per-tile")
    options.statistics = StatisticsMode::PerTile;
  else if (pass.batchnorm == "refuse")
    options.statistics = StatisticsMode::Refuse;
  if (pass.recompute == "never")
    options.recompute = RecomputeMode::Never;
  if (!pass.costs.empty()) {
    auto table = CostTable::load(pass.costs);
    if (!table)
      return op->emitError() << "costs: " << llvm::toString(table.takeError());
    options.costs = std::move(*table);
  }
  options.budget = *budget;
  options.tile = pass.tile;
  options.loss = pass.loss;
  options.plans = pass.plans;
  if (options.plans < 1 || options.plans > kMostPlans)
    return op->emitError() << "plans=" << options.plans
                           << " is no number from 1 to " << kMostPlans;
  if (options.plans > 1 && !options.budget)
    return op->emitError() << "plans=" << options.plans
                           << " belongs to budget=BYTES; leave it out, or give "
                              "a budget";
  if ((options.tile != 0) == options.budget.has_value())
    return op->emitError()
           << "give either tile=N (a power of two) or budget=BYTES, for "
           << "example budget=64MiB";
  if (options.tile < 0 ||
      (options.tile != 0 && !llvm::isPowerOf2_64(options.tile)))
    return op->emitError() << "tile=" << options.tile << " is no power of two";
  return options;
}

/// The stage checks that passes run at entry; see VerifyStage.cpp.
llvm::LogicalResult verifyInferred(mlir::ModuleOp module);
llvm::LogicalResult verifyImported(mlir::ModuleOp module);
llvm::LogicalResult verifyTiled(mlir::ModuleOp module);
llvm::LogicalResult verifyEmittable(mlir::ModuleOp module);

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_TRANSFORMS_PASSOPTIONS_H
