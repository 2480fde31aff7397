//===- Untrusted.h - Untrusted input -----------------------*- C++ -*-===//
//
// What both tools do before and around LibTorch when a file comes in.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TOOLS_SUPPORT_UNTRUSTED_H
#define KOILA_TOOLS_SUPPORT_UNTRUSTED_H

#include "koila/Target/TorchScript/TorchScript.h"
#include <string>
#include <vector>

namespace koila {

/// What the user says about files that come in.
struct ArchiveOptions {
  /// --allow-setstate
  bool allowSetState = false;
  /// --archive-timeout
  unsigned timeoutSeconds = 600;
  /// --load-library
  std::vector<std::string> libraries;

  /// Opens the libraries that register custom operators. Returns what went
  /// wrong; empty if nothing did.
  std::string openLibraries() const;
};

} // namespace koila

#endif // KOILA_TOOLS_SUPPORT_UNTRUSTED_H
