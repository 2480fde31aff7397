//===- DeviceRecorder.cpp - Who asked an allocator for what ---------------===//

#include "DeviceRecorder.h"

using namespace koila;
using llvm::StringRef;

DeviceRecorder::DeviceRecorder(Snapshot *snapshot) : snapshot(snapshot) {
  if (snapshot)
    snapshot->traces.emplace_back();
}

AllocatorObserver DeviceRecorder::getObserver() {
  if (!snapshot)
    return nullptr;
  return [this](const AllocatorEvent &event) {
    std::vector<Snapshot::Entry> &trace = snapshot->traces.front();
    // There is no clock: time is the order.
    auto time = static_cast<int64_t>(trace.size());
    trace.push_back({event, time, Snapshot::Pool(), stack, metadata});
  };
}

/// As PyTorch writes frames of which it knows no file.
static Snapshot::Frame withoutPlace(std::string name) {
  return {"??", 0, std::move(name)};
}

void DeviceRecorder::setStack(llvm::ArrayRef<Snapshot::Frame> innermostFirst) {
  std::string key;
  llvm::raw_string_ostream os(key);
  for (const Snapshot::Frame &frame : innermostFirst)
    os << frame.file << '\0' << frame.line << '\0' << frame.function << '\0';
  auto [known, isNew] = stacks.try_emplace(key, Snapshot::kNoStack);
  if (isNew)
    known->second = snapshot->addStack(innermostFirst);
  stack = known->second;
}

void DeviceRecorder::enter(StringRef what) {
  if (!snapshot)
    return;
  metadata.clear();
  setStack({withoutPlace(what.str()), withoutPlace(phase)});
}

static std::string describe(const MemoryEvent &event, Trust trust) {
  std::string name = event.op;
  if (!event.shared.empty())
    name += ", kept by " + event.shared;
  if (trust == Trust::UpperBound)
    name += " (upper bound)";
  else if (trust == Trust::Unknown)
    name += " (not known)";
  return name;
}

void DeviceRecorder::enter(const MemoryEvent &event, Trust trust,
                           const Inexactness *doubt) {
  if (!snapshot)
    return;
  metadata.clear();
  if (doubt)
    metadata = "memory of '" + doubt->op + "' is " +
               (doubt->isBound ? "an upper bound: " : "not known: ") +
               doubt->reason;
  llvm::SmallVector<Snapshot::Frame, 3> frames{
      withoutPlace(describe(event, trust))};
  if (const SourcePlace &place = event.place; place.isKnown())
    frames.push_back({place.file, place.line,
                      place.module.empty()
                          ? place.function
                          : place.function + " of " + place.module});
  frames.push_back(withoutPlace(phase));
  setStack(frames);
}
