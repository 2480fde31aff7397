//===- Contents.h - Small records of an archive, checked --------*- C++ -*-===//

#ifndef KOILA_LIB_TARGET_TORCHSCRIPT_CONTENTS_H
#define KOILA_LIB_TARGET_TORCHSCRIPT_CONTENTS_H

#include "Archive.h"
#include "Directory.h"

namespace koila::torchscript {

/// Refuses what the records of code and of pickles show before anything is
/// built from them. `bytes` is the whole file.
void checkContents(const Archive &archive, const Directory &directory,
                   llvm::StringRef bytes);

} // namespace koila::torchscript

#endif // KOILA_LIB_TARGET_TORCHSCRIPT_CONTENTS_H
