// RUN: koila-opt %s -split-input-file -verify-diagnostics

// Kernels, strides and ranks of windows that PyTorch refuses.

func.func @stride_entries(%x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{stride has 3 entries for 2 spatial dims}}
  %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1, 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @size_entries(%x: tensor<1x3x8x8xf32>) {
  // expected-error @below {{output_size has 1 entries for 2 spatial dims}}
  %0 = koila.adaptive_avg_pool2d %x {output_size = array<i64: 1>} : (tensor<1x3x8x8xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @pool_rank(%x: tensor<8x8xf32>) {
  // expected-error @below {{expects rank 3 or 4, got 2}}
  %0 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<8x8xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @no_kernel(%x: tensor<1x3x8x8xf32>) {
  // expected-error @below {{needs a kernel_size}}
  %0 = koila.max_pool2d %x {kernel_size = array<i64>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<1x3x8x8xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @large_stride(%x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{stride 4611686018427387904 is above 2147483647}}
  %0 = koila.conv2d %x, %w {stride = array<i64: 4611686018427387904>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @filters(%x: tensor<1x8x8x8xf32>, %y: tensor<2x2x3x3xf32>) {
  // expected-error @below {{the weight has 2 filters, fewer than 4 groups}}
  %0 = koila.conv2d %x, %y {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 4 : i64} : (tensor<1x8x8x8xf32>, tensor<2x2x3x3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @output_channels(%x: tensor<1x4x8x8xf32>, %y: tensor<3x2x3x3xf32>) {
  // expected-error @below {{3 output channels do not divide into 2 groups}}
  %0 = koila.conv2d %x, %y {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 2 : i64} : (tensor<1x4x8x8xf32>, tensor<3x2x3x3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @bias(%x: tensor<1x3x8x8xf32>, %y: tensor<6x3x3x3xf32>, %w: tensor<5xf32>) {
  // expected-error @below {{the bias does not have one element for each of 6 output channels}}
  %0 = koila.conv2d %x, %y, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>, tensor<5xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @empty_weight(%x: tensor<1x3x8x8xf32>, %y: tensor<6x3x0x3xf32>) {
  // expected-error @below {{the weight is empty}}
  %0 = koila.conv2d %x, %y {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x0x3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @empty_input(%x: tensor<1x3x0x8xf32>, %y: tensor<6x3x1x3xf32>) {
  // expected-error @below {{a spatial dim of the input is empty}}
  %0 = koila.conv2d %x, %y {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x0x8xf32>, tensor<6x3x1x3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @conv_types(%x: tensor<1x3x8x8xf32>, %y: tensor<6x3x3x3xf64>) {
  // expected-error @below {{input is 'f32', the weight is 'f64'}}
  %0 = koila.conv2d %x, %y {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf64>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @no_groups(%x: tensor<1x3x8x8xf32>, %y: tensor<6x3x3x3xf32>) {
  // expected-error @below {{groups 0 is below 1}}
  %0 = koila.conv2d %x, %y {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 0 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @gradients_mask(%y: tensor<1x6x6x6xf32>, %x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{output_mask names input, weight and bias, and has 2 elements}}
  %0:3 = koila.convolution_backward %y, %x, %w {bias_sizes = array<i64: 6>, stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, transposed = false, output_padding = array<i64: 0, 0>, groups = 1 : i64, output_mask = array<i1: true, true>} : (tensor<1x6x6x6xf32>, tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

// The operator takes no image without a batch.
func.func @gradients_unbatched(%y: tensor<6x6x6xf32>, %x: tensor<3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{the input has rank 3, the weight 4}}
  %0:3 = koila.convolution_backward %y, %x, %w {bias_sizes = array<i64: 6>, stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, transposed = false, output_padding = array<i64: 0, 0>, groups = 1 : i64, output_mask = array<i1: true, true, true>} : (tensor<6x6x6xf32>, tensor<3x8x8xf32>, tensor<6x3x3x3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @gradients_types(%y: tensor<1x6x6x6xf64>, %x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{input is 'f32', grad_output is 'f64'}}
  %0:3 = koila.convolution_backward %y, %x, %w {bias_sizes = array<i64: 6>, stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, transposed = false, output_padding = array<i64: 0, 0>, groups = 1 : i64, output_mask = array<i1: true, true, true>} : (tensor<1x6x6x6xf64>, tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @gradients_weight_types(%y: tensor<1x6x6x6xf32>, %x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf64>) {
  // expected-error @below {{input is 'f32', the weight is 'f64'}}
  %0:3 = koila.convolution_backward %y, %x, %w {bias_sizes = array<i64: 6>, stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, transposed = false, output_padding = array<i64: 0, 0>, groups = 1 : i64, output_mask = array<i1: true, true, true>} : (tensor<1x6x6x6xf32>, tensor<1x3x8x8xf32>, tensor<6x3x3x3xf64>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @gradients_shape(%y: tensor<1x6x6x7xf32>, %x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{grad_output is not shaped as the result of the convolution}}
  %0:3 = koila.convolution_backward %y, %x, %w {bias_sizes = array<i64: 6>, stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, transposed = false, output_padding = array<i64: 0, 0>, groups = 1 : i64, output_mask = array<i1: true, true, true>} : (tensor<1x6x6x7xf32>, tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @gradients_of_nothing(%y: tensor<0x6x6x6xf32>, %x: tensor<0x3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{needs bias_sizes for the bias of an empty input}}
  %0:3 = koila.convolution_backward %y, %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, transposed = false, output_padding = array<i64: 0, 0>, groups = 1 : i64, output_mask = array<i1: true, true, true>} : (tensor<0x6x6x6xf32>, tensor<0x3x8x8xf32>, tensor<6x3x3x3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @gradients_of_nothing_with_sizes(%y: tensor<0x6x6x6xf32>, %x: tensor<0x3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  %0:3 = koila.convolution_backward %y, %x, %w {bias_sizes = array<i64: 6>, stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, transposed = false, output_padding = array<i64: 0, 0>, groups = 1 : i64, output_mask = array<i1: true, true, true>} : (tensor<0x6x6x6xf32>, tensor<0x3x8x8xf32>, tensor<6x3x3x3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}

// -----

func.func @gradients(%y: tensor<1x6x6x6xf32>, %x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  %0:3 = koila.convolution_backward %y, %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, transposed = false, output_padding = array<i64: 0, 0>, groups = 1 : i64, output_mask = array<i1: true, true, true>} : (tensor<1x6x6x6xf32>, tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return
}
