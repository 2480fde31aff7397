//===- DeviceProfile.h - What only a device can tell ------------*- C++ -*-===//
//
// Bytes that no formula gives, since a library decides them on the device: they
// are measured once, and each is a row with its key and its source.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_DEVICEPROFILE_H
#define KOILA_KERNELMODELS_DEVICEPROFILE_H

#include "koila/Interfaces/Trust.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace koila {

class WorkspaceRule;

/// What a driver says of a device; none: the profile does not say.
struct DeviceProperties {
  /// Of a CUDA device: its compute capability, for example 9 and 0.
  std::optional<int64_t> major, minor;
  std::optional<int64_t> multiprocessors, threadsPerMultiprocessor;
  std::optional<int64_t> totalBytes;
  /// What a process takes of the device beside its allocator, once it has run a
  /// kernel and a product: the context and the code of libraries.
  std::optional<int64_t> contextBytes;
  /// The release of PyTorch whose rules hold, for example 2 and 6; none: the
  /// one that koila is built with.
  std::optional<std::pair<int64_t, int64_t>> pytorch;

  /// Whether the rules are those of a release before `major`.`minor`.
  bool isBefore(int64_t major, int64_t minor) const {
    return pytorch && *pytorch < std::pair(major, minor);
  }
};

class DeviceProfile {
public:
  struct Row {
    int64_t bytes = 0;
    Trust trust = Trust::Exact;
    /// Where the number is from: a measurement, a file of PyTorch.
    std::string source;
  };

  explicit DeviceProfile(llvm::StringRef device) : device(device) {}
  /// The format is that of docs/reference/DeviceProfiles.md. The error names
  /// the property or row.
  static llvm::Expected<DeviceProfile> parse(llvm::StringRef json);
  /// Those that koila comes with, by their names.
  static llvm::ArrayRef<DeviceProfile> getShipped();
  /// The name that `device=` takes for what the driver calls `name`: a card
  /// that koila comes with if the properties are those of its profile, since
  /// some names stand for several cards; else `cuda`.
  static llvm::StringRef find(llvm::StringRef name, int64_t major,
                              int64_t minor, int64_t multiprocessors);

  llvm::StringRef getDevice() const { return device; }
  const DeviceProperties &getProperties() const { return properties; }
  void setProperties(const DeviceProperties &said) { properties = said; }
  void add(llvm::StringRef key, Row row) { rows[key] = std::move(row); }
  /// The bytes of a row for a model. What makes the row doubtful is a doubt of
  /// `rule`, and that there is none: it names the key that has to be measured.
  int64_t read(WorkspaceRule &rule, llvm::StringRef key) const;

private:
  std::string device;
  DeviceProperties properties;
  llvm::StringMap<Row> rows;
};

} // namespace koila

#endif // KOILA_KERNELMODELS_DEVICEPROFILE_H
