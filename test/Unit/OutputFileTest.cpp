//===- OutputFileTest.cpp - A complete file or none -----------------------===//

#include "koila/Support/OutputFile.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "gtest/gtest.h"
#include <csignal>
#include <fcntl.h>
#include <string>
#include <unistd.h>

using namespace koila;

/// Writes `path` in this process, which SIGTERM reaches as soon as a file is
/// there beside `path`.
static void writeAndBeEnded(llvm::StringRef path) {
#ifdef F_NOTIFY
  int folder = ::open(llvm::sys::path::parent_path(path).str().c_str(),
                      O_RDONLY | O_DIRECTORY);
  if (folder < 0 || ::fcntl(folder, F_SETSIG, SIGTERM) ||
      ::fcntl(folder, F_NOTIFY, DN_CREATE))
    ::_exit(2);
  std::string error;
  writeOutputFile(path, [](llvm::raw_ostream &os) { os << "text"; }, error);
  ::_exit(0);
#else
  ::_exit(2);
#endif
}

TEST(OutputFileTest, SignalAtCreationLeavesNothing) {
  llvm::SmallString<128> root;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("koila-output", root));
  std::string path = (root + "/out.mlir").str();
  bool isTold = true;
  EXPECT_EXIT(
      writeAndBeEnded(path),
      [&](int status) {
        isTold = !WIFEXITED(status) || WEXITSTATUS(status) != 2;
        return !isTold || (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
      },
      "");
  std::error_code error;
  llvm::sys::fs::directory_iterator left(root, error), end;
  EXPECT_FALSE(error);
  EXPECT_TRUE(left == end) << left->path();
  llvm::sys::fs::remove_directories(root);
  if (!isTold)
    GTEST_SKIP() << "no signals tell of files in folders here";
}

TEST(OutputFileTest, FolderThatIsNotThere) {
  std::string error;
  EXPECT_FALSE(writeOutputFile(
      "/not/there/out.mlir", [](llvm::raw_ostream &) {}, error));
  EXPECT_EQ(error, "cannot write '/not/there/out.mlir': No such file or "
                   "directory");
}
