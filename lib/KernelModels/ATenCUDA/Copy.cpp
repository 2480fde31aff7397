//===- Copy.cpp - Copies, joins and new tensors on a GPU ------------------===//
//
// Sources: native/cuda/Copy.cu: one kernel copies, casts and transposes on one
// device; native/cuda/Shape.cu (cat).
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/BackwardReplay.h"
#include "../ATen/TensorBytes.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void cuda::allocateResultThenCopy(WorkspaceRule &rule,
                                  const kernels::InputAndResult &tensors,
                                  int64_t copyBytes) {
  AllocationTrace trace;
  trace.allocate(tensors.result.numBytes());
  trace.allocateTemporary(copyBytes);
  rule.setTrace(std::move(trace), tensors.result.numBytes());
}

void cuda::giveNew(BackwardRule &rule) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  kernels::BackwardReplay steps(rule);
  steps.giveContiguous(0);
  steps.finish();
}

void cuda::addCopyModels(KernelLibrary &library) {
  library.add<CloneTensorOp, ContiguousOp, CopyOp, ToCopyOp, ToDeviceOp,
              ToDtypeLayoutOp, ToDtypeOp, ToOtherOp, ToPrimDeviceOp,
              ToPrimDtypeOp, ToPrimOtherOp, TypeAsOp>(
      {.forward = allocateNothing});
  // What the host reads goes by way of its own memory.
  library.add<BoolTensorOp, FillScalarOp, FillTensorOp, FloatImplicitOp,
              FloatTensorOp, IntImplicitOp, IntTensorOp, IsComplexOp,
              IsFloatingPointOp, IsNonzeroOp, IsSignedOp, ItemOp,
              ScalarImplicitOp, ZeroOp>({.forward = allocateNothing});
  library.add<CatOp, ConcatOp, ConcatenateOp, HstackOp, RowStackOp, StackOp,
              VstackOp>({.forward = allocateNothing});
  library.add<MeshgridIndexingOp, MeshgridOp>({.forward = allocateNothing});
  kernels::addFilledModels(library);
  kernels::addCopyGradients(library);
  kernels::addJoinGradients(library);
}
