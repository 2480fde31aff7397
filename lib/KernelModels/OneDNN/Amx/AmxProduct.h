//===- AmxProduct.h - Buffers of products with AMX --------------*- C++ -*-===//
//
// Private to lib/KernelModels: what oneDNN's brgemm_matmul_t holds for products
// of bfloat16 on `avx512_core_amx`.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_AMX_AMXPRODUCT_H
#define KOILA_KERNELMODELS_ONEDNN_AMX_AMXPRODUCT_H

#include "../BrgemmProduct.h"
#include "llvm/Support/MathExtras.h"

/// What all blocks have in common.
namespace koila::onednn::amx {

inline int64_t divideCeil(int64_t extent, int64_t block) {
  return llvm::divideCeil(extent, block);
}
inline int64_t pad(int64_t extent, int64_t block) {
  return llvm::alignTo(extent, block);
}

/// Bytes of bfloat16, in which factors are copied, and of a sum.
inline constexpr int64_t kSize = 2, kFloatBytes = 4;
/// The sums that one step takes.
inline constexpr int64_t kSumBlock = 32;

} // namespace koila::onednn::amx

namespace koila::onednn {

/// Of one core, in bytes; 0 if unknown.
struct Caches {
  int64_t l1Bytes = 0, l2Bytes = 0;
};

struct AmxProduct : BrgemmProduct {
  /// Whether the second factor is in columns.
  bool isSecondTransposed = false;
};

/// How a product is cut: for threads, into blocks, and so many blocks at a
/// time.
struct AmxBlocking {
  int64_t threads = 1;
  int64_t batchThreads = 1, rowThreads = 1, sumThreads = 1, columnThreads = 1;
  int64_t rowBlock = 0, rowChunk = 1, columnBlock = 0, columnChunk = 1;
  int64_t sumBlock = 0, sumChunk = 1;
  /// Whether sums are kept between blocks.
  bool needsSums = false;
  /// Whether rows of no whole steps are copied on the way.
  bool copiesFirst = false;
  /// Whether kernels read beyond the last sums of a row that are no whole step.
  bool extendsSums = false;
  /// A row of the copy of the first factor; 0 if it is not copied.
  int64_t copiedRow = 0;
  /// The blocks of sums that a kernel takes.
  int64_t steps = 1;
};

/// Of a first factor in rows, on a processor with these caches.
AmxBlocking findAmxBlocking(const AmxProduct &product, int64_t threads,
                            const Caches &caches);

/// Of one in columns, or of a single row.
AmxBlocking findCopiedAmxBlocking(const AmxProduct &product, int64_t threads,
                                  const Caches &caches);

/// The bytes of the scratchpad; none where the caches are not those of a
/// processor with AMX, or unknown.
std::optional<int64_t> getAmxBytes(const AmxProduct &product, int64_t threads,
                                   const Caches &caches);

/// At most those bytes, of any product.
int64_t boundAmxBytes(const AmxProduct &product, int64_t threads,
                      const Caches &caches);

} // namespace koila::onednn

#endif // KOILA_KERNELMODELS_ONEDNN_AMX_AMXPRODUCT_H
