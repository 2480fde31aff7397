// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 | FileCheck %s

// Integers that the tiled operations make, used outside of them, are numbers or are
// computed outside the loops from the extents of arguments (see
// tile-batch-barriers.mlir).

// An extent without the batch shapes a weight.
// CHECK-LABEL: func.func @weight
// CHECK: arith.constant 8 : i64
// CHECK: koila.view
// CHECK: scf.for
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @weight(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %w: tensor<2x4xf32> {koila.name = "w"}) -> tensor<?x8xf32> {
    %n = koila.size_int %x {dim = 1} : (tensor<?x8xf32>) -> i64
    %v = koila.view %w sizes(%n) {size = array<i64: -9223372036854775808>} : (tensor<2x4xf32>, i64) -> tensor<?xf32>
    %0 = koila.mul_Tensor %x, %v : (tensor<?x8xf32>, tensor<?xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}
