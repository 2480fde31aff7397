//===- StepResults.h - What a step returns beside the loss ------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_STEPRESULTS_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_STEPRESULTS_H

#include <memory>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <vector>

namespace koila::torchscript {

/// The outputs of `graph` are the loss and further results. Lets what does not
/// lead to the loss read detached values, so that autograd records nothing of
/// it and keeps nothing for it, and detaches the further results. Gives each of
/// `arguments`, inputs of the graph, a leaf that what leads to the loss reads,
/// and returns the leaves. Calls of methods have to be inlined. Throws Refusal.
std::vector<torch::jit::Value *>
separateResults(const std::shared_ptr<torch::jit::Graph> &graph,
                const torch::jit::Module &module,
                at::ArrayRef<torch::jit::Value *> arguments);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_STEPRESULTS_H
