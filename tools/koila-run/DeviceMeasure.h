//===- DeviceMeasure.h - What a device's allocator hands out ----*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_DEVICEMEASURE_H
#define KOILA_TOOLS_KOILARUN_DEVICEMEASURE_H

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <string>

namespace koila::run {

/// The device of this name, as `cuda` or `cuda:1`, ready for use. Throws
/// UserError for one that LibTorch does not have here, or whose allocator keeps
/// no statistics.
c10::Device openDevice(const std::string &name);

void synchronize(c10::Device device);

/// Of an allocator, since the last restart; weights and inputs count.
struct DevicePeaks {
  int64_t allocated = 0, reserved = 0;
};

/// LibTorch's own statistics of the allocator of a device.
class DeviceStatistics {
public:
  explicit DeviceStatistics(c10::Device device)
      : allocator(c10::getDeviceAllocator(device.type())), device(device) {}

  void restartPeaks() { allocator->resetPeakStats(device.index()); }
  DevicePeaks getPeaks() const;
  int64_t getAllocated() const;

private:
  c10::DeviceAllocator *allocator;
  c10::Device device;
};

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_DEVICEMEASURE_H
