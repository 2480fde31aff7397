//===- RulesReduction.cpp - Rules of reductions ---------------------------===//

#include "koila/Dialect/Koila/IR/KoilaReductionOps.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace koila;

/// The reduced dims, counted from the start; none if one is out of range or
/// given twice. No list, or an empty one, means all.
static std::optional<llvm::SmallSet<int64_t, 4>>
getReducedDims(std::optional<ArrayRef<int64_t>> dims, int64_t rank) {
  llvm::SmallSet<int64_t, 4> reduced;
  if (!dims || dims->empty()) {
    for (int64_t dim = 0; dim < rank; ++dim)
      reduced.insert(dim);
    return reduced;
  }
  for (int64_t dim : *dims) {
    auto normal = rules::normalizeDim(dim, rank);
    if (!normal || !reduced.insert(*normal).second)
      return std::nullopt;
  }
  return reduced;
}

LogicalResult MeanDimOp::inferShapes(ShapeRule &rule) {
  TensorInfo input = rule.tensor(getSelf());
  TensorInfo result;
  result.elementType = input.elementType;
  if (auto code = getDtype()) {
    result.elementType =
        rules::getTypeForScalarTypeCode(rule.getContext(), *code);
    if (!result.elementType)
      return rule.emitError() << "dtype code " << *code << " is unknown";
  }
  if (result.elementType && isa<IntegerType>(result.elementType))
    return rule.emitError() << "mean of integers needs a floating-point dtype";
  if (!input.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  auto reduced = getReducedDims(getDim(), input.getRank());
  if (!reduced)
    return rule.emitError() << "a dim is out of range for rank "
                            << input.getRank() << ", or given twice";
  SmallVector<DimExpr> dims;
  for (auto [index, dim] : llvm::enumerate(*input.dims)) {
    if (!reduced->contains(index))
      dims.push_back(dim);
    else if (getKeepdim())
      dims.push_back(rule.constant(1));
  }
  TensorInfo packed = TensorInfo::contiguous(dims, result.elementType);
  if (input.isContiguous() != Proof::Yes)
    packed.strides.reset();
  rule.setResult(0, packed);
  return success();
}

void MeanDimOp::inferBatch(BatchRule &rule) {
  TensorInfo input = rule.tensor(getSelf());
  BatchFact fact = rule.fact(getSelf());
  if (!input.hasRank())
    return rule.mix("the rank of the operand is unknown");
  auto reduced = getReducedDims(getDim(), input.getRank());
  if (!reduced || reduced->contains(fact.dim))
    return rule.mix("mean over dim " + Twine(fact.dim) + " mixes samples");
  int64_t dropped = 0;
  for (int64_t dim = 0; dim < fact.dim; ++dim)
    dropped += !getKeepdim() && reduced->contains(dim);
  rule.setResult(0, BatchFact::at(fact.dim - dropped, fact.factor));
}

void MeanDimOp::describeStorage(StorageRule &) {}

void MeanDimOp::describeWorkspace(WorkspaceRule &rule) {
  auto input = rule.tensor(getSelf()), result = rule.tensor(getResult());
  if (!input || !result)
    return rule.setInexact("a shape of mean is unknown");
  rule.setTransient(rules::getMeanTransient(rule, *input, *result));
  if (input->elementType != result->elementType || !input->elementType.isF32())
    rule.setInexact("mean of another type than float32");
}
