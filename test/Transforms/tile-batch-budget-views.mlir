// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=9216 threads=1" | FileCheck %s --check-prefixes=TILED,T2
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=9215 threads=1" | FileCheck %s --check-prefixes=TILED,T1
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=8576 threads=1" | FileCheck %s --check-prefixes=TILED,T1
// RUN: not koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=8575 threads=1" 2>&1 | FileCheck %s --check-prefix=NONE

// Transposed rows are copied, but for one sample: there they are the tensor
// itself. 64 samples of 128 bytes: tiled, the output of 8192 bytes and four
// values of a tile, or three where a tile is one sample.

// TILED-LABEL: func.func @forward
// TILED-SAME: holds_to = 64
// T2-SAME: tile = 2
// T1-SAME: tile = 1
// NONE: error: no tile fits the budget of 8.37 KiB (8,575 bytes): the smallest budget that works is 8.38 KiB (8,576 bytes), with tile 1 for B = 64
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x4x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4, 8]>}) -> tensor<4x?x8xf32> {
    %0 = koila.exp %x : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    %1 = koila.permute %0 {dims = array<i64: 1, 0, 2>} : (tensor<?x4x8xf32>) -> tensor<4x?x8xf32>
    %2 = koila.contiguous %1 {memory_format = 0 : i64} : (tensor<4x?x8xf32>) -> tensor<4x?x8xf32>
    %3 = koila.exp %2 : (tensor<4x?x8xf32>) -> tensor<4x?x8xf32>
    %4 = koila.mul_Tensor %3, %1 : (tensor<4x?x8xf32>, tensor<4x?x8xf32>) -> tensor<4x?x8xf32>
    %5 = koila.mul_Tensor %4, %2 : (tensor<4x?x8xf32>, tensor<4x?x8xf32>) -> tensor<4x?x8xf32>
    return %5 : tensor<4x?x8xf32>
  }
}
