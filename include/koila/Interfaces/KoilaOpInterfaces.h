//===- KoilaOpInterfaces.h - The questions passes ask ops -------*- C++ -*-===//

#ifndef KOILA_INTERFACES_KOILAOPINTERFACES_H
#define KOILA_INTERFACES_KOILAOPINTERFACES_H

#include "koila/Interfaces/Differentiation.h"
#include "koila/Interfaces/Rules.h"
#include "mlir/IR/OpDefinition.h"

namespace koila {
class BackwardRule;
namespace detail {
/// Saves what the differentiation rule names, which has to be all.
void describeSaved(SavedRule &rule);
/// No figure is known of the gradient.
void describeUnknownBackward(BackwardRule &rule);
} // namespace detail
} // namespace koila

#include "koila/Interfaces/KoilaOpInterfaces.h.inc"

#endif // KOILA_INTERFACES_KOILAOPINTERFACES_H
