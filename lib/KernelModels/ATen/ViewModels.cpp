//===- ViewModels.cpp - Kernel models of views ----------------------------===//

#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

/// Tensor::reshape(), which copies where the strides allow no view.
static void reshape(WorkspaceRule &rule) {
  rules::describeReshapeWorkspace(rule, rule.getOp()->getOperand(0));
}

/// A number as a tensor, through one of 64 bits, which goes when it is there.
static void wrapNumber(WorkspaceRule &rule) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!cast<NumToTensorOp>(rule.getOp()).getWraps())
    return;
  if (!result)
    return rule.setTransient(sizeof(int64_t));
  AllocationTrace trace;
  AllocationTrace::Block wrapped = trace.allocate(sizeof(int64_t));
  trace.allocate(result->numBytes());
  trace.free(wrapped);
  rule.setTrace(std::move(trace));
}

void kernels::addViewModels(KernelLibrary &library) {
  library
      .add<AliasOperatorOp, AsStridedOp, AtLeast1DOp, AtLeast2DOp, AtLeast3DOp,
           BroadcastTensorsOp, BroadcastToOp, ChunkOp, DetachOp, DiagonalOp,
           ExpandAsOp, ExpandOp, ImagOp, MTOp, MoveAxisListOp, MoveAxisOp,
           MoveDimListOp, MoveDimOp, NarrowOp, NumpyTOp, PermuteOp, RealOp,
           ReshapeAliasOp, SelectOp, SliceOp, SplitListOp, SplitOp,
           SplitSizesListOp, SplitWithSizesOp, SqueezeDimOp, SqueezeDimsOp,
           SqueezeOp, SwapAxesOp, SwapDimsOp, TOp, TensorSplitOp, TransposeOp,
           UnbindOp, UnflattenOp, UnfoldOp, UnsafeChunkOp, UnsafeSplitOp,
           UnsafeSplitWithSizesOp, UnsafeViewOp, UnsqueezeOp, ViewAsComplexOp,
           ViewAsOp, ViewAsRealOp, ViewDtypeOp, ViewOp>({allocateNothing});
  library.add<AtLeast1DSequenceOp, AtLeast2DSequenceOp, AtLeast3DSequenceOp,
              DeviceOp, DimOp, NumelOp, SizeIntOp, SizeOp>({allocateNothing});
  library.add<FlattenOp, RavelOp, ReshapeAsOp, ReshapeOp>({reshape});
  library.add<LazyConjOp, MHOp>({rules::describeConjugateWorkspace});
  library.add<NumToTensorOp>({wrapNumber});
}
