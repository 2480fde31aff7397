//===- HalfConvBrgemm.cpp - What brg_conv of half types holds -------------===//
//
// Source: oneDNN 3.12, init_jcp, init_conf, pick_tags and init_scratchpad in
// cpu/x64/jit_brgemm_conv_utils.cpp.
//
//===----------------------------------------------------------------------===//

#include "HalfConvBlocks.h"

using namespace koila;
using namespace koila::conv;

/// The padding behind the input that windows reach; less than none if they do
/// not reach its end.
static int64_t endPadding(int64_t output, int64_t stride, int64_t extent,
                          int64_t input, int64_t padding) {
  return (output - 1) * stride + extent - input - padding;
}

/// Source: init_jcp.
static HalfBlocks makeBlocks(const Geometry &g, const HalfKernels &kernels) {
  HalfBlocks b;
  b.batch = g.batch;
  b.groups = g.groups;
  b.inputs = g.groupInput;
  b.outputs = g.groupOutput;
  b.inputD = g.inputD, b.inputH = g.inputH, b.inputW = g.inputW;
  b.outputD = g.outputD, b.outputH = g.outputH, b.outputW = g.outputW;
  b.kernelD = g.kernelD, b.kernelH = g.kernelH, b.kernelW = g.kernelW;
  b.strideD = g.strideD, b.strideH = g.strideH, b.strideW = g.strideW;
  b.dilationD = g.dilationD, b.dilationH = g.dilationH;
  b.dilationW = g.dilationW;
  b.beginD = g.paddingD, b.beginH = g.paddingH, b.beginW = g.paddingW;
  b.endD = endPadding(g.outputD, g.strideD, g.extentD(), g.inputD, g.paddingD);
  b.endH = endPadding(g.outputH, g.strideH, g.extentH(), g.inputH, g.paddingH);
  b.endW = endPadding(g.outputW, g.strideW, g.extentW(), g.inputW, g.paddingW);
  b.threads = g.threads;
  b.cacheL1 = g.l1Bytes;
  b.l1Bytes = g.l1Bytes * 7 / 8;
  b.l2Bytes = g.l2Bytes * 3 / 4;
  b.hasTiles = kernels.hasTiles;
  b.pairs = kernels.pairs;
  b.lanes = 32;
  return b;
}

/// Strides along a row become channels. Source: trans_dim_koef in init_jcp.
static int64_t foldStrides(HalfBlocks &b) {
  int64_t fold = 1;
  if (b.groups != 1 || b.dilationW != 1 || b.kernelW <= 1 || b.strideW <= 1 ||
      b.beginW > 0 || b.endW > 0 || b.inputs % b.pairs != 0 ||
      (b.inputs > b.lanes && b.inputs % b.lanes != 0))
    return fold;
  int64_t most = std::min({b.kernelW, b.strideW, b.inputW});
  for (int64_t by = 1; by <= most; ++by)
    if (b.inputW % by == 0 && b.kernelW % by == 0 && b.strideW % by == 0 &&
        (b.inputs * by <= b.lanes || b.inputs * by % b.lanes == 0))
      fold = by;
  if (fold > 1) {
    b.inputs *= fold;
    b.inputW /= fold;
    b.kernelW /= fold;
    b.strideW /= fold;
    b.endW = endPadding(b.outputW, b.strideW, b.extentW(), b.inputW, b.beginW);
  }
  return fold;
}

namespace {
/// Whether sums go over a row of the kernel, or all of it.
struct Lowerings {
  bool row = false, kernel = false;
  bool reordersRow = true, reordersKernel = true;
};
} // namespace

static Lowerings findLowerings(const HalfBlocks &b, bool isFloat16,
                               bool isVolume, int64_t fold) {
  Lowerings found;
  int64_t ofRow = b.kernelW * b.inputs, ofKernel = b.kernelH * ofRow;
  auto isWhole = [&](int64_t sums) {
    return b.inputs % b.pairs == 0 && (sums <= b.lanes || sums % b.lanes == 0);
  };
  found.reordersRow = b.pairs != 1 && !isWhole(ofRow);
  float paddedRow = roundUp(ofRow, b.lanes);
  float paddedKernel = roundUp(ofKernel, b.lanes);
  float channels = roundUp(b.inputs, b.lanes);
  float source = (float)HalfBytes * b.batch * b.inputD * b.inputH * b.inputW;
  float weight =
      (float)HalfBytes * b.outputs * b.kernelD * b.kernelH * b.kernelW;
  bool isHeavy = weight / source > 4;
  bool mayRow = fold == 1 && (b.inputD <= 1 || !found.reordersRow) &&
                b.dilationW == 1 && b.kernelW > 1;
  bool pays;
  if (b.hasTiles)
    pays = b.inputs < b.lanes / 2 ||
           (ofRow > b.lanes && paddedRow / (b.kernelW * channels) < 0.5f &&
            (!found.reordersRow || !isHeavy));
  else
    pays = b.inputs < b.pairs;
  found.row = mayRow && pays;
  found.reordersKernel =
      !(isWhole(ofKernel) && (b.kernelH == 1 || b.kernelW == 1));
  bool mayKernel = b.dilationH == 1 && b.dilationW == 1 && fold == 1 &&
                   !isVolume && b.kernelH > 1;
  if (b.hasTiles)
    pays = (b.inputs < b.lanes / 2 ||
            (ofKernel > b.lanes &&
             paddedKernel / (b.kernelH * b.kernelW * channels) < 0.5f &&
             (!found.reordersKernel || !isHeavy))) &&
           ofKernel / paddedKernel > ofRow / paddedRow &&
           (b.outputW > 48 || b.outputW % 16 == 0) &&
           (!found.row || ofKernel / paddedKernel > 0.7f);
  else
    pays = b.inputs < b.pairs && b.outputW > 4;
  found.kernel = mayKernel && pays;
  return found;
}

/// The bytes of one entry of threads, which begins on a page.
static int64_t bookThreads(const HalfBlocks &b, int64_t bytes) {
  return bookedPage(b.threads * bytes);
}

static int64_t listBytes(const HalfBlocks &b, int64_t products) {
  constexpr int64_t kElement = 40;
  return bookThreads(
      b, llvm::divideCeilSigned(roundUp(products * kElement, Page), kElement) *
             kElement);
}

/// Copied rows of the input. Source: inp_buffer_size in init_conf.
static int64_t copyBytes(const HalfBlocks &b) {
  auto under = [](int64_t most, int64_t outputs, int64_t kernel, int64_t stride,
                  int64_t dilation) {
    return std::min(most, (outputs - 1) * std::min(kernel, stride) +
                              dilation * (kernel - 1) + 1);
  };
  auto reach = [](int64_t padding) { return std::max<int64_t>(padding, 0); };
  int64_t slices =
      under(b.paddedD, b.blockD, b.kernelD, b.strideD, b.dilationD) +
      reach(b.beginD) + reach(b.endD);
  int64_t lines =
      under(b.paddedH, b.blockH, b.kernelH, b.strideH, b.dilationH) +
      reach(b.beginH) + reach(b.endH);
  if (b.joinsRows && b.maskedRows > 0)
    lines = llvm::divideCeilSigned(roundUp(lines * b.paddedW, b.maskedRows),
                                   b.paddedW) +
            b.kernelH * b.dilationH;
  bool isKernel = b.lowering == Lowering::Kernel;
  int64_t elements = (isKernel ? b.kernelH : 1) * slices * lines * b.paddedW *
                     b.groups * b.inputBlocks * b.rowStride;
  if (isKernel)
    elements +=
        (b.outputH - 1) * b.blockH * b.strideH * b.rowStride + b.rowStride;
  int64_t blocks = llvm::divideCeilSigned(b.outputD, b.blockD) *
                   llvm::divideCeilSigned(b.outputH, b.blockH) *
                   llvm::divideCeilSigned(b.outputW, b.blockW) * b.groups *
                   b.inputBlocks;
  return bookThreads(b, roundUp(elements, Page) * HalfBytes) +
         bookThreads(b, roundUp(blocks, Page));
}

/// None where the scratchpad would be too large. Source: init_scratchpad.
static std::optional<HalfBuffers>
makeBuffers(const Geometry &g, const HalfBlocks &b, int64_t fold) {
  HalfBuffers found = {0, 0, true};
  int64_t products = std::max(b.kernelBlockD * b.kernelBlockH * b.kernelBlockW,
                              b.padBlockD * b.padBlockH * b.padBlockW);
  found.scratchpad = listBytes(b, products);
  if (b.reading == Reading::Copied)
    found.scratchpad += copyBytes(b);
  int64_t kernel = b.kernelD * b.kernelH * b.kernelW;
  int64_t outputs = b.groups * b.outputBlocks * b.outputBlock;
  int64_t step = b.pairs * (b.padsSums ? 16 : 1);
  if (b.lowering != Lowering::None) {
    int64_t sums = b.lowerColumn() * b.kernelW * b.inputs;
    int64_t rows = b.kernelH / b.lowerColumn();
    int64_t elements = roundUp(outputs * rows * roundUp(sums, step), 1024);
    found.scratchpad += bookedPage(elements * HalfBytes);
  }
  if (b.keepsSums)
    found.scratchpad += bookThreads(b, b.outputBlock * b.rows * FloatBytes);
  if (b.hasTiles)
    found.scratchpad += bookThreads(b, b.tileBytes());
  // The weight keeps its channels where strides became channels.
  bool isPlain = b.lowering != Lowering::None && b.reordersWeight;
  int64_t inputs = isPlain ? b.inputs : roundUp(b.inputs / fold, step);
  if (isPlain)
    outputs = b.groups * roundUp(b.outputs, 16);
  found.weight = outputs * inputs * kernel * fold * HalfBytes;
  if (b.reading == Reading::Copied &&
      !isScratchpadTaken(g, found.scratchpad, found.weight))
    return std::nullopt;
  return found;
}

int64_t conv::getFoldedInputs(const Geometry &g, const HalfKernels &kernels) {
  HalfBlocks b = makeBlocks(g, kernels);
  foldStrides(b);
  return b.inputs;
}

std::optional<HalfBuffers> conv::findHalfBrgemm(const Geometry &g,
                                                const HalfKernels &kernels,
                                                bool isTurned) {
  HalfBlocks b = makeBlocks(g, kernels);
  int64_t fold = isTurned ? 1 : foldStrides(b);
  b.paddedD = b.inputD + b.beginD + b.endD;
  b.paddedH = b.inputH + b.beginH + b.endH;
  b.paddedW = b.inputW + b.beginW + b.endW;
  if (b.hasTiles && (b.beginD >= g.extentD() || b.beginH >= b.extentH() ||
                     b.endW >= b.extentW()))
    return std::nullopt;
  b.mostProducts = b.kernelD * b.kernelH * b.kernelW;
  b.padsSums = b.hasTiles && b.inputs > b.lanes;
  bool isColumn = b.outputD == 1 && b.kernelW == 1 && b.outputW == 1;
  Lowerings lowerings;
  if (!isTurned)
    lowerings = findLowerings(b, kernels.isFloat16, g.isVolume, fold);
  bool tiled = false;
  if (b.hasTiles) {
    bool isWhole = b.inputs % (b.inputs <= b.lanes ? b.pairs : b.lanes) == 0;
    bool readsPlain = b.beginW <= 0 && b.endW <= 0 && isWhole && b.outputW > 50;
    tiled = !readsPlain;
  }
  bool copies = tiled || isColumn || lowerings.row || lowerings.kernel;
  bool passes = !b.hasTiles && !isColumn &&
                llvm::divideCeilSigned(std::max<int64_t>(0, b.beginW),
                                       b.strideW) < b.kernelW &&
                llvm::divideCeilSigned(std::max<int64_t>(0, b.endW),
                                       b.strideW) < b.kernelW;
  int64_t source = b.inputD * b.inputH * b.inputW * HalfBytes * b.inputs;
  int64_t weight = b.mostProducts * b.outputs * b.inputs * HalfBytes;
  b.byPixels = source >= weight;
  if (copies) {
    HalfBlocks own = b;
    own.reading = Reading::Copied;
    own.byPixels = true;
    if (lowerings.kernel) {
      own.lowering = Lowering::Kernel;
      own.reordersWeight = lowerings.reordersKernel;
      own.mostProducts = b.kernelD;
    } else if (lowerings.row) {
      own.lowering = Lowering::Row;
      own.reordersWeight = lowerings.reordersRow;
      own.mostProducts = b.kernelD * b.kernelH;
    }
    bool pads = !kernels.isFloat16 || b.hasTiles;
    own.padsSums =
        pads && b.inputs * own.lowerRow() * own.lowerColumn() > b.lanes;
    constexpr int64_t kMostWide = 10800;
    own.joinsRows = b.beginD < b.kernelD && b.endD < b.kernelD &&
                    b.beginH < b.kernelH && b.endH < b.kernelH &&
                    b.beginW < b.kernelW && b.endW < b.kernelW &&
                    b.paddedW < kMostWide;
    if (b.hasTiles && (own.lowering != Lowering::None || b.outputW < 256)) {
      own.masksRows = own.joinsRows;
      own.isUnrolled = true;
    }
    if (!own.isUnrolled)
      own.joinsRows = own.joinsRows && b.strideH == 1 &&
                      (b.outputW == 1 || b.extentW() <= b.strideW);
    if (own.choose())
      return makeBuffers(g, own, fold);
  }
  if (passes) {
    HalfBlocks own = b;
    own.reading = Reading::Passed;
    if (own.choose() && (own.blockW - 1) * own.strideW + 1 <= own.inputW)
      return makeBuffers(g, own, fold);
  }
  if (tiled)
    return std::nullopt;
  HalfBlocks own = b;
  constexpr int64_t kMostUnrolled = 8 * 1024;
  own.isUnrolled = b.hasTiles && b.outputW < kMostUnrolled;
  if (!own.choose())
    return std::nullopt;
  return makeBuffers(g, own, fold);
}
