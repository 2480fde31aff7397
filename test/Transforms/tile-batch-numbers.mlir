// Numbers of samples that a trace computes in 0-dim tensors: a tile has its own.

// RUN: koila-opt %s --koila-tile-batch='tile=4' | FileCheck %s

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  // The rows of two windows a sample, and the samples again.
  // CHECK-LABEL: func.func @forward
  // CHECK-NOT: koila.floor_divide
  // CHECK: scf.for
  // CHECK: scf.for
  // CHECK: koila.view
  // CHECK: %[[COUNT:.*]] = arith.index_cast %{{.*}} : index to i64
  // CHECK: koila.view {{.*}} sizes(%[[COUNT]]) {{.*}} -> tensor<?x2x4xf32>
  // CHECK: %[[SOFT:.*]] = koila.softmax_int
  // CHECK: %[[ROWS:.*]] = arith.muli
  // CHECK: %[[NUMBER:.*]] = arith.index_cast %[[ROWS]]
  // CHECK: koila.view %[[SOFT]] sizes(%[[NUMBER]])
  func.func @forward(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x4xf32> {
    %rows = koila.view %x {size = array<i64: -1, 4>} : (tensor<?x8xf32>) -> tensor<?x4xf32>
    %size = koila.size_int %rows {dim = 0 : i64} : (tensor<?x4xf32>) -> i64
    %held = koila.num_to_tensor %size {a = #koila.dynamic} : (i64) -> tensor<i64>
    %two = arith.constant 2 : i64
    %windows = koila.num_to_tensor %two {a = #koila.dynamic} : (i64) -> tensor<i64>
    %quotient = koila.floor_divide %held, %windows : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %samples = koila.Int_Tensor %quotient : (tensor<i64>) -> i64
    %y = koila.view %rows sizes(%samples) {size = array<i64: -9223372036854775808, 2, 4>} : (tensor<?x4xf32>, i64) -> tensor<?x2x4xf32>
    %z = koila.softmax_int %y {dim = 1 : i64} : (tensor<?x2x4xf32>) -> tensor<?x2x4xf32>
    %double = arith.muli %samples, %two : i64
    %w = koila.view %z sizes(%double) {size = array<i64: -9223372036854775808, 4>} : (tensor<?x2x4xf32>, i64) -> tensor<?x4xf32>
    %v = koila.relu %w : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return %v : tensor<?x4xf32>
  }
}
