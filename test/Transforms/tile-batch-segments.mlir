// A training step in which samples are mixed on the way to the loss: its forward
// pass runs in tiles without records, and its backward pass in segments.

// RUN: koila-opt %s --koila-tile-batch='mode=train tile=4' | FileCheck %s
// RUN: koila-opt %s --koila-tile-batch='mode=train tile=4' --koila-peak-memory='mode=train threads=1 isa=avx2' --batch B=8 -o /dev/null 2>&1 | FileCheck %s --check-prefix=PEAK
// RUN: not koila-opt %s --koila-tile-batch='mode=train tile=4 batchnorm=refuse' 2>&1 | FileCheck %s --check-prefix=REFUSED
// RUN: not koila-opt %s --koila-tile-batch='mode=train tile=4 recompute=never' 2>&1 | FileCheck %s --check-prefix=REFUSED
// RUN: not koila-opt %s --koila-tile-batch='mode=train tile=4 recompute=always' 2>&1 | FileCheck %s --check-prefix=CHOICE

// PEAK-NOT: not exact

// REFUSED: error: cannot tile the training step over the batch 'B': 'koila.batch_norm' updates tensors of the module from the whole batch, as layers do in training mode; after eval() it would use the ones that are there, in a training step batchnorm=exact takes those of the batch, and batchnorm=per-tile
// CHOICE: error: unknown recompute=always; use recompute=auto or recompute=never

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  koila.param @w : tensor<5xf32> keys ["w"] strides [1] requires_grad
  koila.param @u : tensor<2x5xf32> keys ["u"] strides [5, 1] requires_grad
  koila.param @mean : tensor<5xf32> keys ["mean"] strides [1] buffer
  koila.param @var : tensor<5xf32> keys ["var"] strides [1] buffer

  // CHECK-LABEL: func.func @forward
  // CHECK-SAME: batchnorm = "exact"
  // CHECK-SAME: recompute = "auto"
  // The statistics, of tiles that read detached weights.
  // CHECK: koila.detach
  // CHECK: scf.for
  // CHECK: koila.linear
  // CHECK: koila.batch_norm_update_stats
  // CHECK-NOT: koila.backward
  // Running statistics once, before the second nest of loops.
  // CHECK: koila.lerp_Scalar {{.*}}koila.writes
  // CHECK: koila.lerp_Scalar {{.*}}koila.writes
  // CHECK-NOT: training = true
  // CHECK: scf.for
  // CHECK: koila.batch_norm {{.*}}training = false
  // What mixes samples, differentiated alone: the result of the last layer is a leaf for it.
  // CHECK: koila.leaf
  // CHECK: koila.backward
  // CHECK: koila.leaf.grad
  // The last layer, by products: it does not run again.
  // CHECK: scf.for
  // CHECK-NOT: koila.linear
  // CHECK: koila.matmul
  // CHECK: [[TURNED:%.*]] = koila.t
  // CHECK: [[SUM:%.*]] = koila.matmul [[TURNED]]
  // CHECK: koila.backward {{%.*}}, [[SUM]] {{.*}} : (tensor<2x5xf32>, tensor<2x5xf32>) -> ()
  // Two sums over the batch, one of which is the gradient of the weight, and then
  // what is apart for each sample.
  // CHECK: koila.native_batch_norm_backward {{.*}}output_mask = array<i1: false, true, true>
  // CHECK: koila.backward {{.*}} : (tensor<5xf32>, tensor<5xf32>) -> ()
  // CHECK: scf.for
  // CHECK: koila.linear
  // CHECK: koila.addcmul
  // CHECK: koila.backward
  // No mark stays.
  // CHECK-NOT: koila.segment
  func.func @forward(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) -> tensor<f32> {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %w = koila.param.get @w : tensor<5xf32>
    %mean = koila.param.get @mean : tensor<5xf32>
    %var = koila.param.get @var : tensor<5xf32>
    %b = koila.batch_norm %a weight %w running_mean %mean running_var %var {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    %u = koila.param.get @u : tensor<2x5xf32>
    %c = koila.linear %b, %u : (tensor<?x5xf32>, tensor<2x5xf32>) -> tensor<?x2xf32>
    %d = koila.softmax_int %c {dim = 0 : i64} : (tensor<?x2xf32>) -> tensor<?x2xf32>
    %e = koila.mean %d : (tensor<?x2xf32>) -> tensor<f32>
    koila.backward %e {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %e : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
