//===- BlockScore.h - What blocks of brgemm kernels cost --------*- C++ -*-===//
//
// Private to lib/KernelModels. oneDNN chooses the blocks that cost least by
// these scores, in single precision on purpose: ties are decided by rounding.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_BLOCKSCORE_H
#define KOILA_KERNELMODELS_ONEDNN_BLOCKSCORE_H

#include "ConvGeometry.h"

#include <vector>

namespace koila::conv {

/// What one loop reads and writes in elements, and how often it does the same.
struct Access {
  int64_t size = 0;
  float repeats = 1, overlap = 1;
};
struct Loop {
  Access input, result, weight;
};

/// Loops from the innermost, and the caches that hold what they touch.
struct LoopNest {
  std::vector<Loop> loops;
  int64_t elementBytes, l1Bytes, l2Bytes;
  /// Whether sums of float32 lie beside the results.
  bool keepsSums;
  /// Relative costs of a load from the second cache, and beyond: those of
  /// brg_conv.
  float secondCost = 2.3f, memoryCost = 17;

  /// The cost of `count` accesses to one operand: a loop that repeats loads
  /// from the cache that holds what it touches. Source: io_k.
  float load(Access Loop::*operand, int64_t count) const;
};

/// The area that `count` blocks cover of a grid. Source: grid_coverage.
int64_t coverGrid(int64_t count, int64_t x, int64_t xs, int64_t blockX,
                  int64_t y, int64_t blockY);

/// The blocks of brgconv_strided, of a result of `width` columns. `byPixels`
/// has those of channels as the inner loop.
struct StridedWork {
  int64_t width, blockW, channels, channelBlocks;
  bool byPixels;

  /// How evenly `work` blocks spread over the threads, of which one has at most
  /// `job`.
  float balance(const Geometry &g, int64_t work, int64_t job) const;
};

/// Cuts the rows of a result of blocks of `channels` so that there is work for
/// all threads; strides divide the blocks.
void shareRows(const Geometry &g, int64_t channels, int64_t &blockD,
               int64_t &blockH);

} // namespace koila::conv

#endif // KOILA_KERNELMODELS_ONEDNN_BLOCKSCORE_H
