// RUN: koila-opt %s | koila-opt | FileCheck %s
// RUN: koila-opt %s --mlir-print-op-generic | koila-opt | FileCheck %s
// RUN: koila-opt %s --emit-bytecode | koila-opt | FileCheck %s

// Convolutions, pools, products, normalisations, views and reductions.

// CHECK-LABEL: func.func @convolutions
func.func @convolutions(%x: tensor<?x3x8x8xf32>, %w: tensor<6x3x3x3xf32>, %b: tensor<6xf32>) {
  // CHECK: koila.conv2d %{{.*}}, %{{.*}}, %{{.*}} {dilation = array<i64: 1, 1>, padding = array<i64: 1, 1>, stride = array<i64: 2, 2>} : (tensor<?x3x8x8xf32>, tensor<6x3x3x3xf32>, tensor<6xf32>) -> tensor<?x6x4x4xf32>
  %0 = koila.conv2d %x, %w, %b {stride = array<i64: 2, 2>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<?x3x8x8xf32>, tensor<6x3x3x3xf32>, tensor<6xf32>) -> tensor<?x6x4x4xf32>
  // No bias; one entry stands for both dims.
  // CHECK: koila.conv2d %{{[^,]*}}, %{{[^,]*}} {dilation = array<i64: 2>, padding = array<i64: 0>, stride = array<i64: 1>} : (tensor<?x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<?x6x4x4xf32>
  %1 = koila.conv2d %x, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 2>} : (tensor<?x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<?x6x4x4xf32>
  return
}

// One dim, three dims, groups, and an input without a batch.
// CHECK-LABEL: func.func @ranks
func.func @ranks(%x1: tensor<2x4x9xf32>, %w1: tensor<4x2x3xf32>, %x3: tensor<2x1x4x4x4xf32>, %w3: tensor<2x1x1x1x1xf32>, %x2: tensor<3x8x8xf32>, %w2: tensor<6x3x3x3xf32>) {
  // CHECK: koila.conv1d {{.*}}groups = 2 : i64{{.*}} -> tensor<2x4x7xf32>
  %0 = koila.conv1d %x1, %w1 {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 2 : i64} : (tensor<2x4x9xf32>, tensor<4x2x3xf32>) -> tensor<2x4x7xf32>
  // CHECK: koila.conv3d {{.*}} -> tensor<2x2x4x4x4xf32>
  %1 = koila.conv3d %x3, %w3 {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<2x1x4x4x4xf32>, tensor<2x1x1x1x1xf32>) -> tensor<2x2x4x4x4xf32>
  // CHECK: koila.conv2d {{.*}} -> tensor<6x6x6xf32>
  %2 = koila.conv2d %x2, %w2 {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<6x6x6xf32>
  return
}

// CHECK-LABEL: func.func @pools
func.func @pools(%x: tensor<?x3x7x7xf32>) {
  // An empty stride means the kernel.
  // CHECK: koila.max_pool2d %{{.*}} {dilation = array<i64: 1>, kernel_size = array<i64: 2>, padding = array<i64: 0>, stride = array<i64>} : (tensor<?x3x7x7xf32>) -> tensor<?x3x3x3xf32>
  %0 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<?x3x7x7xf32>) -> tensor<?x3x3x3xf32>
  // Rounded up.
  // CHECK: koila.max_pool2d %{{.*}} {ceil_mode = true{{.*}} -> tensor<?x3x4x4xf32>
  %1 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64: 2>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil_mode = true} : (tensor<?x3x7x7xf32>) -> tensor<?x3x4x4xf32>
  // CHECK: koila.avg_pool2d %{{.*}} {count_include_pad = false, divisor_override = 3 : i64{{.*}} -> tensor<?x3x4x4xf32>
  %2 = koila.avg_pool2d %x {kernel_size = array<i64: 3>, stride = array<i64: 2>, padding = array<i64: 1>, count_include_pad = false, divisor_override = 3 : i64} : (tensor<?x3x7x7xf32>) -> tensor<?x3x4x4xf32>
  // CHECK: koila.adaptive_avg_pool2d %{{.*}} {output_size = array<i64: 1, 2>} : (tensor<?x3x7x7xf32>) -> tensor<?x3x1x2xf32>
  %3 = koila.adaptive_avg_pool2d %x {output_size = array<i64: 1, 2>} : (tensor<?x3x7x7xf32>) -> tensor<?x3x1x2xf32>
  return
}

// CHECK-LABEL: func.func @products
func.func @products(%x: tensor<?x5x64xf32>, %w: tensor<10x64xf32>, %b: tensor<10xf32>, %m: tensor<4x3xf32>, %n: tensor<3x2xf32>, %s: tensor<2xf32>) {
  // CHECK: koila.linear %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x5x64xf32>, tensor<10x64xf32>, tensor<10xf32>) -> tensor<?x5x10xf32>
  %0 = koila.linear %x, %w, %b : (tensor<?x5x64xf32>, tensor<10x64xf32>, tensor<10xf32>) -> tensor<?x5x10xf32>
  // CHECK: koila.linear %{{[^,]*}}, %{{[^,]*}} : (tensor<?x5x64xf32>, tensor<10x64xf32>) -> tensor<?x5x10xf32>
  %1 = koila.linear %x, %w : (tensor<?x5x64xf32>, tensor<10x64xf32>) -> tensor<?x5x10xf32>
  // CHECK: koila.addmm {{.*}} {alpha = 1.000000e+00 : f64, beta = 0 : i64} : (tensor<2xf32>, tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  %2 = koila.addmm %s, %m, %n {beta = 0 : i64, alpha = 1.0 : f64} : (tensor<2xf32>, tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  return
}

// CHECK-LABEL: func.func @norms
func.func @norms(%x: tensor<?x3x8xf32>, %v: tensor<3xf32>, %r: tensor<8xf32>) {
  // CHECK: koila.batch_norm %{{.*}} weight %{{.*}} bias %{{.*}} running_mean %{{.*}} running_var %{{[^ ]*}} {
  %0 = koila.batch_norm %x weight %v bias %v running_mean %v running_var %v {training = false, momentum = 0.1 : f64, eps = 1.0e-5 : f64, cudnn_enabled = true} : (tensor<?x3x8xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<?x3x8xf32>
  // Without weight and bias.
  // CHECK: koila.batch_norm %{{[^ ]*}} running_mean %{{[^ ]*}} running_var %{{[^ ]*}} {
  %1 = koila.batch_norm %x running_mean %v running_var %v {training = false, momentum = 0.1 : f64, eps = 1.0e-5 : f64, cudnn_enabled = true} : (tensor<?x3x8xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<?x3x8xf32>
  // CHECK: koila.layer_norm %{{.*}} bias %{{[^ ]*}} {normalized_shape = array<i64: 8>}
  %2 = koila.layer_norm %x bias %r {normalized_shape = array<i64: 8>} : (tensor<?x3x8xf32>, tensor<8xf32>) -> tensor<?x3x8xf32>
  // CHECK: koila.softmax_int %{{.*}} {dim = -1 : i64, dtype = 7 : i64} : (tensor<?x3x8xf32>) -> tensor<?x3x8xf64>
  %3 = koila.softmax_int %x {dim = -1, dtype = 7} : (tensor<?x3x8xf32>) -> tensor<?x3x8xf64>
  // CHECK: koila.log_softmax_int %{{.*}} {dim = 1 : i64} : (tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  %4 = koila.log_softmax_int %x {dim = 1} : (tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  // CHECK: koila.dropout %{{.*}} {p = 5.000000e-01 : f64, train = false}
  %5 = koila.dropout %x {p = 0.5 : f64, train = false} : (tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  // CHECK: koila.native_dropout %{{.*}} {p = 5.000000e-01 : f64} : (tensor<?x3x8xf32>) -> (tensor<?x3x8xf32>, tensor<?x3x8xi1>)
  %6, %7 = koila.native_dropout %x {p = 0.5 : f64} : (tensor<?x3x8xf32>) -> (tensor<?x3x8xf32>, tensor<?x3x8xi1>)
  return
}

// CHECK-LABEL: func.func @views
func.func @views(%x: tensor<2x3x4xf32>, %s: tensor<f32>, %n: i64) {
  // CHECK: koila.flatten_using_ints %{{[^ ]*}} : (tensor<2x3x4xf32>) -> tensor<24xf32>
  %0 = koila.flatten_using_ints %x : (tensor<2x3x4xf32>) -> tensor<24xf32>
  // CHECK: koila.flatten_using_ints %{{.*}} {end_dim = 1 : i64} : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
  %1 = koila.flatten_using_ints %x {end_dim = 1 : i64} : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
  // A scalar becomes one element.
  // CHECK: koila.flatten_using_ints %{{.*}} : (tensor<f32>) -> tensor<1xf32>
  %2 = koila.flatten_using_ints %s : (tensor<f32>) -> tensor<1xf32>
  // CHECK: koila.view %{{[^ ]*}} {size = array<i64: 4, -1>} : (tensor<2x3x4xf32>) -> tensor<4x6xf32>
  %3 = koila.view %x {size = array<i64: 4, -1>} : (tensor<2x3x4xf32>) -> tensor<4x6xf32>
  // CHECK: koila.reshape %{{.*}} sizes(%{{.*}}) {shape = array<i64: -9223372036854775808, 3>} : (tensor<2x3x4xf32>, i64) -> tensor<?x3xf32>
  %4 = koila.reshape %x sizes(%n) {shape = array<i64: -9223372036854775808, 3>} : (tensor<2x3x4xf32>, i64) -> tensor<?x3xf32>
  // CHECK: koila.size_int %{{.*}} {dim = -1 : i64} : (tensor<2x3x4xf32>) -> i64
  %5 = koila.size_int %x {dim = -1} : (tensor<2x3x4xf32>) -> i64
  return
}

// CHECK-LABEL: func.func @reductions
func.func @reductions(%x: tensor<2x3x4xf32>) {
  // CHECK: koila.mean_dim %{{.*}} {dim = array<i64: 0, -1>} : (tensor<2x3x4xf32>) -> tensor<3xf32>
  %0 = koila.mean_dim %x {dim = array<i64: 0, -1>} : (tensor<2x3x4xf32>) -> tensor<3xf32>
  // CHECK: koila.mean_dim %{{.*}} {dim = array<i64: 1>, keepdim = true} : (tensor<2x3x4xf32>) -> tensor<2x1x4xf32>
  %1 = koila.mean_dim %x {dim = array<i64: 1>, keepdim = true} : (tensor<2x3x4xf32>) -> tensor<2x1x4xf32>
  // CHECK: koila.mean_dim %{{[^ ]*}} : (tensor<2x3x4xf32>) -> tensor<f32>
  %2 = koila.mean_dim %x : (tensor<2x3x4xf32>) -> tensor<f32>
  return
}

// Extents of zero are extents.
// CHECK-LABEL: func.func @empty
func.func @empty(%x: tensor<0x3x8x8xf32>, %w: tensor<6x3x3x3xf32>, %z: tensor<4x0xf32>, %v: tensor<5x0xf32>) {
  // CHECK: -> tensor<0x6x6x6xf32>
  %0 = koila.conv2d %x, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<0x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<0x6x6x6xf32>
  // CHECK: -> tensor<4x5xf32>
  %1 = koila.linear %z, %v : (tensor<4x0xf32>, tensor<5x0xf32>) -> tensor<4x5xf32>
  // CHECK: -> tensor<0xf32>
  %2 = koila.flatten_using_ints %z : (tensor<4x0xf32>) -> tensor<0xf32>
  return
}
