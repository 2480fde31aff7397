//===- HalfConvBlocks.h - Blocks of brg_conv --------------------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_HALFCONV_HALFCONVBLOCKS_H
#define KOILA_KERNELMODELS_ONEDNN_HALFCONV_HALFCONVBLOCKS_H

#include "HalfConv.h"

#include <vector>

namespace koila::conv {

/// How rows of the input reach the kernel: as they are, with padding that the
/// kernel passes, or copied.
enum class Reading { Plain, Passed, Copied };
/// What the kernel sums up at once: channels, or those of a row of the kernel,
/// or of all of it.
enum class Lowering { None, Row, Kernel };

/// A convolution as brg_conv cuts it. The names are those of this library; what
/// follows oneDNN's jit_brgemm_conv_conf_t is said where it is computed.
struct HalfBlocks {
  // The convolution, of which strides may have become channels.
  int64_t batch, groups, inputs, outputs;
  int64_t inputD, inputH, inputW, outputD, outputH, outputW;
  int64_t kernelD, kernelH, kernelW, strideD, strideH, strideW;
  int64_t dilationD, dilationH, dilationW;
  int64_t beginD, beginH, beginW, endD, endH, endW;
  int64_t paddedD, paddedH, paddedW;
  int64_t threads, l1Bytes, l2Bytes, cacheL1;
  bool hasTiles;
  int64_t pairs, lanes, sumLanes = 16;

  // Choices.
  Reading reading = Reading::Plain;
  Lowering lowering = Lowering::None;
  bool reordersWeight = false;
  bool byPixels = false;  // The loop over pixels is outermost.
  bool joinsRows = false; // Rows are worked on together.
  bool masksRows = false; // Rows between them are passed.
  bool isUnrolled = false, padsSums = false;
  int64_t mostProducts = 1;

  // Blocks.
  int64_t outputBlock = 0, outputBlocks = 0, inputBlock = 0, inputBlocks = 0;
  int64_t readBlock = 0;
  int64_t blockD = 1, blockH = 1, blockW = 0;
  int64_t kernelBlockD = 1, kernelBlockH = 1, kernelBlockW = 1;
  int64_t padBlockD = 1, padBlockH = 1, padBlockW = 1;
  int64_t pixels = 0, pixelBlock = -1;
  bool keepsSums = false;
  /// Elements between rows of the input.
  int64_t rowStride = 0;
  int64_t rows = 0, rowsTail = 0, skipped = 0;
  int64_t maskedRows = 0, maskedTail = 0;
  int64_t columns = 0, columnsTail = 0, sums = 0, sumsTail = 0;
  int64_t unrolled = 0, vectors = 0;
  float score = 0;

  int64_t area() const { return outputD * outputH * outputW; }
  int64_t lowerRow() const { return lowering == Lowering::None ? 1 : kernelW; }
  int64_t lowerColumn() const {
    return lowering == Lowering::Kernel ? kernelH : 1;
  }
  int64_t extentH() const { return dilationH * (kernelH - 1) + 1; }
  int64_t extentW() const { return dilationW * (kernelW - 1) + 1; }

  /// Tries all blocks and keeps the best; false if there are none.
  bool choose();
  /// Rows of the product, and what is read of them; false if no kernel has
  /// them.
  bool estimate();
  float rate() const;
  /// The bytes that tiles take.
  int64_t tileBytes() const;

private:
  bool admits() const;
  void cutInputs();
  void cutRows();
  void tryKernel(HalfBlocks &best, int64_t blockD, int64_t blockH,
                 int64_t mostW);
  void cutPixels();
  int64_t passedRows() const;
  bool hasKernels() const;
  std::optional<int64_t> fitRegisters(int64_t count, int64_t n);
  bool unroll();
};

} // namespace koila::conv

#endif // KOILA_KERNELMODELS_ONEDNN_HALFCONV_HALFCONVBLOCKS_H
