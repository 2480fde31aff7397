// RUN: koila-opt %s -split-input-file -verify-diagnostics

// Factors and summands of matrix products that PyTorch refuses.

func.func @added_rank(%x: tensor<2x2x5xf32>, %y: tensor<2x3xf32>, %w: tensor<3x5xf32>) {
  // expected-error @below {{adds a tensor of rank 3 to a result of rank 2}}
  %0 = koila.addmm %x, %y, %w {alpha = 1 : i64, beta = 1 : i64} : (tensor<2x2x5xf32>, tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @added_extent(%x: tensor<4xf32>, %y: tensor<2x3xf32>, %w: tensor<3x5xf32>) {
  // expected-error @below {{adds 4 elements to 5 in dim 1}}
  %0 = koila.addmm %x, %y, %w {alpha = 1 : i64, beta = 1 : i64} : (tensor<4xf32>, tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @batch_extents(%x: tensor<2x3x4xf32>, %y: tensor<5x4x6xf32>) {
  // expected-error @below {{has extents 2 and 5 in one dim}}
  %0 = koila.bmm %x, %y : (tensor<2x3x4xf32>, tensor<5x4x6xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @linear_bias(%x: tensor<2x3xf32>, %y: tensor<3xf32>, %w: tensor<1xf32>) {
  // expected-error @below {{a bias needs a weight of rank 2}}
  %0 = koila.linear %x, %y, %w : (tensor<2x3xf32>, tensor<3xf32>, tensor<1xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @recurrent_weight(%x: tensor<2x3x4xf32>, %h: tensor<1x3x5xf32>, %w: tensor<5x4xf32>, %u: tensor<5xf32>) {
  // expected-error @below {{expects matrices as weights, got rank 1}}
  %0:2 = "koila.rnn_tanh_input"(%x, %h, %w, %u) {batch_first = false, bidirectional = false, dropout = 0.0, has_biases = false, num_layers = 1 : i64, train = false} : (tensor<2x3x4xf32>, tensor<1x3x5xf32>, tensor<5x4xf32>, tensor<5xf32>) -> (tensor<*x!koila.any>, tensor<*x!koila.any>)
  return
}
