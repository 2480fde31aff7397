//===- HalfConvScore.h - What blocks of brg_conv cost -----------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_HALFCONV_HALFCONVSCORE_H
#define KOILA_KERNELMODELS_ONEDNN_HALFCONV_HALFCONVSCORE_H

#include "HalfConv.h"

#include <vector>

namespace koila::conv {

/// What one loop reads and writes in elements, and how often it does the same.
struct HalfAccess {
  int64_t size = 0;
  float repeats = 1, overlap = 1;
};
struct HalfLoop {
  HalfAccess input, result, weight;
};

/// Loops from the innermost, and the caches that hold what they touch.
struct HalfLoops {
  std::vector<HalfLoop> loops;
  int64_t l1Bytes, l2Bytes;
  bool keepsSums;
  /// Relative costs of a load from the second cache, and beyond.
  float secondCost = 2.3f, memoryCost = 17;

  /// The cost of `count` accesses to one operand. Source: io_k.
  float load(HalfAccess HalfLoop::*operand, int64_t count) const;
};

/// The area that `count` blocks cover of a grid. Source: grid_coverage.
int64_t coverGrid(int64_t count, int64_t x, int64_t xs, int64_t blockX,
                  int64_t y, int64_t blockY);

} // namespace koila::conv

#endif // KOILA_KERNELMODELS_ONEDNN_HALFCONV_HALFCONVSCORE_H
