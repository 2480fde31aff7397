//===- StubGpu.cpp - A driver of two GPUs, for tests ----------------------===//
//
// What GpuMemory.cpp calls of libcuda and libnvidia-ml, of which the second GPU
// is the first one that the process sees. KOILA_STUB_GPU chooses what goes
// wrong: `none`, `mismatch` or `part`.
//
//===----------------------------------------------------------------------===//

#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <nvml.h>

static bool is(const char *kind) {
  const char *chosen = std::getenv("KOILA_STUB_GPU");
  return chosen && std::strcmp(chosen, kind) == 0;
}

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuGetErrorString(CUresult result, const char **text) {
  *text = result == CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected"
                                         : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return is("none") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice) {
  for (int index = 0; index < 16; ++index)
    uuid->bytes[index] = static_cast<char>(0xf0 + index);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  // Two of one name, of which the second is another card.
  std::strncpy(name, device < 2 ? "NVIDIA H200" : "Stub 16 GB", length);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                              CUdevice device) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
           : device == 0                                               ? 132
                                                                       : 66;
  return CUDA_SUCCESS;
}

nvmlReturn_t nvmlInit_v2() {
  return is("mismatch") ? NVML_ERROR_LIB_RM_VERSION_MISMATCH : NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown() { return NVML_SUCCESS; }

const char *nvmlErrorString(nvmlReturn_t result) {
  return result == NVML_ERROR_LIB_RM_VERSION_MISMATCH
             ? "Driver/library version mismatch"
             : "Not Found";
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  const char *own = is("part") ? "MIG-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff"
                               : "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff";
  *device = nullptr;
  return std::strcmp(uuid, own) == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t *memory) {
  *memory = {16ull << 30, 5ull << 30, 11ull << 30};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char *name, unsigned length) {
  std::strncpy(name, "Stub 16 GB", length);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t,
                                                     unsigned *count,
                                                     nvmlProcessInfo_t *infos) {
  if (*count < 2) {
    *count = 2;
    return NVML_ERROR_INSUFFICIENT_SIZE;
  }
  *count = 2;
  infos[0].usedGpuMemory = 3ull << 30;
  // Of one of them the driver does not know.
  infos[1].usedGpuMemory =
      static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE);
  return NVML_SUCCESS;
}

} // extern "C"
