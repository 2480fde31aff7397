//===- OutOfMemory.cpp - What PyTorch says when memory is exhausted -------===//
//
// Sources: malloc() of c10/cuda/CUDACachingAllocator.cpp, format_size() of
// c10/core/CachingDeviceAllocator.cpp.
//
//===----------------------------------------------------------------------===//

#include "koila/Allocators/CachingAllocator.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FormatVariadic.h"

using namespace koila;

static std::string formatSize(int64_t bytes) {
  constexpr double kKiB = 1024;
  auto format = [](double value, llvm::StringRef unit) {
    return llvm::formatv("{0:F2} {1}", value, unit).str();
  };
  if (bytes <= int64_t(1) << 10)
    return std::to_string(bytes) + " bytes";
  if (bytes <= int64_t(1) << 20)
    return format(bytes / kKiB, "KiB");
  if (bytes <= int64_t(1) << 30)
    return format(bytes / (kKiB * kKiB), "MiB");
  return format(bytes / (kKiB * kKiB * kKiB), "GiB");
}

std::string AllocatorOutOfMemory::getMessage() const {
  std::string head = "CUDA out of memory. ";
  if (kind == Kind::TooLarge)
    return head + "Tried to allocate more than 1EB memory.";
  if (kind == Kind::Rejected)
    return head +
           "Allocation was preemptively rejected because it would exceed "
           "per_process_memory_fraction limit. Requested size: " +
           formatSize(requested);
  std::string limit = allowed ? formatSize(*allowed) + " allowed; " : "";
  return head + "Tried to allocate " + formatSize(segment) +
         ". GPU 0 has a total capacity of " + formatSize(deviceTotal) +
         " of which " + formatSize(deviceFree) + " is free. " + limit +
         "Of the allocated memory " + formatSize(allocated) +
         " is allocated by PyTorch, and " + formatSize(reserved - allocated) +
         " is reserved by PyTorch but unallocated.";
}
