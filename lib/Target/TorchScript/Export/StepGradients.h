//===- StepGradients.h - A step that returns gradients ----------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_STEPGRADIENTS_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_STEPGRADIENTS_H

#include <string>
#include <torch/csrc/jit/api/module.h>
#include <vector>

namespace koila::torchscript {

/// The name of the method that returns gradients.
inline constexpr const char *kGrads = "grads";

/// The methods of a step that return gradients: `kGrads`, and what it calls
/// where the step is guarded.
std::vector<std::string> getGradientMethods();

/// Refuses a module that has one of the names that `addGradients` needs.
void checkGradientNames(const torch::jit::Module &module);

/// Adds method `name` to `module`: as the method `step`, which runs backward
/// passes, but to what that returns and the sums of the gradients of the
/// weights that require one, in the order of parameters(). `.grad` stays.
void addGradients(torch::jit::Module &module, const std::string &step,
                  const std::string &name);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_STEPGRADIENTS_H
