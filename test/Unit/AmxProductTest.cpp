//===- AmxProductTest.cpp - Products of bfloat16 with AMX -----------------===//
//
// What PyTorch's allocator handed out for these products, on a processor with
// caches of 48 KiB and 2 MiB.
//
//===----------------------------------------------------------------------===//

#include "KernelModels/OneDNN/Amx/AmxProduct.h"
#include "gtest/gtest.h"

using namespace koila;
using namespace koila::onednn;

namespace {
struct Measured {
  BrgemmProduct product;
  bool isSecondTransposed;
  int64_t threads, bytes;
};
} // namespace

static constexpr Caches kCaches{48 << 10, 2 << 20};

TEST(AmxProduct, IsAsMeasured) {
  const Measured calls[] = {
      {{1, 64, 640, 300, 640, 1, false}, false, 1, 414720},
      {{1, 300, 129, 1025, 129, 1, false}, true, 1, 16384},
      {{5, 96, 255, 96, 255, 1, false}, true, 1, 70656},
      {{1, 16, 768, 3072, 768, 1, false}, true, 1, 52224},
      {{1, 2048, 24, 300, 24, 1, false}, false, 1, 25600},
      {{1, 700, 900, 20, 900, 1, false}, false, 1, 65536},
      {{1, 129, 2, 33, 2, 1, false}, false, 1, 22148},
      {{1, 400, 2050, 600, 2050, 1, false}, false, 1, 1070080},
      {{1, 640, 513, 64, 1, 640, false}, false, 1, 380160},
      {{2, 33, 4096, 255, 1, 33, false}, true, 1, 438592},
      {{1, 1, 517, 640, 517, 1, false}, true, 1, 75776},
      {{1, 3, 33, 1024, 1, 3, false}, false, 1, 15360},
      {{1, 64, 640, 300, 640, 1, false}, false, 6, 433664},
      {{1, 300, 129, 1025, 129, 1, false}, true, 6, 458880},
      {{5, 96, 255, 96, 255, 1, false}, true, 6, 351744},
      {{1, 16, 768, 3072, 768, 1, false}, true, 6, 311424},
      {{1, 2048, 24, 300, 24, 1, false}, false, 6, 151680},
      {{1, 700, 900, 20, 900, 1, false}, false, 6, 391296},
      {{1, 129, 2, 33, 2, 1, false}, false, 6, 46224},
      {{1, 400, 2050, 600, 2050, 1, false}, false, 6, 3352064},
      {{1, 640, 513, 64, 1, 640, false}, false, 6, 1024384},
      {{2, 33, 4096, 255, 1, 33, false}, true, 6, 4016768},
      {{1, 1, 517, 640, 517, 1, false}, true, 6, 452736},
      {{1, 3, 33, 1024, 1, 3, false}, false, 6, 88960},
  };
  for (const Measured &call : calls) {
    AmxProduct product{call.product, call.isSecondTransposed};
    SCOPED_TRACE(testing::Message()
                 << product.batch << " times " << product.rows << " by "
                 << product.sums << " by " << product.columns << ", "
                 << call.threads << " threads");
    EXPECT_EQ(getAmxBytes(product, call.threads, kCaches), call.bytes);
    EXPECT_GE(boundAmxBytes(product, call.threads, kCaches), call.bytes);
    EXPECT_GE(boundAmxBytes(product, call.threads, {}), call.bytes);
  }
}

TEST(AmxProduct, IsNotKnownOfOtherCaches) {
  AmxProduct product{{1, 64, 640, 300, 640, 1, false}, false};
  EXPECT_EQ(getAmxBytes(product, 1, {}), std::nullopt);
  EXPECT_EQ(getAmxBytes(product, 1, {32 << 10, 1 << 20}), std::nullopt);
  // The strides of a single column say nothing.
  product.sums = product.rowStride = 1;
  EXPECT_EQ(getAmxBytes(product, 1, kCaches), std::nullopt);
  // Extents whose product is none of 64 bits.
  product.sums = product.rows = product.columns = int64_t(1) << 40;
  EXPECT_EQ(getAmxBytes(product, 1, kCaches), std::nullopt);
}
