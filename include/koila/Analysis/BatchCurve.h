//===- BatchCurve.h - The peak as a function of the batch -------*- C++ -*-===//
//
// Live bytes are polynomials of the batch, but their maximum is made of several
// ones, and workspaces have thresholds. So the peak is evaluated at every batch
// of a range, and described by as few polynomials as reproduce each figure.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_BATCHCURVE_H
#define KOILA_ANALYSIS_BATCHCURVE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace koila {

/// c0 + c1 B + c2 B², in bytes, for each B of `from` to `to`.
struct BatchPiece {
  int64_t from = 0, to = 0;
  std::array<int64_t, 3> coefficients = {0, 0, 0};

  int64_t evaluate(int64_t batch) const;
};

/// Bytes at a batch; none where they are not known.
using PeakFunction = llvm::function_ref<std::optional<int64_t>(int64_t)>;

/// The pieces of `peak` over `from` to `to`, in order and without gaps; each is
/// as long as it can be. Ends early at a batch without a figure.
std::vector<BatchPiece> computeBatchPieces(PeakFunction peak, int64_t from,
                                           int64_t to);

/// The largest batch that needs no more than `budget` bytes.
struct BatchLimit {
  /// 0: not even one sample fits.
  int64_t batch = 0;
  /// No batch was found that does not fit.
  bool isUnbounded = false;
};

/// Bisects between a batch that fits and one that does not: what it returns
/// fits, and one more sample does not. None where the peak is not known.
std::optional<BatchLimit> findMaxBatch(PeakFunction peak, int64_t budget);

} // namespace koila

#endif // KOILA_ANALYSIS_BATCHCURVE_H
