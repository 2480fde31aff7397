//===- HostMemory.h - How much memory the host has left ---------*- C++ -*-===//

#ifndef KOILA_DEVICE_HOSTMEMORY_H
#define KOILA_DEVICE_HOSTMEMORY_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <string>

namespace koila {

struct FreeMemory {
  int64_t bytes = 0;
  /// The file that says so, for people.
  std::string source;
};

/// The bytes that this process can still be given: what Linux calls available,
/// or less where the process's control group, one around it, or its own limits
/// (`ulimit -v`, `ulimit -d`) leave less. Of what a group holds, cached files
/// that are not in use count as free. Fails if nothing says how much there is.
/// `root` stands before every path that is read.
llvm::Expected<FreeMemory> getFreeHostMemory(llvm::StringRef root = "");

} // namespace koila

#endif // KOILA_DEVICE_HOSTMEMORY_H
