// RUN: koila-opt %s -split-input-file --koila-infer-shapes -verify-diagnostics

// A type that says one thing and an inferred shape that says another: an
// error, never one of the two silently.

func.func @refine_extent(%x: tensor<2x4xf32>) {
  %0 = koila.relu %x : (tensor<2x4xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{cannot turn extent 2 into 5}}
  %1 = koila.refine %0 : tensor<*x!koila.any> to tensor<5x4xf32>
  return
}

// -----

func.func @refine_rank(%x: tensor<2x4xf32>) {
  %0 = koila.relu %x : (tensor<2x4xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{states rank 1 for a tensor of rank 2}}
  %1 = koila.refine %0 : tensor<*x!koila.any> to tensor<8xf32>
  return
}

// -----

func.func @result_extent(%x: tensor<2x4xf32>) {
  %0 = koila.relu %x : (tensor<2x4xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{has result extent 5 in dim 0, the operands give 2}}
  %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<5x4xf32>
  return
}

// -----

func.func @result_element(%x: tensor<2x4xf32>) {
  %0 = koila.relu %x : (tensor<2x4xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{has result element type 'f64', the operands give 'f32'}}
  %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<2x4xf64>
  return
}

// -----

func.func @result_rank(%x: tensor<2x4xf32>) {
  %0 = koila.relu %x : (tensor<2x4xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{has a result of rank 1, the operands give rank 2}}
  %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<8xf32>
  return
}

// -----

func.func @refine_element_type(%x: tensor<2x4xf32>) {
  %0 = koila.relu %x : (tensor<2x4xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{states element type 'i64' for a tensor of 'f32'}}
  %1 = koila.refine %0 : tensor<*x!koila.any> to tensor<2x4xi64>
  return
}

// -----

func.func @assumed_rank(%x: tensor<8xf32>) {
  %0 = koila.relu %x : (tensor<8xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{'rank' cannot be 7 : i64 of 'tensor<8xf32>'}}
  koila.assume rank %0 : tensor<*x!koila.any> is 7
  return
}

// -----

// Half a complex number is a type of PyTorch that koila has not: found by the pass,
// which leaves no IR that the verifier refuses.
func.func @half_complex(%x: tensor<?x?xf16>, %y: tensor<complex<f32>>) -> tensor<?x?xf16> {
  %0 = koila.tanh %y : (tensor<complex<f32>>) -> tensor<*x!koila.any>
  // expected-error-re @below {{{{^has result element type}} 'f16', the operands give 'complex<f16>'}}
  %1 = koila.sub_Tensor %x, %0 {alpha = 1 : i64} : (tensor<?x?xf16>, tensor<*x!koila.any>) -> tensor<?x?xf16>
  return %1 : tensor<?x?xf16>
}
