//===- OutputFile.h - A complete file or none -------------------*- C++ -*-===//

#ifndef KOILA_SUPPORT_OUTPUTFILE_H
#define KOILA_SUPPORT_OUTPUTFILE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include <optional>
#include <string>

namespace koila {

/// Writes a file under a temporary name beside `path`, then renames it. `-` is
/// stdout; what is no regular file (a device, a pipe) is written directly and
/// never replaced. Returns false and sets `error` on failure.
bool writeOutputFile(llvm::StringRef path,
                     llvm::function_ref<void(llvm::raw_ostream &)> write,
                     std::string &error);

/// For a program that writes no file twice on purpose: writeOutputFile() then
/// refuses to write over what it wrote before, of another module for one.
void setFilesWrittenOnce();

enum class OutputKind : uint8_t { TorchScript, Text, Bytecode };

/// What to write to `path`, by its suffix; MLIR as text to `-` and to devices
/// and pipes with another one. None, and `error` is set, for other suffixes.
std::optional<OutputKind> getOutputKind(llvm::StringRef path,
                                        std::string &error);

/// Whether `path` is there and no regular file.
bool isDeviceOrPipe(llvm::StringRef path);

/// A temporary file beside `path`, or beside what that links to, for
/// keepOutputFile(). A signal that ends the process removes it.
llvm::Expected<llvm::sys::fs::TempFile> createOutputFile(llvm::StringRef path);

/// Gives a file of createOutputFile() the name `path`.
llvm::Error keepOutputFile(llvm::sys::fs::TempFile &file, llvm::StringRef path);

/// For a program that writes its last file next: once that has its name, no
/// signal makes the program fail any more.
void setLastOutput();

} // namespace koila

#endif // KOILA_SUPPORT_OUTPUTFILE_H
