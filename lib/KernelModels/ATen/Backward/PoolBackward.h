//===- PoolBackward.h - Gradients of pools ----------------------*- C++ -*-===//
//
// Private to lib/KernelModels: the models `backward` of pools over lines,
// images and volumes.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_BACKWARD_POOLBACKWARD_H
#define KOILA_KERNELMODELS_ATEN_BACKWARD_POOLBACKWARD_H

namespace koila {
class BackwardRule;
} // namespace koila

namespace koila::rules {

void describeLineMaximaBackward(BackwardRule &rule);
void describeLineAveragesBackward(BackwardRule &rule);
void describeLineAdaptiveMaximaBackward(BackwardRule &rule);
void describeLineAdaptiveAveragesBackward(BackwardRule &rule);
void describeImageMaximaBackward(BackwardRule &rule);
void describeImageAveragesBackward(BackwardRule &rule);
void describeImageAdaptiveMaximaBackward(BackwardRule &rule);
void describeImageAdaptiveAveragesBackward(BackwardRule &rule);
/// All but adaptive averages.
void describeVolumePoolBackward(BackwardRule &rule);
void describeVolumeAdaptiveAveragesBackward(BackwardRule &rule);

} // namespace koila::rules

#endif // KOILA_KERNELMODELS_ATEN_BACKWARD_POOLBACKWARD_H
