//===- OutputFile.h - A complete file or none -------------------*- C++ -*-===//

#ifndef KOILA_SUPPORT_OUTPUTFILE_H
#define KOILA_SUPPORT_OUTPUTFILE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"
#include <string>

namespace koila {

/// Writes a file under a temporary name beside `path`, then renames it. `-` is
/// stdout; what is no regular file (a device, a pipe) is written directly and
/// never replaced. Returns false and sets `error` on failure.
bool writeOutputFile(llvm::StringRef path,
                     llvm::function_ref<void(llvm::raw_ostream &)> write,
                     std::string &error);

} // namespace koila

#endif // KOILA_SUPPORT_OUTPUTFILE_H
