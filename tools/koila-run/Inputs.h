//===- Inputs.h - Real tensors for a call -----------------------*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_INPUTS_H
#define KOILA_TOOLS_KOILARUN_INPUTS_H

#include "Signature.h"
#include <ATen/core/ivalue.h>
#include <functional>

namespace koila::run {

/// The arguments of a call: normally distributed floats, integers in their
/// range, literals as given. Each argument has a generator of its own, so that
/// one does not change when another does.
std::vector<c10::IValue> makeInputs(const torch::jit::Method &method,
                                    Signature &signature, uint64_t seed);

/// A copy of a value with `change` applied to each tensor in it.
c10::IValue
mapTensors(const c10::IValue &value,
           const std::function<at::Tensor(const at::Tensor &)> &change);

/// Copies that share no storage with the originals.
std::vector<c10::IValue> cloneInputs(const std::vector<c10::IValue> &inputs);
/// Copies on a device.
std::vector<c10::IValue> putOn(c10::Device device,
                               const std::vector<c10::IValue> &inputs);
/// The same with floating point tensors in float64.
std::vector<c10::IValue> cloneToDouble(const std::vector<c10::IValue> &inputs);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_INPUTS_H
