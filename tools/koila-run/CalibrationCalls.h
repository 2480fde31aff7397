//===- CalibrationCalls.h - Programs that are one operator ------*- C++ -*-===//
//
// What `--calibrate` measures: for each family of operators whose memory may
// depend on the machine, programs of one call with extents and options drawn
// at random. No model's shapes are among them.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TOOLS_KOILARUN_CALIBRATIONCALLS_H
#define KOILA_TOOLS_KOILARUN_CALIBRATIONCALLS_H

#include <random>
#include <string>
#include <vector>

namespace koila::run {

/// A program and its inputs, which depend on the batch `B`.
struct CalibrationCall {
  /// TorchScript: `def forward(self, x, ...): ...`.
  std::string source;
  /// Specs as for `--input`.
  std::vector<std::string> inputs;
};

/// Operators whose figures are trusted together: a row of the table.
struct CalibrationFamily {
  /// Names with wildcards, as the row will have them.
  std::vector<std::string> ops;
  /// torch's names.
  std::vector<std::string> dtypes;
  /// `contiguous`, and `channels_last` where that makes a difference.
  std::vector<std::string> formats;
  /// Templates: `{c}` is a number that is drawn for the call, `{4*c}` a
  /// product,
  /// `{T}` the element type, `{F}` the memory format's flag; `{L}` and `{R}`
  /// are braces.
  struct Template {
    const char *source;
    std::vector<const char *> inputs;
    std::vector<std::pair<const char *, std::vector<int>>> draws;
    /// Images, which have a channels-last format, too.
    bool hasFormat = false;
  };
  std::vector<Template> templates;

  /// The call number `index`: templates take turns.
  CalibrationCall draw(size_t index, const std::string &dtype,
                       const std::string &format, std::mt19937_64 &rng) const;
};

const std::vector<CalibrationFamily> &getCalibrationFamilies();

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_CALIBRATIONCALLS_H
