// RUN: koila-opt %s --koila-compile=tile=8 | FileCheck %s
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch=tile=8 -o %t.steps.mlir
// RUN: koila-opt %s --koila-compile=tile=8 -o %t.whole.mlir
// RUN: diff %t.steps.mlir %t.whole.mlir

// The whole pipeline is its steps.

// CHECK: koila.report = "
// CHECK-LABEL: func.func @forward
// CHECK-SAME: -> tensor<?x16xf32> attributes {koila.tiled
// CHECK: scf.for
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  koila.param @w : tensor<16x8xf32> keys ["w"] strides [8, 1]
  func.func @forward(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<*x!koila.any> {
    %w = koila.param.get @w : tensor<16x8xf32>
    %0 = koila.linear %x, %w : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any>
  }
}
