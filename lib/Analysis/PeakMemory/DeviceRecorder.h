//===- DeviceRecorder.h - Who asked an allocator for what -------*- C++ -*-===//

#ifndef KOILA_LIB_ANALYSIS_PEAKMEMORY_DEVICERECORDER_H
#define KOILA_LIB_ANALYSIS_PEAKMEMORY_DEVICERECORDER_H

#include "koila/Allocators/Snapshot.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Interfaces/Trust.h"
#include "llvm/ADT/StringMap.h"

namespace koila {

/// Puts the events of a simulated allocator into a snapshot, each with the
/// stack of what was told last. Without a snapshot it does nothing.
class DeviceRecorder {
public:
  explicit DeviceRecorder(Snapshot *snapshot);

  /// For the allocator; this object outlives it.
  AllocatorObserver getObserver();

  /// What follows is of this, `step 2 of 3` for one, until it is said anew.
  void setPhase(std::string name) { phase = std::move(name); }
  /// What is in no line of the program.
  void enter(llvm::StringRef what);
  /// `trust` is that of the bytes of the event; `doubt`, which may be null, is
  /// what the report says of its operation.
  void enter(const MemoryEvent &event, Trust trust, const Inexactness *doubt);

private:
  void setStack(llvm::ArrayRef<Snapshot::Frame> innermostFirst);

  Snapshot *snapshot;
  std::string phase;
  Snapshot::Stack stack = Snapshot::kNoStack;
  std::string metadata;
  /// By the text of their frames: calls repeat them.
  llvm::StringMap<Snapshot::Stack> stacks;
};

} // namespace koila

#endif // KOILA_LIB_ANALYSIS_PEAKMEMORY_DEVICERECORDER_H
