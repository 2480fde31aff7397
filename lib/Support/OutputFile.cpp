//===- OutputFile.cpp - A complete file or none ---------------------------===//

#include "koila/Support/OutputFile.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Signals.h"
#include <csignal>
#include <mutex>

using namespace koila;
namespace fs = llvm::sys::fs;

static bool isLastOutput = false;
static bool areFilesWrittenOnce = false;

void koila::setLastOutput() { isLastOutput = true; }

void koila::setFilesWrittenOnce() { areFilesWrittenOnce = true; }

std::optional<OutputKind> koila::getOutputKind(llvm::StringRef path,
                                               std::string &error) {
  llvm::StringRef suffix = llvm::sys::path::extension(path);
  if (suffix == ".pt" || suffix == ".pth")
    return OutputKind::TorchScript;
  if (suffix == ".mlirbc")
    return OutputKind::Bytecode;
  if (suffix == ".mlir" || path == "-" || isDeviceOrPipe(path))
    return OutputKind::Text;
  error = "the name of the output '" + path.str() +
          "' must end in .pt or .pth, for TorchScript, or in .mlir or .mlirbc";
  return std::nullopt;
}

bool koila::isDeviceOrPipe(llvm::StringRef path) {
  fs::file_status status;
  return !fs::status(path, status) && fs::exists(status) &&
         !fs::is_regular_file(status);
}

/// A link stays a link.
static std::string resolveLink(llvm::StringRef path) {
  llvm::SmallString<128> target;
  return fs::real_path(path, target) ? path.str() : target.str().str();
}

llvm::Expected<fs::TempFile> koila::createOutputFile(llvm::StringRef path) {
  std::string target = resolveLink(path);
  llvm::SmallString<128> model(llvm::sys::path::parent_path(target));
  llvm::sys::path::append(model, "." + llvm::sys::path::filename(target) +
                                     ".koila-%%%%%%%%.tmp");
  llvm::SmallString<128> name;
  fs::createUniquePath(model, name, /*MakeAbsolute=*/false);
  // TempFile::create tells the signal handlers of a file that is there
  // already; a signal before that would leave it.
  std::string error;
  if (llvm::sys::RemoveFileOnSignal(name, &error))
    return llvm::createStringError(error);
  auto file = fs::TempFile::create(name);
  if (!file)
    llvm::sys::DontRemoveFileOnSignal(name);
  return file;
}

llvm::Error koila::keepOutputFile(fs::TempFile &file, llvm::StringRef path) {
  // A program that a signal ends says that it failed, and its target must be
  // as it was.
  if (isLastOutput)
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
      std::signal(number, SIG_IGN);
  llvm::Error error = file.keep(resolveLink(path));
  if (error)
    (void)fs::remove(file.TmpName);
  return error;
}

static std::error_code
writeTo(llvm::raw_fd_ostream &os,
        llvm::function_ref<void(llvm::raw_ostream &)> write) {
  write(os);
  os.flush();
  std::error_code code = os.error();
  os.clear_error();
  return code;
}

static llvm::Error
tryToWrite(llvm::StringRef path,
           llvm::function_ref<void(llvm::raw_ostream &)> write) {
  if (path == "-")
    return llvm::errorCodeToError(writeTo(llvm::outs(), write));
  if (isDeviceOrPipe(path)) {
    std::error_code code;
    llvm::raw_fd_ostream os(path, code, fs::CD_OpenExisting);
    return llvm::errorCodeToError(code ? code : writeTo(os, write));
  }
  auto file = createOutputFile(path);
  if (!file)
    return file.takeError();
  std::error_code code;
  {
    llvm::raw_fd_ostream os(file->FD, /*shouldClose=*/false);
    code = writeTo(os, write);
  }
  if (!code)
    return keepOutputFile(*file, path);
  llvm::consumeError(file->discard());
  return llvm::errorCodeToError(code);
}

/// Whether it is the first time that `path` is written. Passes may run at the
/// same time.
static bool isFirstTime(llvm::StringRef path) {
  static std::mutex mutex;
  static llvm::StringSet<> written;
  if (!areFilesWrittenOnce || path == "-" || isDeviceOrPipe(path))
    return true;
  std::lock_guard<std::mutex> lock(mutex);
  return written.insert(resolveLink(path)).second;
}

bool koila::writeOutputFile(llvm::StringRef path,
                            llvm::function_ref<void(llvm::raw_ostream &)> write,
                            std::string &error) {
  if (!isFirstTime(path)) {
    error = "'" + path.str() +
            "' was written before, by another pass or for another module; "
            "give each a file of its own";
    return false;
  }
  llvm::Error failure = tryToWrite(path, write);
  if (!failure)
    return true;
  error = "cannot write '" + path.str() +
          "': " + llvm::toString(std::move(failure));
  return false;
}
