//===- BlockScore.cpp - What blocks of brgemm kernels cost ----------------===//
//
// Sources: oneDNN 3.12, brg_blocking_t in cpu/x64/jit_brgemm_conv_utils.cpp and
// jit_brgemm_conv_bwd_utils.cpp.
//
//===----------------------------------------------------------------------===//

#include "BlockScore.h"

#include <array>

using namespace koila;
using namespace koila::conv;

static int64_t divideCeil(int64_t value, int64_t by) {
  return llvm::divideCeilSigned(value, by);
}

/// The cost of a load from the first cache.
static constexpr float FirstCost = 1;

float LoopNest::load(Access Loop::*operand, int64_t count) const {
  float price = memoryCost, repeats = 1;
  bool isInput = operand == &Loop::input;
  for (size_t index = loops.size(); index-- > 0;) {
    const Loop &loop = loops[index];
    const Access &access = loop.*operand;
    float times = access.repeats * access.overlap;
    repeats *= access.repeats;
    if (times < 1)
      price = 0;
    if (times <= 1)
      continue;
    int64_t bytes =
        elementBytes * (loop.input.size + loop.weight.size + loop.result.size) +
        (keepsSums ? FloatBytes * loop.result.size : 0);
    float again = bytes < l2Bytes ? secondCost : memoryCost;
    if (isInput && elementBytes * loop.input.size < l1Bytes)
      again = FirstCost;
    price = (price + again * (times - 1)) / times;
  }
  return price * (count * repeats);
}

int64_t conv::coverGrid(int64_t count, int64_t x, int64_t xs, int64_t blockX,
                        int64_t y, int64_t blockY) {
  int64_t partsX = divideCeil(x, blockX);
  int64_t partsY = divideCeil(y, blockY);
  int64_t lastY = count / (xs * partsX), lastX = count % (xs * partsX);
  int64_t endX = lastX % partsX * blockX, endY = lastY % partsY * blockY;
  int64_t nextY = std::min(y, endY + blockY);
  return xs * (lastY / partsY) * x * y + x * xs * endY +
         (x * (lastX / partsX) + endX) * (nextY - endY);
}

//===----------------------------------------------------------------------===//
// brgconv_strided
//===----------------------------------------------------------------------===//

/// A place among the blocks: sample, slice, row, columns, group, channels.
using Place = std::array<int64_t, 6>;

/// Moves `place` on by `steps`; the last dim in `order` is the fastest.
static void advance(Place &place, const Place &extents, const Place &order,
                    int64_t steps) {
  for (size_t index = order.size(); index-- > 0;) {
    int64_t dim = order[index];
    steps += place[dim];
    place[dim] = steps % extents[dim];
    steps /= extents[dim];
  }
}

/// Of few blocks oneDNN adds up what each thread computes; its iterator moves
/// twice at each step.
float StridedWork::balance(const Geometry &g, int64_t work, int64_t job) const {
  if (job >= g.threads)
    return (float)work / roundUp(work, g.threads);
  Place extents = {g.batch,   g.outputD,
                   g.outputH, divideCeil(g.outputW, blockW),
                   g.groups,  channelBlocks};
  const Place pixels = {0, 1, 2, 3, 4, 5}, blocks = {0, 4, 5, 1, 2, 3};
  const Place &order = byPixels ? pixels : blocks;
  int64_t longer = work - (job - 1) * g.threads;
  int64_t most = 0, sum = 0, start = 0;
  for (int64_t thread = 0; thread < std::min(g.threads, work); ++thread) {
    int64_t count = thread < longer ? job : job - 1, done = 0;
    Place place = {};
    advance(place, extents, order, start);
    for (int64_t step = 0; step < count; ++step) {
      done += std::min(width - place[3] * blockW, blockW) *
              std::min(g.groupOutput - place[5] * channels, channels);
      advance(place, extents, pixels, 1);
      advance(place, extents, order, 1);
    }
    start += count;
    most = std::max(most, done);
    sum += done;
  }
  return most == 0 ? 1 : (float)sum / (most * g.threads);
}

void conv::shareRows(const Geometry &g, int64_t channels, int64_t &blockD,
                     int64_t &blockH) {
  int64_t groups = g.groupOutput > 32 ? g.groups : 1;
  int64_t shares = divideCeil(
      g.threads, g.batch * divideCeil(groups * g.groupOutput, channels));
  int64_t shareD = divideCeil(g.outputD, shares);
  int64_t shareH =
      divideCeil(g.outputH, shares * divideCeil(g.outputD, shareD));
  auto grow = [](int64_t block, int64_t stride, int64_t extent) {
    while (block < extent &&
           (block % stride || (extent % stride == 0 && extent % block)))
      ++block;
    return block;
  };
  blockD = grow(std::min(blockD, shareD), g.strideD, g.outputD);
  blockH = grow(std::min(blockH, shareH), g.strideH, g.outputH);
}
