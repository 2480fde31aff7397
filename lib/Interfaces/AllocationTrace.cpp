//===- AllocationTrace.cpp - What a kernel allocates, in order ------------===//

#include "koila/Interfaces/AllocationTrace.h"
#include "llvm/ADT/STLExtras.h"

using namespace koila;

void AllocationTrace::count(const Event &event) {
  switch (event.kind) {
  case Event::Kind::Allocate:
    live += event.bytes;
    break;
  case Event::Kind::Free:
  case Event::Kind::FreeOutside:
    live -= event.bytes;
    break;
  case Event::Kind::Lump:
    peak = std::max(peak, live + event.bytes);
    break;
  case Event::Kind::Shared:
    break;
  }
  peak = std::max(peak, live);
}

void AllocationTrace::add(const Event &event) {
  events.push_back(event);
  count(event);
}

AllocationTrace::Block AllocationTrace::allocate(int64_t bytes) {
  if (bytes == 0)
    return {};
  Block block(blocks.size());
  blocks.push_back({bytes});
  add({Event::Kind::Allocate, Library::None, block, bytes});
  return block;
}

void AllocationTrace::free(Block block) {
  if (block.isEmpty())
    return;
  State &state = blocks[block.getIndex()];
  state.isLive = false;
  add({Event::Kind::Free, Library::None, block, state.bytes});
}

void AllocationTrace::free(int64_t bytes) {
  if (bytes == 0)
    return;
  for (size_t index = blocks.size(); index-- > 0;)
    if (blocks[index].isLive && blocks[index].bytes == bytes)
      return free(Block(index));
  // The last ones that are there.
  __int128 sum = 0;
  size_t first = blocks.size();
  while (first > 0 && sum < bytes)
    if (blocks[--first].isLive)
      sum += blocks[first].bytes;
  if (sum == bytes) {
    for (size_t index = blocks.size(); index-- > first;)
      if (blocks[index].isLive)
        free(Block(index));
    return;
  }
  freeOutside(bytes);
}

void AllocationTrace::freeOutside(int64_t bytes) {
  if (bytes != 0)
    add({Event::Kind::FreeOutside, Library::None, Block(), bytes});
}

void AllocationTrace::freeAll() {
  for (size_t index = blocks.size(); index-- > 0;)
    if (blocks[index].isLive)
      free(Block(index));
}

void AllocationTrace::lump(int64_t bytes) {
  if (bytes != 0)
    add({Event::Kind::Lump, Library::None, Block(), bytes});
}

void AllocationTrace::share(Library library, int64_t bytes) {
  if (bytes != 0)
    add({Event::Kind::Shared, library, Block(), bytes});
}

std::optional<AllocationTrace::Block> AllocationTrace::keep(int64_t bytes) {
  auto *found = llvm::find_if(blocks, [&](const State &state) {
    return state.bytes == bytes && !state.isKept;
  });
  if (found == blocks.end())
    return std::nullopt;
  Block block(found - blocks.begin());
  keep(block);
  return block;
}

void AllocationTrace::keep(Block block) {
  if (block.isEmpty())
    return;
  State &state = blocks[block.getIndex()];
  state.isKept = true;
  if (std::exchange(state.isLive, true))
    return;
  llvm::erase_if(events, [&](const Event &event) {
    return event.kind == Event::Kind::Free && event.block == block;
  });
  live = peak = 0;
  llvm::for_each(events, [this](const Event &event) { count(event); });
}

bool AllocationTrace::isItemized() const {
  return llvm::none_of(events, [](const Event &event) {
    return event.kind == Event::Kind::Lump ||
           event.kind == Event::Kind::FreeOutside;
  });
}
