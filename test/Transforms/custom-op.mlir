// RUN: koila-opt %s --koila-infer-shapes | FileCheck %s
// RUN: koila-opt %s --koila-infer-shapes --koila-peak-memory=threads=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=PEAK
// RUN: not koila-opt %s --koila-compile=tile=2 2>&1 | FileCheck %s --check-prefix=TILED

// A custom operator where nobody registered rules for it: nothing is known, and
// each rule says so.

// CHECK: koila.custom_op "mylib::op"(%{{.*}}) args [#koila.operand<0>, 2.000000e+00] : (tensor<?x4xf32>) -> tensor<3xf32>

// PEAK: not exact: koila.custom_op, {{.*}}: no forward rule of 'mylib::op' is registered

// TILED: no batch rule of 'mylib::op' is registered
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
  func.func @forward(%x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>, koila.name = "x"})
      -> tensor<3xf32> {
    %0 = koila.custom_op "mylib::op"(%x) args [#koila.operand<0>, 2.0]
        : (tensor<?x4xf32>) -> tensor<3xf32>
    return %0 : tensor<3xf32>
  }
}
