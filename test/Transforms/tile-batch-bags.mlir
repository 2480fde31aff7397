// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='mode=train tile=4' | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='mode=train tile=4' --canonicalize --cse | FileCheck %s

// Bags of fifteen indices, as embedding_bag makes them of two dims: where they
// begin, each tile counts for itself. Weights of the indices come along.

// CHECK-LABEL: @bags
// CHECK: scf.for
// CHECK: scf.for
// CHECK-DAG: %[[ROWS:.*]] = koila.reshape %{{.*}} -> tensor<?xi64>
// CHECK-DAG: %[[BEGIN:.*]] = koila.arange_start_step
// CHECK: koila.embedding_bag %{{.*}}, %[[ROWS]], %[[BEGIN]], %
// CHECK: koila.backward
// CHECK: scf.yield
// CHECK: scf.yield
// CHECK-NOT: koila.arange
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<9x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @bags(%x: tensor<?x15xi64> {koila.name = "x", koila.dims = #koila.dims<[B, 15]>},
                %s: tensor<?x15xf32> {koila.name = "s", koila.dims = #koila.dims<[B, 15]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<9x6xf32>
  %count = koila.numel %x : (tensor<?x15xi64>) -> i64
  %begin = koila.arange_start_step %count {start = 0 : i64, end = #koila.dynamic, step = 15 : i64} : (i64) -> tensor<?xi64>
  %rows = koila.reshape %x {shape = array<i64: -1>} : (tensor<?x15xi64>) -> tensor<?xi64>
  %scale = koila.reshape %s {shape = array<i64: -1>} : (tensor<?x15xf32>) -> tensor<?xf32>
  %y:4 = koila.embedding_bag %w, %rows, %begin, %scale {scale_grad_by_freq = false, mode = 0 : i64, sparse = false, include_last_offset = false} : (tensor<9x6xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xf32>) -> (tensor<?x6xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64>)
  %loss = koila.sum %y#0 : (tensor<?x6xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// What runs whole beside has the offsets of all samples: bags of twice the
// indices, of which the last one takes the rest.

// CHECK-LABEL: @beside
// CHECK: %[[ALL:.*]] = koila.arange_start_step
// CHECK: koila.embedding_bag %{{.*}}, %{{.*}}, %[[ALL]]
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[OWN:.*]] = koila.arange_start_step
// CHECK: koila.embedding_bag %{{.*}}, %{{.*}}, %[[OWN]]
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<9x6xf32> keys ["w"] strides [6, 1] requires_grad
koila.param @v : tensor<9x6xf32> keys ["v"] strides [6, 1]
func.func @beside(%x: tensor<?x15xi64> {koila.name = "x", koila.dims = #koila.dims<[B, 15]>}) -> (tensor<f32>, tensor<?x6xf32>) {
  %w = koila.param.get @w : tensor<9x6xf32>
  %v = koila.param.get @v : tensor<9x6xf32>
  %count = koila.numel %x : (tensor<?x15xi64>) -> i64
  %begin = koila.arange_start_step %count {start = 0 : i64, end = #koila.dynamic, step = 15 : i64} : (i64) -> tensor<?xi64>
  %rows = koila.reshape %x {shape = array<i64: -1>} : (tensor<?x15xi64>) -> tensor<?xi64>
  %mixed = koila.cat %rows, %rows {dim = 0 : i64} : (tensor<?xi64>, tensor<?xi64>) -> tensor<?xi64>
  %z:4 = koila.embedding_bag %v, %mixed, %begin {scale_grad_by_freq = false, mode = 1 : i64, sparse = false, include_last_offset = false} : (tensor<9x6xf32>, tensor<?xi64>, tensor<?xi64>) -> (tensor<?x6xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64>)
  %y:4 = koila.embedding_bag %w, %rows, %begin {scale_grad_by_freq = false, mode = 1 : i64, sparse = false, include_last_offset = false} : (tensor<9x6xf32>, tensor<?xi64>, tensor<?xi64>) -> (tensor<?x6xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64>)
  %loss = koila.sum %y#0 : (tensor<?x6xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value, %z#0 : tensor<f32>, tensor<?x6xf32>
}
}
