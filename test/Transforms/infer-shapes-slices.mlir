// RUN: koila-opt %s --koila-infer-shapes | FileCheck %s

// The first two of B samples are min(2, B): that is no number that tracing
// wrote, and an expansion to two, or a write of one row, stands.

// CHECK-LABEL: func.func @expanded
// CHECK: koila.expand {{.*}} -> tensor<{{.*}}x5xf32>
// CHECK-LABEL: func.func @written
// CHECK: koila.masked_fill_Scalar

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @expanded(%x: tensor<?x1xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 1]>}) -> tensor<*x!koila.any> {
    %0 = koila.slice_Tensor %x {dim = 0 : i64, end = 2 : i64, start = 0 : i64, step = 1 : i64} : (tensor<?x1xf32>) -> tensor<*x!koila.any>
    %1 = koila.expand %0 {implicit = false, size = array<i64: 2, 5>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %1 : tensor<*x!koila.any>
  }
  func.func @written(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %y: tensor<1x4xf32> {koila.name = "y"}) -> tensor<*x!koila.any> {
    %0 = koila.slice_Tensor %x {dim = 0 : i64, end = 2 : i64, start = 1 : i64, step = 1 : i64} : (tensor<?x4xf32>) -> tensor<*x!koila.any>
    %1 = koila.gt_Scalar %0 {other = 0.000000e+00 : f64} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %2 = koila.masked_fill_Scalar tied %y, %1 {value = 2.500000e-01 : f64} : (tensor<1x4xf32>, tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %2 : tensor<*x!koila.any>
  }
}
