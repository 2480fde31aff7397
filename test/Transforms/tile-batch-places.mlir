// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 | FileCheck %s

// x[arange(len(x)), y], one place of each sample: each tile counts its own.

// CHECK-LABEL: @places
// CHECK-NOT: koila.arange
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[X:.*]] = tensor.extract_slice
// CHECK: %[[ROWS:.*]] = arith.index_cast
// CHECK: %[[COUNT:.*]] = koila.arange %[[ROWS]]
// CHECK: koila.index_Tensor %{{.*}}, %[[COUNT]], %
// CHECK: scf.yield
// CHECK-NOT: koila.arange
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @places(%x: tensor<?x7x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 7, 3]>}, %y: tensor<?xi64> {koila.name = "y", koila.dims = #koila.dims<[B]>}) -> tensor<?x3xf32> {
  %h = koila.relu %x : (tensor<?x7x3xf32>) -> tensor<?x7x3xf32>
  %n = koila.size_int %x {dim = 0 : i64} : (tensor<?x7x3xf32>) -> i64
  %i = koila.arange %n {end = #koila.dynamic} : (i64) -> tensor<?xi64>
  %0 = koila.index_Tensor %h, %i, %y {indices_mask = array<i1: true, true>} : (tensor<?x7x3xf32>, tensor<?xi64>, tensor<?xi64>) -> tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}
}

// -----

// A table has no samples: the numbers are those of all, which run whole.

// CHECK-LABEL: @table
// CHECK: %[[ALL:.*]] = koila.arange
// CHECK: %[[READ:.*]] = koila.index_Tensor %{{.*}}, %[[ALL]]
// CHECK: scf.for
// CHECK-NOT: koila.arange
// CHECK: tensor.extract_slice %[[READ]]
// CHECK-NOT: koila.arange
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @table(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}, %t: tensor<64x3xf32>) -> tensor<?x3xf32> {
  %n = koila.size_int %x {dim = 0 : i64} : (tensor<?x3xf32>) -> i64
  %i = koila.arange %n {end = #koila.dynamic} : (i64) -> tensor<?xi64>
  %0 = koila.index_Tensor %t, %i {indices_mask = array<i1: true>} : (tensor<64x3xf32>, tensor<?xi64>) -> tensor<?x3xf32>
  %1 = koila.mul_Tensor %x, %0 : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
  return %1 : tensor<?x3xf32>
}
}

// -----

// Counted from one on: the rows of other samples.

// CHECK-LABEL: @others
// CHECK: koila.arange_start
// CHECK: koila.index_Tensor
// CHECK: scf.for
// CHECK-NOT: koila.arange
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @others(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) -> tensor<?x3xf32> {
  %n = koila.size_int %x {dim = 0 : i64} : (tensor<?x3xf32>) -> i64
  %i = koila.arange_start %n {start = -1 : i64, end = #koila.dynamic} : (i64) -> tensor<?xi64>
  %0 = koila.index_Tensor %x, %i {indices_mask = array<i1: true>} : (tensor<?x3xf32>, tensor<?xi64>) -> tensor<?x3xf32>
  %1 = koila.relu %x : (tensor<?x3xf32>) -> tensor<?x3xf32>
  %2 = koila.sum %0 : (tensor<?x3xf32>) -> tensor<f32>
  %3 = koila.mul_Tensor %1, %2 : (tensor<?x3xf32>, tensor<f32>) -> tensor<?x3xf32>
  return %3 : tensor<?x3xf32>
}
}
