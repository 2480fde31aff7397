//===- Leaves.h - What a call returns and changes ---------------*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_LEAVES_H
#define KOILA_TOOLS_KOILARUN_LEAVES_H

#include "Measure.h"
#include <ATen/core/ivalue.h>
#include <string>
#include <torch/csrc/jit/api/module.h>
#include <vector>

namespace koila::run {

/// A tensor, number or other value inside a result, and where it is:
/// "output", "output[1].logits", "buffer bn.running_mean".
struct Leaf {
  std::string path;
  /// Undefined if the value is no tensor and no number.
  at::Tensor tensor;
  /// Such a value as text.
  std::string text;
  enum class Kind { Output, Buffer, Gradient };
  Kind kind = Kind::Output;
};

/// The leaves of a result, in order.
std::vector<Leaf> getLeaves(const c10::IValue &value);

/// Calls the program once. The leaves of its result, then copies of its
/// buffers, then, with grad mode on, the gradients of parameters and inputs
/// for made-up gradients of the outputs; the parameters' own `.grad` is as
/// before.
std::vector<Leaf> runProgram(const torch::jit::Module &module,
                             const std::string &path, const CallMode &mode,
                             const std::vector<c10::IValue> &inputs);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_LEAVES_H
