//===- ByteSize.h - Sizes in bytes, read and printed ------------*- C++ -*-===//
//
// The spelling of sizes in options (`64MiB`, `1.5GiB`, `2GB`, `512`) and in
// reports.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_SUPPORT_BYTESIZE_H
#define KOILA_SUPPORT_BYTESIZE_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>

namespace koila {

/// Bytes of `text`: a decimal number with an optional unit, KiB, MiB, GiB,
/// TiB in powers of 1024 or KB, MB, GB, TB in powers of 1000, in upper or
/// lower case. A fraction of a byte is dropped. On failure `error` says what
/// is wrong.
std::optional<int64_t> parseByteSize(llvm::StringRef text, std::string &error);

/// For people: "78.40 MiB", "512 bytes".
std::string formatBytesShort(int64_t bytes);
/// For people who compare: "78.40 MiB (82,208,768 bytes)".
std::string formatBytes(int64_t bytes);

} // namespace koila

#endif // KOILA_SUPPORT_BYTESIZE_H
