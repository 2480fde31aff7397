//===- DeviceFact.h - All tensors are on one device -------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_GUARD_DEVICEFACT_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_GUARD_DEVICEFACT_H

#include "../Emit.h"

namespace koila::torchscript {

/// Tiles are made on the device of an argument. Of tensors on several devices
/// PyTorch's own message would speak of what koila has written.
struct DeviceFact {
  using TorchValue = torch::jit::Value;

  /// What says on which device the program runs, null if nothing does; names
  /// are as messages begin with.
  TorchValue *place = nullptr;
  std::string placeName;
  std::vector<std::pair<TorchValue *, std::string>> arguments;
  /// A list, null if there are none, and the names of its weights.
  TorchValue *weights = nullptr;
  std::vector<std::string> weightNames;
  /// Behind each message.
  std::string suffix;

  /// A text that names a tensor which is elsewhere, "" if there is none.
  TorchValue *emit(GraphEmitter &emitter) const;
};

/// A text, with `suffix` behind it, unless random numbers for the whole batch
/// are those of the untiled program on `device`; `drawsOn` as in
/// BatchTiling.h.
torch::jit::Value *emitDrawsOn(GraphEmitter &emitter, llvm::StringRef drawsOn,
                               torch::jit::Value *device,
                               const std::string &suffix);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_GUARD_DEVICEFACT_H
