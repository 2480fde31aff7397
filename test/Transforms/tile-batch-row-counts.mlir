// Rows are counted by a number that comes from an argument: a merge of the batch
// into the dim before it stays in the tile whose rows it merges.

// RUN: koila-opt %s --koila-tile-batch='tile=4' | FileCheck %s

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @w : tensor<16x16xf32> keys ["w"] strides [16, 1] requires_grad

  // CHECK-LABEL: func.func @forward
  // CHECK-COUNT-2: scf.for
  // CHECK: koila.exp
  // CHECK: koila.reshape
  // CHECK: koila.linear
  // CHECK: koila.view
  // CHECK-NOT: scf.for
  // CHECK: return
  func.func @forward(%x: tensor<?x5x16xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5, 16]>}) -> tensor<?x5x16xf32> {
    %w = koila.param.get @w : tensor<16x16xf32>
    %t = koila.transpose_int %x {dim0 = 1 : i64, dim1 = 0 : i64} : (tensor<?x5x16xf32>) -> tensor<5x?x16xf32>
    %a = koila.exp %t : (tensor<5x?x16xf32>) -> tensor<5x?x16xf32>
    %dense = koila.contiguous %a {memory_format = 0 : i64} : (tensor<5x?x16xf32>) -> tensor<5x?x16xf32>
    %n = koila.size_int %x {dim = 0 : i64} : (tensor<?x5x16xf32>) -> i64
    %five = arith.constant 5 : i64
    %rows = arith.muli %n, %five : i64
    %b = koila.reshape %dense sizes(%rows) {shape = array<i64: -9223372036854775808, 16>} : (tensor<5x?x16xf32>, i64) -> tensor<?x16xf32>
    %c = koila.linear %b, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    %d = koila.view %c sizes(%n) {size = array<i64: 5, -9223372036854775808, 16>} : (tensor<?x16xf32>, i64) -> tensor<5x?x16xf32>
    %e = koila.transpose_int %d {dim0 = 1 : i64, dim1 = 0 : i64} : (tensor<5x?x16xf32>) -> tensor<?x5x16xf32>
    %f = koila.exp %e : (tensor<?x5x16xf32>) -> tensor<?x5x16xf32>
    return %f : tensor<?x5x16xf32>
  }
}
