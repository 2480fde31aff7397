//===- ExecutorBarriers.h - Steps that run as they are written --*- C++ -*-===//
//
// From its second call on LibTorch's profiling executor, which is on by
// default, puts neighbouring operators of a graph that records gradients into
// blocks with derivatives of their own, which keep other tensors than
// autograd's. It moves no operator past one with a side effect, so a fence
// behind each leaves it nothing to join, and a step needs the same memory in
// every call. The fence is `torch.is_grad_enabled()`, which LibTorch takes to
// have an effect, though it has none.
// Source: buildWorkSets in torch/csrc/jit/passes/create_autodiff_subgraphs.cpp,
// Node::hasSideEffects in torch/csrc/jit/ir/ir.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_EXECUTORBARRIERS_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_EXECUTORBARRIERS_H

#include <torch/csrc/jit/ir/ir.h>

namespace koila::torchscript {

/// Puts a fence behind each operator that makes a tensor and has none yet.
void addExecutorBarriers(torch::jit::Graph &graph);

/// Takes fences, and whatever looks like one, away.
void removeFences(torch::jit::Graph &graph);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_EXECUTORBARRIERS_H
