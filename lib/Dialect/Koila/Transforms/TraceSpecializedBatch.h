//===- TraceSpecializedBatch.h - Batch sizes made literals ------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_TRACESPECIALIZEDBATCH_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_TRACESPECIALIZEDBATCH_H

#include "koila/Analysis/DimAnalysis.h"

namespace koila {

/// Warns at each operation that loses the batch where the batch of the
/// recorded example (`koila.example`) stands as a literal.
void warnOfTraceSpecializedBatch(mlir::FunctionOpInterface function,
                                 const DimAnalysis &dims);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_TRACESPECIALIZEDBATCH_H
