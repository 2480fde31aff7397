//===- BackwardFormulas.h - Which gradients have a formula ------*- C++ -*-===//
//
// Private to lib/KernelModels, and to the test that lists what rules there are.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_ATEN_BACKWARDFORMULAS_H
#define KOILA_LIB_KERNELMODELS_ATEN_BACKWARDFORMULAS_H

#include "llvm/ADT/StringRef.h"

namespace koila::rules {

/// Whether describeBackward knows operators of this base name, `mul` for one.
bool hasBackwardFormula(llvm::StringRef name);

} // namespace koila::rules

#endif // KOILA_LIB_KERNELMODELS_ATEN_BACKWARDFORMULAS_H
