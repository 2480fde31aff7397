//===- ConvStridedBlocking.cpp - How brgconv_strided blocks its work ------===//
//
// oneDNN 3.12 computes a strided transposed convolution as the gradient of a
// convolution. It scores blocks of the result by what their data cost to load
// (jit_brgemm_conv_bwd_utils.cpp). The scores are single precision on purpose:
// ties are decided by their rounding.
//
//===----------------------------------------------------------------------===//

#include "BlockScore.h"
#include "ConvTransposed.h"

#include <cmath>

using namespace koila;
using namespace koila::conv;

/// Less efficient blocks are refused.
static constexpr float LeastScore = 0.00001f;

namespace {

class StridedBlocking {
public:
  StridedBlocking(const Geometry &g, const StridedExtents &extents,
                  int64_t l1Bytes, int64_t l2Bytes)
      : g(g), extents(extents), l1Bytes(l1Bytes), l2Bytes(l2Bytes),
        byBlocks(!extents.isUneven &&
                 g.inputArea() < g.groupOutput * g.kernelArea()) {
    blockD = blockH = blockW = kernelD = kernelH = columns = 0;
  }

  std::optional<StridedBlocks> find();

private:
  /// What one thread has to do: blocks of channels and vectors of those, the
  /// parts of columns, rows and slices with their extents, and samples.
  struct Share {
    int64_t blocks, vectors, stripsW, width, stripsH, height, stripsD, depth,
        batch;
  };

  bool admits(int64_t block) const;
  void search(StridedBlocks &best, int64_t depth, int64_t height);
  void blockRows();
  void unroll();
  float score() const;
  Share share(int64_t job) const;
  float cost(int64_t job) const;
  float pointwiseCost(int64_t job) const;

  /// Which are scored in another way.
  bool isPointwise() const { return g.isPointwise() && !g.isPadded(); }
  int64_t registers() const { return g.lanes == 16 ? 32 : 16; }
  /// The columns of the result, those of uneven ones rounded up.
  int64_t width() const {
    return extents.isUneven ? roundUp(g.outputW, g.strideW) : g.outputW;
  }
  /// The input columns under `width` result columns of one phase.
  int64_t inputColumns(int64_t width, int64_t kernel) const {
    int64_t step = std::min(kernel, g.strideW);
    return std::min(g.inputW, (width - 1) * step + kernel);
  }
  int64_t inputElements(int64_t width, int64_t kernel) const {
    int64_t pixels = inputColumns(width, kernel);
    return g.strideW == 1 ? roundUp(pixels * g.groupInput, g.lanes)
                          : pixels * roundUp(g.groupInput, g.lanes);
  }

  const Geometry &g;
  const StridedExtents &extents;
  int64_t l1Bytes, l2Bytes;
  /// Whether blocks of channels are the outer loop, else those of pixels.
  bool byBlocks;
  int64_t channels = 0, channelBlocks = 0;
  int64_t blockD, blockH, blockW, kernelD, kernelH;
  /// The columns of one phase that a kernel keeps in registers.
  int64_t columns;
};

} // namespace

/// Which blocks of result channels are tried (fast_check_ic_block).
bool StridedBlocking::admits(int64_t block) const {
  int64_t padded = roundUp(g.groupOutput, g.lanes);
  int64_t strides = g.strideD * g.strideH * g.strideW;
  // fast_check_ic_block_1x1
  if (isPointwise() && block == 64)
    return padded % block == 0 && g.outputArea() >= 64 * strides;
  if (isPointwise() && block == 48)
    return (float)g.groupOutput / roundUp(g.groupOutput, block) >= 0.95f;
  if (block == 64)
    return padded % block == 0 && padded < 192;
  if (block == 48)
    return padded % block == 0 && padded <= 384 && g.inputArea() > 81 * strides;
  return true;
}

std::optional<StridedBlocks> StridedBlocking::find() {
  StridedBlocks best;
  int64_t most =
      std::min<int64_t>(llvm::divideCeilSigned(g.groupOutput, g.lanes), 4);
  for (int64_t vectors = most; vectors > 0; --vectors) {
    channels = vectors * g.lanes;
    channelBlocks = llvm::divideCeilSigned(g.groupOutput, channels);
    if (!admits(channels))
      continue;
    for (int64_t depth : {g.kernelD, g.strideD}) {
      for (int64_t height : {g.kernelH, g.strideH}) {
        search(best, depth, height);
        if (g.kernelH == 1)
          break;
      }
      if (g.kernelD == 1)
        break;
    }
  }
  if (best.channels == 0)
    return std::nullopt;
  return best;
}

/// The rows of the result that are worked on together, so that they fit the
/// second cache and leave work for all threads.
void StridedBlocking::blockRows() {
  constexpr int64_t kTile = 16;
  int64_t row =
      FloatBytes * (2 * g.groupInput * extents.paddedW + g.outputW * channels);
  int64_t other =
      FloatBytes * channels * (g.kernelArea() * g.groupInput + 2 * kTile);
  int64_t left = std::min(llvm::divideCeilSigned(l2Bytes, 2),
                          std::max<int64_t>(l2Bytes - other, 0));
  blockD = 1;
  blockH = g.outputH;
  if (extents.paddedD * extents.paddedH * row > left) {
    blockD = std::clamp<int64_t>(left / (extents.paddedH * row), 1, g.outputD);
    if (blockD == 1)
      blockH = std::clamp<int64_t>(left / row, 1, g.outputH);
  }
  shareRows(g, channels, blockD, blockH);
}

/// brgemm_blocking_vmm: rows of the product that fit the registers.
void StridedBlocking::unroll() {
  int64_t rows = llvm::divideCeilSigned(blockW, g.strideW);
  int64_t vectors =
      std::clamp<int64_t>(std::min(g.groupOutput, channels) / g.lanes, 1, 4);
  // Four vectors of few registers are loaded one by one.
  int64_t most = g.lanes == 8 && vectors == 4
                     ? (registers() - 1) / (vectors + 1)
                     : (registers() - 1 - vectors) / vectors;
  columns = most;
  float best = 0;
  for (int64_t block = most; block > 0; --block) {
    float fit = (float)rows / roundUp(rows, block);
    float reuse = ((float)vectors * block) / ((vectors + block) * most);
    if ((float)FloatBytes * block * g.groupInput <= (float)l1Bytes &&
        fit * reuse > best) {
      best = fit * reuse;
      columns = block;
    }
  }
}

void StridedBlocking::search(StridedBlocks &best, int64_t depth,
                             int64_t height) {
  kernelD = depth;
  kernelH = height;
  blockRows();
  float share = (float)(g.batch * g.groups * channelBlocks * g.outputArea()) /
                (0.9f * g.threads);
  int64_t most = std::min(
      std::clamp<int64_t>((int64_t)std::ceil(share), 1, width()), g.outputW);
  if (extents.isUneven)
    most = roundUp(most, g.strideW);
  int64_t previous = 0;
  for (int64_t parts = 1; parts <= width(); ++parts) {
    int64_t block = llvm::divideCeilSigned(width(), parts);
    if (block == previous || block > most || block % g.strideW ||
        (!extents.isUneven && g.outputW % block))
      continue;
    previous = blockW = block;
    unroll();
    float found = score();
    if ((found > best.score || best.score == 0) && found >= LeastScore)
      best = {channels, blockD, blockH, blockW, kernelD, kernelH, found};
  }
}

StridedBlocking::Share StridedBlocking::share(int64_t job) const {
  auto split = [job](int64_t parts, int64_t inside) {
    return std::min(parts, llvm::divideCeilSigned(job, inside));
  };
  int64_t partsD = llvm::divideCeilSigned(g.outputD, blockD);
  int64_t partsH = llvm::divideCeilSigned(g.outputH, blockH);
  int64_t partsW = llvm::divideCeilSigned(g.outputW, blockW);
  int64_t area = partsD * partsH * partsW;
  int64_t inside = byBlocks ? 1 : g.groups * channelBlocks;
  Share mine;
  mine.blocks = split(channelBlocks, byBlocks ? area : 1);
  mine.vectors = llvm::divideCeilSigned(
      std::min(g.groupOutput, mine.blocks * channels), g.lanes);
  mine.stripsW = split(partsW, inside);
  mine.width = std::min(width(), mine.stripsW * blockW);
  mine.stripsH = split(partsH, partsW * inside);
  mine.height = std::min(g.outputH, mine.stripsH * blockH);
  mine.stripsD = split(partsD, partsH * partsW * inside);
  mine.depth = std::min(g.outputD, mine.stripsD * blockD);
  mine.batch = split(g.batch, area * g.groups * channelBlocks);
  return mine;
}

/// The cost of one thread's share, loop by loop from the innermost.
float StridedBlocking::cost(int64_t job) const {
  if (isPointwise())
    return pointwiseCost(job);
  int64_t lanes = g.lanes, inputs = g.groupInput, vectors = channels / lanes;
  int64_t kernel = g.kernelArea(), kernelW = g.kernelW;
  int64_t passes = llvm::divideCeilSigned(g.kernelD, kernelD) *
                   llvm::divideCeilSigned(g.kernelH, kernelH);
  int64_t slice = kernelD * kernelH;
  auto [myBlocks, myVectors, stripsW, myW, stripsH, myH, stripsD, myD,
        myBatch] = share(job);

  int64_t filter = channels * inputs;
  int64_t unrolled = inputElements(columns, kernelW);
  int64_t strip = inputElements(blockW, kernelW);
  int64_t rows = g.kernelD * g.kernelH;
  int64_t under = rows * strip, mine = rows * inputElements(myW, kernelW);
  int64_t myLanes = myVectors * lanes;
  int64_t lanesHere = byBlocks ? vectors * lanes : myLanes;
  int64_t weights = kernel * inputs * lanesHere;
  std::vector<Loop> loops = {
      // Vectors, columns of the kernel, its rows, strips of registers.
      {{inputColumns(columns, kernelW) * lanes, 1, (float)lanes},
       {},
       {channels}},
      {{unrolled, 1, (float)kernelW}, {}, {filter}},
      {{unrolled}, {}, {kernelW * filter}},
      {{slice * unrolled},
       {columns * channels},
       {slice * kernelW * filter,
        (float)llvm::divideCeilSigned(blockW, columns)}},
      // Parts of the kernel, and all of it.
      {{slice * strip},
       {blockW * channels, (float)passes},
       {slice * kernelW * filter}},
      {{under}, {blockW * channels}, {kernel * filter}},
  };
  if (!byBlocks)
    loops.push_back(
        {{under, (float)myBlocks}, {blockW * channels}, {kernel * filter}});
  // Columns, rows, slices.
  loops.push_back({{under}, {blockW * lanesHere}, {weights, (float)stripsW}});
  loops.push_back(
      {{blockH * mine}, {myW * lanesHere}, {weights, (float)stripsH}});
  loops.push_back({{blockD * myH * mine},
                   {myH * myW * lanesHere},
                   {weights, (float)stripsD}});
  int64_t myArea = myD * myH * myW;
  if (byBlocks)
    loops.push_back({{myD * myH * mine, (float)myBlocks},
                     {channels * myArea},
                     {kernel * filter}});
  // Samples, and the whole.
  int64_t myWeights = kernel * inputs * myVectors;
  loops.push_back({{myD * myH * mine},
                   {myArea * myLanes},
                   {myWeights * lanes, (float)myBatch}});
  int64_t reads = myBatch * myArea * kernel * inputs;
  int64_t writes = myBatch * myArea * myVectors;
  loops.push_back({{reads}, {writes * lanes}, {myWeights * lanes}});
  LoopNest nest = {std::move(loops),    FloatBytes, l1Bytes, l2Bytes,
                   /*keepsSums=*/false, 3,          15};
  return nest.load(&Loop::input, reads) + nest.load(&Loop::result, writes) +
         nest.load(&Loop::weight, myWeights) + job * passes;
}

/// The same of a pointwise kernel. Source: est_eff_1x1.
float StridedBlocking::pointwiseCost(int64_t job) const {
  int64_t lanes = g.lanes, inputs = g.groupInput, vectors = channels / lanes;
  auto [myBlocks, myVectors, stripsW, myW, stripsH, myH, stripsD, myD,
        myBatch] = share(job);
  int64_t padded = roundUp(inputs, lanes), filter = channels * inputs;
  std::vector<Loop> loops = {
      // Vectors, strips of registers.
      {{columns * lanes, 1, (float)lanes}, {}, {channels}},
      {{columns * padded},
       {columns * channels},
       {filter, (float)llvm::divideCeilSigned(blockW, columns)}},
  };
  // Where the channels of the result are the inner loop, oneDNN takes them for
  // those of the input.
  int64_t weights = vectors * inputs;
  if (!byBlocks) {
    loops.push_back({{blockW * roundUp(g.groupOutput, lanes), (float)myBlocks},
                     {blockW * channels},
                     {channels * g.groupOutput}});
    weights = myVectors * g.groupOutput;
  }
  int64_t lanesHere = lanes * (byBlocks ? vectors : myVectors);
  // Columns, rows, slices.
  loops.push_back({{blockW * inputs},
                   {blockW * lanesHere},
                   {weights * lanes, (float)stripsW}});
  loops.push_back({{blockH * myW * padded},
                   {blockH * myW * lanesHere},
                   {weights * lanes, (float)stripsH}});
  loops.push_back({{blockD * myH * myW * padded},
                   {blockD * myH * myW * lanesHere},
                   {weights * lanes, (float)stripsD}});
  int64_t myArea = myD * myH * myW, myWeights = myVectors * inputs;
  if (byBlocks)
    loops.push_back(
        {{myD * myH * roundUp(myW * inputs, lanes), (float)myBlocks},
         {channels * myArea},
         {filter}});
  // Samples, and the whole.
  loops.push_back({{myArea * padded},
                   {myVectors * lanes * myArea},
                   {myWeights * lanes, (float)myBatch}});
  int64_t reads = myBatch * myArea * inputs;
  int64_t writes = myBatch * myArea * myVectors;
  loops.push_back({{reads}, {writes * lanes}, {myWeights * lanes}});
  LoopNest nest = {std::move(loops),    FloatBytes, l1Bytes, l2Bytes,
                   /*keepsSums=*/false, 3,          15};
  return nest.load(&Loop::input, reads) + nest.load(&Loop::result, writes) +
         nest.load(&Loop::weight, myWeights) + job;
}

float StridedBlocking::score() const {
  int64_t vectors = channels / g.lanes;
  int64_t parts = llvm::divideCeilSigned(g.outputD, blockD) *
                  llvm::divideCeilSigned(g.outputH, blockH) *
                  llvm::divideCeilSigned(g.outputW, blockW);
  int64_t work = g.batch * g.groups * channelBlocks * parts;
  int64_t job = llvm::divideCeilSigned(work, g.threads);
  float kernel =
      ((float)vectors * columns) / ((columns + vectors) * registers());
  float fit = (float)blockW / roundUp(blockW, columns);
  float reuse = columns * (2.f - std::min(1.9f, (float)columns / blockW)) / 64;
  float spread = (float)width() / roundUp(width(), blockW);
  float channelFit = (float)g.groupOutput / roundUp(g.groupOutput, channels);
  int64_t products =
      g.batch * g.outputD * g.outputH * width() * g.groupInput * g.groupOutput;
  float cache = products / (g.threads * cost(job));
  StridedWork blocks = {width(), blockW, channels, channelBlocks, !byBlocks};
  return channelFit * kernel * spread * blocks.balance(g, work, job) * fit *
         cache * ((1 + reuse) / 2);
}

std::optional<StridedBlocks>
conv::findStridedBlocks(const Geometry &g, const StridedExtents &extents,
                        int64_t l1Bytes, int64_t l2Bytes) {
  return StridedBlocking(g, extents, l1Bytes, l2Bytes).find();
}
