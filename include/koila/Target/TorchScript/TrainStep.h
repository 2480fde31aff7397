//===- TrainStep.h - A method that trains -----------------------*- C++ -*-===//
//
// A training step is a method of the module like any other: it calls the
// program, computes the loss, and runs the backward pass. So what imports,
// rewrites and emits methods serves it, too. For programs that have LibTorch;
// others ask koilaTorchImport.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TARGET_TORCHSCRIPT_TRAINSTEP_H
#define KOILA_TARGET_TORCHSCRIPT_TRAINSTEP_H

#include <optional>
#include <string>
#include <torch/csrc/jit/api/module.h>

namespace koila::torchscript {

/// The name of the method.
inline constexpr const char *kTrainStep = "train_step";

/// How to make a step.
struct TrainStepSpec {
  /// The program.
  std::string method = "forward";
  /// As `cross_entropy(label_smoothing=0.1)`, of what the program returns and
  /// of a further argument `target`; empty: it returns the loss, or a tuple of
  /// the loss and further tensors.
  std::string loss;
  /// Arguments that get a gradient of their own, by name or position, with
  /// commas between; see getGradientArguments in InputSpec/InputSpec.h.
  std::string gradients;
  /// Where the target, which is on the CPU, is moved to; empty: it stays.
  std::string targetDevice = {};
};

/// Adds `train_step` to `module`: the arguments of the program and of the loss,
/// to the loss, or to a tuple of it, of further results, and of the gradients
/// of `spec.gradients` in the order of the arguments; all are detached. What
/// leads to further results alone is not differentiated. Gradients of weights
/// are added to `.grad`. Returns why it cannot, and then has added nothing;
/// none if it could.
std::optional<std::string> addTrainStep(torch::jit::Module &module,
                                        const TrainStepSpec &spec);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_TRAINSTEP_H
