//===- PeakCounter.h - Counts what the CPU allocator hands out --*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_PEAKCOUNTER_H
#define KOILA_TOOLS_KOILARUN_PEAKCOUNTER_H

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <torch/csrc/profiler/orchestration/observer.h>
#include <vector>

namespace koila::run {

/// Adds up what the CPU allocator reports to a thread that has this counter as
/// its `c10::DebugInfoKind::PROFILER_STATE`. Frees are reported only of blocks
/// that were handed out under a counter, so what lives before does not count.
/// It is a profiler that is off: PyTorch takes what stands there for one, and
/// asks it for its configuration where Python calls an autograd function.
class PeakCounter : public torch::profiler::impl::ProfilerStateBase {
public:
  PeakCounter()
      : ProfilerStateBase(torch::profiler::impl::ProfilerConfig(
            torch::profiler::impl::ProfilerState::Disabled,
            /*report_input_shapes=*/false, /*profile_memory=*/true)) {}
  void reportMemoryUsage(void *address, int64_t bytes, size_t, size_t,
                         c10::Device device) override {
    if (!device.is_cpu())
      return;
    std::lock_guard<std::mutex> lock(mutex);
    live += bytes;
    peak = std::max(peak, live);
    if (keepsEvents)
      events.push_back({reinterpret_cast<uintptr_t>(address), bytes});
  }
  torch::profiler::impl::ActiveProfilerType profilerType() override {
    return torch::profiler::impl::ActiveProfilerType::NONE;
  }
  int64_t getPeak() const { return peak; }
  /// From now on the peak is that of what follows.
  void restartPeak() {
    std::lock_guard<std::mutex> lock(mutex);
    peak = live;
  }
  int64_t getLive() const { return live; }

  /// What the allocator did: bytes are below zero where it took them back.
  struct Event {
    uint64_t address;
    int64_t bytes;
  };
  void keepEvents() { keepsEvents = true; }
  const std::vector<Event> &getEvents() const { return events; }

private:
  std::mutex mutex;
  int64_t live = 0, peak = 0;
  bool keepsEvents = false;
  std::vector<Event> events;
};

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_PEAKCOUNTER_H
