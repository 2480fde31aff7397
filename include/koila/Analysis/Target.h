//===- Target.h - The machine that an analysis is for -----------*- C++ -*-===//

#ifndef KOILA_ANALYSIS_TARGET_H
#define KOILA_ANALYSIS_TARGET_H

#include "koila/Dialect/Koila/IR/Koila.h"

namespace koila {

struct PeakMemoryOptions;

/// What `options` say; what they leave out is that of `koila.target` around
/// `op`, then of the device in a DLTI spec (`koila.threads`, `koila.isa`,
/// `koila.l1_bytes`, `koila.l2_bytes`), then of this machine. A machine whose
/// instruction set is only named has caches of unknown size. Null, after an
/// error, if it is no legal target.
TargetAttr getTarget(mlir::Operation *op, const PeakMemoryOptions &options);

} // namespace koila

#endif // KOILA_ANALYSIS_TARGET_H
