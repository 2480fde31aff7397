//===- Pool.cpp - What a pool holds inside --------------------------------===//
//
// Sources: native/Pooling.cpp, native/AdaptiveAveragePooling.cpp and the
// kernels in native/cpu.
//
//===----------------------------------------------------------------------===//

#include "../WorkspaceRules.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/PoolOps.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// As an image of height one, `[N, C, L]` as `[N, C, 1, L]`.
static ConcreteTensor asImage(const ConcreteTensor &line) {
  return unsqueeze(line, static_cast<int64_t>(line.dims.size()) - 1);
}

/// max_pool calls max_pool_with_indices, and drops the int64 indices.
static int64_t getIndexBytes(const ConcreteTensor &result) {
  return countBytes(result,
                    IntegerType::get(result.elementType.getContext(), 64));
}

/// The indices, and the input in another layout.
static void describeMaxima(WorkspaceRule &rule, const ConcreteTensor &result,
                           int64_t copy) {
  AllocationTrace trace;
  trace.allocate(getIndexBytes(result));
  trace.allocate(copy);
  rule.setTrace(std::move(trace), 0);
}

/// A mean over the trailing `rank` dims where one element of each is left.
static void describeAdaptiveMean(WorkspaceRule &rule,
                                 const ConcreteTensor &input,
                                 const ConcreteTensor &result, size_t rank,
                                 int64_t otherwise) {
  if (!llvm::all_of(ArrayRef(result.dims).take_back(rank),
                    [](int64_t extent) { return extent == 1; }))
    return rule.setTransient(otherwise);
  if (isa<ComplexType>(result.elementType))
    return rule.setInexact("a mean of complex numbers");
  AllocationTrace trace;
  allocateMean(rule, trace, input, result);
  rule.setTrace(std::move(trace));
}

void rules::describePoolWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  if (!input || !result)
    return rule.setInexact("a shape of the pool is unknown");
  // An adaptive average of nothing reads nothing.
  if (isa<AdaptiveAvgPool1dOp, AdaptiveAvgPool2dOp, PlainAdaptiveAvgPool2dOp>(
          op) &&
      result->numElements() == 0 && input->numElements() != 0)
    return;
  int64_t copy = getSuggestedCopyBytes(*input);
  llvm::TypeSwitch<Operation *>(op)
      .Case<MaxPool1dOp>([&](auto) {
        AllocationTrace trace;
        allocateContiguous(trace, *input);
        rule.setTrace(std::move(trace), 0);
      })
      .Case<MaxPool2dOp, MaxPool3dOp>(
          [&](auto) { describeMaxima(rule, *result, copy); })
      .Case<MaxPool1dWithIndicesOp, AvgPool1dOp, AdaptiveMaxPool1dOp>(
          [&](auto) {
            rule.setTransient(getSuggestedCopyBytes(asImage(*input)));
          })
      .Case<MaxPool2dWithIndicesOp, MaxPool3dWithIndicesOp, AvgPool2dOp,
            AdaptiveMaxPool2dOp, PlainAdaptiveAvgPool2dOp>(
          [&](auto) { rule.setTransient(copy); })
      // Without a batch, four dims are no image in channels-last.
      .Case<AvgPool3dOp>([&](auto) {
        rule.setTransient(input->dims.size() == 4 ? getCopyBytes(*input)
                                                  : copy);
      })
      .Case<AdaptiveAvgPool1dOp>([&](auto) {
        describeAdaptiveMean(rule, *input, *result, 1,
                             getSuggestedCopyBytes(asImage(*input)));
      })
      .Case<AdaptiveAvgPool2dOp>(
          [&](auto) { describeAdaptiveMean(rule, *input, *result, 2, copy); })
      // Its kernel reads any strides.
      .Case<AdaptiveAvgPool3dOp>(
          [&](auto) { describeAdaptiveMean(rule, *input, *result, 3, 0); })
      .Case<PlainAdaptiveAvgPool3dOp, AdaptiveMaxPool3dOp>([](auto) {})
      .Case<MaxUnpool2dOp, MaxUnpool3dOp>([&](auto) {
        auto indices = rule.tensor(op->getOperand(1));
        if (!indices)
          return rule.setInexact("the shape of the indices is unknown");
        AllocationTrace trace;
        trace.allocate(copy);
        trace.allocate(getSuggestedCopyBytes(*indices));
        rule.setTrace(std::move(trace), 0);
      })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}

void rules::describePoolSaved(SavedRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  if (!input || !result)
    return rule.setInexact("a shape of the pool is unknown");
  auto saveUnlessMean = [&](size_t rank) {
    if (!llvm::all_of(ArrayRef(result->dims).take_back(rank),
                      [](int64_t extent) { return extent == 1; }))
      saveDifferentiated(rule);
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<MaxPool2dOp, MaxPool3dOp>([&](auto) {
        saveDifferentiated(rule);
        rule.keep(getIndexBytes(*result));
      })
      // By way of two dims, which without a gradient it is not.
      .Case<MaxPool1dOp>([&](auto) {
        saveDifferentiated(rule);
        describeMaxima(rule, *result, getSuggestedCopyBytes(asImage(*input)));
        rule.keep(getIndexBytes(*result));
      })
      .Case<AdaptiveAvgPool1dOp>([&](auto) { saveUnlessMean(1); })
      .Case<AdaptiveAvgPool2dOp>([&](auto) { saveUnlessMean(2); })
      .Case<AdaptiveAvgPool3dOp>([&](auto) { saveUnlessMean(3); })
      .Default([&](Operation *) { koila::detail::describeSaved(rule); });
}
