// RUN: koila-opt %s -split-input-file --koila-infer-shapes | FileCheck %s

// Numbers that are computed, and what follows from them.

// An element type that is a computed number.
// CHECK-LABEL: func.func @dtype
func.func @dtype(%x: tensor<4x8xi1>, %n: i64) {
  %half = arith.constant 5 : i64
  // CHECK: koila.zeros_like {{.*}} -> tensor<4x8xf16>
  %0 = koila.zeros_like %x, %half {dtype = -9223372036854775808 : i64} : (tensor<4x8xi1>, i64) -> tensor<*x!koila.any>
  // CHECK: koila.zeros_like {{.*}} -> tensor<4x8x!koila.any>
  %1 = koila.zeros_like %x, %n {dtype = -9223372036854775808 : i64} : (tensor<4x8xi1>, i64) -> tensor<*x!koila.any>
  return
}

// -----

// A flag of the element type decides.
// CHECK-LABEL: func.func @flag
func.func @flag(%x: tensor<4x8xi32>) {
  %p = koila.is_floating_point %x : (tensor<4x8xi32>) -> i1
  // CHECK: scf.if %{{.*}} -> (tensor<8x4xi32>)
  %r = scf.if %p -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: 2, 16>} : (tensor<4x8xi32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: 8, 4>} : (tensor<4x8xi32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}

// -----

// No batch makes four heads of each sample one; three times the batch may be
// six.
// CHECK-LABEL: func.func @multiple
func.func @multiple(%x: tensor<?x8xf32> {koila.dims = #koila.dims<[B, 8]>}) {
  %size = koila.size_int %x {dim = 0 : i64} : (tensor<?x8xf32>) -> i64
  %one = arith.constant 1 : i64
  %three = arith.constant 3 : i64
  %four = arith.constant 4 : i64
  %six = arith.constant 6 : i64
  %heads = arith.muli %size, %four : i64
  %p = arith.cmpi eq, %heads, %one : i64
  // CHECK: scf.if %{{.*}} -> (tensor<?x4xf32>)
  %r = scf.if %p -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: -1, 2>} : (tensor<?x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: -1, 4>} : (tensor<?x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  %rows = arith.muli %size, %three : i64
  %q = arith.cmpi ne, %rows, %six : i64
  // CHECK: scf.if %{{[^ ]*}} -> (tensor<?x?xf32>)
  %s = scf.if %q -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: -1, 2>} : (tensor<?x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: -1, 4>} : (tensor<?x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}
