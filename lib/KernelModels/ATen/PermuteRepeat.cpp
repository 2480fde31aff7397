//===- PermuteRepeat.cpp - What moving elements takes ---------------------===//
//
// Sources: native/TensorTransformations.cpp, native/TensorShape.cpp (repeat),
// native/PixelShuffle.cpp, native/TriangularOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "../WorkspaceRules.h"
#include "Linalg.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"
#include "koila/Interfaces/Layout.h"
#include "llvm/ADT/TypeSwitch.h"

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

/// A roll of several dims is one of the first, rolled in the others: each is a
/// tensor that lives until the last is done.
static void describeRoll(WorkspaceRule &rule, const ConcreteTensor &input,
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

/// The result starts as a tensor like the operand, which is replaced where that
/// is too small, and else keeps its storage; the operand is made contiguous.
/// Sources: im2col_cpu and col2im_cpu in native/Im2Col.cpp and Col2Im.cpp.
static void describeBlocks(WorkspaceRule &rule, const ConcreteTensor &input,
                           const ConcreteTensor &result) {
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

void rules::describeRearrangeWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  if (!input || !result)
    return rule.setInexact("a shape of the operator is unknown");
  llvm::TypeSwitch<Operation *>(op)
      .Case<FlipOp, FliplrOp, FlipudOp, Rot90Op, DiagEmbedOp>([](auto) {})
      // Without a dim, of all elements as a vector.
      .Case<RepeatInterleaveIntOp>([&](auto repeat) {
        if (!repeat.getDim())
          describeRows(rule, *input, result->numBytes(),
                       getFlatCopyBytes(*input));
      })
      .Case<RollOp>(
          [&](auto roll) { describeRoll(rule, *input, roll.getDims().size()); })
      .Case<FftFftshiftOp, FftIfftshiftOp>([&](auto shift) {
        auto dims = shift.getDim();
        describeRoll(rule, *input, dims ? dims->size() : input->dims.size());
      })
      .Case<RepeatOp, TileOp>([&](auto) {
        if (result->numElements() != 0) {
          AllocationTrace trace;
          allocateRepeat(trace, result->dims.size());
          return rule.setTrace(std::move(trace));
        }
        // Repeated no times, it is not looked at.
        if (input->numElements() == 0)
          rule.setInexact("a repetition of nothing");
      })
      .Case<PixelShuffleOp, PixelUnshuffleOp, ChannelShuffleOp,
            NativeChannelShuffleOp>(
          [&](auto) { rule.setTransient(getSuggestedCopyBytes(*input)); })
      .Case<Im2colOp, Col2imOp>(
          [&](auto) { describeBlocks(rule, *input, *result); })
      .Case<TrilOp, TriuOp>([&](auto triangle) {
        if (triangle.getTied())
          return describeUnknownWorkspace(rule);
        if (!input->getStrides())
          return rule.setInexact("the strides of the matrices are unknown");
        if (linalg::copiesForTriangle(*input))
          rule.setTransient(input->numBytes());
      })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}
