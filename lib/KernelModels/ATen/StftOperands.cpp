//===- StftOperands.cpp - Tensors on their way through transforms ---------===//

#include "StftOperands.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace koila;
using spectral::Signal;
using spectral::Transformed;

std::optional<Signal> spectral::getSignal(const WorkspaceRule &rule,
                                          Value value) {
  auto tensor = rule.tensor(value);
  auto strides = tensor ? tensor->getStrides() : std::nullopt;
  if (!strides)
    return std::nullopt;
  tensor->strides = strides;
  return tensor;
}

Type spectral::getRealType(Type type) {
  if (auto complex = dyn_cast<ComplexType>(type))
    return complex.getElementType();
  return isa<IntegerType>(type) ? Float32Type::get(type.getContext()) : type;
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

Signal spectral::makeDense(ArrayRef<int64_t> dims, Type type,
                           ArrayRef<int64_t> order) {
  Signal signal;
  signal.dims.assign(dims.begin(), dims.end());
  signal.elementType = type;
  signal.strides.emplace(dims.size());
  int64_t stride = 1;
  for (int64_t dim : llvm::reverse(order)) {
    (*signal.strides)[dim] = stride;
    stride *= dims[dim];
  }
  return signal;
}

Signal spectral::makeContiguous(ArrayRef<int64_t> dims, Type type) {
  return makeDense(dims, type,
                   llvm::to_vector(llvm::seq<int64_t>(0, dims.size())));
}

/// The dims from the slowest to the fastest.
static SmallVector<int64_t> sortByStride(const Signal &signal) {
  auto order = llvm::to_vector(llvm::seq<int64_t>(0, signal.dims.size()));
  llvm::stable_sort(order, [&](int64_t lhs, int64_t rhs) {
    return (*signal.strides)[lhs] > (*signal.strides)[rhs];
  });
  return order;
}

/// Whether the elements neither overlap nor leave gaps.
static bool isDense(const Signal &signal) {
  int64_t expected = 1;
  SmallVector<int64_t> order = sortByStride(signal);
  llvm::erase_if(order, [&](int64_t dim) { return signal.dims[dim] == 1; });
  for (int64_t dim : llvm::reverse(order)) {
    if ((*signal.strides)[dim] != expected)
      return false;
    expected *= signal.dims[dim];
  }
  return true;
}

/// A new tensor in the memory format of another.
static Signal makeSuggested(const Signal &like, ArrayRef<int64_t> dims,
                            Type type) {
  if (!kernels::suggestsChannelsLast(like))
    return spectral::makeContiguous(dims, type);
  SmallVector<int64_t> order{0};
  llvm::append_range(order, llvm::seq<int64_t>(2, dims.size()));
  order.push_back(1);
  return spectral::makeDense(dims, type, order);
}

/// A copy keeps the order of the dims, whatever gaps there are.
Signal spectral::convert(const Signal &signal, Type type) {
  std::optional<Signal> converted = clone(signal);
  if (!converted)
    return makeSuggested(signal, signal.dims, type);
  converted->elementType = type;
  return *converted;
}

std::optional<Signal> spectral::clone(const Signal &signal) {
  if (isDense(signal))
    return signal;
  SmallVector<int64_t> order = sortByStride(signal), plural = order;
  llvm::erase_if(plural, [&](int64_t dim) { return signal.dims[dim] == 1; });
  for (auto [index, dim] : llvm::enumerate(plural))
    if ((*signal.strides)[dim] == 0 ||
        (index > 0 &&
         (*signal.strides)[plural[index - 1]] == (*signal.strides)[dim]))
      return std::nullopt;
  return makeDense(signal.dims, signal.elementType, order);
}

/// Source: resize_fft_input.
bool spectral::resize(Signal &signal, ArrayRef<int64_t> dims,
                      ArrayRef<int64_t> sizes) {
  SmallVector<int64_t> extents(signal.dims);
  bool fills = false;
  for (auto [dim, size] : llvm::zip_equal(dims, sizes)) {
    fills |= size > signal.dims[dim];
    extents[dim] = size;
    signal.dims[dim] = std::min(signal.dims[dim], size);
  }
  if (fills)
    signal = makeSuggested(signal, extents, signal.elementType);
  return fills;
}

//===----------------------------------------------------------------------===//
// Transforms
//===----------------------------------------------------------------------===//

/// Whether the dims are one, each stepping over the whole of the next.
static bool isOneDim(const Signal &signal, ArrayRef<int64_t> order) {
  std::optional<int64_t> expected;
  for (int64_t dim : llvm::reverse(order)) {
    if (signal.dims[dim] == 1)
      continue;
    if (expected && (*signal.strides)[dim] != *expected)
      return false;
    expected = (*signal.strides)[dim] * signal.dims[dim];
  }
  return true;
}

/// The other dims are those of a batch, which must be one: where they are not,
/// the signal is copied. Sorted as there, whose order is not stable.
/// Source: _exec_fft.
static Transformed execute(AllocationTrace &trace, const Signal &signal,
                           ArrayRef<int64_t> dims, ArrayRef<int64_t> extents,
                           Type type) {
  auto order = llvm::to_vector(llvm::seq<int64_t>(0, signal.dims.size()));
  auto *end = std::partition(order.begin(), order.end(), [&](int64_t dim) {
    return !llvm::is_contained(dims, dim);
  });
  std::sort(order.begin(), end, [&](int64_t lhs, int64_t rhs) {
    return (*signal.strides)[lhs] > (*signal.strides)[rhs];
  });
  ArrayRef<int64_t> batch(order.begin(), end);
  // One that is expanded is copied, too (measured).
  bool isExpanded = llvm::any_of(order, [&](int64_t dim) {
    return signal.dims[dim] > 1 && (*signal.strides)[dim] == 0;
  });
  bool copies = isExpanded || !isOneDim(signal, batch);
  llvm::copy(dims, end);
  Signal result = spectral::makeDense(extents, type, order);
  AllocationTrace::Block block = trace.allocate(result.numBytes());
  trace.allocateTemporary(copies ? signal.numBytes() : 0);
  return {std::move(result), block};
}

/// Source: _sort_dims.
static SmallVector<int64_t> sortDims(const Signal &signal,
                                     ArrayRef<int64_t> dims, bool keepLast) {
  SmallVector<int64_t> sorted(dims);
  std::sort(sorted.begin(), sorted.end() - (keepLast ? 1 : 0),
            [&](int64_t lhs, int64_t rhs) {
              return (*signal.strides)[lhs] > (*signal.strides)[rhs];
            });
  return sorted;
}

Transformed spectral::transformComplex(AllocationTrace &trace,
                                       const Signal &signal,
                                       ArrayRef<int64_t> dims) {
  return execute(trace, signal, sortDims(signal, dims, /*keepLast=*/false),
                 signal.dims, signal.elementType);
}

Transformed spectral::transformToReal(AllocationTrace &trace,
                                      const Signal &signal,
                                      ArrayRef<int64_t> dims, int64_t extent) {
  // All dims but the last are transformed first.
  Transformed input{signal, {}};
  if (dims.size() > 1)
    input = transformComplex(trace, signal, dims.drop_back());
  SmallVector<int64_t> extents(input.dims);
  extents[dims.back()] = extent;
  Transformed result = execute(trace, input, dims.take_back(), extents,
                               getRealType(signal.elementType));
  trace.free(input.block);
  return result;
}

Transformed spectral::transformReal(AllocationTrace &trace,
                                    const Signal &signal,
                                    ArrayRef<int64_t> dims, bool onesided) {
  SmallVector<int64_t> extents(signal.dims);
  if (onesided)
    extents[dims.back()] = extents[dims.back()] / 2 + 1;
  return execute(trace, signal, sortDims(signal, dims, /*keepLast=*/true),
                 extents, ComplexType::get(signal.elementType));
}
