//===- MemoryCounter.h - what the CPU allocator handed out ------*- C++ -*-===//

#ifndef KOILA_PYTHON_MEMORYCOUNTER_H
#define KOILA_PYTHON_MEMORYCOUNTER_H

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace at {
class Tensor;
} // namespace at

namespace koila {

/// Live now, the most at once, handed out, taken back: of bytes, then of
/// blocks.
using MemoryFigures = std::array<int64_t, 8>;

/// Puts a counter in front of PyTorch's CPU allocator, unless it is there. It
/// is never taken away. Blocks that are live already are known only by
/// `tensors` (those that another allocator made, or that nobody owns, stay
/// unknown).
///
/// An allocator, not a memory reporter of `c10::ThreadLocalDebugInfo`, as
/// koila-run has: that one hears only of threads that have it, and never of
/// blocks that are older than it.
void countCPUMemory(const std::vector<at::Tensor> &tensors);

/// Of the process, since the counter is there; the peak since it was restarted.
MemoryFigures getCPUMemory();
/// Bytes live and the most at once, of what this thread itself handed out and
/// took back: live is negative where it took back more.
std::array<int64_t, 2> getThreadCPUMemory();
/// Both peaks.
void restartCPUPeak();

/// What happened since the last lap of this thread; zeros in its first. What is
/// live, and the peak, are those of the process. What threads handed out and
/// took back that have no laps counts in the next lap of any thread: the laps
/// of all threads add up to what the process did.
MemoryFigures takeCPULap();

/// This thread has no laps from now on.
void endCPULaps();

/// A block that was handed out, or taken back: then bytes are below zero.
struct AllocatorEvent {
  uint64_t address;
  int64_t bytes;
};

/// Notes what this thread, or each thread without a log of its own, hands out
/// and takes back, until it is stopped.
void startEventLog(bool ofAllThreads);
std::vector<AllocatorEvent> stopEventLog();

/// An operator that this thread called, others inside of it included: bytes
/// live when it ended, and the most while it ran.
struct OperatorFigures {
  std::string name;
  int64_t live, peak;
};

/// Notes the operators of this thread that hand out or take back memory, until
/// it is stopped; then they are there, and the peak, less what was live at the
/// start. Restarts the peak of the process.
void startOperatorLog();
std::pair<std::vector<OperatorFigures>, int64_t> stopOperatorLog();

} // namespace koila

#endif // KOILA_PYTHON_MEMORYCOUNTER_H
