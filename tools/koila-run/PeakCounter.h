//===- PeakCounter.h - Counts what the CPU allocator hands out --*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_PEAKCOUNTER_H
#define KOILA_TOOLS_KOILARUN_PEAKCOUNTER_H

#include <algorithm>
#include <c10/core/Allocator.h>
#include <mutex>

namespace koila::run {

/// Adds up what the CPU allocator reports to a thread that has this counter as
/// its `c10::DebugInfoKind::PROFILER_STATE`. Frees are reported only of blocks
/// that were handed out under a counter, so what lives before does not count.
class PeakCounter : public c10::MemoryReportingInfoBase {
public:
  void reportMemoryUsage(void *, int64_t bytes, size_t, size_t,
                         c10::Device device) override {
    if (!device.is_cpu())
      return;
    std::lock_guard<std::mutex> lock(mutex);
    live += bytes;
    peak = std::max(peak, live);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t getPeak() const { return peak; }
  /// From now on the peak is that of what follows.
  void restartPeak() {
    std::lock_guard<std::mutex> lock(mutex);
    peak = live;
  }
  int64_t getLive() const { return live; }

private:
  std::mutex mutex;
  int64_t live = 0, peak = 0;
};

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_PEAKCOUNTER_H
