//===- CappedAllocator.cpp - PyTorch's memory, with an end ----------------===//
//
// For tools/bench/batch_finders.py and tests: a CPU allocator that refuses what
// would go over a cap, or one allocation by its number, in the words of
// PyTorch's own (c10/core/impl/alloc_cpu.cpp), by which tools that retry know
// that memory is out. Loaded by ctypes.
//
//===----------------------------------------------------------------------===//

#include <algorithm>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace {
class CappedAllocator final : public c10::Allocator {
public:
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void *to, const void *from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static void release(void *data);

  std::mutex mutex;
  std::unordered_map<void *, size_t> sizes;
  int64_t live = 0, peak = 0, failures = 0;
  /// Allocations since koilaCapSet, and the one of them that fails; 0: none.
  int64_t count = 0, failing = 0;
  /// Raises what allocators of devices raise.
  bool raisesOutOfMemory = false;
  int64_t cap = std::numeric_limits<int64_t>::max();
};
} // namespace

/// Never freed: tensors outlive what is destroyed at exit.
static CappedAllocator &getAllocator() {
  static auto *allocator = new CappedAllocator;
  return *allocator;
}

c10::DataPtr CappedAllocator::allocate(size_t bytes) {
  std::lock_guard lock(mutex);
  bool fails = bytes != 0 && ++count == failing;
  if (fails || static_cast<int64_t>(bytes) > cap - live) {
    ++failures;
    std::string text = c10::str(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate ",
        bytes, " bytes. Error code 12 (Cannot allocate memory)");
    TORCH_CHECK_WITH(OutOfMemoryError, !raisesOutOfMemory, text);
    TORCH_CHECK(false, text);
  }
  void *data = c10::alloc_cpu(bytes);
  if (data)
    sizes[data] = bytes;
  live += data ? bytes : 0;
  peak = std::max(peak, live);
  return {data, data, release, c10::Device(c10::DeviceType::CPU)};
}

void CappedAllocator::release(void *data) {
  if (!data)
    return;
  CappedAllocator &allocator = getAllocator();
  {
    std::lock_guard lock(allocator.mutex);
    auto entry = allocator.sizes.find(data);
    allocator.live -= entry->second;
    allocator.sizes.erase(entry);
  }
  c10::free_cpu(data);
}

/// From now on tensors on the CPU are allocated here, without a cap.
extern "C" void koilaCapInstall() {
  c10::SetCPUAllocator(&getAllocator(), /*priority=*/255);
}

/// At most `bytes` are handed out at once; the peak and the numbers of refusals
/// and of allocations start anew, and none of these fails by its number.
extern "C" void koilaCapSet(int64_t bytes) {
  CappedAllocator &allocator = getAllocator();
  std::lock_guard lock(allocator.mutex);
  allocator.cap = bytes;
  allocator.peak = allocator.live;
  allocator.failures = allocator.count = allocator.failing = 0;
}

/// From now on the `number`th allocation fails, once; 0: none. Returns how many
/// there were since koilaCapSet, and counts anew.
extern "C" int64_t koilaCapFail(int64_t number) {
  CappedAllocator &allocator = getAllocator();
  std::lock_guard lock(allocator.mutex);
  allocator.failing = number;
  return std::exchange(allocator.count, 0);
}

/// Whether what is raised is a `c10::OutOfMemoryError`, as of devices, or a
/// `c10::Error`.
extern "C" void koilaCapRaiseOutOfMemory(bool is) {
  CappedAllocator &allocator = getAllocator();
  std::lock_guard lock(allocator.mutex);
  allocator.raisesOutOfMemory = is;
}

/// The bytes that are handed out, the most that were, and the refusals.
extern "C" void koilaCapRead(int64_t *live, int64_t *peak, int64_t *failures) {
  CappedAllocator &allocator = getAllocator();
  std::lock_guard lock(allocator.mutex);
  *live = allocator.live;
  *peak = allocator.peak;
  *failures = allocator.failures;
}
