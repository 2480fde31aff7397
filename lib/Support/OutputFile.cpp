//===- OutputFile.cpp - A complete file or none ---------------------------===//

#include "koila/Support/OutputFile.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

bool koila::writeOutputFile(llvm::StringRef path,
                            llvm::function_ref<void(llvm::raw_ostream &)> write,
                            std::string &error) {
  llvm::sys::fs::file_status status;
  if (path != "-" && !llvm::sys::fs::status(path, status) &&
      llvm::sys::fs::exists(status) &&
      !llvm::sys::fs::is_regular_file(status)) {
    std::error_code code;
    llvm::raw_fd_ostream os(path, code);
    if (!code)
      write(os);
    os.flush();
    if (!code)
      code = os.error();
    os.clear_error();
    if (code)
      error = "cannot write '" + path.str() + "': " + code.message();
    return !code;
  }
  llvm::Error failure = llvm::writeToOutput(path, [&](llvm::raw_ostream &os) {
    write(os);
    return llvm::Error::success();
  });
  if (!failure)
    return true;
  error = "cannot write '" + path.str() +
          "': " + llvm::toString(std::move(failure));
  return false;
}
