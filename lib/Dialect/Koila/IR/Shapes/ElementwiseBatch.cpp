//===- ElementwiseBatch.cpp - Batch and storage, elementwise --------------===//

#include "../Rules/ElementwiseRules.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;
using rules::Elementwise;

//===----------------------------------------------------------------------===//
// Batch
//===----------------------------------------------------------------------===//

void rules::inferBroadcastBatch(BatchRule &rule, ArrayRef<Value> operands) {
  rule.takeAnyRows();
  int64_t rank = 0;
  for (Value operand : operands) {
    TensorInfo info = rule.tensor(operand);
    if (!info.hasRank())
      return rule.mix("the rank of an operand is unknown");
    rank = std::max(rank, info.getRank());
  }
  std::optional<BatchFact> common;
  for (Value operand : operands) {
    BatchFact fact = rule.fact(operand);
    if (!fact.isAt())
      continue;
    fact.dim += rank - rule.tensor(operand).getRank();
    if (common && !(*common == fact))
      return rule.mix("the operands carry the batch in different dims, so "
                      "that every sample meets every other");
    common = fact;
  }
  if (!common)
    return rule.setAll(BatchFact::free());
  for (Value operand : operands) {
    TensorInfo info = rule.tensor(operand);
    int64_t dim = common->dim - (rank - info.getRank());
    if (rule.fact(operand).isAt() || dim < 0 || info.dim(dim).isConstant(1))
      continue;
    return rule.mix("an operand without the batch has extent " +
                    info.dim(dim).str() + " in the batch dim");
  }
  rule.setAll(*common);
}

void rules::inferElementwiseBatch(BatchRule &rule) {
  inferBroadcastBatch(rule, SmallVector<Value>(getTensors(rule.getOp())));
  for (Value number : OperatorArguments(rule.getOp()).getDynamic())
    if (!rule.fact(number).isFree())
      return rule.mix("a number depends on the number of samples; a tile has "
                      "another one");
}

//===----------------------------------------------------------------------===//
// Storage, workspace
//===----------------------------------------------------------------------===//

void rules::describeNewStorage(StorageRule &rule) {
  if (isInPlace(rule.getOp()))
    rule.setTied(0, rule.getOp()->getOperand(0));
}

void rules::describeMaskedStorage(StorageRule &rule, ArrayRef<bool> mask) {
  for (auto [index, isMade] : llvm::enumerate(mask))
    if (!isMade && index < rule.getOp()->getNumResults())
      rule.setKeeps(index);
}
