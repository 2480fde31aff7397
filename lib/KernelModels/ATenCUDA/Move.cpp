//===- Move.cpp - What moves elements on a GPU ----------------------------===//
//
// Sources: native/cuda/TensorTransformations.cu, native/cuda/TriangularOps.cu,
// native/cuda/ReflectionPad.cu, native/cuda/ReplicationPadding.cu,
// native/PixelShuffle.cpp, native/cuda/ScanUtils.cuh.
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/BackwardReplay.h"
#include "../ATen/TensorBytes.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Dialect/Koila/IR/SortOps.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// Of several dims one after the other, into tensors that live until the last
/// is done. The first one reads rows.
static void rollDims(WorkspaceRule &rule, size_t dims) {
  auto moved = readInputAndResult(rule);
  if (!moved)
    return;
  AllocationTrace trace;
  AllocationTrace::Block copy = trace.allocate(getCopyBytes(moved->input));
  SmallVector<AllocationTrace::Block> rolled;
  for (size_t index = 0; index < std::max<size_t>(dims, 1); ++index) {
    rolled.push_back(trace.allocate(moved->result.numBytes()));
    trace.free(std::exchange(copy, {}));
  }
  rolled.pop_back();
  for (AllocationTrace::Block block : llvm::reverse(rolled))
    trace.free(block);
  rule.setTrace(std::move(trace), moved->result.numBytes());
}

static void describeRoll(WorkspaceRule &rule) {
  rollDims(rule, cast<RollOp>(rule.getOp()).getDims().size());
}

/// A roll of all dims, if none is named.
template <typename OpT>
static void describeShift(WorkspaceRule &rule) {
  auto dims = cast<OpT>(rule.getOp()).getDim();
  if (auto input = rule.tensor(rule.getOp()->getOperand(0)))
    rollDims(rule, dims ? dims->size() : input->dims.size());
}

/// Elements are written where they go. Strided ones are copied first, if no
/// view has their extents.
static void describeShuffle(WorkspaceRule &rule) {
  auto moved = readInputAndResult(rule);
  if (!moved || moved->input.contiguous)
    return;
  rule.setTransient(getCopyBytes(moved->input));
  rule.setBound("strided elements are copied only where no view of them has "
                "the extents");
}

/// Rows are read.
static void describeWindows(WorkspaceRule &rule) {
  if (auto padded = readInputAndResult(rule))
    cuda::allocateResultThenCopy(rule, *padded, getCopyBytes(padded->input));
}

/// Zeros, to which elements of the gradient are added.
static void describeWindowsBackward(BackwardRule &rule) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  steps.giveContiguous(0);
  steps.allocateTemporary(getCopyBytes(steps.getGradient()));
  steps.finish();
}

static bool padsWindows(PadOp op) {
  return op.getMode() == "reflect" || op.getMode() == "replicate";
}

static void describePad(WorkspaceRule &rule) {
  if (padsWindows(cast<PadOp>(rule.getOp())))
    describeWindows(rule);
}

static void describePadBackward(BackwardRule &rule) {
  auto op = cast<PadOp>(rule.getOp());
  if (padsWindows(op))
    return describeWindowsBackward(rule);
  // The part of the gradient that was not added.
  if (op.getMode() != "constant" || !rule.getGradient() ||
      !rule.getGradient()->contiguous)
    return koila::detail::describeUnknownBackward(rule);
  cuda::giveNew(rule);
}

/// Along one of several dims; of a vector cub has a scratch of its own.
static void describeScan(WorkspaceRule &rule) {
  auto moved = readInputAndResult(rule);
  if (!moved)
    return;
  const auto &[input, result] = *moved;
  AllocationTrace trace;
  trace.allocate(result.numBytes());
  int64_t cast = getCastBytes(input, result.elementType);
  AllocationTrace::Block read = trace.allocate(cast);
  if (!input.contiguous)
    trace.allocateTemporary(countBytes(input, result.elementType));
  trace.free(read);
  rule.setTrace(std::move(trace), result.numBytes());
  if (input.dims.size() <= 1 ||
      input.numElements() == *llvm::max_element(input.dims))
    rule.setInexact("the scratch of cub for a scan of one vector");
}

void cuda::addMoveModels(KernelLibrary &library) {
  kernels::addBlockModels(library);
  library.add<ChannelShuffleOp, NativeChannelShuffleOp, PixelShuffleOp,
              PixelUnshuffleOp, RepeatInterleaveIntOp>(
      {.forward = describeShuffle});
  library.add<ConstantPadNdOp, DiagEmbedOp, FlipOp, FliplrOp, FlipudOp,
              PadCircularOp, RepeatOp, Rot90Op, TileOp>(
      {.forward = allocateNothing});
  library.add<CumprodOp, CumsumOp>({.forward = describeScan});
  library.add<FftFftshiftOp>({.forward = describeShift<FftFftshiftOp>});
  library.add<FftIfftshiftOp>({.forward = describeShift<FftIfftshiftOp>});
  library.add<PadOp>({.forward = describePad, .backward = describePadBackward});
  library.add<ReflectionPad1dOp, ReflectionPad2dOp, ReflectionPad3dOp,
              ReplicationPad1dOp, ReplicationPad2dOp, ReplicationPad3dOp>(
      {.forward = describeWindows, .backward = describeWindowsBackward});
  library.add<RollOp>({.forward = describeRoll});
  library.add<TrilOp, TriuOp>(
      {.forward = allocateNothing, .backward = giveNew});
  kernels::addMoveGradients(library);
}
