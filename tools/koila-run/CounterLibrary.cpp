//===- CounterLibrary.cpp - The counter for Python's ctypes ---------------===//
//
// For test/oracle/memory_oracle.py, which counts the bytes of one operator in
// the process that runs it. Loaded after PyTorch, whose libraries it uses.
//
//===----------------------------------------------------------------------===//

#include "PeakCounter.h"
#include <c10/util/ThreadLocalDebugInfo.h>
#include <optional>

using koila::run::PeakCounter;

static std::shared_ptr<PeakCounter> counter;
static std::optional<c10::DebugInfoGuard> guard;

/// Starts to count the calling thread's allocations.
extern "C" void koilaCounterStart() {
  counter = std::make_shared<PeakCounter>();
  guard.emplace(c10::DebugInfoKind::PROFILER_STATE, counter);
}

/// Starts to count, and keeps what the allocator did, in order.
extern "C" void koilaCounterStartEvents() {
  koilaCounterStart();
  counter->keepEvents();
}

/// The events so far: how many, and the first `size` of them.
extern "C" int64_t koilaCounterGetEvents(PeakCounter::Event *events,
                                         int64_t size) {
  const std::vector<PeakCounter::Event> &all = counter->getEvents();
  std::copy_n(all.begin(), std::min<int64_t>(size, all.size()), events);
  return static_cast<int64_t>(all.size());
}

/// Stops counting; `peak` and `live` are the most bytes and the bytes now.
extern "C" void koilaCounterStop(int64_t *peak, int64_t *live) {
  guard.reset();
  *peak = counter->getPeak();
  *live = counter->getLive();
  counter.reset();
}

/// The most bytes since the last mark, or the start, and the bytes now.
extern "C" void koilaCounterMark(int64_t *peak, int64_t *live) {
  *peak = counter->getPeak();
  *live = counter->getLive();
  counter->restartPeak();
}
