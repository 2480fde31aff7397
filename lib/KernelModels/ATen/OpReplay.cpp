//===- OpReplay.cpp - Operators that call others --------------------------===//

#include "OpReplay.h"
#include "Sum.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using rules::Elementwise;

/// As the promotion takes it: only type and rank matter.
static TensorInfo getInfo(const ConcreteTensor &tensor) {
  TensorInfo info;
  info.elementType = tensor.elementType;
  info.dims.emplace(tensor.dims.size(),
                    DimExpr::constant(tensor.elementType.getContext(), 1));
  return info;
}

/// Of the number; null if there is none.
static Type getNumberType(OpReplay::Number number, MLIRContext *context) {
  if (number == OpReplay::Number::Integer)
    return IntegerType::get(context, 64);
  return number == OpReplay::Number::Float ? Float64Type::get(context) : Type();
}

static Type getCommonType(OpReplay::Tensors operands, Type number = {}) {
  SmallVector<Type, 1> numbers;
  if (number)
    numbers.push_back(number);
  return rules::getCommonType(llvm::map_to_vector(operands, getInfo), numbers);
}

static SmallVector<int64_t> broadcast(OpReplay::Tensors operands) {
  SmallVector<int64_t> dims;
  for (const ConcreteTensor &operand : operands) {
    if (dims.size() < operand.dims.size())
      dims.insert(dims.begin(), operand.dims.size() - dims.size(), 1);
    for (auto [mine, other] :
         llvm::zip(llvm::reverse(dims), llvm::reverse(operand.dims)))
      mine = mine == 1 ? other : mine;
  }
  return dims;
}

MadeTensor OpReplay::allocate(ConcreteTensor tensor) {
  tensor.contiguous = true;
  tensor.strides.reset();
  Block block = AllocationTrace::allocate(tensor.numBytes());
  return {std::move(tensor), block};
}

void OpReplay::free(Tensors tensors) {
  for (const ConcreteTensor &tensor : tensors)
    free(tensor);
}

Type OpReplay::getComputedType(Tensors operands, Result kind, Number number) {
  MLIRContext *context = operands.front().elementType.getContext();
  return rules::getComputedType(
      kind, getCommonType(operands, getNumberType(number, context)));
}

MadeTensor OpReplay::compute(Tensors operands, Result kind, Number number) {
  MLIRContext *context = operands.front().elementType.getContext();
  Type numberType = getNumberType(number, context);
  Type computed = getComputedType(operands, kind, number);
  ConcreteTensor result{broadcast(operands), computed};
  if (kind == Result::Bool)
    result.elementType = IntegerType::get(context, 1);
  if (readsAnyType(rule))
    return allocate(std::move(result));
  TensorIteration iteration{SmallVector<ConcreteTensor, 3>(operands), computed,
                            result.numBytes()};
  Block wrapped;
  if (numberType) {
    iteration.operands.push_back(getNumber(numberType));
    wrapped = allocateNumber(*this, numberType);
  }
  // A comparison gives the number to the iterator.
  bool isOwned = kind == Result::Bool;
  iteration.replay(*this, isOwned ? wrapped : Block());
  if (!isOwned)
    AllocationTrace::free(wrapped);
  return {std::move(result), iteration.result};
}

MadeTensor OpReplay::select(const ConcreteTensor &mask,
                            const ConcreteTensor &lhs,
                            const ConcreteTensor &rhs) {
  Type type = getCommonType({lhs, rhs});
  ConcreteTensor result{broadcast({mask, lhs, rhs}), type};
  if (readsAnyType(rule))
    return allocate(std::move(result));
  TensorIteration iteration{{lhs, rhs}, type, result.numBytes()};
  iteration.replay(*this);
  return {std::move(result), iteration.result};
}

void OpReplay::write(Tensors operands, Number number) {
  if (readsAnyType(rule))
    return;
  Type numberType =
      getNumberType(number, operands.front().elementType.getContext());
  Type computed = getCommonType(operands, numberType);
  TensorIteration iteration{SmallVector<ConcreteTensor, 3>(operands), computed};
  // What is written is also computed in the common type.
  iteration.writtenBytes = getCastBytes(operands.front(), computed);
  Block wrapped;
  if (numberType) {
    iteration.operands.push_back(getNumber(numberType));
    wrapped = allocateNumber(*this, numberType);
  }
  iteration.replay(*this);
  AllocationTrace::free(wrapped);
}

MadeTensor OpReplay::subtractFromNumber(const ConcreteTensor &tensor) {
  return allocate(tensor);
}

ConcreteTensor kernels::dropDim(ConcreteTensor tensor, int64_t dim,
                                bool keepdim) {
  int64_t rank = tensor.dims.size();
  if (rank == 0)
    return tensor;
  dim += dim < 0 ? rank : 0;
  if (keepdim)
    tensor.dims[dim] = 1;
  else
    tensor.dims.erase(tensor.dims.begin() + dim);
  tensor.contiguous = true;
  tensor.strides.reset();
  return tensor;
}

MadeTensor OpReplay::sum(const ConcreteTensor &tensor,
                         std::optional<int64_t> dim, bool keepdim) {
  ConcreteTensor result{{}, tensor.elementType};
  if (dim)
    result = dropDim(tensor, *dim, keepdim);
  if (isa<IntegerType>(tensor.elementType))
    result.elementType = IntegerType::get(tensor.elementType.getContext(), 64);
  MadeTensor made = allocate(std::move(result));
  SmallVector<bool> isReduced(tensor.dims.size(), !dim);
  if (dim && !tensor.dims.empty())
    isReduced[*dim < 0 ? *dim + tensor.dims.size() : *dim] = true;
  allocateSum(rule, *this, tensor, made, isReduced);
  return made;
}

MadeTensor OpReplay::mean(const ConcreteTensor &tensor) {
  MadeTensor result = allocate({{}, tensor.elementType});
  allocateMean(rule, *this, tensor, result);
  return result;
}

MadeTensor OpReplay::reduce(const MadeTensor &tensor, int64_t reduction) {
  if (reduction == 0)
    return tensor;
  return reduction == 1 ? mean(tensor) : sum(tensor);
}

MadeTensor OpReplay::computeDistance(const ConcreteTensor &lhs,
                                     const ConcreteTensor &rhs, bool keepdim) {
  MadeTensor difference = compute({lhs, rhs});
  MadeTensor shifted = compute(difference, Result::Common, Number::Float);
  MadeTensor norm = allocate(dropDim(shifted, -1, keepdim));
  free({shifted, difference});
  return norm;
}

std::optional<SmallVector<ConcreteTensor>>
kernels::getRealTensors(WorkspaceRule &rule, ValueRange values,
                        bool needsStrides) {
  SmallVector<ConcreteTensor> tensors;
  for (Value value : values) {
    auto tensor = rule.tensor(value);
    if (!tensor || !rules::isTorchType(tensor->elementType)) {
      rule.setInexact("a shape of the operator is unknown");
      return std::nullopt;
    }
    if (isa<ComplexType>(tensor->elementType)) {
      rule.setInexact("complex numbers");
      return std::nullopt;
    }
    if (needsStrides && !tensor->getStrides()) {
      rule.setInexact("the strides of an operand are unknown");
      return std::nullopt;
    }
    tensors.push_back(std::move(*tensor));
  }
  return tensors;
}
