//===- Pool.cpp - What pools allocate on a GPU ----------------------------===//
//
// Sources: native/cuda/DilatedMaxPool2d.cu, native/cuda/AveragePool2d.cu,
// native/cuda/AdaptiveAveragePooling.cu, native/cuda/AdaptiveMaxPooling2d.cu.
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/PoolBackward.h"
#include "../ATen/TensorBytes.h"
#include "../BackwardRules.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/PoolOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// Places are int64, as many as results, and made after them.
static int64_t getPlaceBytes(const ConcreteTensor &result) {
  return countBytes(result,
                    IntegerType::get(result.elementType.getContext(), 64));
}

static void describeMaxima(WorkspaceRule &rule) {
  auto pooled = readInputAndResult(rule);
  if (!pooled)
    return;
  AllocationTrace trace;
  trace.allocate(pooled->result.numBytes());
  AllocationTrace::Block places = trace.allocate(getPlaceBytes(pooled->result));
  trace.allocateTemporary(getSuggestedCopyBytes(pooled->input));
  trace.free(places);
  rule.setTrace(std::move(trace), pooled->result.numBytes());
}

static void saveMaxima(SavedRule &rule) {
  auto pooled = readInputAndResult(rule);
  if (!pooled)
    return;
  saveDifferentiated(rule);
  rule.keep(getPlaceBytes(pooled->result));
}

/// A copy of the input after the result.
static void describeAverages(WorkspaceRule &rule) {
  if (auto pooled = readInputAndResult(rule))
    cuda::allocateResultThenCopy(rule, *pooled,
                                 getSuggestedCopyBytes(pooled->input));
}

void cuda::addPoolModels(KernelLibrary &library) {
  kernels::addAdaptiveAverageModels(library);
  library.add<AdaptiveMaxPool2dOp>(
      {.forward = kernels::allocateNothing,
       .backward = rules::describeImageAdaptiveMaximaBackward});
  library.add<AvgPool1dOp>({.forward = describeAverages,
                            .backward = rules::describeLineAveragesBackward});
  library.add<AvgPool2dOp>({.forward = describeAverages,
                            .backward = rules::describeImageAveragesBackward});
  library.add<MaxPool2dOp>(
      {describeMaxima, saveMaxima, rules::describeImageMaximaBackward});
}
