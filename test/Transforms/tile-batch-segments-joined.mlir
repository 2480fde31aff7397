// Two crops of each sample that are joined before the network: joining them
// runs whole, and what follows has two rows for each sample.

// RUN: koila-opt %s --koila-tile-batch='mode=train tile=4' | FileCheck %s

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  koila.param @mean : tensor<5xf32> keys ["mean"] strides [1] buffer
  koila.param @var : tensor<5xf32> keys ["var"] strides [1] buffer

  // CHECK-LABEL: func.func @forward
  // CHECK-NOT: scf.for
  // CHECK: {{^    }}%[[ROWS:[0-9]+]] = koila.cat
  // CHECK-NOT: koila.linear
  // CHECK: scf.for
  // Two rows for each sample of the tile.
  // CHECK: arith.muli
  // CHECK: tensor.extract_slice %[[ROWS]]
  // CHECK: koila.linear
  // CHECK: koila.batch_norm_update_stats
  // CHECK: scf.for
  // CHECK: koila.linear
  // CHECK: koila.backward
  // CHECK-NOT: koila.whole_segment
  func.func @forward(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}, %y: tensor<?x3xf32> {koila.name = "y", koila.dims = #koila.dims<[B, 3]>}) -> tensor<f32> {
    %both = koila.cat %x, %y {dim = 0 : i64} : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %both, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %mean = koila.param.get @mean : tensor<5xf32>
    %var = koila.param.get @var : tensor<5xf32>
    %b = koila.batch_norm %a running_mean %mean running_var %var {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    %c = koila.tanh %b : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %d = koila.square %c : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %e = koila.mean %d : (tensor<?x5xf32>) -> tensor<f32>
    koila.backward %e {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %e : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
