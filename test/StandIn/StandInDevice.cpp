//===- StandInDevice.cpp - A device for machines that have none -----------===//
//
// PyTorch's PrivateUse1 with memory of the host, which ends at a cap. Blocks
// are multiples of 512 bytes, as CUDA's are; freed ones are kept for requests
// of the same size until memory is short, and are counted as reserved until
// then. Operators run as those of the CPU on copies, which are not counted, and
// what they return is the device's. Loaded by test/python/stand_in_device.py.
//
//===----------------------------------------------------------------------===//

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <algorithm>
#include <atomic>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/ScopeExit.h>
#include <limits>
#include <map>
#include <mutex>
#include <torch/library.h>
#include <unordered_map>
#include <utility>

static constexpr auto kStandIn = c10::DeviceType::PrivateUse1;
static const c10::Device kDevice(kStandIn, 0);

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

namespace {
class CappedMemory final : public c10::DeviceAllocator {
public:
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void *to, const void *from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static void release(void *data);
  /// Gives back what is kept; the mutex is held.
  void dropCached();

  // What LibTorch asks of any device.
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override;
  void recordStream(const c10::DataPtr &, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats
      getDeviceStats(c10::DeviceIndex) override;
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override;

  std::mutex mutex;
  int64_t cap = std::numeric_limits<int64_t>::max();
  int64_t allocated = 0, peak = 0, refusals = 0;
  int64_t reserved = 0, reservedPeak = 0;
  /// Bytes that programs have copied to the CPU.
  std::atomic<int64_t> takenDown = 0;

private:
  std::unordered_map<void *, int64_t> blocks;
  std::multimap<int64_t, void *> cached;
};
} // namespace

/// Never freed: tensors outlive what is destroyed at exit.
static CappedMemory &getMemory() {
  static auto *memory = new CappedMemory;
  return *memory;
}

void CappedMemory::emptyCache(c10::MempoolId_t) {
  std::lock_guard lock(mutex);
  dropCached();
}

c10::CachingDeviceAllocator::DeviceStats
CappedMemory::getDeviceStats(c10::DeviceIndex) {
  constexpr auto kAll =
      static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  std::lock_guard lock(mutex);
  c10::CachingDeviceAllocator::DeviceStats stats;
  stats.allocated_bytes[kAll].current = allocated;
  stats.allocated_bytes[kAll].peak = peak;
  stats.reserved_bytes[kAll].current = reserved;
  stats.reserved_bytes[kAll].peak = reservedPeak;
  return stats;
}

void CappedMemory::resetPeakStats(c10::DeviceIndex) {
  std::lock_guard lock(mutex);
  peak = allocated;
  reservedPeak = reserved;
}

void CappedMemory::dropCached() {
  for (auto [size, data] : cached) {
    c10::free_cpu(data);
    reserved -= size;
  }
  cached.clear();
}

c10::DataPtr CappedMemory::allocate(size_t bytes) {
  if (bytes == 0)
    return {nullptr, kDevice};
  constexpr int64_t kBlock = 512;
  int64_t size = (static_cast<int64_t>(bytes) + kBlock - 1) / kBlock * kBlock;
  std::lock_guard lock(mutex);
  void *data = nullptr;
  if (auto found = cached.find(size); found != cached.end()) {
    data = found->second;
    cached.erase(found);
  } else {
    if (size > cap - reserved)
      dropCached();
    if (size > cap - reserved) {
      ++refusals;
      TORCH_CHECK_WITH(OutOfMemoryError, false,
                       "standin out of memory. Tried to allocate ", size,
                       " bytes. ", reserved, " of ", cap, " are in use.");
    }
    data = c10::alloc_cpu(size);
    reserved += size;
    reservedPeak = std::max(reservedPeak, reserved);
  }
  blocks[data] = size;
  allocated += size;
  peak = std::max(peak, allocated);
  return {data, data, release, kDevice};
}

void CappedMemory::release(void *data) {
  if (!data)
    return;
  CappedMemory &memory = getMemory();
  std::lock_guard lock(memory.mutex);
  auto entry = memory.blocks.find(data);
  memory.allocated -= entry->second;
  memory.cached.emplace(entry->second, data);
  memory.blocks.erase(entry);
}

/// At most `bytes` are reserved at once; the peak and the refusals start anew.
extern "C" void koilaStandInCap(int64_t bytes) {
  CappedMemory &memory = getMemory();
  std::lock_guard lock(memory.mutex);
  memory.cap = bytes;
  memory.peak = memory.allocated;
  memory.refusals = 0;
  memory.takenDown = 0;
}

/// The cap, bytes in blocks, the most that were, bytes with those kept for
/// later, refusals, and bytes that were copied to the CPU.
extern "C" void koilaStandInRead(int64_t *figures) {
  CappedMemory &memory = getMemory();
  std::lock_guard lock(memory.mutex);
  figures[0] = memory.cap;
  figures[1] = memory.allocated;
  figures[2] = memory.peak;
  figures[3] = memory.reserved;
  figures[4] = memory.refusals;
  figures[5] = memory.takenDown;
}

extern "C" void koilaStandInEmptyCache() { getMemory().emptyCache(); }

//===----------------------------------------------------------------------===//
// The device
//===----------------------------------------------------------------------===//

namespace {
/// One device with one stream, on which everything is done at once.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kStandIn; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getDefaultStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream exchangeStream(c10::Stream) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void **, const c10::Stream &, c10::DeviceIndex,
              c10::EventFlag) const override {}
  void block(void *, const c10::Stream &) const override {}
  bool queryEvent(void *) const override { return true; }
  bool queryStream(const c10::Stream &) const override { return true; }
  void synchronizeStream(const c10::Stream &) const override {}
  void synchronizeEvent(void *) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }
  at::Device getDeviceFromPtr(void *) const override { return kDevice; }
  /// Operators that draw run on the CPU, too.
  const at::Generator &getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};
} // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

static const bool isRegistered = [] {
  c10::register_privateuse1_backend("standin");
  c10::SetAllocator(kStandIn, &getMemory());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

/// An operator of the CPU runs in place of the device's.
static thread_local bool isInOperator = false;

/// The same memory as a tensor of the CPU.
static at::Tensor getOnHost(const at::Tensor &tensor) {
  if (!tensor.defined() || tensor.is_cpu())
    return tensor;
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options().device(c10::kCPU))
      .make_tensor();
}

static at::Tensor empty(c10::IntArrayRef size,
                        std::optional<c10::ScalarType> dtype,
                        std::optional<c10::Layout>, std::optional<c10::Device>,
                        std::optional<bool>,
                        std::optional<c10::MemoryFormat> format) {
  return at::Tensor(at::detail::empty_generic(
      size, &getMemory(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), format));
}

static at::Tensor emptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride,
                               std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout>,
                               std::optional<c10::Device>,
                               std::optional<bool>) {
  return at::Tensor(at::detail::empty_strided_generic(
      size, stride, &getMemory(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype)));
}

static const at::Tensor &resizeThere(const at::Tensor &self,
                                     c10::IntArrayRef size,
                                     std::optional<c10::MemoryFormat> format) {
  at::native::resize_impl_cpu_(self.unsafeGetTensorImpl(), size, std::nullopt);
  if (format && *format != c10::MemoryFormat::Preserve)
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

static at::Tensor copyFrom(const at::Tensor &self, const at::Tensor &to, bool) {
  if (to.is_cpu() && !isInOperator)
    getMemory().takenDown += static_cast<int64_t>(to.nbytes());
  getOnHost(to).copy_(getOnHost(self));
  return to;
}

static at::Tensor copyFromAndResize(const at::Tensor &self,
                                    const at::Tensor &to) {
  if (to.sizes() != self.sizes())
    resizeThere(to, self.sizes(), std::nullopt);
  return copyFrom(self, to, false);
}

static at::Tensor &setStorage(at::Tensor &self, c10::Storage source,
                              int64_t offset, c10::IntArrayRef size,
                              c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size,
                                      stride);
}

static at::Tensor &setWholeStorage(at::Tensor &self, c10::Storage source) {
  auto elements = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return setStorage(self, std::move(source), 0, {elements}, {1});
}

static at::Tensor convolve(const at::Tensor &input, const at::Tensor &weight,
                           const std::optional<at::Tensor> &bias,
                           c10::IntArrayRef stride, c10::IntArrayRef padding,
                           c10::IntArrayRef dilation, bool transposed,
                           c10::IntArrayRef outputPadding, int64_t groups) {
  auto hostBias =
      bias ? std::optional(getOnHost(*bias)) : std::optional<at::Tensor>();
  return at::convolution(getOnHost(input), getOnHost(weight), hostBias, stride,
                         padding, dilation, transposed, outputPadding, groups)
      .to(kDevice);
}

static std::tuple<at::Tensor, at::Tensor, at::Tensor>
differentiateConvolution(const at::Tensor &gradOutput, const at::Tensor &input,
                         const at::Tensor &weight, c10::IntArrayRef stride,
                         c10::IntArrayRef padding, c10::IntArrayRef dilation,
                         bool transposed, c10::IntArrayRef outputPadding,
                         int64_t groups, std::array<bool, 3> wanted) {
  int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  auto found = at::convolution_backward(
      getOnHost(gradOutput), getOnHost(input), getOnHost(weight),
      c10::IntArrayRef{channels}, stride, padding, dilation, transposed,
      outputPadding, groups, wanted);
  auto put = [](const at::Tensor &tensor) {
    return tensor.defined() ? tensor.to(kDevice) : tensor;
  };
  return {put(std::get<0>(found)), put(std::get<1>(found)),
          put(std::get<2>(found))};
}

/// Raises what operators of devices raise of tensors that are elsewhere.
static void checkDevices(const c10::OperatorHandle &op,
                         const torch::jit::Stack &stack) {
  // As a GPU takes them.
  std::string name = op.schema().name();
  if (name.find("aten::index") == 0 || name.find("aten::_index") == 0)
    return;
  auto check = [](const at::Tensor &tensor) {
    TORCH_CHECK(!tensor.defined() || tensor.dim() == 0 || !tensor.is_cpu(),
                "Expected all tensors to be on the same device, but found at "
                "least two devices, ",
                kDevice, " and cpu!");
  };
  for (const c10::IValue &value :
       torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor())
      check(value.toTensor());
    else if (value.isTensorList())
      for (const at::Tensor &tensor : value.toTensorVector())
        check(tensor);
  }
}

static void runOnHost(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  checkDevices(op, *stack);
  bool before = std::exchange(isInOperator, true);
  auto leave = c10::make_scope_exit([&] { isInOperator = before; });
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&runOnHost>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &emptyStrided);
  library.impl("resize_", &resizeThere);
  library.impl("_copy_from", &copyFrom);
  library.impl("_copy_from_and_resize", &copyFromAndResize);
  library.impl("set_.source_Storage", &setWholeStorage);
  library.impl("set_.source_Storage_storage_offset", &setStorage);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("convolution_overrideable", &convolve);
  library.impl("convolution_backward_overrideable", &differentiateConvolution);
}
