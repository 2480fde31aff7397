//===- ZipCentralDirectory.h - The directory of a zip file ------*- C++ -*-===//

#ifndef KOILA_TARGET_PYTORCHARCHIVE_ZIPCENTRALDIRECTORY_H
#define KOILA_TARGET_PYTORCHARCHIVE_ZIPCENTRALDIRECTORY_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace koila::torchscript {

struct Record {
  /// Without the leading folder.
  std::string name;
  uint64_t size = 0;
  uint64_t packedSize = 0;
  /// CRC-32 of the unpacked contents.
  uint32_t checksum = 0;
  bool compressed = false;
  /// Where its own header starts in the file.
  uint64_t place = 0;
};

/// What the directory of a zip file says, checked against the file.
struct Directory {
  std::vector<Record> records;
  /// SHA-256 over names, sizes and checksums of the records.
  std::string fingerprint;

  /// By name in any case, as LibTorch looks records up; null if there is none.
  const Record *lookup(llvm::StringRef name) const;
};

/// The contents of a record of `bytes`; none if it is compressed.
std::optional<llvm::StringRef> getStored(const Record &record,
                                         llvm::StringRef bytes);

/// Reads the directory of the zip file `bytes`. Refuses what is no zip file,
/// and sizes or names that no archive of PyTorch has.
Directory readDirectory(llvm::StringRef path, llvm::StringRef bytes);

} // namespace koila::torchscript

#endif // KOILA_TARGET_PYTORCHARCHIVE_ZIPCENTRALDIRECTORY_H
