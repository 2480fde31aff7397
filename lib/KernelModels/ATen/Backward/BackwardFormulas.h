//===- BackwardFormulas.h - Which gradients have a formula ------*- C++ -*-===//
//
// Private to lib/KernelModels, and to the test that lists what rules there are.
// Rules that describeBackward finds by the name of the schema.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_BACKWARD_BACKWARDFORMULAS_H
#define KOILA_KERNELMODELS_ATEN_BACKWARD_BACKWARDFORMULAS_H

#include "llvm/ADT/StringRef.h"

namespace koila {
class BackwardRule;
} // namespace koila

namespace koila::rules {

/// cumprod, logcumsumexp and diff.
void describeCumulativeBackward(BackwardRule &rule);
void describeEinsumBackward(BackwardRule &rule);
/// Transforms of the Fourier family.
void describeSpectralBackward(BackwardRule &rule);
/// Of one that is not centred, and back.
void describeStftBackward(BackwardRule &rule);
/// grid_sampler and affine_grid_generator.
void describeGridBackward(BackwardRule &rule);

/// Whether describeBackward knows operators of this base name, `mul` for one.
bool hasBackwardFormula(llvm::StringRef name);

} // namespace koila::rules

#endif // KOILA_KERNELMODELS_ATEN_BACKWARD_BACKWARDFORMULAS_H
