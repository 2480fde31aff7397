// RUN: koila-opt %s | koila-opt | FileCheck %s
// RUN: koila-opt %s --mlir-print-op-generic | koila-opt | FileCheck %s
// RUN: koila-opt %s --emit-bytecode | koila-opt | FileCheck %s

// Unary operators, with and without the permission to write in place.
// CHECK-LABEL: func.func @unary
// CHECK-SAME: %[[X:.*]]: tensor<?x4xf32>
func.func @unary(%x: tensor<?x4xf32>) {
  // CHECK: koila.relu %[[X]] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %0 = koila.relu %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK: koila.relu tied %[[X]] : (tensor<?x4xf32>) -> tensor<*x!koila.any>
  %1 = koila.relu tied %x : (tensor<?x4xf32>) -> tensor<*x!koila.any>
  // CHECK: koila.hardtanh %[[X]] {max_val = 6 : i64, min_val = 0.000000e+00 : f64}
  %2 = koila.hardtanh %x {min_val = 0.0 : f64, max_val = 6 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK: koila.leaky_relu tied %[[X]] {negative_slope = 1.000000e-01 : f64}
  %3 = koila.leaky_relu tied %x {negative_slope = 0.1 : f64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK: koila.elu %[[X]] {alpha = true, input_scale = 1 : i64, scale = 1 : i64}
  %4 = koila.elu %x {alpha = true, scale = 1 : i64, input_scale = 1 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK: koila.gelu %[[X]] {approximate = "tanh"}
  %5 = koila.gelu %x {approximate = "tanh"} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK: koila.special_entr %[[X]] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %6 = koila.special_entr %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return
}

// Integers become float32 in floating-point functions, and stay in others.
// CHECK-LABEL: func.func @integers
func.func @integers(%x: tensor<4xi64>) {
  // CHECK: koila.sqrt {{.*}} : (tensor<4xi64>) -> tensor<4xf32>
  %0 = koila.sqrt %x : (tensor<4xi64>) -> tensor<4xf32>
  // CHECK: koila.special_entr {{.*}} : (tensor<4xi64>) -> tensor<4xf32>
  %3 = koila.special_entr %x : (tensor<4xi64>) -> tensor<4xf32>
  // CHECK: koila.neg {{.*}} : (tensor<4xi64>) -> tensor<4xi64>
  %1 = koila.neg %x : (tensor<4xi64>) -> tensor<4xi64>
  // CHECK: koila.div_Tensor {{.*}} -> tensor<4xf32>
  %2 = koila.div_Tensor %x, %x : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xf32>
  return
}

// Shapes broadcast from the end, ranks may differ.
// CHECK-LABEL: func.func @broadcast
func.func @broadcast(%a: tensor<3x1xf32>, %b: tensor<4xf32>, %s: tensor<f32>) {
  // CHECK: koila.add_Tensor %{{.*}}, %{{.*}} {alpha = 1 : i64} : (tensor<3x1xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %0 = koila.add_Tensor %a, %b {alpha = 1 : i64} : (tensor<3x1xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  // CHECK: koila.mul_Tensor tied %{{.*}}, %{{.*}} : (tensor<3x1xf32>, tensor<f32>) -> tensor<3x1xf32>
  %1 = koila.mul_Tensor tied %a, %s : (tensor<3x1xf32>, tensor<f32>) -> tensor<3x1xf32>
  return
}

// Element types are promoted; a 0-dim tensor gives way within its category.
// CHECK-LABEL: func.func @promotion
func.func @promotion(%i: tensor<4xi32>, %h: tensor<4xf16>, %g: tensor<4xbf16>, %d: tensor<f64>, %b: tensor<4xi1>, %u: tensor<4xui8>, %s: tensor<4xi8>) {
  // CHECK: (tensor<4xi32>, tensor<4xf16>) -> tensor<4xf16>
  %0 = koila.mul_Tensor %i, %h : (tensor<4xi32>, tensor<4xf16>) -> tensor<4xf16>
  // CHECK: (tensor<4xf16>, tensor<4xbf16>) -> tensor<4xf32>
  %1 = koila.mul_Tensor %h, %g : (tensor<4xf16>, tensor<4xbf16>) -> tensor<4xf32>
  // CHECK: (tensor<4xf16>, tensor<f64>) -> tensor<4xf16>
  %2 = koila.mul_Tensor %h, %d : (tensor<4xf16>, tensor<f64>) -> tensor<4xf16>
  // CHECK: (tensor<4xi1>, tensor<4xi32>) -> tensor<4xi32>
  %3 = koila.mul_Tensor %b, %i : (tensor<4xi1>, tensor<4xi32>) -> tensor<4xi32>
  // CHECK: (tensor<4xui8>, tensor<4xi8>) -> tensor<4xi16>
  %4 = koila.mul_Tensor %u, %s : (tensor<4xui8>, tensor<4xi8>) -> tensor<4xi16>
  return
}
