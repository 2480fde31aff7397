//===- DeviceMeasure.cpp - What a device's allocator hands out ------------===//

#include "DeviceMeasure.h"
#include "Options.h"
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

using namespace koila::run;

/// Whether LibTorch has the parts for these devices. Those for CUDA are a
/// library of their own, beside the others where LibTorch was built for it.
static bool hasDevices(c10::DeviceType type) {
  if (type == c10::kCUDA && !c10::impl::hasDeviceGuardImpl(type))
    dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  return c10::impl::hasDeviceGuardImpl(type);
}

c10::Device koila::run::openDevice(const std::string &name) {
  auto fail = [&](const std::string &why) {
    return UserError("--device '" + name + "': " + why);
  };
  std::optional<c10::Device> device;
  try {
    device = c10::Device(name);
  } catch (const c10::Error &) {
    throw fail("LibTorch has no such type of devices; use cpu, cuda or cuda:1");
  }
  if (device->is_cpu())
    return *device;
  std::string type = c10::DeviceTypeName(device->type());
  if (!at::accelerator::isAccelerator(device->type()))
    throw fail("devices of type " + type + " have no memory to measure");
  if (!hasDevices(device->type()))
    throw fail("this LibTorch has no " + type);
  c10::impl::VirtualGuardImpl guard(device->type());
  c10::DeviceIndex count = guard.deviceCount();
  if (count == 0)
    throw fail("LibTorch finds no device of " + type + " here");
  at::globalContext().lazyInitDevice(device->type());
  if (!device->has_index())
    device->set_index(guard.getDevice().index());
  if (device->index() >= count)
    throw fail("the last of the devices here is " + type + ' ' +
               std::to_string(count - 1));
  if (!dynamic_cast<c10::DeviceAllocator *>(c10::GetAllocator(device->type())))
    throw fail("the allocator of " + type + " keeps no statistics");
  guard.setDevice(*device);
  return *device;
}

void koila::run::synchronize(c10::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(device.index());
}

static constexpr auto kAll =
    static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

DevicePeaks DeviceStatistics::getPeaks() const {
  auto stats = allocator->getDeviceStats(device.index());
  return {stats.allocated_bytes[kAll].peak, stats.reserved_bytes[kAll].peak};
}

int64_t DeviceStatistics::getAllocated() const {
  return allocator->getDeviceStats(device.index())
      .allocated_bytes[kAll]
      .current;
}
