//===- AllocatorTrace.cpp - Names of events -------------------------------===//

#include "koila/Allocators/AllocatorTrace.h"
#include "llvm/ADT/STLExtras.h"
#include <iterator>

using namespace koila;

// In the order of AllocatorAction.
static constexpr llvm::StringRef kNames[] = {
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "oom"};
static_assert(std::size(kNames) == kNumAllocatorActions);

llvm::StringRef koila::getName(AllocatorAction action) {
  return kNames[static_cast<unsigned>(action)];
}

std::optional<AllocatorAction>
koila::parseAllocatorAction(llvm::StringRef name) {
  const auto *found = llvm::find(kNames, name);
  if (found == std::end(kNames))
    return std::nullopt;
  return static_cast<AllocatorAction>(found - std::begin(kNames));
}
