//===- Supervisor.h - A crash becomes an error message ----------*- C++ -*-===//
//
// LibTorch loads archives in C++ that was not written for files from strangers.
// So a tool does all its work in a child process, and its parent only waits: it
// turns a crash into one sentence, ends what takes too long, and hands signals
// on. A fork of koila-opt costs some milliseconds; a second program that
// imports would open LibTorch twice and pass every module through a pipe.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TOOLS_SUPPORT_SUPERVISOR_H
#define KOILA_TOOLS_SUPPORT_SUPERVISOR_H

#include <string>

namespace koila {

/// Forks and returns in the child; the parent stays within and ends with the
/// child's exit code. To be called early in main, before there are threads.
/// With KOILA_SINGLE_PROCESS in the environment, or if forking fails, it just
/// returns false: debuggers and stack traces want one process.
bool startSupervised(const char *tool);

/// Names what the process is busy with while it lives, for the sentence after
/// a crash, and ends it after that many seconds; 0 means never. Not nested.
class Stage {
public:
  Stage(const std::string &what, unsigned seconds);
  ~Stage();
  Stage(const Stage &) = delete;
};

} // namespace koila

#endif // KOILA_TOOLS_SUPPORT_SUPERVISOR_H
