// PyTorch hands a leaf the gradient that comes first as it is, also if it is a
// view of what another one gets, and adds the next to it in place.

// RUN: split-file %s %t
// RUN: koila-opt %t/weights.mlir --koila-tile-batch='mode=train tile=1' | FileCheck %t/weights.mlir
// RUN: koila-opt %t/given.mlir --koila-tile-batch='mode=train tile=1' | FileCheck %t/given.mlir

//--- weights.mlir
// Two weights get one tensor, each a view of it, with each sample: each tile
// differentiates leaves of its own, and adds their gradients to those of the
// weights. That of the third is no view of what others get.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @a : tensor<5xf32> keys ["a"] strides [1] requires_grad
  koila.param @b : tensor<5xf32> keys ["b"] strides [1] requires_grad
  koila.param @w : tensor<5x5xf32> keys ["w"] strides [5, 1] requires_grad

  // CHECK-LABEL: func.func @forward
  // CHECK: %[[A:.*]] = koila.param.get @a
  // CHECK: %[[B:.*]] = koila.param.get @b
  // CHECK: %[[W:.*]] = koila.param.get @w
  // CHECK: scf.for
  // CHECK-DAG: %[[OWN_A:.*]] = koila.leaf %[[A]]
  // CHECK-DAG: %[[OWN_B:.*]] = koila.leaf %[[B]]
  // CHECK-DAG: koila.unsqueeze %[[OWN_A]]
  // CHECK-DAG: koila.unsqueeze %[[OWN_B]]
  // CHECK: koila.linear %{{.*}}, %[[W]]
  // CHECK: koila.backward
  // CHECK-DAG: %[[GRAD_A:.*]] = koila.leaf.grad %[[OWN_A]]
  // CHECK-DAG: koila.backward %[[A]], %[[GRAD_A]]
  // CHECK-DAG: %[[GRAD_B:.*]] = koila.leaf.grad %[[OWN_B]]
  // CHECK-DAG: koila.backward %[[B]], %[[GRAD_B]]
  // CHECK-NOT: koila.leaf.grad
  func.func @forward(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
    %a = koila.param.get @a : tensor<5xf32>
    %b = koila.param.get @b : tensor<5xf32>
    %w = koila.param.get @w : tensor<5x5xf32>
    %rowa = koila.unsqueeze %a {dim = 0 : i64} : (tensor<5xf32>) -> tensor<1x5xf32>
    %rowb = koila.unsqueeze %b {dim = 0 : i64} : (tensor<5xf32>) -> tensor<1x5xf32>
    %c = koila.add_Tensor %x, %rowa {alpha = 1 : i64} : (tensor<?x5xf32>, tensor<1x5xf32>) -> tensor<?x5xf32>
    %d = koila.add_Tensor %c, %rowb {alpha = 1 : i64} : (tensor<?x5xf32>, tensor<1x5xf32>) -> tensor<?x5xf32>
    %e = koila.linear %d, %w : (tensor<?x5xf32>, tensor<5x5xf32>) -> tensor<?x5xf32>
    %f = koila.tanh %e : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %g = koila.sum %f : (tensor<?x5xf32>) -> tensor<f32>
    koila.backward %g {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %g : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}

//--- given.mlir
// The gradient of a sum is given to two backward passes, of which the first
// hands views of it to leaves that the second adds to.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<4x4xf32> keys ["v"] strides [4, 1] requires_grad
  koila.param @mean : tensor<4xf32> keys ["mean"] strides [1] buffer
  koila.param @var : tensor<4xf32> keys ["var"] strides [1] buffer

  // CHECK-LABEL: func.func @forward
  // CHECK: %[[COPY:[0-9]+]] = koila.clone %[[GIVEN:[0-9]+]]
  // CHECK-NEXT: koila.backward %{{.*}}, %[[COPY]]
  // CHECK-NEXT: koila.backward %{{.*}}, %[[GIVEN]]
  func.func @forward(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<f32> {
    %v = koila.param.get @v : tensor<4x4xf32>
    %mean = koila.param.get @mean : tensor<4xf32>
    %var = koila.param.get @var : tensor<4xf32>
    %a = koila.linear %x, %v : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    %b = koila.batch_norm %a running_mean %mean running_var %var {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    %c:2 = koila.split_Tensor %b {dim = 1 : i64, split_size = 2 : i64} : (tensor<?x4xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>)
    %d = koila.cat %c#0, %c#1 {dim = 1 : i64} : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x4xf32>
    %e = koila.cat %c#1, %c#0 {dim = 1 : i64} : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x4xf32>
    %f = koila.add_Tensor %d, %e {alpha = 1 : i64} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    %g = koila.square %f : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %h = koila.mean %g : (tensor<?x4xf32>) -> tensor<f32>
    koila.backward %h {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %h : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
