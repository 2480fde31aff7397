// An operation in place whose operand was made in a loop before: the tile has
// a slice of it, and writes a tensor of its own. What it writes in its own loop
// stays in place, and its memory is known.

// RUN: koila-opt %s --koila-tile-batch='tile=4' | FileCheck %s
// RUN: koila-opt %s --batch B=64 --koila-compile='budget=3KiB' -o %t.mlir
// RUN: FileCheck %s < %t.mlir

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1]
  koila.param @w : tensor<5x5xf32> keys ["w"] strides [5, 1]
  koila.param @mean : tensor<5xf32> keys ["mean"] strides [1] buffer
  koila.param @var : tensor<5xf32> keys ["var"] strides [1] buffer

  // CHECK-LABEL: func.func @forward
  // CHECK: koila.batch_norm_update_stats
  // CHECK: koila.batch_norm_update_stats
  // CHECK: %[[TILE:.*]] = tensor.extract_slice
  // CHECK: %[[VIEW:.*]] = koila.unsqueeze %[[TILE]]
  // CHECK: koila.relu %[[VIEW]]
  // CHECK: koila.tanh tied
  func.func @forward(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) -> tensor<?xf32> {
    %v = koila.param.get @v : tensor<5x3xf32>
    %w = koila.param.get @w : tensor<5x5xf32>
    %mean = koila.param.get @mean : tensor<5xf32>
    %var = koila.param.get @var : tensor<5xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %b = koila.batch_norm %a running_mean %mean running_var %var {cudnn_enabled = true, eps = 1.0e-5 : f64, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    %c = koila.linear %b, %w : (tensor<?x5xf32>, tensor<5x5xf32>) -> tensor<?x5xf32>
    %d = koila.batch_norm %c running_mean %mean running_var %var {cudnn_enabled = true, eps = 1.0e-5 : f64, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    %view = koila.unsqueeze %c {dim = 1 : i64} : (tensor<?x5xf32>) -> tensor<?x1x5xf32>
    %first = koila.relu tied %view : (tensor<?x1x5xf32>) -> tensor<?x1x5xf32>
    %second = koila.tanh tied %d : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %e = koila.squeeze_dim %first {dim = 1 : i64} : (tensor<?x1x5xf32>) -> tensor<?x5xf32>
    %f = koila.add_Tensor %e, %second {alpha = 1 : i64} : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<?x5xf32>
    %g = koila.sum_dim_IntList %f {dim = array<i64: 1>, keepdim = false} : (tensor<?x5xf32>) -> tensor<?xf32>
    return %g : tensor<?xf32>
  }
}
