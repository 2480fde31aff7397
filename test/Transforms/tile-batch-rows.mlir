// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 | FileCheck %s

// Rows t*B + b, as torch.nn.MultiheadAttention makes them for its projection:
// the samples are interleaved, each row stands for itself, and a tile has fewer.
// CHECK-LABEL: func.func @merged
// CHECK: scf.for
// CHECK:   %[[SIZE:.*]] = arith.muli
// CHECK:   %[[ROWS:.*]] = arith.index_cast %[[SIZE]]
// CHECK:   koila.view %{{.*}} sizes(%[[ROWS]]) {size = array<i64: {{[-0-9]+}}, 8>} : (tensor<5x?x8xf32>, i64) -> tensor<?x8xf32>
// CHECK:   koila.linear
// CHECK:   koila.view
// CHECK:   tensor.insert_slice
// CHECK-NOT: koila.linear
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @merged(%x: tensor<?x5x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5, 8]>}, %w: tensor<3x8xf32> {koila.name = "w", koila.dims = #koila.dims<[3, 8]>}) -> tensor<5x?x3xf32> {
    %five = arith.constant 5 : i64
    %0 = koila.permute %x {dims = array<i64: 1, 0, 2>} : (tensor<?x5x8xf32>) -> tensor<5x?x8xf32>
    %1 = koila.contiguous %0 {memory_format = 0 : i64} : (tensor<5x?x8xf32>) -> tensor<5x?x8xf32>
    %n = koila.size_int %1 {dim = 1} : (tensor<5x?x8xf32>) -> i64
    %rows = arith.muli %n, %five : i64
    %2 = koila.view %1 sizes(%rows) {size = array<i64: -9223372036854775808, 8>} : (tensor<5x?x8xf32>, i64) -> tensor<?x8xf32>
    %3 = koila.linear %2, %w : (tensor<?x8xf32>, tensor<3x8xf32>) -> tensor<?x3xf32>
    %4 = koila.view %3 sizes(%n) {size = array<i64: 5, -9223372036854775808, 3>} : (tensor<?x3xf32>, i64) -> tensor<5x?x3xf32>
    %5 = koila.relu %4 : (tensor<5x?x3xf32>) -> tensor<5x?x3xf32>
    return %5 : tensor<5x?x3xf32>
  }
}

// -----

// Two views of each image, one after the other, and apart again.
// CHECK-LABEL: func.func @joined
// CHECK: scf.for
// CHECK:   koila.cat
// CHECK:   koila.exp
// CHECK:   koila.chunk
// CHECK:   koila.mul_Tensor
// CHECK:   tensor.insert_slice
// CHECK-NOT: koila.cat
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @joined(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %y: tensor<?x8xf32> {koila.name = "y", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.cat %x, %y {dim = 0 : i64} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.exp %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2:2 = koila.chunk %1 {chunks = 2 : i64, dim = 0 : i64} : (tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>)
    %3 = koila.mul_Tensor %2#0, %2#1 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %3 : tensor<?x8xf32>
  }
}

// -----

// Rows that are interleaved cannot be put into one buffer: what merges them runs
// whole, and what comes before does not.
// CHECK-LABEL: func.func @returned
// CHECK: scf.for
// CHECK:   koila.exp
// CHECK: koila.cat
// CHECK: scf.for
// CHECK:   koila.relu
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @returned(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %y: tensor<?x8xf32> {koila.name = "y", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.cat %0, %y {dim = 0 : i64} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.relu %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}

// -----

// Rows in two orders are not the same samples: what joined them runs whole, and
// then rows are rows.
// CHECK-LABEL: func.func @orders
// CHECK: scf.for
// CHECK:   koila.exp
// CHECK-NOT: koila.add_Tensor
// CHECK: %[[ALL:.*]] = koila.cat
// CHECK: scf.for
// CHECK:   %[[ROWS:.*]] = tensor.extract_slice %[[ALL]]
// CHECK:   koila.add_Tensor %[[ROWS]]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @orders(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %y: tensor<?x8xf32> {koila.name = "y", koila.dims = #koila.dims<[2*B, 8]>}) -> tensor<8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.cat %0, %0 {dim = 0 : i64} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.add_Tensor %1, %y {alpha = 1 : i64} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %3 = koila.softmax_int %2 {dim = 0} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %4 = koila.sum_dim_IntList %3 {dim = array<i64: 0>} : (tensor<?x8xf32>) -> tensor<8xf32>
    return %4 : tensor<8xf32>
  }
}
