//===- ArchiveValidator.h - Small records, checked --------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_BOUNDARY_ARCHIVEVALIDATOR_H
#define KOILA_TARGET_TORCHSCRIPT_BOUNDARY_ARCHIVEVALIDATOR_H

#include "Archive.h"
#include "koila/Target/PyTorchArchive/ZipCentralDirectory.h"

namespace koila::torchscript {

/// Refuses what the records of code and of pickles show before anything is
/// built from them. `bytes` is the whole file.
void checkContents(const Archive &archive, const Directory &directory,
                   llvm::StringRef bytes);

/// Where the program ran that was saved. Refuses what ran on several devices,
/// or on one that has no data.
std::string findDevice(const Archive &archive);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_BOUNDARY_ARCHIVEVALIDATOR_H
