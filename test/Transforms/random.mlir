// RUN: koila-opt %s -cse -canonicalize -loop-invariant-code-motion | FileCheck %s

// Equal draws are two draws, a draw that nobody reads moves the generator on,
// and one in a loop is drawn each time. Equal zeros are one.

// CHECK-LABEL: func.func @draws
// CHECK-COUNT-3: koila.rand {size = array<i64: 2>}
// CHECK: koila.zeros
// CHECK-NOT: koila.zeros
func.func @draws() -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %0 = koila.rand {size = array<i64: 2>} : () -> tensor<2xf32>
  %1 = koila.rand {size = array<i64: 2>} : () -> tensor<2xf32>
  %2 = koila.rand {size = array<i64: 2>} : () -> tensor<2xf32>
  %3 = koila.zeros {size = array<i64: 2>} : () -> tensor<2xf32>
  %4 = koila.zeros {size = array<i64: 2>} : () -> tensor<2xf32>
  return %0, %1, %3, %4 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: func.func @loop
// CHECK: scf.for
// CHECK-NEXT: koila.uniform
func.func @loop(%n: index, %x: tensor<2xf32>) -> tensor<2xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %x) -> tensor<2xf32> {
    %1 = koila.uniform %x {from = 0.0 : f64, to = 1.0 : f64} : (tensor<2xf32>) -> tensor<2xf32>
    %2 = koila.add_Tensor %sum, %1 {alpha = 1 : i64} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    scf.yield %2 : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}
