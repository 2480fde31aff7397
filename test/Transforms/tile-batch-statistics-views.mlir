// Views of running statistics that tiles write keep their place.

// RUN: koila-opt %s --koila-tile-batch='tile=4 batchnorm=per-tile' | FileCheck %s

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @mean : tensor<5xf32> keys ["mean"] strides [1] buffer
  koila.param @var : tensor<5xf32> keys ["var"] strides [1] buffer

  // What is read through a view is the statistics of the whole batch, and so the
  // normalisation stays between the loops.
  // CHECK-LABEL: func.func @viewed
  // CHECK: scf.for
  // CHECK: koila.exp
  // CHECK: {{^    }}%{{[0-9]+}} = koila.batch_norm
  // CHECK-NEXT: {{^    }}%[[NEW:[0-9]+]] = koila.mul_Scalar
  // CHECK: scf.for
  // CHECK: koila.add_Tensor {{.*}}%[[NEW]]
  func.func @viewed(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}) -> tensor<?x5xf32> {
    %mean = koila.param.get @mean : tensor<5xf32>
    %var = koila.param.get @var : tensor<5xf32>
    %a = koila.exp %x : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %b = koila.batch_norm %a running_mean %mean running_var %var {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    %view = koila.view %mean {size = array<i64: 5>} : (tensor<5xf32>) -> tensor<5xf32>
    %new = koila.mul_Scalar %view {koila.reads, other = 2.0 : f64} : (tensor<5xf32>) -> tensor<5xf32>
    %c = koila.add_Tensor %b, %new {alpha = 1 : i64} : (tensor<?x5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    return %c : tensor<?x5xf32>
  }
}
