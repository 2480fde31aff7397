//===- DeviceMemory.h - A process on a GPU ----------------------*- C++ -*-===//
//
// What a process takes of a GPU while it calls a function again and again: the
// events of PeakMemory.h, played through the simulated caching allocator of
// PyTorch (Allocators/CachingAllocator.h).
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_DEVICEMEMORY_H
#define KOILA_ANALYSIS_DEVICEMEMORY_H

#include "koila/Allocators/CachingAllocatorSettings.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdint>
#include <optional>
#include <string>

namespace mlir {
class Operation;
} // namespace mlir

namespace koila {

struct PeakMemoryOptions;
struct PeakReport;

/// Bytes; the names are those of `torch.cuda.memory_stats()`.
struct DeviceMemory {
  /// Now and at most: what a process with the weights, the inputs and, in
  /// training, what steps leave has after the last of three calls.
  struct Figure {
    int64_t current = 0, peak = 0;
  };
  Figure requested, allocated, active, reserved;
  /// The share of `reserved.peak` that is in no block of `allocated.peak`.
  double fragmentation = 0;
  /// What the driver and libraries take outside of the allocator, and with it
  /// and `reserved.peak` what the card shows; none where the profile of the
  /// device does not say.
  std::optional<int64_t> contextBytes, totalBytes;
  /// The bytes in blocks at the peak of `allocated`, by how far their sizes can
  /// be trusted.
  int64_t exactBytes = 0, boundBytes = 0, unknownBytes = 0;

  llvm::json::Value toJSON() const;
  /// Lines of the report in text.
  void print(llvm::raw_ostream &os) const;
};

/// Three calls of `function`, of which `report` is the report. None if a symbol
/// without value is needed; `missing` names it.
std::optional<DeviceMemory>
simulateDevice(mlir::Operation *function, const PeakMemoryOptions &options,
               const CachingAllocatorSettings &settings,
               const PeakReport &report, std::string &missing);

} // namespace koila

#endif // KOILA_ANALYSIS_DEVICEMEMORY_H
