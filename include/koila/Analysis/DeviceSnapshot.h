//===- DeviceSnapshot.h - The trace of a predicted process ------*- C++ -*-===//
//
// DeviceMemory.h says what a process on a GPU takes; here is what its allocator
// does on the way, for PyTorch's viewer of memory (Allocators/Snapshot.h).
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_DEVICESNAPSHOT_H
#define KOILA_ANALYSIS_DEVICESNAPSHOT_H

#include "koila/Allocators/Snapshot.h"
#include "koila/Analysis/DeviceMemory.h"

namespace koila {

/// As simulateDevice(). `snapshot`, an empty one, gets each event from the
/// first weight on, and the segments at the end, so that its sums are the
/// figures. The stack of an event has the operation, its line, and which of the
/// calls it is of; where its memory is not known to the byte the operation's
/// name says so, and the metadata of the event why.
std::optional<DeviceMemory>
recordDevice(mlir::Operation *function, const PeakMemoryOptions &options,
             const CachingAllocatorSettings &settings, const PeakReport &report,
             Snapshot &snapshot, std::string &missing);

} // namespace koila

#endif // KOILA_ANALYSIS_DEVICESNAPSHOT_H
