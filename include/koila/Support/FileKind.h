//===- FileKind.h - What a file is that koila does not read -----*- C++ -*-===//

#ifndef KOILA_SUPPORT_FILEKIND_H
#define KOILA_SUPPORT_FILEKIND_H

#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace koila {

/// What `bytes`, a file, is by its first bytes, and the way out, as in "is an
/// ONNX model; ...". None for zip archives and for what is not known.
std::optional<std::string> describeForeignFile(llvm::StringRef bytes);

} // namespace koila

#endif // KOILA_SUPPORT_FILEKIND_H
