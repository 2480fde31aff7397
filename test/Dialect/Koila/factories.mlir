// RUN: koila-opt %s -split-input-file -verify-diagnostics | koila-opt -split-input-file | FileCheck %s

// CHECK-LABEL: func.func @factories
func.func @factories(%x: tensor<?x3xf16>, %n: i64, %a: f64) {
  // CHECK: koila.zeros %{{.*}} {dtype = 7 : i64, size = array<i64: -9223372036854775808, 2>} : (i64) -> tensor<?x2xf64>
  %0 = koila.zeros %n {size = array<i64: -9223372036854775808, 2>, dtype = 7 : i64} : (i64) -> tensor<?x2xf64>
  // CHECK: koila.full %{{.*}} {fill_value = #koila.dynamic, size = array<i64: 2>} : (f64) -> tensor<2xf32>
  %1 = koila.full %a {size = array<i64: 2>, fill_value = #koila.dynamic} : (f64) -> tensor<2xf32>
  // CHECK: koila.arange_start_step
  // CHECK-SAME: -> tensor<5xi64>
  %2 = koila.arange_start_step {start = 9 : i64, end = 0 : i64, step = -2 : i64} : () -> tensor<5xi64>
  // CHECK: koila.to_dtype
  %3 = koila.to_dtype %x {dtype = 6 : i64, non_blocking = false, copy = false} : (tensor<?x3xf16>) -> tensor<?x3xf32>
  // CHECK: koila.fill_Scalar tied
  %4 = koila.fill_Scalar tied %x {value = 1 : i64} : (tensor<?x3xf16>) -> tensor<?x3xf16>
  // CHECK: koila.triu_indices
  %5 = koila.triu_indices {row = 4 : i64, col = 4 : i64, offset = 1 : i64, dtype = 4 : i64} : () -> tensor<2x6xi64>
  return
}

// -----

func.func @negative() {
  // expected-error @below {{extent -2 of dim 1 is negative}}
  %0 = koila.ones {size = array<i64: 3, -2>} : () -> tensor<3x?xf32>
  return
}

// -----

func.func @backwards() {
  // expected-error @below {{the step leads away from the end}}
  %0 = koila.arange_start {start = 4 : i64, end = 2 : i64} : () -> tensor<?xi64>
  return
}

// -----

func.func @rank(%x: tensor<2x3xf32>) {
  // expected-error @below {{channels last needs 4 dims; there are 2}}
  %0 = koila.clone %x {memory_format = 2 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @broadcast(%x: tensor<2x3xf32>, %y: tensor<2xf32>) {
  // expected-error @below {{extent 2 does not broadcast to 3 in dim 1}}
  %0 = koila.copy %x, %y {non_blocking = false} : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @type(%x: tensor<2xi64>) {
  // expected-error @below {{works with floating-point types, not with 'i64'}}
  %0 = koila.uniform %x {from = 0.0 : f64, to = 1.0 : f64} : (tensor<2xi64>) -> tensor<2xi64>
  return
}

// -----

func.func @item(%x: tensor<2xi64>) {
  // expected-error @below {{a tensor of 2 elements is not one number}}
  %0 = koila.Int_Tensor %x : (tensor<2xi64>) -> i64
  return
}
