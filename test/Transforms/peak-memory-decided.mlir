// RUN: koila-opt %s --koila-infer-shapes -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: koila-opt %t.mlir --koila-peak-memory='threads=1' -o /dev/null 2>&1 | FileCheck %s --check-prefix=PEAK --implicit-check-not='not exact'
// RUN: koila-opt %t.mlir --koila-compile='tile=4 threads=1' | FileCheck %s --check-prefix=TILED
// RUN: koila-opt %t.mlir --koila-compile='budget=1MiB threads=1' 2>/dev/null | FileCheck %s --check-prefix=WHOLE

// The values of arguments decide a branch, which hands on what it makes, and
// how often a loop turns. A number is assumed where that depends on it only.

// CHECK-LABEL: func.func @forward
// CHECK-DAG: koila.assume value %arg1 : i1 is true
// CHECK-DAG: koila.assume value %arg2 : i64 is 3
// CHECK-NOT: koila.assume value %arg3

// Two tensors of 16x32 floats, and 12 bytes for the number.
// PEAK: peak {{ *}}4.01 KiB (4,108 bytes)
// PEAK-NOT: not exact

// TILED-LABEL: func.func @forward
// TILED-NOT: scf.if
// TILED: koila.assume value %arg1 : i1 is true
// TILED-NEXT: koila.assume value %arg2 : i64 is 3
// TILED-NOT: scf.if
// TILED-NOT: koila.sigmoid
// TILED: koila.tanh

// What is not split is for these values, too.
// WHOLE-LABEL: func.func @forward
// WHOLE-SAME: attributes {koila.decided, koila.specialized}
// WHOLE: koila.assume value %arg1 : i1 is true
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 16, batch = true>]} {
  func.func @forward(%x: tensor<?x32xf32> {koila.dims = #koila.dims<[B, 32]>, koila.name = "x"},
                     %flag: i1 {koila.name = "flag", koila.value = true},
                     %times: i64 {koila.name = "times", koila.value = 3 : i64},
                     %shift: i64 {koila.name = "shift", koila.value = 2 : i64}) -> tensor<*x!koila.any> {
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %y = koila.relu %x : (tensor<?x32xf32>) -> tensor<*x!koila.any>
    %z = scf.if %flag -> (tensor<*x!koila.any>) {
      %0 = koila.tanh %y : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
      scf.yield %0 : tensor<*x!koila.any>
    } else {
      %0 = koila.sigmoid %y : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
      %1 = koila.add_Tensor %0, %y {alpha = 1 : i64} : (tensor<*x!koila.any>, tensor<*x!koila.any>) -> tensor<*x!koila.any>
      scf.yield %1 : tensor<*x!koila.any>
    }
    %sum = scf.for %i = %zero to %times step %one iter_args(%n = %one) -> (i64) : i64 {
      %next = arith.addi %n, %i : i64
      scf.yield %next : i64
    }
    %w = koila.mul_Scalar %z, %shift {other = #koila.dynamic} : (tensor<*x!koila.any>, i64) -> tensor<*x!koila.any>
    return %w : tensor<*x!koila.any>
  }
}
