//===- DeviceProfile.h - What only a device can tell ------------*- C++ -*-===//
//
// Bytes that no formula gives, since a library decides them on the device: they
// are measured once, and each is a row with its key and its source.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_DEVICEPROFILE_H
#define KOILA_KERNELMODELS_DEVICEPROFILE_H

#include "koila/Interfaces/Trust.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <string>

namespace koila {

class WorkspaceRule;

class DeviceProfile {
public:
  struct Row {
    int64_t bytes = 0;
    Trust trust = Trust::Exact;
    /// Where the number is from: a measurement, a file of PyTorch.
    std::string source;
  };

  explicit DeviceProfile(llvm::StringRef device) : device(device) {}
  /// `{"device": name, "rows": [{"key", "bytes", "trust": "exact", "bound" or
  /// "unknown", "source"}]}`. The error names the row.
  static llvm::Expected<DeviceProfile> parse(llvm::StringRef json);

  llvm::StringRef getDevice() const { return device; }
  void add(llvm::StringRef key, Row row) { rows[key] = std::move(row); }
  /// The bytes of a row for a model. What makes the row doubtful is a doubt of
  /// `rule`, and that there is none: it names the key that has to be measured.
  int64_t read(WorkspaceRule &rule, llvm::StringRef key) const;

private:
  std::string device;
  llvm::StringMap<Row> rows;
};

} // namespace koila

#endif // KOILA_KERNELMODELS_DEVICEPROFILE_H
