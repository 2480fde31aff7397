//===- Predict.h - koila's own figure for a program -------------*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_PREDICT_H
#define KOILA_TOOLS_KOILARUN_PREDICT_H

#include "Options.h"
#include "mlir/IR/MLIRContext.h"
#include <optional>

namespace koila::run {

struct Prediction {
  std::optional<int64_t> peakBytes;
  /// False if koila itself calls the figure inexact.
  bool exact = false;
  /// Why there is no figure, or why it is inexact.
  std::string reason;
};

/// Imports the method from the archive and runs the analysis at the values of
/// `options`. Never throws: what cannot be predicted can still be measured.
/// `hasStep`: whether the archive has the training step, in mode train.
Prediction predictPeak(const std::string &path, const Options &options,
                       mlir::MLIRContext *context, bool hasStep = false);

/// The inputs that an emitted file was compiled for, from the program that it
/// carries; empty if it says nothing.
std::vector<InputSpec> getCompiledInputs(const std::string &path,
                                         const Options &options,
                                         mlir::MLIRContext *context);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_PREDICT_H
