//===- BrgemmProduct.h - Buffers of products of half types ------*- C++ -*-===//
//
// Private to lib/KernelModels: what oneDNN's brgemm_matmul_t holds on AVX-512.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_BRGEMMPRODUCT_H
#define KOILA_KERNELMODELS_ONEDNN_BRGEMMPRODUCT_H

#include <cstdint>
#include <optional>

namespace koila::onednn {

/// A product of `batch` matrices of `rows` by `sums` with others of `sums` by
/// `columns`, as oneDNN gets it.
struct BrgemmProduct {
  int64_t batch, rows, sums, columns;
  /// Of the first factor.
  int64_t rowStride, sumStride;
  /// bfloat16 else.
  bool isFloat16;
};

/// The bytes of the scratchpad on `avx512_core_bf16` or `avx512_core_fp16`;
/// none where oneDNN takes another kernel.
std::optional<int64_t> getBrgemmBytes(const BrgemmProduct &product,
                                      int64_t threads);

} // namespace koila::onednn

#endif // KOILA_KERNELMODELS_ONEDNN_BRGEMMPRODUCT_H
