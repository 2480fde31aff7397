// RUN: koila-opt %s -split-input-file --koila-infer-shapes -verify-diagnostics

// A type that says one thing and an inferred shape that says another: an
// error, never one of the two silently.

func.func @refine_extent(%x: tensor<2x4xf32>) {
  %0 = koila.relu %x : (tensor<2x4xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{cannot turn}}
  %1 = koila.refine %0 : tensor<*x!koila.any> to tensor<5x4xf32>
  return
}

// -----

func.func @result_extent(%x: tensor<2x4xf32>) {
  %0 = koila.relu %x : (tensor<2x4xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{result extent 5 in dim 0}}
  %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<5x4xf32>
  return
}

// -----

func.func @result_element(%x: tensor<2x4xf32>) {
  %0 = koila.relu %x : (tensor<2x4xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{result element type 'f64'}}
  %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<2x4xf64>
  return
}
