//===- Calibrate.h - A table of workspaces for this machine -----*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_CALIBRATE_H
#define KOILA_TOOLS_KOILARUN_CALIBRATE_H

#include "Options.h"
#include "mlir/IR/MLIRContext.h"

namespace koila::run {

/// Runs calls of each family on this machine, compares what they allocate with
/// koila's rules, and writes a row for each family, element type and memory
/// format to `options.calibrate`: exact where no call differed, a bound where
/// none took more, else unknown. Throws UserError if it cannot be written.
void calibrate(const Options &options, mlir::MLIRContext *context);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_CALIBRATE_H
