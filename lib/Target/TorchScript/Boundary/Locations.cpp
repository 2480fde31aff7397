//===- Locations.cpp - Places in the user's Python ------------------------===//
//
// Scripted programs keep a range per node and the call stack of the inliner.
// Traced programs keep neither lines nor callers there; but the text of their
// ranges is the Python stack at the time of tracing, one line per frame:
//
//   /path/to/model.py(46): forward
//
//===----------------------------------------------------------------------===//

#include "Locations.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include <torch/csrc/jit/ir/ir.h>

using namespace mlir;
using namespace koila::torchscript;

namespace {
struct Frame {
  std::string file;
  unsigned line = 0;
  unsigned column = 0;
  std::string function;
};
} // namespace

/// Reads `file(line): function`.
static std::optional<Frame> parseTracedFrame(llvm::StringRef text) {
  size_t close = text.rfind("): ");
  if (close == llvm::StringRef::npos)
    return std::nullopt;
  size_t open = text.rfind('(', close);
  Frame frame;
  if (open == llvm::StringRef::npos ||
      text.slice(open + 1, close).getAsInteger(10, frame.line))
    return std::nullopt;
  frame.file = text.take_front(open).trim().str();
  frame.function = text.drop_front(close + 3).trim().str();
  return frame;
}

/// The range of what was written; none without debug record.
static std::optional<torch::jit::SourceRange>
findOriginal(const torch::jit::SourceRange &range) {
  std::optional<torch::jit::SourceRange> original =
      range.findSourceRangeThatGenerated();
  // A program that was not read from a file is itself what was written; of one
  // that was, the text in the archive is no place of the user's.
  if (!original && range.source() &&
      !llvm::StringRef(range.source()->filename().value_or(""))
           .starts_with("code/"))
    original = range;
  if (!original || !original->source())
    return std::nullopt;
  return original;
}

/// The frames of one range, innermost first: all of a traced range, the one
/// of a scripted range, none of a range without debug record.
static llvm::SmallVector<Frame>
getFrames(const torch::jit::SourceRange &range) {
  llvm::SmallVector<Frame> frames;
  std::optional<torch::jit::SourceRange> original = findOriginal(range);
  if (!original)
    return frames;
  // Only the text of the range itself counts; a scripted range holds Python.
  std::string text = original->text().str();
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(text).split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef line : lines) {
    std::optional<Frame> frame = parseTracedFrame(line);
    if (!frame) {
      frames.clear();
      break;
    }
    frames.push_back(std::move(*frame));
  }
  if (!frames.empty())
    return frames;
  // A debug record may point anywhere; LibTorch computes with what it says.
  if (original->start() > original->source()->size())
    return frames;
  if (auto place = original->file_line_col()) {
    auto [file, line, column] = *place;
    if (line != 0)
      frames.push_back({file, static_cast<unsigned>(line),
                        static_cast<unsigned>(column + 1), ""});
  }
  return frames;
}

static Location getPlace(const Frame &frame, MLIRContext *context) {
  Location place =
      FileLineColLoc::get(context, frame.file, frame.line, frame.column);
  if (frame.function.empty())
    return place;
  return NameLoc::get(StringAttr::get(context, frame.function), place);
}

LocationAttr LocationReader::readStack(const torch::jit::Node *node) {
  auto original = findOriginal(node->sourceRange());
  if (!original)
    return {};
  std::string text = original->text().str();
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(text).split(lines, '\n', -1, /*KeepEmpty=*/false);
  if (lines.size() < 2)
    return {};
  LocationAttr location;
  for (llvm::StringRef line : llvm::reverse(lines)) {
    auto [entry, isNew] = places.try_emplace(line);
    if (isNew)
      if (std::optional<Frame> frame = parseTracedFrame(line))
        entry->second = getPlace(*frame, context);
    LocationAttr place = entry->second;
    if (!place)
      return {};
    location = location ? LocationAttr(CallSiteLoc::get(Location(place),
                                                        Location(location)))
                        : place;
  }
  return location;
}

Location LocationReader::read(torch::jit::Node *node) {
  LocationAttr traced = readStack(node);
  llvm::SmallVector<Frame> frames;
  if (!traced)
    frames = getFrames(node->sourceRange());
  llvm::SmallVector<std::string> path;
  if (auto stack = node->callstack()) {
    // Outermost first; the ranges are those of the calls.
    llvm::SmallVector<Frame> callers;
    std::string callee;
    for (auto &[function, range, instance] : (*stack)->vec()) {
      if (instance) {
        const std::string &name = instance->instance_name();
        if (!name.empty() && name != "SELF" && name != "INSTANCE_NAME_UNKNOWN")
          path.push_back(name);
      }
      for (Frame &frame : getFrames(range)) {
        frame.function = callee;
        callers.push_back(std::move(frame));
      }
      callee = function ? function->name() : std::string();
    }
    if (!traced) {
      if (!frames.empty() && frames.front().function.empty())
        frames.front().function = callee;
      llvm::append_range(frames, llvm::reverse(callers));
    }
  }

  Location location =
      traced ? Location(traced) : Location(UnknownLoc::get(context));
  for (const Frame &frame : llvm::reverse(frames)) {
    Location place = getPlace(frame, context);
    location =
        isa<UnknownLoc>(location) ? place : CallSiteLoc::get(place, location);
  }
  if (path.empty())
    return location;
  return NameLoc::get(StringAttr::get(context, llvm::join(path, ".")),
                      location);
}

Location koila::torchscript::getLocation(torch::jit::Node *node,
                                         MLIRContext *context) {
  return LocationReader(context).read(node);
}

static void collectPlaces(Location location,
                          llvm::SmallVectorImpl<FileLineColLoc> &places) {
  if (auto place = dyn_cast<FileLineColLoc>(location)) {
    places.push_back(place);
  } else if (auto name = dyn_cast<NameLoc>(location)) {
    collectPlaces(name.getChildLoc(), places);
  } else if (auto call = dyn_cast<CallSiteLoc>(location)) {
    collectPlaces(call.getCallee(), places);
    collectPlaces(call.getCaller(), places);
  } else if (auto fused = dyn_cast<FusedLoc>(location)) {
    for (Location part : fused.getLocations())
      collectPlaces(part, places);
  }
}

FileLineColLoc koila::torchscript::getUserPlace(Location location) {
  llvm::SmallVector<FileLineColLoc> places;
  collectPlaces(location, places);
  if (places.empty())
    return {};
  auto isLibrary = [](FileLineColLoc place) {
    llvm::StringRef file = place.getFilename();
    return file.contains("site-packages/") || file.contains("dist-packages/") ||
           file.contains("/lib/python3") || file.starts_with("<");
  };
  auto *user = llvm::find_if_not(places, isLibrary);
  return user == places.end() ? places.front() : *user;
}
