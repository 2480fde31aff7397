//===- GpuMemory.h - How much memory a GPU has left -------------*- C++ -*-===//

#ifndef KOILA_DEVICE_GPUMEMORY_H
#define KOILA_DEVICE_GPUMEMORY_H

#include "koila/Device/HostMemory.h"

namespace koila {

/// What comes with the driver of a GPU of NVIDIA, by the names that the dynamic
/// loader takes.
struct GpuLibraries {
  /// The driver itself.
  std::string driver = "libcuda.so.1";
  /// What `nvidia-smi` asks.
  std::string management = "libnvidia-ml.so.1";
};

/// What the driver says of a GPU: its name, for example `NVIDIA H200`, its
/// compute capability and how many multiprocessors it has.
struct GpuCard {
  std::string name;
  int64_t major = 0, minor = 0, multiprocessors = 0;
};

/// The GPU of that number among those that this process sees
/// (CUDA_VISIBLE_DEVICES). No context is made. Fails as getFreeGpuMemory().
llvm::Expected<GpuCard>
getGpuCard(int64_t number, const GpuLibraries &libraries = GpuLibraries());

/// The bytes that are free on the first GPU that this process sees
/// (CUDA_VISIBLE_DEVICES), now. `source` names it and what other processes have
/// there. Nothing is allocated, and no context is made. The libraries are
/// loaded when this is called: koila needs none to run. Fails where there is no
/// driver or no GPU, and where koila was built without the headers of the CUDA
/// toolkit.
llvm::Expected<FreeMemory>
getFreeGpuMemory(const GpuLibraries &libraries = GpuLibraries());

} // namespace koila

#endif // KOILA_DEVICE_GPUMEMORY_H
