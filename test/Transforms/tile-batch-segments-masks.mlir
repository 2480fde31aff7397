// A mask of booleans that is scaled, as of a dropout, in front of statistics of the
// batch: segments read the booleans, and scale them again in each tile.

// RUN: koila-opt %s --koila-tile-batch='mode=train tile=4' | FileCheck %s

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x5xf32> keys ["v"] strides [5, 1] requires_grad
  koila.param @mean : tensor<5xf32> keys ["mean"] strides [1] buffer
  koila.param @var : tensor<5xf32> keys ["var"] strides [1] buffer

  // CHECK-LABEL: func.func @forward
  // CHECK-SAME: %[[MASK:[a-z0-9]+]]: tensor<?x5xi1>
  // CHECK: scf.for
  // CHECK: %[[TILE:.*]] = tensor.extract_slice %[[MASK]]
  // CHECK: koila.div_Scalar %[[TILE]]
  // CHECK: koila.batch_norm_update_stats
  // The gradient of the product.
  // CHECK: koila.native_batch_norm_backward
  // CHECK: scf.for
  // CHECK: %[[AGAIN:.*]] = tensor.extract_slice %[[MASK]]
  // CHECK: koila.div_Scalar %[[AGAIN]]
  // CHECK: koila.backward
  func.func @forward(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}, %mask: tensor<?x5xi1> {koila.name = "mask", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
    %v = koila.param.get @v : tensor<5x5xf32>
    %mean = koila.param.get @mean : tensor<5xf32>
    %var = koila.param.get @var : tensor<5xf32>
    %a = koila.linear %x, %v : (tensor<?x5xf32>, tensor<5x5xf32>) -> tensor<?x5xf32>
    %noise = koila.div_Scalar %mask {other = 9.0e-1 : f64} : (tensor<?x5xi1>) -> tensor<?x5xf32>
    %b = koila.mul_Tensor %a, %noise : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<?x5xf32>
    %c = koila.batch_norm %b running_mean %mean running_var %var {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    %d = koila.square %c : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %e = koila.mean %d : (tensor<?x5xf32>) -> tensor<f32>
    koila.backward %e {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %e : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
