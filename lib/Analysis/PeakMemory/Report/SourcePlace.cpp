//===- SourcePlace.cpp - The user's line of an operation ------------------===//

#include "koila/Analysis/PeakMemory.h"
#include "mlir/IR/Location.h"

using namespace mlir;
using namespace koila;

namespace {
struct Frame {
  FileLineColLoc place;
  std::string function;
};
} // namespace

/// Frames from the leaf outwards, and the module path: a name around the whole
/// chain, where a name around one frame is its function.
static void collectFrames(Location location, std::string name,
                          SmallVectorImpl<Frame> &frames, std::string &module) {
  if (auto place = dyn_cast<FileLineColLoc>(location)) {
    frames.push_back({place, std::move(name)});
    return;
  }
  if (auto named = dyn_cast<NameLoc>(location)) {
    Location child = named.getChildLoc();
    if (!isa<FileLineColLoc>(child) && module.empty())
      module = named.getName().str();
    collectFrames(child, named.getName().str(), frames, module);
    return;
  }
  if (auto call = dyn_cast<CallSiteLoc>(location)) {
    collectFrames(call.getCallee(), {}, frames, module);
    collectFrames(call.getCaller(), {}, frames, module);
    return;
  }
  if (auto fused = dyn_cast<FusedLoc>(location))
    for (Location part : fused.getLocations())
      collectFrames(part, {}, frames, module);
}

/// Whether a file is the user's own: not installed beside Python, and not of
/// the standard library.
static bool isUserFile(StringRef file) {
  if (file.empty() || file.contains("/site-packages/") ||
      file.contains("/dist-packages/") || file.starts_with("<"))
    return false;
  // .../lib/python3.11/json/decoder.py
  size_t lib = file.find("/lib/python3");
  return lib == StringRef::npos;
}

std::vector<SourcePlace> koila::getSourceFrames(Location location) {
  SmallVector<Frame> frames;
  std::string module;
  collectFrames(location, {}, frames, module);
  std::vector<SourcePlace> places;
  for (const Frame &frame : frames)
    places.push_back({frame.place.getFilename().str(),
                      frame.place.getLine(),
                      frame.place.getColumn(),
                      frame.function,
                      {}});
  return places;
}

SourcePlace koila::getSourcePlace(Location location) {
  SmallVector<Frame> frames;
  SourcePlace result;
  collectFrames(location, {}, frames, result.module);
  const Frame *chosen = frames.empty() ? nullptr : &frames.front();
  for (const Frame &frame : frames)
    if (isUserFile(frame.place.getFilename())) {
      chosen = &frame;
      break;
    }
  if (!chosen)
    return result;
  result.file = chosen->place.getFilename().str();
  result.line = chosen->place.getLine();
  result.column = chosen->place.getColumn();
  result.function = chosen->function;
  return result;
}
