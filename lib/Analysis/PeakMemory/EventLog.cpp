//===- EventLog.cpp - The allocations of a run, in order ------------------===//

#include "EventLog.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace koila;
using Kind = AllocationTrace::Event::Kind;

void EventLog::enter(Operation *now, bool isOfBackward) {
  op = now;
  isBackward = isOfBackward;
}

EventLog::Block EventLog::allocate(int64_t bytes, bool isExact) {
  Block block{nextId++, bytes, isExact};
  events.push_back({false, block.id, bytes, op, isBackward, isExact});
  live += bytes;
  peak = std::max(peak, live);
  return block;
}

void EventLog::free(const Block &block) {
  events.push_back(
      {true, block.id, block.bytes, op, isBackward, block.isExact});
  live -= block.bytes;
}

void EventLog::lump(int64_t bytes) {
  if (bytes > 0)
    free(allocate(bytes, /*isExact=*/false));
}

void EventLog::share(const AllocationTrace::Event &event) {
  events.push_back({/*isFree=*/false, nextId++, event.bytes, op, isBackward,
                    /*isExact=*/true, event.library});
}

SmallVector<unsigned> EventLog::append(const AllocationTrace &trace) {
  SmallVector<Block> made(trace.getNumBlocks());
  for (const AllocationTrace::Event &event : trace.getEvents())
    if (event.kind == Kind::Allocate)
      made[event.block.getIndex()] = allocate(event.bytes, /*isExact=*/true);
    else if (event.kind == Kind::Free)
      free(made[event.block.getIndex()]);
    else if (event.kind == Kind::Lump)
      lump(event.bytes);
  SmallVector<unsigned> left;
  for (auto [index, block] : llvm::enumerate(made))
    if (trace.isLeft(AllocationTrace::Block(index)))
      left.push_back(block.id);
  return left;
}

SmallVector<unsigned> EventLog::getBlocks(const Storage *entry) const {
  return llvm::map_to_vector(blocks.lookup(entry),
                             [](const Block &block) { return block.id; });
}

void EventLog::resize(const Storage *entry, int64_t bytes) {
  Blocks &own = blocks[entry];
  int64_t before = 0;
  for (const Block &block : own)
    before += block.bytes;
  for (const Waiting &more : waiting)
    if (more.entry == entry)
      before += more.bytes;
  if (bytes > before) {
    if (isWaiting)
      waiting.push_back({entry, bytes - before});
    else
      own.push_back(allocate(bytes - before, /*isExact=*/true));
    return;
  }
  // All go as they came.
  if (bytes == 0) {
    for (const Block &block : own)
      free(block);
    blocks.erase(entry);
    return;
  }
  // The last blocks go; of one that is too large a part.
  while (before > bytes && !own.empty()) {
    Block &last = own.back();
    int64_t gone = std::min(last.bytes, before - bytes);
    before -= gone;
    if (gone == last.bytes) {
      free(last);
      own.pop_back();
    } else {
      last.isExact = false;
      free({last.id, gone, /*isExact=*/false});
      last.bytes -= gone;
    }
  }
  if (own.empty())
    blocks.erase(entry);
}

void EventLog::doubtFrom(size_t first) {
  for (size_t index = first; index < events.size(); ++index)
    events[index].isExact = false;
}

void EventLog::reduce(llvm::function_ref<int64_t(const Storage *)> getBytes) {
  SmallVector<std::pair<unsigned, const Storage *>> owners;
  for (const auto &[entry, own] : blocks)
    if (!own.empty())
      owners.emplace_back(own.front().id, entry);
  // In the order in which they came: maps of pointers have none.
  llvm::sort(owners);
  for (auto [id, entry] : owners) {
    int64_t there = 0;
    for (const Block &block : blocks[entry])
      there += block.bytes;
    if (int64_t bytes = getBytes(entry); bytes < there)
      resize(entry, bytes);
  }
}

void EventLog::move(const Storage *from, const Storage *to) {
  auto found = blocks.find(from);
  if (found == blocks.end() || from == to)
    return;
  Blocks moved = std::move(found->second);
  blocks.erase(found);
  blocks[to].append(moved);
}

SmallVector<const Storage *>
EventLog::placeResults(const AllocationTrace &trace) {
  SmallVector<const Storage *> owners(trace.getNumBlocks());
  for (Waiting &result : waiting)
    if (AllocationTrace::Block block = result.block;
        !block.isEmpty() && trace.isLeft(block) &&
        trace.getBytes(block) == result.bytes && !owners[block.getIndex()]) {
      owners[block.getIndex()] = result.entry;
      result.isPlaced = true;
    }
  // Temporaries come before results of the same size.
  for (Waiting &result : llvm::reverse(waiting))
    for (size_t index = trace.getNumBlocks();
         !result.isPlaced && index-- > 0;) {
      AllocationTrace::Block block(index);
      if (!owners[index] && trace.isLeft(block) &&
          trace.isKept(block) == result.isKept &&
          trace.getBytes(block) == result.bytes) {
        owners[index] = result.entry;
        result.isPlaced = true;
      }
    }
  // What is kept for the gradient may be several blocks.
  for (Waiting &result : waiting) {
    if (result.isPlaced || !result.isKept)
      continue;
    int64_t kept = 0;
    for (size_t index = 0; index < trace.getNumBlocks(); ++index)
      if (AllocationTrace::Block block(index);
          !owners[index] && trace.isKept(block))
        kept += trace.getBytes(block);
    if (kept != result.bytes)
      continue;
    for (size_t index = 0; index < trace.getNumBlocks(); ++index)
      if (!owners[index] && trace.isKept(AllocationTrace::Block(index)))
        owners[index] = result.entry;
    result.isPlaced = true;
  }
  return owners;
}

bool EventLog::hasOutside(const AllocationTrace &trace,
                          const Outside &outside) const {
  SmallVector<int64_t> there;
  llvm::SmallPtrSet<const Storage *, 4> seen;
  for (const Storage *entry :
       llvm::concat<const Storage *const>(outside.arrived, outside.saved))
    if (seen.insert(entry).second)
      for (const Block &block : blocks.lookup(entry))
        there.push_back(block.bytes);
  for (const AllocationTrace::Event &event : trace.getEvents()) {
    if (event.kind != Kind::FreeOutside)
      continue;
    auto *found = llvm::find(there, event.bytes);
    if (found == there.end())
      return false;
    there.erase(found);
  }
  return llvm::all_of(outside.known, [&](const Outside::Known &known) {
    return known.count == 0 || blocks.lookup(known.entry).size() == known.count;
  });
}

llvm::SmallDenseMap<size_t, unsigned>
EventLog::findKnown(const AllocationTrace &trace,
                    const Outside &outside) const {
  llvm::SmallDenseMap<size_t, unsigned> ids;
  ArrayRef<AllocationTrace::Event> events = trace.getEvents();
  for (const Outside::Known &known : outside.known) {
    Blocks own = blocks.lookup(known.entry);
    if (known.event < events.size() && known.number < own.size() &&
        own[known.number].bytes == events[known.event].bytes)
      ids.try_emplace(known.event, own[known.number].id);
  }
  return ids;
}

void EventLog::freeOutside(int64_t bytes, std::optional<unsigned> id,
                           const Outside &outside, ArrayRef<unsigned> others) {
  auto isMeant = [&](const Block &block) {
    return block.bytes == bytes &&
           (id ? block.id == *id : !llvm::is_contained(others, block.id));
  };
  auto collect = [&](ArrayRef<const Storage *> entries) {
    SmallVector<std::pair<const Storage *, Block *>> found;
    for (const Storage *entry : entries)
      if (auto own = blocks.find(entry); own != blocks.end())
        for (Block &block : own->second)
          if (isMeant(block))
            found.emplace_back(entry, &block);
    return found;
  };
  auto found = collect(outside.arrived);
  if (found.empty())
    found = collect(outside.saved);
  // One that was not known may have been it, or all are those of others.
  if (found.empty() && (id || !others.empty()))
    return freeOutside(bytes, std::nullopt, outside, {});
  for (auto [entry, block] : found)
    block->isExact &= found.size() == 1;
  auto [entry, gone] = found.front();
  free(*gone);
  blocks[entry].erase(gone);
}

bool EventLog::write(const AllocationTrace &trace, int64_t most, bool isExact,
                     const Outside &outside) {
  if (!hasOutside(trace, outside))
    return false;
  SmallVector<const Storage *> owners = placeResults(trace);
  // A trace that needs more than the figure is not that of the figure.
  __int128 needed = trace.getPeak();
  for (const Waiting &result : waiting)
    needed += result.isPlaced ? 0 : result.bytes;
  if (needed > most)
    return false;
  // A block that is nobody's at the end is one that the model forgot.
  for (size_t index = 0; index < trace.getNumBlocks(); ++index)
    isExact &= owners[index] || !trace.isLeft(AllocationTrace::Block(index));
  // What is kept may be several blocks, made at any time.
  for (const Waiting &result : waiting)
    if (!result.isPlaced)
      blocks[result.entry].push_back(
          allocate(result.bytes, isExact && !result.isKept));
  SmallVector<Block> made(trace.getNumBlocks());
  llvm::SmallDenseMap<size_t, unsigned> ids = findKnown(trace, outside);
  auto others = llvm::to_vector(llvm::make_second_range(ids));
  for (auto [index, event] : llvm::enumerate(trace.getEvents()))
    switch (event.kind) {
    case Kind::Allocate: {
      Block &block = made[event.block.getIndex()];
      block = allocate(event.bytes, isExact);
      if (const Storage *owner = owners[event.block.getIndex()])
        blocks[owner].push_back(block);
      break;
    }
    case Kind::Free:
      free(made[event.block.getIndex()]);
      break;
    case Kind::Lump:
      lump(event.bytes);
      break;
    case Kind::Shared:
      share(event);
      break;
    case Kind::FreeOutside: {
      auto known = ids.find(index);
      freeOutside(event.bytes,
                  known == ids.end() ? std::nullopt
                                     : std::optional(known->second),
                  outside, others);
      break;
    }
    }
  for (size_t index = trace.getNumBlocks(); index-- > 0;)
    if (!owners[index] && trace.isLeft(AllocationTrace::Block(index)))
      free(made[index]);
  return true;
}

void EventLog::finishKernel(const AllocationTrace &trace, int64_t most,
                            bool isExact, const Outside &outside) {
  isWaiting = false;
  __int128 before = live, peakBefore = std::exchange(peak, live);
  if (!write(trace, most, isExact, outside)) {
    for (const AllocationTrace::Event &event : trace.getEvents())
      if (event.kind == Kind::Shared)
        share(event);
    // What goes with the kernel may go before its results are there.
    for (const Storage *entry :
         llvm::concat<const Storage *const>(outside.arrived, outside.saved))
      release(entry);
    for (const Waiting &result : waiting)
      blocks[result.entry].push_back(allocate(result.bytes, false));
  }
  waiting.clear();
  // What is held without being told.
  if (peak < before + most)
    lump(before + most - live);
  peak = std::max(peak, peakBefore);
}
