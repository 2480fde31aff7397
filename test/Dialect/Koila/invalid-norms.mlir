// RUN: koila-opt %s -split-input-file -verify-diagnostics

// Operands of normalisations, dropout and weight norms that PyTorch refuses.

func.func @layer_norm_dims(%x: tensor<2x3xf32>) {
  // expected-error @below {{normalises 3 dims of an input of rank 2}}
  %0 = koila.layer_norm %x {normalized_shape = array<i64: 4, 2, 3>} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @layer_norm_weight(%x: tensor<2x3xf32>, %w: tensor<2xf32>) {
  // expected-error @below {{weight and bias must have the normalized shape}}
  %0 = koila.layer_norm %x weight %w {normalized_shape = array<i64: 3>} : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<*xf32>
  return
}

// -----

// Halves may be normalised in single precision, and nothing else by another type.
func.func @layer_norm_types(%x: tensor<2x3xf32>, %w: tensor<3xf64>) {
  // expected-error @below {{has an input of 'f32' and parameters of 'f64'}}
  %0 = koila.layer_norm %x weight %w {normalized_shape = array<i64: 3>} : (tensor<2x3xf32>, tensor<3xf64>) -> tensor<*xf32>
  return
}

// -----

func.func @batch_norm_types(%x: tensor<2x3xf32>, %m: tensor<3xf32>, %v: tensor<3xf64>) {
  // expected-error @below {{has parameters of 'f32' and 'f64'}}
  %0 = koila.batch_norm %x running_mean %m running_var %v {training = false, momentum = 0.1 : f64, eps = 1.0e-5 : f64, cudnn_enabled = true} : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf64>) -> tensor<*xf32>
  return
}

// -----

// Of no samples PyTorch looks at the vectors alone.
func.func @batch_norm_empty(%x: tensor<0x3xf32>, %v: tensor<0xf32>) {
  // expected-error @below {{takes the first element of a vector that has none}}
  %0 = koila.batch_norm %x weight %v {training = true, momentum = 0.1 : f64, eps = 1.0e-5 : f64, cudnn_enabled = true} : (tensor<0x3xf32>, tensor<0xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @group_norm_none(%x: tensor<1x4x6xf32>) {
  // expected-error @below {{has 0 groups}}
  %0 = koila.group_norm %x {num_groups = 0, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<1x4x6xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @group_norm_rank(%x: tensor<4xf32>) {
  // expected-error @below {{expects rank 2 or more, got 1}}
  %0 = koila.group_norm %x {num_groups = 2, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @group_norm_groups(%x: tensor<1x4x6xf32>) {
  // expected-error @below {{4 channels are not divisible by 3 groups}}
  %0 = koila.group_norm %x {num_groups = 3, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<1x4x6xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @instance_norm_statistics(%x: tensor<2x2x6xf32>) {
  // expected-error @below {{needs running_mean and running_var without use_input_stats}}
  %0 = koila.instance_norm %x {use_input_stats = false, momentum = 0.1 : f64, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0>} : (tensor<2x2x6xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @instance_norm_rank(%x: tensor<6xf32>) {
  // expected-error @below {{expects rank 2 or more, got 1}}
  %0 = koila.instance_norm %x {use_input_stats = true, momentum = 0.1 : f64, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0>} : (tensor<6xf32>) -> tensor<*xf32>
  return
}

// -----

// The weight is repeated for each sample, of which there is none.
func.func @instance_norm_empty(%x: tensor<0x2x6xf32>, %w: tensor<2xf32>) {
  // expected-error @below {{takes the first element of a vector that has none}}
  %0 = koila.instance_norm %x, %w {use_input_stats = true, momentum = 0.1 : f64, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<0x2x6xf32>, tensor<2xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @dropout(%x: tensor<4xf32>) {
  // expected-error @below {{probability 1.500000e+00 is not between 0 and 1}}
  %0 = koila.dropout %x {p = 1.5 : f64, train = true} : (tensor<4xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @renorm_integers(%x: tensor<2x3xi64>) {
  // expected-error @below {{takes no integers}}
  %0 = koila.renorm %x {p = 2.0 : f64, dim = 0 : i64, maxnorm = 1.0 : f64} : (tensor<2x3xi64>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @renorm_power(%x: tensor<2x3xf32>) {
  // expected-error @below {{p must be positive and maxnorm not negative}}
  %0 = koila.renorm %x {p = 0.0 : f64, dim = 0 : i64, maxnorm = 1.0 : f64} : (tensor<2x3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @renorm_dim(%x: tensor<2x3xf32>) {
  // expected-error @below {{dim 2 of rank 2}}
  %0 = koila.renorm %x {p = 2.0 : f64, dim = 2 : i64, maxnorm = 1.0 : f64} : (tensor<2x3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @weight_norm(%v: tensor<5x3xf32>, %g: tensor<5x1xf64>) {
  // expected-error @below {{v is of 'f32', g of 'f64'}}
  %0 = koila._weight_norm %v, %g {dim = 0 : i64} : (tensor<5x3xf32>, tensor<5x1xf64>) -> tensor<*xf32>
  return
}

// -----

func.func @half_statistics(%x: tensor<2x3xf32>, %v: tensor<3xf32>) {
  // expected-error @below {{takes running_mean and running_var together or neither}}
  %0 = koila.batch_norm %x running_var %v {training = true, momentum = 0.1 : f64, eps = 1.0e-5 : f64, cudnn_enabled = true} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @stats_rank(%x: tensor<3xf32>) {
  // expected-error @below {{expects rank 2 or more, got 1}}
  %0:2 = koila.batch_norm_update_stats %x {momentum = 0.1 : f64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @stats_of_nothing(%x: tensor<0x3xf32>) {
  // expected-error @below {{has no statistics of an empty input}}
  %0:2 = koila.batch_norm_update_stats %x {momentum = 0.1 : f64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<0x3xf32>) -> (tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @backward_mask(%x: tensor<2x3xf32>, %v: tensor<3xf32>) {
  // expected-error @below {{output_mask names input, weight and bias, and has 2 elements}}
  %0:3 = koila.native_batch_norm_backward %x, %x, %v, %v {eps = 1.0e-5 : f64, train = true, output_mask = array<i1: true, true>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

// PyTorch reads them without a look.
func.func @backward_saved(%x: tensor<2x3xf32>, %v: tensor<3xf32>) {
  // expected-error @below {{needs save_mean and save_invstd in training}}
  %0:3 = koila.native_batch_norm_backward %x, %x, %v, %v {eps = 1.0e-5 : f64, train = true, output_mask = array<i1: true, true, true>, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 0, 0>} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @backward_running(%x: tensor<2x3xf32>, %v: tensor<3xf32>) {
  // expected-error @below {{needs running_mean and running_var outside training}}
  %0:3 = koila.native_batch_norm_backward %x, %x, %v, %v {eps = 1.0e-5 : f64, train = false, output_mask = array<i1: true, true, true>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @backward_types(%y: tensor<2x3xf64>, %x: tensor<2x3xf32>, %v: tensor<3xf32>) {
  // expected-error @below {{input is 'f32', grad_out is 'f64'}}
  %0:3 = koila.native_batch_norm_backward %y, %x, %v, %v {eps = 1.0e-5 : f64, train = true, output_mask = array<i1: true, true, true>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>} : (tensor<2x3xf64>, tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @backward_parameter_types(%x: tensor<2x3xf32>, %w: tensor<3xf64>, %v: tensor<3xf32>) {
  // expected-error @below {{has parameters of 'f64' and 'f32'}}
  %0:3 = koila.native_batch_norm_backward %x, %x, %w, %v, %v {eps = 1.0e-5 : f64, train = true, output_mask = array<i1: true, true, true>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1>} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf64>, tensor<3xf32>, tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @backward_rank(%x: tensor<3xf32>, %v: tensor<3xf32>) {
  // expected-error @below {{expects rank 2 or more, got 1}}
  %0:3 = koila.native_batch_norm_backward %x, %x, %v, %v {eps = 1.0e-5 : f64, train = true, output_mask = array<i1: true, true, true>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>} : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

// PyTorch divides by the extents.
func.func @backward_of_nothing(%x: tensor<0x3xf32>, %v: tensor<3xf32>) {
  // expected-error @below {{has no gradient of an empty input}}
  %0:3 = koila.native_batch_norm_backward %x, %x, %v, %v {eps = 1.0e-5 : f64, train = true, output_mask = array<i1: true, true, true>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>} : (tensor<0x3xf32>, tensor<0x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @backward_shape(%y: tensor<3x3xf32>, %x: tensor<2x3xf32>, %v: tensor<3xf32>) {
  // expected-error @below {{grad_out is not shaped as the input}}
  %0:3 = koila.native_batch_norm_backward %y, %x, %v, %v {eps = 1.0e-5 : f64, train = true, output_mask = array<i1: true, true, true>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>} : (tensor<3x3xf32>, tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @backward_channels(%x: tensor<2x3xf32>, %v: tensor<4xf32>) {
  // expected-error @below {{normalises 3 channels with a vector for 4}}
  %0:3 = koila.native_batch_norm_backward %x, %x, %v, %v {eps = 1.0e-5 : f64, train = true, output_mask = array<i1: true, true, true>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

// Of what is right nothing is said.
func.func @backward(%x: tensor<2x3xf32>, %v: tensor<3xf32>) {
  %0:3 = koila.native_batch_norm_backward %x, %x, %v, %v {eps = 1.0e-5 : f64, train = true, output_mask = array<i1: true, true, true>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @native_dropout(%x: tensor<2x3xi64>) {
  // expected-error @below {{drops no integers}}
  %0, %1 = koila.native_dropout %x {p = 0.5 : f64, train = true} : (tensor<2x3xi64>) -> (tensor<2x3xi64>, tensor<2x3xi1>)
  return
}
