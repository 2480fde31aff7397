// RUN: koila-opt %s -split-input-file --koila-infer-shapes | FileCheck %s

// Where control flow merges different shapes, or a callee's result becomes
// known, the types around it stay consistent.

// Branches of different extents.
// CHECK-LABEL: func.func @branches
// CHECK: scf.if %{{.*}} -> (tensor<
func.func @branches(%p: i1, %x: tensor<4x8xf32>) {
  %r = scf.if %p -> (tensor<*x!koila.any>) {
    %d = koila.view %x {size = array<i64: -1, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %d : tensor<*x!koila.any>
  } else {
    %d = koila.relu %x : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %d : tensor<*x!koila.any>
  }
  return
}

// -----

// A call of a function whose result type becomes known.
// CHECK-LABEL: func.func @caller
// CHECK: call @callee
func.func private @callee() -> tensor<*x!koila.any> {
  %e = tensor.empty() : tensor<16xf32>
  %0 = koila.relu %e : (tensor<16xf32>) -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}
func.func @caller() -> tensor<*x!koila.any> {
  %0 = func.call @callee() : () -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}
