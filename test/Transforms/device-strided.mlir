// Normalised rows, pooled and attended tensors on a GPU whose rows are not beside
// each other in memory, by hand. What autograd keeps, and what is copied for a
// moment, differ by operator.

// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='device=a100-sxm4-40gb mode=train grads=absent floor=false' -o /dev/null 2>&1 | FileCheck %s

// layer_norm keeps its operand as it is, a view, and both statistics of eight
// rows. Backward: the gradient, which is one number, and the operand are copied,
// beside the gradient of the operand: 3 * 256 + 2 * 32 + 4 + 4.

// CHECK: peak          840 bytes
// CHECK-NOT: not exact
// CHECK: at            koila.layer_norm (backward)
// CHECK: 64 bytes saved layer_norm
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 2, batch = true>]} {
koila.param @w : tensor<2x8x4xf32> keys ["w"] strides [32, 4, 1] requires_grad
func.func @rows(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<2x8x4xf32>
  %t = koila.transpose_int %w {dim0 = 1, dim1 = 2} : (tensor<2x8x4xf32>) -> tensor<2x4x8xf32>
  %y = koila.layer_norm %t {normalized_shape = array<i64: 8>} : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %loss = koila.sum %y : (tensor<2x4x8xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// group_norm keeps the copy that it made, beside both statistics of four groups.
// Backward: a copy of the gradient, the gradient of the operand, two sums for each
// channel and two for each group of a sample: 288 + 2 * 256 + 2 * 32 + 2 * 16 + 8.

// CHECK: peak          904 bytes
// CHECK-NOT: not exact
// CHECK: at            koila.group_norm (backward)
// CHECK: 288 bytes saved group_norm
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 2, batch = true>]} {
koila.param @w : tensor<2x8x4xf32> keys ["w"] strides [32, 4, 1] requires_grad
func.func @groups(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<2x8x4xf32>
  %t = koila.transpose_int %w {dim0 = 1, dim1 = 2} : (tensor<2x8x4xf32>) -> tensor<2x4x8xf32>
  %y = koila.group_norm %t {num_groups = 2, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %loss = koila.sum %y : (tensor<2x4x8xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// A mask that is trained: its gradient is of all scores, in rows of a multiple of
// 16 elements: 2 * 2 * 8 * 16 * 4. Beside it the gradients of three operands, a sum
// for each query, and what the kernel adds up for 64 queries of each of four heads:
// 2048 + 3 * 512 + 128 + 4 * (64 * 64 * 4 + 16). The logarithms of 32 queries of
// each head and the result are saved: 2 * 512.

// CHECK: peak          68.70 KiB (70,344 bytes)
// CHECK-NOT: not exact
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 2, batch = true>]} {
koila.param @m : tensor<1x2x8x8xf32> keys ["m"] strides [128, 64, 8, 1] requires_grad
func.func @mask(%given: tensor<?x8x2x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8, 2, 4]>}) -> tensor<f32> {
  %x = koila.transpose_int %given {dim0 = 1, dim1 = 2} : (tensor<?x8x2x4xf32>) -> tensor<?x2x8x4xf32>
  %m = koila.param.get @m : tensor<1x2x8x8xf32>
  %y = koila.scaled_dot_product_attention %x, %x, %x, %m {dropout_p = 0.0 : f64, is_causal = false, enable_gqa = false} : (tensor<?x2x8x4xf32>, tensor<?x2x8x4xf32>, tensor<?x2x8x4xf32>, tensor<1x2x8x8xf32>) -> tensor<?x2x8x4xf32>
  %loss = koila.sum %y : (tensor<?x2x8x4xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// Without four dims no kernel takes it. Of the queries alone there is a gradient:
// kept are the scaled keys and the softmax, and the backward pass of the softmax has
// the gradients of both of its sides: 256 + 512 + 2 * 512 + 4 + 4.

// CHECK: peak          1.76 KiB (1,800 bytes)
// CHECK-NOT: not exact
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 2, batch = true>]} {
koila.param @w : tensor<2x8x4xf32> keys ["w"] strides [32, 4, 1] requires_grad
func.func @no_heads(%x: tensor<?x8x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8, 4]>}, %v: tensor<?x8x4xf32> {koila.name = "v", koila.dims = #koila.dims<[B, 8, 4]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<2x8x4xf32>
  %y = koila.scaled_dot_product_attention %w, %x, %v {dropout_p = 0.0 : f64, is_causal = false, enable_gqa = false} : (tensor<2x8x4xf32>, tensor<?x8x4xf32>, tensor<?x8x4xf32>) -> tensor<2x8x4xf32>
  %loss = koila.sum %y : (tensor<2x8x4xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}
