//===- GpuMemoryTest.cpp - What a GPU has left ----------------------------===//

#include "koila/Device/GpuMemory.h"
#include "koila/KernelModels/DeviceProfile.h"
#include "gtest/gtest.h"
#include <cstdlib>

using namespace koila;

namespace {
class GpuMemoryTest : public testing::Test {
protected:
  void SetUp() override {
#ifndef KOILA_STUB_GPU_PATH
    GTEST_SKIP() << "the headers of the CUDA toolkit were not found";
#endif
  }
  void TearDown() override { unsetenv("KOILA_STUB_GPU"); }

  /// What the driver of StubGpu.cpp says; `kind` chooses what goes wrong.
  llvm::Expected<FreeMemory> read(const char *kind = "") {
    setenv("KOILA_STUB_GPU", kind, /*overwrite=*/1);
#ifdef KOILA_STUB_GPU_PATH
    return getFreeGpuMemory({KOILA_STUB_GPU_PATH, KOILA_STUB_GPU_PATH});
#else
    return getFreeGpuMemory();
#endif
  }
  std::string getError(llvm::Expected<FreeMemory> found) {
    return found ? "" : llvm::toString(found.takeError());
  }
};
} // namespace

TEST_F(GpuMemoryTest, SaysWhatIsFree) {
  auto found = read();
  ASSERT_TRUE(bool(found)) << llvm::toString(found.takeError());
  EXPECT_EQ(found->bytes, int64_t(5) << 30);
  EXPECT_EQ(found->source,
            "the driver of 'Stub 16 GB', of 16.00 GiB (17,179,869,184 bytes), "
            "where 2 processes have 3.00 GiB (3,221,225,472 bytes)");
}

TEST_F(GpuMemoryTest, KnowsPartsOfAGpu) {
  auto found = read("part");
  ASSERT_TRUE(bool(found)) << llvm::toString(found.takeError());
  EXPECT_EQ(found->bytes, int64_t(5) << 30);
}

TEST_F(GpuMemoryTest, SaysWhyThereIsNone) {
  EXPECT_EQ(getError(read("none")),
            "cuDeviceGet: no CUDA-capable device is detected");
  EXPECT_EQ(getError(read("mismatch")),
            "nvmlInit: Driver/library version mismatch");
}

#ifdef KOILA_STUB_GPU_PATH
TEST_F(GpuMemoryTest, SaysWhichCardItIs) {
  GpuLibraries libraries{KOILA_STUB_GPU_PATH, KOILA_STUB_GPU_PATH};
  auto name = [&](int64_t number) -> std::string {
    auto card = getGpuCard(number, libraries);
    if (!card)
      return llvm::toString(card.takeError());
    return DeviceProfile::find(card->name, card->major, card->minor,
                               card->multiprocessors)
        .str();
  };
  EXPECT_EQ(name(0), "h200");
  // Of one name there are several cards.
  EXPECT_EQ(name(1), "cuda");
  EXPECT_EQ(name(2), "cuda");
  setenv("KOILA_STUB_GPU", "none", /*overwrite=*/1);
  EXPECT_EQ(name(0), "cuDeviceGet: no CUDA-capable device is detected");
}
#endif

TEST_F(GpuMemoryTest, NeedsADriver) {
  std::string error =
      getError(getFreeGpuMemory({"/no/libcuda.so", "/no/nvml.so"}));
  EXPECT_EQ(error.rfind("no driver of a GPU: ", 0), 0u) << error;
}
