//===- RulesPoolMemory.cpp - What a pool holds inside ---------------------===//

#include "RulesSpatial.h"
#include "koila/Dialect/Koila/IR/OperatorRules.h"

using namespace mlir;
using namespace koila;

void rules::describeMaxPoolWorkspace(WorkspaceRule &rule, Value self,
                                     Value result) {
  auto output = rule.tensor(result);
  if (!output)
    return rule.setInexact("the shape of the result is unknown");
  // max_pool2d calls max_pool2d_with_indices, whose int64 indices are dropped
  // (aten/src/ATen/native/Pooling.cpp).
  auto bytes = spatial::countBytes(output->numElements(), 8);
  if (!bytes)
    return rule.setInexact("the result is too large to count");
  rule.setTransient(*bytes);
}

void rules::describeAdaptivePoolWorkspace(WorkspaceRule &rule, Value self,
                                          ArrayRef<int64_t> outputSize) {
  auto input = rule.tensor(self);
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  if (llvm::any_of(outputSize, ShapedType::isDynamic))
    return rule.setInexact("output_size is computed");
  if (!llvm::all_of(outputSize, [](int64_t size) { return size == 1; }))
    return;
  auto output = rule.tensor(rule.getOp()->getResult(0));
  if (!output)
    return rule.setInexact("the shape of the result is unknown");
  rule.setTransient(getMeanTransient(rule, *input, *output));
  if (input->elementType.isF64())
    rule.setTransient(16);
  if (isa<Float16Type, BFloat16Type>(input->elementType)) {
    // Computed in float32, the sum and then the mean.
    auto copied = spatial::countBytes(input->numElements(), 8);
    auto summed = spatial::countBytes(output->numElements(), 8);
    if (!copied || !summed)
      return rule.setInexact("the tensors are too large to count");
    rule.setTransient(*summed / 2 +
                      std::max(*copied / 2, rule.getTransient()));
  }
  if (!input->elementType.isF32() && !input->elementType.isF64())
    rule.setInexact("adaptive_avg_pool2d of another type than float32 or "
                    "float64");
}

int64_t rules::getMeanTransient(const WorkspaceRule &rule,
                                const ConcreteTensor &input,
                                const ConcreteTensor &result) {
  // The divisor: a 0-dim tensor of eight bytes and its cast. A reduction to
  // one element over threads keeps a partial result each (measured; see
  // docs/Workspaces.md).
  constexpr int64_t kDivisorBytes = 12, kParallelElements = 32768;
  int64_t threads = rule.getTarget().threads;
  if (result.numElements() == 1 && threads > 1 &&
      input.numElements() >= kParallelElements)
    return std::max<int64_t>(kDivisorBytes, 4 * threads);
  return kDivisorBytes;
}
