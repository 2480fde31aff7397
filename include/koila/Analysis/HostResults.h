//===- HostResults.h - Results that leave a device in tiles -----*- C++ -*-===//
//
// Where the tensors of a call come from the host, and go to a device tile by
// tile, so do its results: what tiles write row by row, and nothing else reads,
// is on the host, and none of the device's memory.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_HOSTRESULTS_H
#define KOILA_ANALYSIS_HOSTRESULTS_H

#include "mlir/IR/Operation.h"

namespace koila {

/// On a function of which that is so.
inline constexpr llvm::StringLiteral kHostResultsAttr = "koila.host_results";

/// Whether `op` makes the memory of such a result.
bool isHostResult(mlir::Operation *op);

} // namespace koila

#endif // KOILA_ANALYSIS_HOSTRESULTS_H
