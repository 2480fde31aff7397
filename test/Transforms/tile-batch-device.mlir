// Tiles for a GPU: by what its kernels allocate, where that is known, and else
// by a tile that is given.

// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="function=known budget=3584 device=cuda" | FileCheck %s
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="function=known budget=3584 device=h200" | FileCheck %s
// RUN: not koila-opt %s --koila-infer-shapes --koila-tile-batch="function=known budget=2143 device=cuda" -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not koila-opt %s --koila-infer-shapes --koila-tile-batch="function=convolution budget=64KiB device=cuda" -o /dev/null 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="function=convolution tile=8 device=cuda" | FileCheck %s --check-prefix=GIVEN
// RUN: env CUDA_VISIBLE_DEVICES= not koila-opt %s --koila-infer-shapes --koila-tile-batch="function=known budget=auto device=cuda" -o /dev/null 2>&1 | FileCheck %s --check-prefix=AUTO
// RUN: not koila-opt %s --koila-infer-shapes --koila-tile-batch="function=known budget=3584 device=cuda allocator=cuda" -o /dev/null 2>&1 | FileCheck %s --check-prefix=SEGMENTS

// CHECK-LABEL: func.func @known
// CHECK-SAME: tile = 16
// NONE: error: no tile fits the budget of 2.09 KiB (2,143 bytes): the smallest budget that works is 2.09 KiB (2,144 bytes)
// UNKNOWN: error: a budget cannot be promised: memory of 'koila.conv2d' is not known exactly ({{.*}}workspace{{.*}}; give tile=N instead
// GIVEN-LABEL: func.func @convolution
// GIVEN-SAME: tile = 8
// AUTO: error: budget=auto: {{.*}}; give the bytes that are free, for example budget=6GiB
// SEGMENTS: error: allocator=cuda is not supported yet; use allocator=exact
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @known(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.exp %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.mul_Tensor %0, %1 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
  func.func @convolution(%x: tensor<?x3x8x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3, 8, 8]>}, %w: tensor<8x3x3x3xf32>) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<?x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any>
  }
}
