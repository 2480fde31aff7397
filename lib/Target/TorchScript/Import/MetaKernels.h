//===- MetaKernels.h - Operators run on shapes ------------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_METAKERNELS_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_METAKERNELS_H

#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace koila::torchscript {

/// Answers one request of MetaKernelShapeSource; none if there is no kernel for
/// the Meta device or it refuses. May throw what LibTorch throws.
std::optional<std::string> runMeta(llvm::StringRef request);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_METAKERNELS_H
