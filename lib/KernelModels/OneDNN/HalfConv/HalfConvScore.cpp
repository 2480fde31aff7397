//===- HalfConvScore.cpp - What blocks of brg_conv cost -------------------===//
//
// Source: oneDNN 3.12, brg_blocking_t in cpu/x64/jit_brgemm_conv_utils.cpp.
//
//===----------------------------------------------------------------------===//

#include "HalfConvScore.h"

using namespace koila;
using namespace koila::conv;

/// The cost of a load from the first cache.
static constexpr float FirstCost = 1;

float HalfLoops::load(HalfAccess HalfLoop::*operand, int64_t count) const {
  float price = memoryCost, repeats = 1;
  bool isInput = operand == &HalfLoop::input;
  for (size_t index = loops.size(); index-- > 0;) {
    const HalfLoop &loop = loops[index];
    const HalfAccess &access = loop.*operand;
    float times = access.repeats * access.overlap;
    repeats *= access.repeats;
    if (times < 1)
      price = 0;
    if (times <= 1)
      continue;
    int64_t bytes =
        HalfBytes * (loop.input.size + loop.weight.size + loop.result.size) +
        (keepsSums ? FloatBytes * loop.result.size : 0);
    float again = bytes < l2Bytes ? secondCost : memoryCost;
    if (isInput && HalfBytes * loop.input.size < l1Bytes)
      again = FirstCost;
    price = (price + again * (times - 1)) / times;
  }
  return price * (count * repeats);
}

int64_t conv::coverGrid(int64_t count, int64_t x, int64_t xs, int64_t blockX,
                        int64_t y, int64_t blockY) {
  int64_t partsX = llvm::divideCeilSigned(x, blockX);
  int64_t partsY = llvm::divideCeilSigned(y, blockY);
  int64_t lastY = count / (xs * partsX), lastX = count % (xs * partsX);
  int64_t endX = lastX % partsX * blockX, endY = lastY % partsY * blockY;
  int64_t nextY = std::min(y, endY + blockY);
  return xs * (lastY / partsY) * x * y + x * xs * endY +
         (x * (lastX / partsX) + endX) * (nextY - endY);
}
