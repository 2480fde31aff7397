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

static Type getCommonType(OpReplay::Tensors operands, OpReplay::Number number) {
  MLIRContext *context = operands.front().elementType.getContext();
  SmallVector<Type, 1> numbers;
  if (number == OpReplay::Number::Integer)
    numbers.push_back(IntegerType::get(context, 64));
  if (number == OpReplay::Number::Float)
    numbers.push_back(Float64Type::get(context));
  return rules::getCommonType(llvm::map_to_vector(operands, getInfo), numbers);
}

static int64_t getNumberBytes(OpReplay::Number number, Type computed) {
  if (number == OpReplay::Number::None)
    return 0;
  return number == OpReplay::Number::Integer ? getIntegerBytes(computed)
                                             : getFloatBytes(computed);
}

/// Casts of all operands of another type. Source: TensorIterator.cpp.
static int64_t getCasts(OpReplay::Tensors operands, Type computed) {
  int64_t bytes = 0;
  for (const ConcreteTensor &operand : operands)
    bytes += getCastBytes(operand, computed);
  return bytes;
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

ConcreteTensor OpReplay::allocate(ConcreteTensor tensor) {
  tensor.contiguous = true;
  tensor.strides.reset();
  AllocationTrace::allocate(tensor.numBytes());
  return tensor;
}

void OpReplay::free(Tensors tensors) {
  for (const ConcreteTensor &tensor : tensors)
    free(tensor);
}

ConcreteTensor OpReplay::make(ConcreteTensor result, int64_t casts) {
  AllocationTrace::allocate(casts);
  result = allocate(std::move(result));
  AllocationTrace::free(casts);
  return result;
}

ConcreteTensor OpReplay::compute(Tensors operands, Result kind, Number number) {
  Type computed = rules::getComputedType(kind, getCommonType(operands, number));
  Type type = kind == Result::Bool ? IntegerType::get(computed.getContext(), 1)
                                   : computed;
  return make({broadcast(operands), type},
              getCasts(operands, computed) + getNumberBytes(number, computed));
}

ConcreteTensor OpReplay::select(const ConcreteTensor &mask,
                                const ConcreteTensor &lhs,
                                const ConcreteTensor &rhs) {
  Type type = getCommonType({lhs, rhs}, Number::None);
  return make({broadcast({mask, lhs, rhs}), type}, getCasts({lhs, rhs}, type));
}

void OpReplay::write(Tensors operands, Number number) {
  Type computed = getCommonType(operands, number);
  // What is written is also computed in the common type.
  allocateTemporary(getCasts(operands, computed) +
                    getCastBytes(operands.front(), computed) +
                    getNumberBytes(number, computed));
}

ConcreteTensor OpReplay::subtractFromNumber(const ConcreteTensor &tensor) {
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

ConcreteTensor OpReplay::sum(const ConcreteTensor &tensor,
                             std::optional<int64_t> dim, bool keepdim) {
  ConcreteTensor result{{}, tensor.elementType};
  if (dim)
    result = dropDim(tensor, *dim, keepdim);
  if (isa<IntegerType>(tensor.elementType))
    result.elementType = IntegerType::get(tensor.elementType.getContext(), 64);
  result = allocate(std::move(result));
  SmallVector<bool> isReduced(tensor.dims.size(), !dim);
  if (dim && !tensor.dims.empty())
    isReduced[*dim < 0 ? *dim + tensor.dims.size() : *dim] = true;
  allocateTemporary(getCastBytes(tensor, result.elementType) +
                    getSumBytes(rule, tensor, result, isReduced));
  return result;
}

ConcreteTensor OpReplay::mean(const ConcreteTensor &tensor) {
  ConcreteTensor result = allocate({{}, tensor.elementType});
  allocateTemporary(getMeanBytes(rule, tensor, result));
  return result;
}

ConcreteTensor OpReplay::reduce(const ConcreteTensor &tensor,
                                int64_t reduction) {
  if (reduction == 0)
    return tensor;
  return reduction == 1 ? mean(tensor) : sum(tensor);
}

ConcreteTensor OpReplay::computeDistance(const ConcreteTensor &lhs,
                                         const ConcreteTensor &rhs,
                                         bool keepdim) {
  ConcreteTensor difference = compute({lhs, rhs});
  ConcreteTensor shifted = compute(difference, Result::Common, Number::Float);
  ConcreteTensor norm = allocate(dropDim(shifted, -1, keepdim));
  free({difference, shifted});
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
