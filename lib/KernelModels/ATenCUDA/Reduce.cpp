//===- Reduce.cpp - What a reduction on a GPU holds inside ----------------===//
//
// Source: setReduceConfig and gpu_reduce_kernel in native/cuda/Reduce.cuh;
// reorder_dimensions and coalesce_dimensions in TensorIterator.cpp.
//
//===----------------------------------------------------------------------===//

#include "Reduce.h"
#include "koila/KernelModels/DeviceProfile.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::cuda;

namespace {
/// A dim of the iterator; strides are in elements.
struct Dim {
  int64_t extent, input, output;
  bool isReduced;
};

/// The card, as far as it decides.
struct Card {
  int64_t multiprocessors, threads;
};

/// How a kernel is started.
struct Launch {
  int64_t partialBytes = 0, semaphoreBytes = 0;
};
} // namespace

/// No card has more (GB300: 160).
static constexpr Card kLargest{192, 2048};
static constexpr int64_t kMostThreads = 512, kWarp = 32;

Accumulator cuda::getSumAccumulator(Type type) {
  return {std::max<int64_t>(4, getElementBytes(type))};
}

/// The dims of the iterator: those that are reduced first, each kind from the
/// smallest stride on, merged where they lie one behind the other. None where
/// the strides are not known.
static std::optional<SmallVector<Dim>> iterate(const ConcreteTensor &input,
                                               ArrayRef<bool> isReduced) {
  auto strides = input.getStrides();
  if (!strides)
    return std::nullopt;
  SmallVector<Dim> dims;
  int64_t output = 1;
  for (size_t dim = input.dims.size(); dim-- > 0;) {
    int64_t extent = input.dims[dim];
    if (extent != 1)
      dims.push_back({extent, (*strides)[dim], isReduced[dim] ? 0 : output,
                      isReduced[dim]});
    if (!isReduced[dim])
      output *= extent;
  }
  llvm::stable_sort(dims, [](const Dim &lhs, const Dim &rhs) {
    if (lhs.isReduced != rhs.isReduced)
      return lhs.isReduced;
    return lhs.isReduced ? lhs.input < rhs.input : lhs.output < rhs.output;
  });
  SmallVector<Dim> merged;
  for (const Dim &dim : dims) {
    if (!merged.empty() && merged.back().isReduced == dim.isReduced &&
        merged.back().extent * merged.back().input == dim.input &&
        merged.back().extent * merged.back().output == dim.output)
      merged.back().extent *= dim.extent;
    else
      merged.push_back(dim);
  }
  return merged;
}

/// Results that a thread computes at once.
static int64_t getOutputVector(ArrayRef<Dim> dims, size_t firstKept) {
  int64_t vector = 4;
  auto restrict = [&](int64_t number) {
    while (number % vector != 0)
      vector /= 2;
  };
  restrict(dims[firstKept].extent);
  for (auto [index, dim] : llvm::enumerate(dims))
    if (index != firstKept)
      restrict(dim.input);
  return vector;
}

static Launch plan(ArrayRef<Dim> dims, Accumulator accumulator, Card card) {
  int64_t outputs = 1, inputs = 1;
  size_t reduced = 0;
  for (const Dim &dim : dims) {
    (dim.isReduced ? inputs : outputs) *= dim.extent;
    reduced += dim.isReduced;
  }
  bool isFastest = reduced == dims.size() ||
                   (reduced > 0 && dims[0].input < dims[reduced].input);
  int64_t width = isFastest ? inputs : outputs;
  int64_t height = isFastest ? outputs : inputs;
  int64_t fastest = dims.empty() ? 1
                    : isFastest  ? dims[0].input
                                 : dims[reduced].input;
  int64_t vector = 1;
  constexpr int64_t kLeastVectorized = 128;
  if (fastest == 1 && isFastest && width >= kLeastVectorized &&
      dims.size() == 1)
    width /= accumulator.inputVector;
  else if (fastest == 1 && !isFastest) {
    vector = getOutputVector(dims, reduced);
    width /= vector;
  }
  int64_t most = kMostThreads / vector;
  auto floorPower = [&](int64_t extent) {
    return extent < most ? int64_t(llvm::bit_floor(uint64_t(extent))) : most;
  };
  int64_t x = std::min(floorPower(width), kWarp);
  int64_t y = std::min(floorPower(height), most / std::max<int64_t>(x, 1));
  x = std::min(floorPower(width), most / std::max<int64_t>(y, 1));
  x = std::max<int64_t>(x, 1);
  y = std::max<int64_t>(y, 1);
  int64_t inputStep = 1, outputStep = 1;
  (isFastest ? inputStep : outputStep) *= x;
  auto getValues = [&] { return llvm::divideCeil(inputs, inputStep); };
  constexpr int64_t kLeastValues = 16, kMostValues = 256;
  bool splitsRows = int64_t(getValues()) >= std::min(y * 16, kMostValues);
  (splitsRows ? inputStep : outputStep) *= y;
  int64_t grid = llvm::divideCeil(outputs / vector, outputStep);
  int64_t target = card.multiprocessors * (card.threads / (x * y));
  int64_t values = getValues();
  if (!splitsRows || values < kMostValues || grid > target || grid == 0)
    return {};
  int64_t parts = std::max<int64_t>(
      std::min<int64_t>(llvm::divideCeil(target, grid),
                        llvm::divideCeil(values, kLeastValues)),
      llvm::divideCeil(values, kMostValues));
  if (parts <= 1)
    return {};
  int64_t partial = accumulator.bytes * outputs * parts;
  // Unless the threads of a row add up what they have.
  if (!isFastest)
    partial *= x * vector;
  constexpr int64_t kSemaphoreBytes = 4;
  return {partial, kSemaphoreBytes * grid};
}

std::optional<SmallVector<bool>>
cuda::findReduced(const ConcreteTensor &input, const ConcreteTensor &result) {
  SmallVector<bool> isReduced(input.dims.size(), true);
  if (result.dims.empty())
    return isReduced;
  if (result.dims.size() != input.dims.size())
    return std::nullopt;
  for (auto [reduced, from, to] :
       llvm::zip_equal(isReduced, input.dims, result.dims))
    reduced = from != to;
  return isReduced;
}

void cuda::allocateReduction(AllocationTrace &trace, WorkspaceRule &rule,
                             const ConcreteTensor &input,
                             ArrayRef<bool> isReduced,
                             Accumulator accumulator) {
  if (input.numElements() == 0)
    return;
  auto dims = iterate(input, isReduced);
  if (!dims)
    return rule.setInexact("a reduction of unknown strides");
  // Kernels of larger tensors are started for parts of them.
  constexpr int64_t kMostElements = int64_t(1) << 31;
  if (input.numElements() >= kMostElements)
    return rule.setInexact("a reduction of 2^31 elements or more");
  Card card = kLargest;
  const DeviceProfile *profile = rule.getTarget().profile;
  DeviceProperties known =
      profile ? profile->getProperties() : DeviceProperties();
  bool isKnown = known.multiprocessors && known.threadsPerMultiprocessor;
  if (isKnown)
    card = {*known.multiprocessors, *known.threadsPerMultiprocessor};
  Launch launch = plan(*dims, accumulator, card);
  if (launch.partialBytes == 0)
    return;
  if (!isKnown)
    rule.setBound("into how many parts a reduction is split depends on the "
                  "card, which the target does not name");
  AllocationTrace::Block partial = trace.allocate(launch.partialBytes);
  trace.allocateTemporary(launch.semaphoreBytes);
  trace.free(partial);
}
