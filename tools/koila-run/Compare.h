//===- Compare.h - Whether two programs agree -------------------*- C++ -*-===//
//
// Two results are equal when float64 copies of both programs agree closely,
// and when in the given dtype the second is not much further from the float64
// result than the first: float32 results of correct tiles differ by rounding
// alone, so that comparing them with each other would prove nothing.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TOOLS_KOILARUN_COMPARE_H
#define KOILA_TOOLS_KOILARUN_COMPARE_H

#include "Leaves.h"
#include "Measure.h"

namespace koila::run {

struct Comparison {
  bool equal = false;
  /// Zeros, or the results of another sample, would have passed as well.
  bool vacuous = false;
  /// Whether spread was computed: there is a batch of more than one sample.
  bool hasSpread = false;
  /// Why not equal or vacuous; empty if it is equal.
  std::string reason;
  /// Largest difference of B from A in the given dtype, and the same relative
  /// to the largest value of A's tensor.
  double maxAbs = 0.0, maxRel = 0.0;
  /// Largest difference between the float64 programs.
  double maxAbsDouble = 0.0;
  /// Largest value of A, and largest difference of neighbouring samples.
  double largest = 0.0, spread = 0.0;
  size_t tensors = 0;
  /// With grad mode on: gradients compared, and the same figures for them.
  size_t gradients = 0;
  double gradientMaxAbs = 0.0, gradientMaxRel = 0.0;
  std::vector<std::string> notes;
};

/// One program for the comparison.
struct Program {
  std::string path;
  torch::jit::Module module;
  /// Emitted by koila: has a tiled and an untiled method.
  bool isTiled = false;
  /// Has a training step of its own.
  bool hasStep = false;
  std::vector<std::string> warnings;
};

/// Runs both programs on the same inputs. `batch` is the number of samples, 0
/// if there is no batch. Warnings of the given programs go to their lists.
Comparison compare(Program &first, Program &second, const CallMode &mode,
                   const std::vector<c10::IValue> &inputs, int64_t batch,
                   WarningLog &log);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_COMPARE_H
