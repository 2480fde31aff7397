//===- PermuteRepeat.cpp - What moving elements takes ---------------------===//
//
// Sources: native/TensorTransformations.cpp, native/TensorShape.cpp (repeat),
// native/PixelShuffle.cpp, native/TriangularOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Models.h"
#include "../WorkspaceRules.h"
#include "Linalg.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// An operator on all elements as a vector, of which `copy` bytes are copied.
static void describeRows(WorkspaceRule &rule, const ConcreteTensor &input,
                         int64_t result, int64_t copy) {
  AllocationTrace trace;
  trace.allocate(copy);
  if (copy > 0)
    trace.allocateTemporary(getBlockBytes(input));
  trace.allocate(result);
  rule.setTrace(std::move(trace), result);
}

/// Without a dim, of all elements as a vector.
static void describeInterleaved(WorkspaceRule &rule) {
  auto moved = readInputAndResult(rule);
  if (moved && !cast<RepeatInterleaveIntOp>(rule.getOp()).getDim())
    describeRows(rule, moved->input, moved->result.numBytes(),
                 getFlatCopyBytes(moved->input));
}

static void describeRepeat(WorkspaceRule &rule) {
  auto moved = readInputAndResult(rule);
  if (!moved)
    return;
  if (moved->result.numElements() != 0) {
    AllocationTrace trace;
    allocateRepeat(trace, moved->result.dims.size());
    return rule.setTrace(std::move(trace));
  }
  // Repeated no times, it is not looked at.
  if (moved->input.numElements() == 0)
    rule.setInexact("a repetition of nothing");
}

/// A roll of several dims is one of the first, rolled in the others: each is a
/// tensor that lives until the last is done.
static void rollDims(WorkspaceRule &rule, const ConcreteTensor &input,
                     size_t dims) {
  // Without dims all elements are rolled as a vector.
  if (dims == 0)
    return describeRows(rule, input, input.numBytes(), getCopyBytes(input));
  AllocationTrace trace;
  SmallVector<AllocationTrace::Block> rolled;
  for (size_t index = 0; index < dims; ++index)
    rolled.push_back(trace.allocate(input.numBytes()));
  rolled.pop_back();
  for (AllocationTrace::Block block : llvm::reverse(rolled))
    trace.free(block);
  rule.setTrace(std::move(trace));
}

static void describeRoll(WorkspaceRule &rule) {
  if (auto moved = readInputAndResult(rule))
    rollDims(rule, moved->input, cast<RollOp>(rule.getOp()).getDims().size());
}

/// A roll of all dims, if none is named.
template <typename OpT>
static void describeShift(WorkspaceRule &rule) {
  auto dims = cast<OpT>(rule.getOp()).getDim();
  if (auto moved = readInputAndResult(rule))
    rollDims(rule, moved->input,
             dims ? dims->size() : moved->input.dims.size());
}

static void describeShuffle(WorkspaceRule &rule) {
  if (auto moved = readInputAndResult(rule))
    rule.setTransient(getSuggestedCopyBytes(moved->input));
}

/// The result starts as a tensor like the operand, which is replaced where that
/// is too small, and else keeps its storage; the operand is made contiguous.
/// Sources: native/Im2Col.cpp, native/Col2Im.cpp, and those of native/cuda.
static void describeBlocks(WorkspaceRule &rule) {
  auto moved = readInputAndResult(rule);
  if (!moved)
    return;
  const auto &[input, result] = *moved;
  bool isReplaced = result.numBytes() > input.numBytes();
  AllocationTrace trace;
  AllocationTrace::Block first = trace.allocate(input.numBytes());
  AllocationTrace::Block copy = trace.allocate(getCopyBytes(input));
  if (isReplaced) {
    trace.allocate(result.numBytes());
    trace.free(first);
  } else {
    rule.setStorageBytes(rule.getOp()->getResult(0), input.numBytes());
  }
  trace.free(copy);
  rule.setTrace(std::move(trace));
}

void rules::describeReshapeWorkspace(WorkspaceRule &rule, Value self) {
  auto input = rule.tensor(self);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!input || !result)
    return;
  int64_t block = getBlockBytes(*input);
  if (block == 0 || input->dims == result->dims)
    return;
  MLIRContext *context = rule.getOp()->getContext();
  auto fix = [&](ArrayRef<int64_t> numbers) {
    return llvm::map_to_vector(numbers, [&](int64_t number) {
      return DimExpr::constant(context, number);
    });
  };
  TensorInfo info{fix(input->dims), input->elementType,
                  fix(*input->getStrides())};
  if (computeViewStrides(info, fix(result->dims)).possible != TriBool::Yes)
    rule.setTransient(block);
}

/// What is in rows is written as it is, and so are strided tensors of up to
/// three dims, and matrices one after the other. Others are copied, cut into a
/// new tensor, and copied back.
static void cutInPlace(WorkspaceRule &rule, ConcreteTensor input) {
  auto strides = input.getStrides();
  auto rows = ConcreteTensor{input.dims, input.elementType}.getStrides();
  int64_t bytes = input.numBytes();
  AllocationTrace trace;
  AllocationTrace::Block copy;
  if (!input.contiguous) {
    if (input.dims.size() <= 3)
      return;
    // The outermost dim may repeat its matrices.
    if (strides->front() == 0 || input.dims.front() == 1) {
      input.dims.erase(input.dims.begin());
      strides->erase(strides->begin());
      input.strides = strides;
    }
    if (!linalg::copiesForTriangle(input))
      return;
    copy = trace.allocate(bytes);
  } else if (*strides == *rows) {
    return;
  }
  trace.allocateTemporary(bytes);
  trace.free(copy);
  rule.setTrace(std::move(trace));
}

/// Source: native/TriangularOps.cpp.
static void describeTriangle(WorkspaceRule &rule) {
  auto moved = readInputAndResult(rule);
  if (!moved)
    return;
  if (!moved->input.getStrides())
    return rule.setInexact("the strides of the matrices are unknown");
  if (rules::isInPlace(rule.getOp()))
    return cutInPlace(rule, moved->input);
  if (linalg::copiesForTriangle(moved->input))
    rule.setTransient(moved->input.numBytes());
}

void kernels::addBlockModels(KernelLibrary &library) {
  library.add<Col2imOp, Im2colOp>({.forward = describeBlocks});
}

void kernels::addPermuteRepeatModels(KernelLibrary &library) {
  library.add<ChannelShuffleOp, NativeChannelShuffleOp, PixelShuffleOp,
              PixelUnshuffleOp>({.forward = describeShuffle});
  library.add<DiagEmbedOp, FlipOp, FliplrOp, FlipudOp, Rot90Op>(
      {.forward = allocateNothing});
  library.add<FftFftshiftOp>({.forward = describeShift<FftFftshiftOp>});
  library.add<FftIfftshiftOp>({.forward = describeShift<FftIfftshiftOp>});
  library.add<RepeatInterleaveIntOp>({.forward = describeInterleaved});
  library.add<RepeatOp, TileOp>({.forward = describeRepeat});
  library.add<RollOp>({.forward = describeRoll});
  library.add<TrilOp, TriuOp>({.forward = describeTriangle});
}
