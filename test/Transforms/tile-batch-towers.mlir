// Two encoders that share nothing before they meet run one after the other:
// no loop has layers of both, and of the first one only what meets is kept.

// RUN: koila-opt %s --koila-tile-batch='tile=4 function=two' | FileCheck %s
// RUN: koila-opt %s --koila-tile-batch='tile=4 function=branches' | FileCheck %s --check-prefix=BRANCHES

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1]
  koila.param @w : tensor<5x4xf32> keys ["w"] strides [4, 1]

  // CHECK-LABEL: func.func @two
  // CHECK: scf.for
  // CHECK: koila.linear {{.*}}tensor<5x3xf32>
  // CHECK-NOT: koila.linear
  // CHECK: koila.batch_norm_update_stats
  // CHECK: scf.for
  // CHECK: koila.tanh
  // CHECK: koila.batch_norm_update_stats
  // CHECK: scf.for
  // CHECK: koila.relu
  // CHECK-NOT: koila.batch_norm_update_stats
  // CHECK: scf.for
  // CHECK: koila.linear {{.*}}tensor<5x4xf32>
  // CHECK: koila.batch_norm_update_stats
  // CHECK: scf.for
  // CHECK: koila.tanh
  // CHECK: koila.batch_norm_update_stats
  // CHECK: scf.for
  // CHECK: koila.relu
  // CHECK: koila.mm
  func.func @two(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}, %y: tensor<?x4xf32> {koila.name = "y", koila.dims = #koila.dims<[B, 4]>}) -> tensor<?x?xf32> {
    %v = koila.param.get @v : tensor<5x3xf32>
    %w = koila.param.get @w : tensor<5x4xf32>
    // Layer by layer, as a program may well be written.
    %a0 = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %b0 = koila.linear %y, %w : (tensor<?x4xf32>, tensor<5x4xf32>) -> tensor<?x5xf32>
    %a1 = koila.batch_norm %a0 {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %b1 = koila.batch_norm %b0 {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %a2 = koila.tanh %a1 : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %b2 = koila.tanh %b1 : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %a3 = koila.batch_norm %a2 {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %b3 = koila.batch_norm %b2 {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %a4 = koila.relu %a3 : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %b4 = koila.relu %b3 : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %t = koila.t %b4 : (tensor<?x5xf32>) -> tensor<5x?xf32>
    %c = koila.mm %a4, %t : (tensor<?x5xf32>, tensor<5x?xf32>) -> tensor<?x?xf32>
    return %c : tensor<?x?xf32>
  }

  // Branches of one network share its first layer, and stay side by side.
  // BRANCHES-LABEL: func.func @branches
  // BRANCHES: koila.linear
  // BRANCHES: scf.for
  // BRANCHES-COUNT-2: koila.batch_norm_update_stats
  // BRANCHES: scf.for
  // BRANCHES: koila.relu
  func.func @branches(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) -> tensor<?x5xf32> {
    %v = koila.param.get @v : tensor<5x3xf32>
    %0 = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %1 = koila.batch_norm %0 {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %a = koila.tanh %1 : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %b = koila.square %1 : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %a1 = koila.batch_norm %a {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %b1 = koila.batch_norm %b {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %c = koila.add_Tensor %a1, %b1 {alpha = 1 : i64} : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<?x5xf32>
    %d = koila.relu %c : (tensor<?x5xf32>) -> tensor<?x5xf32>
    return %d : tensor<?x5xf32>
  }
}
