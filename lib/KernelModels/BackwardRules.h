//===- BackwardRules.h - What gradients of operators take -------*- C++ -*-===//
//
// The backward rules of the families: each is in a file *Backward.cpp of
// lib/KernelModels. Source: PyTorch's derivatives and what its backward
// operators allocate; test/oracle/backward_oracle.py compares them.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_BACKWARDRULES_H
#define KOILA_LIB_KERNELMODELS_BACKWARDRULES_H

namespace koila {
class BackwardRule;
} // namespace koila

namespace koila::rules {

struct ConvolutionKind;

/// By the name of the schema: elementwise operators.
void describeBackward(BackwardRule &rule);
void describeConvolutionBackward(BackwardRule &rule, ConvolutionKind kind);
void describeBatchNormBackward(BackwardRule &rule);
void describeEinsumBackward(BackwardRule &rule);
void describeGroupNormBackward(BackwardRule &rule);
void describeInstanceNormBackward(BackwardRule &rule);
void describeLayerNormBackward(BackwardRule &rule);
void describeSoftmaxBackward(BackwardRule &rule);
void describeWeightNormBackward(BackwardRule &rule);
void describeRecurrentBackward(BackwardRule &rule);
void describeResampleBackward(BackwardRule &rule);

} // namespace koila::rules

#endif // KOILA_LIB_KERNELMODELS_BACKWARDRULES_H
