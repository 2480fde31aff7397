//===- Supervisor.cpp - A crash becomes an error message ------------------===//

#include "Supervisor.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace koila;
using Clock = std::chrono::steady_clock;

/// Where a child says what it is busy with; -1 without a parent.
static int stagePipe = -1;

/// Signals that end a program from outside. The child gets them too, so that
/// it removes its temporary files.
static constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static std::atomic<pid_t> child{0};
static std::atomic<int> forwarded{0};

static void forwardSignal(int signal) {
  forwarded = signal;
  if (pid_t pid = child)
    kill(pid, signal);
}

static void say(const std::string &line) {
  for (size_t done = 0; done < line.size();) {
    ssize_t written = write(stagePipe, line.data() + done, line.size() - done);
    if (written < 0 && errno != EINTR)
      return;
    done += std::max<ssize_t>(written, 0);
  }
}

Stage::Stage(const std::string &what, unsigned seconds) {
  if (stagePipe < 0)
    return;
  std::string line = std::to_string(seconds) + " " + what;
  std::replace(line.begin(), line.end(), '\n', ' ');
  say(line + "\n");
}

Stage::~Stage() {
  if (stagePipe >= 0)
    say("0\n");
}

namespace {
/// The parent's side.
class Supervisor {
public:
  Supervisor(const char *tool, int pipe) : tool(tool), pipe(pipe) {}
  [[noreturn]] void run();

private:
  /// Returns false if there is nothing to read now.
  bool readStages();
  /// How long to wait for news; -1 for ever.
  int getPatience() const;
  [[noreturn]] void finish(int status);
  [[noreturn]] void fail(const std::string &sentence);

  const char *tool;
  int pipe;
  std::string pending;
  /// The current stage; empty between stages.
  std::string stage;
  unsigned seconds = 0;
  Clock::time_point deadline = Clock::time_point::max();
  /// Past its time, or asked to end: SIGKILL comes next.
  bool ending = false;
  bool late = false;
};
} // namespace

/// What to do after the tool was told to end and does not.
static constexpr auto kGrace = std::chrono::seconds(5);

bool Supervisor::readStages() {
  char buffer[4096];
  ssize_t size = read(pipe, buffer, sizeof(buffer));
  if (size <= 0) {
    if (size == 0)
      pipe = -1;
    return false;
  }
  pending.append(buffer, size);
  size_t end;
  while ((end = pending.find('\n')) != std::string::npos) {
    std::string line = pending.substr(0, end);
    pending.erase(0, end + 1);
    size_t space = std::min(line.find(' '), line.size());
    seconds = static_cast<unsigned>(strtoul(line.c_str(), nullptr, 10));
    stage = space < line.size() ? line.substr(space + 1) : std::string();
    if (!ending)
      deadline = seconds ? Clock::now() + std::chrono::seconds(seconds)
                         : Clock::time_point::max();
  }
  return true;
}

int Supervisor::getPatience() const {
  if (deadline == Clock::time_point::max())
    return -1;
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - Clock::now());
  return static_cast<int>(
      std::clamp<int64_t>(left.count() + 1, 0, 1000 * 3600));
}

void Supervisor::fail(const std::string &sentence) {
  std::string text = sentence + "\n";
  if (strcmp(tool, "koila-opt") == 0)
    text = "error: " + text;
  else
    text = std::string(tool) + ": error: " + text;
  (void)!write(STDERR_FILENO, text.data(), text.size());
  _exit(1);
}

void Supervisor::finish(int status) {
  if (WIFEXITED(status))
    _exit(WEXITSTATUS(status));
  if (late)
    fail(stage + " took more than " + std::to_string(seconds) +
         " s and was given up; if the file is only large, give "
         "--archive-timeout=SECONDS, or 0 for no limit");
  int number = WTERMSIG(status);
  if (forwarded || number == SIGPIPE ||
      std::find(std::begin(kForwarded), std::end(kForwarded), number) !=
          std::end(kForwarded)) {
    // Whoever waits for this process learns what ended it.
    number = forwarded ? forwarded.load() : number;
    signal(number, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    raise(number);
    _exit(128 + number);
  }
  std::string what = strsignal(number);
  if (number == SIGKILL)
    what = "killed, which the system does when memory runs out";
  if (!stage.empty())
    fail(stage + " crashed (" + what +
         "), as damaged archives make LibTorch do; save the archive again with "
         "torch.jit.save. No file was written");
  fail(std::string(tool) + " crashed (" + what +
       "), which is a bug in koila; with KOILA_SINGLE_PROCESS=1 in the "
       "environment it shows where. No file was written");
}

void Supervisor::run() {
  for (;;) {
    int status;
    pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) {
      // What it said last may still be in the pipe.
      while (pipe >= 0 && readStages()) {
      }
      finish(status);
    }
    if (forwarded && !ending) {
      ending = true;
      deadline = Clock::now() + kGrace;
    }
    if (Clock::now() >= deadline) {
      kill(child, ending ? SIGKILL : SIGTERM);
      late |= !ending;
      if (ending)
        deadline = Clock::time_point::max();
      else
        deadline = Clock::now() + kGrace;
      ending = true;
    }
    // The pipe ends with the child.
    pollfd entry = {pipe, POLLIN, 0};
    if (pipe < 0) {
      poll(nullptr, 0, 10);
      continue;
    }
    if (poll(&entry, 1, getPatience()) > 0)
      readStages();
  }
}

bool koila::startSupervised(const char *tool) {
  if (getenv("KOILA_SINGLE_PROCESS"))
    return false;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return false;
  // No signal may come between the fork and the handlers.
  sigset_t blocked, before;
  sigemptyset(&blocked);
  for (int number : kForwarded)
    sigaddset(&blocked, number);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  pid_t parent = getpid();
  child = fork();
  if (child < 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    close(ends[0]);
    close(ends[1]);
    return false;
  }
  if (child == 0) {
    close(ends[0]);
    stagePipe = ends[1];
    // It must not outlive a parent that was killed; with SIGTERM it removes
    // its temporary files.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
      _exit(1);
    // The parent speaks for it.
    std::set_terminate([] { abort(); });
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return true;
  }
  close(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  for (int number : kForwarded) {
    struct sigaction action = {}, old = {};
    sigaction(number, nullptr, &old);
    if (old.sa_handler == SIG_IGN)
      continue;
    action.sa_handler = forwardSignal;
    sigaction(number, &action, nullptr);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  Supervisor(tool, ends[0]).run();
}
