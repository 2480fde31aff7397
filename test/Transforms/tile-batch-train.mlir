// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='mode=train tile=4' | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='mode=train tile=4' --canonicalize --cse --loop-invariant-code-motion | FileCheck %s --check-prefix=CLEAN

// The backward pass of each tile, of its share of a mean.

// CHECK-LABEL: @mean
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[PART:.*]] = koila.mse_loss
// CHECK: %[[ROWS:.*]] = koila.mul_Scalar %[[PART]]
// CHECK: %[[SHARE:.*]] = koila.div_Scalar %[[ROWS]]
// CHECK: koila.backward %[[SHARE]]
// CHECK: %[[VALUE:.*]] = koila.detach %[[PART]]
// CHECK: koila.add_Tensor tied %{{.*}}, %[[VALUE]]
// CHECK: scf.yield
// CHECK: scf.yield
// CHECK-NOT: koila.backward
// CHECK: return

// CLEAN-LABEL: @mean
// CLEAN: scf.for
// CLEAN: koila.backward
// CLEAN: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @mean(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>},
                %t: tensor<?x5xf32> {koila.name = "t", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.mse_loss %y, %t {reduction = 1 : i64} : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// A sum that depends on the weights alone is differentiated once, and not in
// the tiles; a weight that is made of weights is made in each.

// CHECK-LABEL: @regularised
// CHECK-NOT: koila.tanh
// CHECK: scf.for
// CHECK: scf.for
// CHECK: koila.tanh
// CHECK: %[[PART:.*]] = koila.mse_loss
// CHECK: %[[FREE:.*]] = koila.detach %[[SQUARES:[0-9]+]]
// CHECK: %[[LOSS:.*]] = koila.add_Tensor %[[PART]], %[[FREE]]
// CHECK: koila.backward %[[LOSS]]
// CHECK: scf.yield
// CHECK: scf.yield
// CHECK: %[[WHOLE:.*]] = koila.add_Tensor %{{.*}}, %[[SQUARES]]
// CHECK: koila.backward %[[WHOLE]]
// CHECK-NOT: koila.tanh
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @regularised(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>},
                       %t: tensor<?x5xf32> {koila.name = "t", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<5x6xf32>
  %bounded = koila.tanh %w : (tensor<5x6xf32>) -> tensor<5x6xf32>
  %y = koila.linear %x, %bounded : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %sum = koila.mse_loss %y, %t {reduction = 2 : i64} : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<f32>
  %products = koila.mul_Tensor %w, %w : (tensor<5x6xf32>, tensor<5x6xf32>) -> tensor<5x6xf32>
  %squares = koila.sum %products : (tensor<5x6xf32>) -> tensor<f32>
  %loss = koila.add_Tensor %sum, %squares {alpha = 1 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// The divisor of a mean over classes needs the targets alone, and all of them:
// it is there before the tiles that differentiate.

// CHECK-LABEL: @classes
// CHECK: scf.for
// CHECK: scf.for
// CHECK: koila.ne_Scalar
// CHECK: koila.sum
// CHECK-NOT: koila.backward
// CHECK: scf.yield
// CHECK: scf.yield
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[SUM:.*]] = koila.cross_entropy_loss {{.*}}reduction = 2
// CHECK: %[[PART:.*]] = koila.div_Tensor %[[SUM]]
// CHECK: koila.backward %[[PART]]
// CHECK: scf.yield
// CHECK: scf.yield
// CHECK-NOT: koila.backward
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @classes(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>},
                   %t: tensor<?xi64> {koila.name = "t", koila.dims = #koila.dims<[B]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.cross_entropy_loss %y, %t {ignore_index = -100 : i64, label_smoothing = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 1 : i64} : (tensor<?x5xf32>, tensor<?xi64>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// No tile is a single sample where PyTorch's gradients of one may be wrong: the
// loops go down to two, and the first tile of an odd batch has one more.

// CHECK-LABEL: @normalised
// CHECK: %[[B:.*]] = tensor.dim %arg0
// CHECK: %[[TILE:.*]] = arith.constant 4 : index
// CHECK: %[[BITS:.*]] = arith.constant 2 : index
// CHECK: %[[HALF:.*]] = arith.floordivsi %[[B]]
// CHECK: %[[EVEN:.*]] = arith.muli %[[HALF]]
// CHECK: %[[ODD:.*]] = arith.subi %[[B]], %[[EVEN]]
// CHECK: scf.for {{.*}} to %[[BITS]] {{.*}} = %[[ODD]], %{{.*}} = %[[TILE]])
// CHECK: scf.for {{.*}}iter_args({{.*}}, %[[START:arg[0-9]+]] = %{{arg[0-9]+}}, %[[MORE:arg[0-9]+]] = %{{arg[0-9]+}})
// CHECK: %[[ROWS:.*]] = arith.addi %{{.*}}, %[[MORE]]
// CHECK: tensor.extract_slice %arg0[%[[START]], 0, 0] [%[[ROWS]], 5, 6]
// CHECK: koila.backward
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5xf32> keys ["w"] strides [1] requires_grad
koila.param @m : tensor<5xf32> keys ["m"] strides [1] buffer
func.func @normalised(%x: tensor<?x5x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5, 6]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<5xf32>
  %m = koila.param.get @m : tensor<5xf32>
  %y = koila.batch_norm %x weight %w running_mean %m running_var %m {cudnn_enabled = false, eps = 1.0e-5 : f64, momentum = 1.0e-1 : f64, training = false} : (tensor<?x5x6xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5x6xf32>
  %loss = koila.sum %y : (tensor<?x5x6xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// The gates of a cell are parts of one tensor, and written: each tile does so to
// its own.

// CHECK-LABEL: @gates
// CHECK: scf.for
// CHECK: %[[GATES:.*]]:2 = koila.unsafe_chunk
// CHECK: koila.sigmoid tied %[[GATES]]#0
// CHECK: koila.tanh tied %[[GATES]]#1
// CHECK: koila.backward
// CHECK: scf.yield
// CHECK-NOT: koila.backward
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<8x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @gates(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<8x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<8x6xf32>) -> tensor<?x8xf32>
  %gates:2 = koila.unsafe_chunk %y {chunks = 2 : i64, dim = 1 : i64} : (tensor<?x8xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>)
  %keep = koila.sigmoid tied %gates#0 : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %new = koila.tanh tied %gates#1 : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %z = koila.mul_Tensor %keep, %new : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %loss = koila.sum %z : (tensor<?x4xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// The mean over what a mask selects: its divisor is there before the tiles, and
// each differentiates its part of the sum.

// CHECK-LABEL: @selected
// CHECK: %[[COUNT:.*]] = koila.sum %arg1 : (tensor<?x5xi1>) -> tensor<i64>
// CHECK: scf.for
// CHECK: scf.for
// CHECK: koila.index_Tensor
// CHECK: %[[PART:.*]] = koila.sum %{{.*}} : (tensor<?xf32>) -> tensor<f32>
// CHECK: %[[SHARE:.*]] = koila.div_Tensor %[[PART]], %[[COUNT]]
// CHECK: koila.backward %[[SHARE]]
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5xf32> keys ["w"] strides [1] requires_grad
func.func @selected(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}, %m: tensor<?x5xi1> {koila.name = "m", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<5xf32>
  %y = koila.mul_Tensor %x, %w : (tensor<?x5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
  %s = koila.index_Tensor %y, %m {indices_mask = array<i1: true>} : (tensor<?x5xf32>, tensor<?x5xi1>) -> tensor<?xf32>
  %e = koila.exp %s : (tensor<?xf32>) -> tensor<?xf32>
  %loss = koila.mean %e : (tensor<?xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}
