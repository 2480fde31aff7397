// RUN: koila-opt %s -split-input-file -verify-diagnostics

// Targets and weights of classification losses that PyTorch refuses.

func.func @target_rank(%x: tensor<4x5xf32>, %y: tensor<4x2x2xi64>) {
  // expected-error @below {{a target of rank 3 does not fit an input of rank 2}}
  %0 = koila.cross_entropy_loss %x, %y {ignore_index = -100 : i64, label_smoothing = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 1 : i64} : (tensor<4x5xf32>, tensor<4x2x2xi64>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @target_extent(%x: tensor<4x5xf32>, %y: tensor<3xi64>) {
  // expected-error @below {{expects extent 4 in dim 0 of the target, got 3}}
  %0 = koila.cross_entropy_loss %x, %y {ignore_index = -100 : i64, label_smoothing = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 1 : i64} : (tensor<4x5xf32>, tensor<3xi64>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @input_rank(%x: tensor<4x5x2xf32>, %y: tensor<4x2xi64>) {
  // expected-error @below {{takes no input of rank 3}}
  %0 = koila.nll_loss %x, %y {ignore_index = -100 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 1 : i64} : (tensor<4x5x2xf32>, tensor<4x2xi64>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @weight(%x: tensor<4x5xf32>, %y: tensor<4xi64>, %w: tensor<4xf32>) {
  // expected-error @below {{the weight must have one element for each of 5 classes}}
  %0 = koila.cross_entropy_loss %x, %y, %w {ignore_index = -100 : i64, label_smoothing = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0>, reduction = 1 : i64} : (tensor<4x5xf32>, tensor<4xi64>, tensor<4xf32>) -> tensor<*x!koila.any>
  return
}

// -----

// A target of the shape of the input holds probabilities.
func.func @probabilities(%x: tensor<4x5xf32>, %y: tensor<4x5xi64>) {
  // expected-error @below {{probabilities of classes are of 'i64'}}
  %0 = koila.cross_entropy_loss %x, %y {ignore_index = -100 : i64, label_smoothing = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 1 : i64} : (tensor<4x5xf32>, tensor<4x5xi64>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @probabilities_extent(%x: tensor<4x5xf32>, %y: tensor<4x6xf32>) {
  // expected-error @below {{expects extent 5 in dim 1 of the target, got 6}}
  %0 = koila.cross_entropy_loss %x, %y {ignore_index = -100 : i64, label_smoothing = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 1 : i64} : (tensor<4x5xf32>, tensor<4x6xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @smoothing(%x: tensor<5xf32>, %y: tensor<1xi64>) {
  // expected-error @below {{label_smoothing of a single sample takes a target without dims}}
  %0 = koila.cross_entropy_loss %x, %y {ignore_index = -100 : i64, label_smoothing = 0.1 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 1 : i64} : (tensor<5xf32>, tensor<1xi64>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @smoothing_range(%x: tensor<4x5xf32>, %y: tensor<4xi64>) {
  // expected-error @below {{label_smoothing is 2.0}}
  %0 = koila.cross_entropy_loss %x, %y {ignore_index = -100 : i64, label_smoothing = 2.0 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 1 : i64} : (tensor<4x5xf32>, tensor<4xi64>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @classes(%x: tensor<4x5xf32>, %y: tensor<4xi32>) {
  // expected-error @below {{classes are int64, not 'i32'}}
  %0 = koila.cross_entropy_loss %x, %y {ignore_index = -100 : i64, label_smoothing = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 1 : i64} : (tensor<4x5xf32>, tensor<4xi32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @weight_type(%x: tensor<4x5xf32>, %y: tensor<4xi64>, %w: tensor<5xf64>) {
  // expected-error @below {{the weight is of 'f64', self of 'f32'}}
  %0 = koila.cross_entropy_loss %x, %y, %w {ignore_index = -100 : i64, label_smoothing = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0>, reduction = 1 : i64} : (tensor<4x5xf32>, tensor<4xi64>, tensor<5xf64>) -> tensor<*x!koila.any>
  return
}
