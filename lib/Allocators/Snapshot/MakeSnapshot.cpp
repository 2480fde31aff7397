//===- MakeSnapshot.cpp - The snapshot of a simulated allocator -----------===//

#include "SnapshotSettings.h"
#include <unordered_map>

using namespace koila;
using State = CachingAllocator::BlockInfo::State;

Snapshot::Stack Snapshot::addStack(llvm::ArrayRef<Frame> innermostFirst) {
  if (innermostFirst.empty())
    return kNoStack;
  std::vector<uint32_t> numbers;
  for (const Frame &frame : innermostFirst) {
    numbers.push_back(static_cast<uint32_t>(frames.size()));
    frames.push_back(frame);
  }
  stacks.push_back(std::move(numbers));
  return static_cast<Stack>(stacks.size() - 1);
}

void koila::addAllocator(Snapshot &snapshot,
                         const CachingAllocator &allocator) {
  if (snapshot.traces.empty())
    snapshot.traces.emplace_back();
  // What is at an address was allocated there last.
  std::unordered_map<uint64_t, Snapshot::Stack> stacks;
  for (const Snapshot::Entry &entry : snapshot.traces.front())
    if (entry.event.action == AllocatorAction::Alloc)
      stacks[entry.event.address] = entry.stack;
  for (const CachingAllocator::SegmentInfo &info : allocator.getSegments()) {
    Snapshot::Segment segment;
    segment.address = allocator.getAddress(info.birth) + info.offset;
    segment.stream = info.stream;
    segment.isSmall = info.isSmall;
    segment.isExpandable = info.isExpandable;
    for (const CachingAllocator::BlockInfo &block : info.blocks) {
      uint64_t address = segment.address + segment.size;
      auto stack = stacks.find(address);
      bool isKnown = block.state != State::Inactive && stack != stacks.end();
      segment.blocks.push_back({address, block.size, block.requested,
                                block.state,
                                isKnown ? stack->second : Snapshot::kNoStack});
      segment.size += block.size;
    }
    snapshot.segments.push_back(std::move(segment));
  }
  snapshot.settings = describeSettings(allocator.getSettings());
}
