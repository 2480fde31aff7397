//===- BackwardModels.h - Backward passes as rows ---------------*- C++ -*-===//
//
// Private to lib/KernelModels: what a replay of a backward formula is given as,
// in the row of an operator.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_BACKWARD_BACKWARDMODELS_H
#define KOILA_KERNELMODELS_ATEN_BACKWARD_BACKWARDMODELS_H

#include "../../Models.h"
#include "BackwardReplay.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "mlir/IR/BuiltinTypes.h"

namespace koila::kernels {

using BackwardSteps = void (*)(BackwardRule &, BackwardReplay &);

/// The gradient of the first result that has one; null if none has.
inline const ConcreteTensor *findGradient(const BackwardRule &rule) {
  for (unsigned index = 0; index < rule.getOp()->getNumResults(); ++index)
    if (const ConcreteTensor *gradient = rule.getGradient(index))
      return gradient;
  return nullptr;
}

/// What `Steps` allocate, if a gradient arrives.
template <BackwardSteps Steps>
void ofGradient(BackwardRule &rule) {
  if (!findGradient(rule))
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  Steps(rule, steps);
  steps.finish();
}

/// What `Describe` says, if a gradient arrives.
template <void (*Describe)(BackwardRule &)>
void ofGradient(BackwardRule &rule) {
  findGradient(rule) ? Describe(rule)
                     : koila::detail::describeUnknownBackward(rule);
}

/// The same, of real numbers: others are conjugated on the way.
template <auto Steps>
void ofRealGradient(BackwardRule &rule) {
  const ConcreteTensor *gradient = findGradient(rule);
  if (gradient && mlir::isa<mlir::ComplexType>(gradient->elementType))
    return rule.setInexact("gradients that are complex numbers");
  ofGradient<Steps>(rule);
}

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_BACKWARD_BACKWARDMODELS_H
