//===- Replay.h - A snapshot of PyTorch's allocator, replayed ---*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_REPLAY_H
#define KOILA_TOOLS_KOILARUN_REPLAY_H

#include "Options.h"
#include "llvm/Support/raw_ostream.h"

namespace koila::run {

/// Replays `options.replay`, prints peaks and what differs, and returns whether
/// the simulation and the recording agree. Throws UserError.
bool replay(llvm::raw_ostream &os, const Options &options);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_REPLAY_H
