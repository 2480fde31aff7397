//===- TensorBytes.cpp - Bytes of tensors, copies and casts ---------------===//

#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/KernelModels/LeafKernels.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using kernels::TensorIteration;

void kernels::append(AllocationTrace &trace, const AllocationTrace &steps) {
  using Kind = AllocationTrace::Event::Kind;
  SmallVector<AllocationTrace::Block> made(steps.getNumBlocks());
  for (const AllocationTrace::Event &event : steps.getEvents())
    switch (event.kind) {
    case Kind::Allocate:
      made[event.block.getIndex()] = trace.allocate(event.bytes);
      break;
    case Kind::Free:
      trace.free(made[event.block.getIndex()]);
      break;
    case Kind::Lump:
      trace.lump(event.bytes);
      break;
    case Kind::FreeOutside:
      trace.free(event.bytes);
      break;
    case Kind::Shared:
      trace.share(event.library, event.bytes);
      break;
    }
}

std::optional<StorageFact> kernels::getStorageFact(Value value) {
  Operation *op = value.getDefiningOp();
  auto memory = dyn_cast_if_present<MemoryRuleInterface>(op);
  if (!memory)
    return std::nullopt;
  StorageRule rule(op, [](Value) { return ValueInfo(); });
  memory.describeStorage(rule);
  return rule.getResults()[cast<OpResult>(value).getResultNumber()];
}

bool kernels::isPlain(Type type) {
  return type.isF32() || type.isF64() || isa<IntegerType>(type);
}

int64_t kernels::countBytes(const ConcreteTensor &tensor, Type type) {
  int64_t bytes;
  if (llvm::MulOverflow(tensor.numElements(), getElementBytes(type), bytes))
    return std::numeric_limits<int64_t>::max();
  return bytes;
}

std::optional<kernels::InputAndResult>
kernels::readInputAndResult(WorkspaceRule &rule) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (input && result)
    return InputAndResult{*input, *result};
  rule.setInexact("a shape of the operator is unknown");
  return std::nullopt;
}

int64_t kernels::getCastBytes(const ConcreteTensor &tensor, Type type) {
  return tensor.elementType == type ? 0 : countBytes(tensor, type);
}

int64_t kernels::getCopyBytes(const ConcreteTensor &tensor) {
  return tensor.contiguous ? 0 : tensor.numBytes();
}

int64_t kernels::getCastIndexBytes(const ConcreteTensor &indices) {
  return getCastBytes(indices,
                      IntegerType::get(indices.elementType.getContext(), 64));
}

int64_t kernels::getWideBytes(const ConcreteTensor &tensor) {
  Type type = tensor.elementType;
  return isHalf(type) ? countBytes(tensor, Float32Type::get(type.getContext()))
                      : 0;
}

int64_t kernels::getBlockBytes(const ConcreteTensor &tensor) {
  // Source: copy_transpose_valid in native/Copy.cpp.
  constexpr int64_t kLeast = 60 * 60;
  auto strides = tensor.getStrides();
  if (tensor.contiguous || tensor.dims.size() != 2 ||
      tensor.numElements() < kLeast || !strides || (*strides)[0] != 1 ||
      (*strides)[1] != tensor.dims[0])
    return 0;
  int64_t side = tensor.elementType.isUnsignedInteger(8) ? 120 : 60;
  return side * side * getElementBytes(tensor.elementType);
}

AllocationTrace::Block
kernels::allocateContiguous(AllocationTrace &trace,
                            const ConcreteTensor &tensor) {
  AllocationTrace::Block copy = trace.allocate(getCopyBytes(tensor));
  trace.allocateTemporary(getBlockBytes(tensor));
  return copy;
}

int64_t kernels::getBlockBytes(const WorkspaceRule &rule,
                               const ConcreteTensor &tensor) {
  const LeafKernels *leaves = rule.getTarget().leaves;
  return leaves && leaves->copiesThroughBlocks() ? getBlockBytes(tensor) : 0;
}

AllocationTrace::Block
kernels::allocateContiguous(const WorkspaceRule &rule, AllocationTrace &trace,
                            const ConcreteTensor &tensor) {
  AllocationTrace::Block copy = trace.allocate(getCopyBytes(tensor));
  trace.allocateTemporary(getBlockBytes(rule, tensor));
  return copy;
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

/// The dims of a channels-last tensor from the fastest in memory.
static SmallVector<int64_t> getChannelsLastOrder(size_t rank) {
  SmallVector<int64_t> order{1};
  for (int64_t dim = static_cast<int64_t>(rank) - 1; dim > 1; --dim)
    order.push_back(dim);
  order.push_back(0);
  return order;
}

bool kernels::suggestsChannelsLast(const ConcreteTensor &tensor) {
  auto strides = tensor.getStrides();
  if (!strides || strides->size() < 4 || strides->size() > 5 ||
      (*strides)[1] == 0)
    return false;
  // Source: is_channels_last_strides_2d_s4 and _3d_s5 in
  // c10/core/MemoryFormat.h.
  int64_t least = 0;
  for (int64_t dim : getChannelsLastOrder(strides->size())) {
    if (tensor.dims[dim] == 0 || (*strides)[dim] < least ||
        (dim == 0 && least == (*strides)[1]))
      return false;
    least = (*strides)[dim] * std::max<int64_t>(tensor.dims[dim], 1);
  }
  return true;
}

bool kernels::isDense(const ConcreteTensor &tensor) {
  auto strides = tensor.getStrides();
  if (!strides)
    return false;
  SmallVector<int64_t> order;
  for (auto [dim, extent] : llvm::enumerate(tensor.dims))
    if (extent != 1)
      order.push_back(dim);
  llvm::sort(order, [&](int64_t lhs, int64_t rhs) {
    return (*strides)[lhs] < (*strides)[rhs];
  });
  int64_t expected = 1;
  for (int64_t dim : order) {
    if ((*strides)[dim] != expected)
      return false;
    expected *= tensor.dims[dim];
  }
  return true;
}

bool kernels::isChannelsLast(const ConcreteTensor &tensor) {
  auto strides = tensor.getStrides();
  if (!strides || strides->size() < 4 || strides->size() > 5)
    return false;
  int64_t expected = 1;
  for (int64_t dim : getChannelsLastOrder(strides->size())) {
    if (tensor.dims[dim] != 1 && (*strides)[dim] != expected)
      return false;
    expected *= tensor.dims[dim];
  }
  return true;
}

int64_t kernels::getChannelsLastCopyBytes(const ConcreteTensor &tensor) {
  return isChannelsLast(tensor) ? 0 : tensor.numBytes();
}

int64_t kernels::getSuggestedCopyBytes(const ConcreteTensor &tensor) {
  return suggestsChannelsLast(tensor) ? getChannelsLastCopyBytes(tensor)
                                      : getCopyBytes(tensor);
}

int64_t kernels::getFlatCopyBytes(const ConcreteTensor &tensor) {
  auto strides = tensor.getStrides();
  if (tensor.contiguous || tensor.numElements() == 0 || !strides)
    return getCopyBytes(tensor);
  // A view if every dim steps over the whole of the next one.
  std::optional<int64_t> expected;
  for (size_t dim = tensor.dims.size(); dim-- > 0;) {
    if (tensor.dims[dim] == 1)
      continue;
    if (expected && (*strides)[dim] != *expected)
      return tensor.numBytes();
    expected = (*strides)[dim] * tensor.dims[dim];
  }
  return 0;
}

ConcreteTensor kernels::unsqueeze(ConcreteTensor tensor, int64_t dim) {
  auto strides = tensor.getStrides();
  int64_t rank = tensor.dims.size();
  if (strides)
    strides->insert(strides->begin() + dim,
                    dim < rank ? tensor.dims[dim] * (*strides)[dim] : 1);
  tensor.dims.insert(tensor.dims.begin() + dim, 1);
  tensor.strides = strides;
  return tensor;
}

//===----------------------------------------------------------------------===//
// Numbers and reductions
//===----------------------------------------------------------------------===//

/// Of a Python number as a 0-dim tensor: int64 or float64.
static constexpr int64_t kNumberBytes = 8;

int64_t kernels::getIntegerBytes(Type computed) {
  AllocationTrace trace;
  allocateInteger(trace, computed);
  return trace.getPeak();
}

int64_t kernels::getFloatBytes(Type computed) {
  AllocationTrace trace;
  allocateFloat(trace, computed);
  return trace.getPeak();
}

ConcreteTensor kernels::getNumber(Type type) { return {{}, type}; }

AllocationTrace::Block kernels::allocateNumber(AllocationTrace &trace,
                                               Type type) {
  return trace.allocate(type ? getElementBytes(type) : kNumberBytes);
}

static void allocateNumberAndCast(AllocationTrace &trace, Type type,
                                  Type computed) {
  AllocationTrace::Block number = kernels::allocateNumber(trace, type);
  trace.allocateTemporary(
      kernels::getCastBytes(kernels::getNumber(type), computed));
  trace.free(number);
}

void kernels::allocateInteger(AllocationTrace &trace, Type computed) {
  allocateNumberAndCast(trace, IntegerType::get(computed.getContext(), 64),
                        computed);
}

void kernels::allocateFloat(AllocationTrace &trace, Type computed) {
  allocateNumberAndCast(trace, Float64Type::get(computed.getContext()),
                        computed);
}

void TensorIteration::begin(AllocationTrace &trace,
                            AllocationTrace::Block last) {
  AllocationTrace::Block written = trace.allocate(writtenBytes);
  for (const ConcreteTensor &operand : operands)
    casts.push_back(trace.allocate(kernels::getCastBytes(operand, computed)));
  result = trace.allocate(resultBytes);
  trace.free(written);
  trace.free(last);
}

void TensorIteration::end(AllocationTrace &trace) const {
  for (AllocationTrace::Block cast : llvm::reverse(casts))
    trace.free(cast);
}

void kernels::allocateRepeat(AllocationTrace &trace, int64_t rank) {
  // Source: unfold() of all dims in native/TensorShape.cpp (measured).
  int64_t numbers = rank * kNumberBytes;
  AllocationTrace::Block first = trace.allocate(numbers);
  AllocationTrace::Block one = trace.allocate(kNumberBytes);
  AllocationTrace::Block second = trace.allocate(numbers);
  trace.free(one);
  AllocationTrace::Block both = trace.allocate(2 * numbers);
  for (AllocationTrace::Block block : {second, first, both})
    trace.free(block);
}

int64_t kernels::getPartialBytes(const WorkspaceRule &rule,
                                 const ConcreteTensor &input,
                                 const ConcreteTensor &result) {
  // at::internal::GRAIN_SIZE.
  constexpr int64_t kGrain = 32768;
  int64_t threads = rule.getTarget().threads;
  if (result.numElements() != 1 || threads == 1 || input.numElements() < kGrain)
    return 0;
  return threads * getElementBytes(result.elementType);
}

void kernels::allocateMean(WorkspaceRule &rule, AllocationTrace &trace,
                           const ConcreteTensor &input,
                           const ConcreteTensor &result) {
  if (const LeafKernels *leaves = rule.getTarget().leaves)
    return leaves->mean(trace, rule, input, result);
  rule.setInexact("no kernel model of a mean");
}

bool kernels::readsAnyType(const WorkspaceRule &rule) {
  const LeafKernels *leaves = rule.getTarget().leaves;
  return leaves && leaves->readsAnyType();
}
