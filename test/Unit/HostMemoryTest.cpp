//===- HostMemoryTest.cpp - What the host has left ------------------------===//

#include "koila/Device/HostMemory.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

using namespace koila;

namespace {
/// A folder that stands for the root of the file system.
class HostMemoryTest : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("koila-host", root));
  }
  void TearDown() override { llvm::sys::fs::remove_directories(root); }

  void write(llvm::StringRef path, llvm::StringRef text) {
    std::string file = (root + path).str();
    llvm::sys::fs::create_directories(llvm::sys::path::parent_path(file));
    std::error_code error;
    llvm::raw_fd_ostream os(file, error);
    ASSERT_FALSE(error);
    os << text;
  }
  void writeHost(llvm::StringRef available = "1000") {
    write("/proc/meminfo", ("MemTotal:     4000 kB\nMemFree:     10 kB\n"
                            "MemAvailable:   " +
                            available + " kB\n")
                               .str());
  }
  FreeMemory read() {
    auto found = getFreeHostMemory(root);
    if (found)
      return *found;
    return {-1, llvm::toString(found.takeError())};
  }

  llvm::SmallString<128> root;
};
} // namespace

TEST_F(HostMemoryTest, SaysWhatIsMissing) {
  EXPECT_EQ(read().bytes, -1);
  EXPECT_EQ(read().source, "neither /proc/meminfo nor a control group says "
                           "how much memory is free");
  write("/proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: many kB\n");
  write("/proc/self/cgroup", "0::/user\n");
  EXPECT_EQ(read().bytes, -1);
}

TEST_F(HostMemoryTest, ReadsTheHost) {
  writeHost();
  EXPECT_EQ(read().bytes, 1000 * 1024);
  EXPECT_EQ(read().source, "MemAvailable of /proc/meminfo");
}

TEST_F(HostMemoryTest, ObeysTheGroup) {
  writeHost();
  write("/proc/self/cgroup", "0::/user/job\n");
  write("/sys/fs/cgroup/user/job/memory.max", "max\n");
  write("/sys/fs/cgroup/user/job/memory.current", "100000\n");
  EXPECT_EQ(read().bytes, 1000 * 1024);
  write("/sys/fs/cgroup/user/job/memory.max", "500000\n");
  EXPECT_EQ(read().bytes, 400000);
  EXPECT_EQ(read().source, "/sys/fs/cgroup/user/job/memory.max");
  // Cached files that nobody reads are given back.
  write("/sys/fs/cgroup/user/job/memory.stat",
        "anon 60000\nfile 40000\ninactive_file 30000\nactive_file 10000\n");
  EXPECT_EQ(read().bytes, 430000);
  // A host that has less.
  writeHost("100");
  EXPECT_EQ(read().bytes, 100 * 1024);
}

TEST_F(HostMemoryTest, ObeysGroupsAround) {
  writeHost();
  write("/proc/self/cgroup", "0::/user/job\n");
  write("/sys/fs/cgroup/user/job/memory.max", "500000\n");
  write("/sys/fs/cgroup/user/job/memory.current", "0\n");
  write("/sys/fs/cgroup/user/memory.max", "600000\n");
  write("/sys/fs/cgroup/user/memory.current", "590000\n");
  EXPECT_EQ(read().bytes, 10000);
  // Above its limit, and at the root as a container sees it.
  write("/sys/fs/cgroup/memory.max", "1000\n");
  write("/sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(read().bytes, 0);
}

TEST_F(HostMemoryTest, ReadsTheFirstVersion) {
  writeHost();
  write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "90000\n");
  EXPECT_EQ(read().bytes, 1000 * 1024);
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "80000\n");
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "70000\n");
  write("/sys/fs/cgroup/memory/job/memory.stat",
        "inactive_file 1\ntotal_inactive_file 5000\n");
  EXPECT_EQ(read().bytes, 15000);
  // Without the host, the group alone says it.
  llvm::sys::fs::remove(root + "/proc/meminfo");
  EXPECT_EQ(read().bytes, 15000);
}

TEST(HostMemory, ReadsThisMachine) {
  auto found = getFreeHostMemory();
  ASSERT_TRUE(static_cast<bool>(found));
  EXPECT_GT(found->bytes, 0);
}

TEST_F(HostMemoryTest, ReadsTheLimitsOfTheProcess) {
  writeHost();
  write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit   Units\n"
        "Max data size             unlimited            unlimited    bytes\n"
        "Max address space         409600               unlimited    bytes\n");
  write("/proc/self/status", "VmPeak:\t 390 kB\nVmSize:\t 100 kB\n"
                             "VmData:\t 90 kB\n");
  EXPECT_EQ(read().bytes, 300 * 1024);
  EXPECT_EQ(read().source, "Max address space of /proc/self/limits");
  write("/proc/self/limits", "Max data size    100000   unlimited   bytes\n"
                             "Max address space   unlimited  unlimited\n");
  EXPECT_EQ(read().bytes, 100000 - 90 * 1024);
  write("/proc/self/limits", "Max data size    10   unlimited   bytes\n");
  EXPECT_EQ(read().bytes, 0);
}
