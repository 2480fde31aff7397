//===- HostArguments.h - Arguments that are moved to a device ---*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_HOSTARGUMENTS_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_HOSTARGUMENTS_H

#include "llvm/ADT/ArrayRef.h"
#include <torch/csrc/jit/api/module.h>

namespace koila::torchscript {

/// Adds a copy of `tensor` on `device` at the insertion point of `graph`.
torch::jit::Value *moveToDevice(torch::jit::Graph &graph,
                                torch::jit::Value *tensor, c10::Device device);

/// Lets `method` begin with copies on `device` of its arguments, by position,
/// and read these. Throws Refusal for arguments that are no tensors.
void moveArguments(const torch::jit::Method &method,
                   llvm::ArrayRef<size_t> positions, c10::Device device);

/// Lets the tiles of a rewritten method, which take rows of arguments to
/// `device`, stage them in pinned memory: such a copy does not wait for what
/// the device is doing.
void pinRows(torch::jit::Graph &graph, c10::Device device);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_HOSTARGUMENTS_H
