// RUN: koila-opt %s -split-input-file --koila-peak-memory=threads=2 -o /dev/null 2>&1 | FileCheck %s

// What operators hold inside: the peak is the result and the figure in the
// comment. test/oracle/memory_oracle.py compares these rules with PyTorch.

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

// 4 bytes, and a partial sum for each of two threads.
// CHECK-LABEL: memory of 'sum'
// CHECK: peak {{ *}}12 bytes
// CHECK-NOT: not exact
func.func @sum(%x: tensor<40000xf32>) -> tensor<f32> {
  %0 = koila.sum %x : (tensor<40000xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// 16 bytes, and the operand as int64.
// CHECK-LABEL: memory of 'sum_dim'
// CHECK: peak {{ *}}64 bytes
// CHECK-NOT: not exact
func.func @sum_dim(%x: tensor<2x3xi32>) -> tensor<2xi64> {
  %0 = koila.sum_dim_IntList %x {dim = array<i64: 1>} : (tensor<2x3xi32>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}

// -----

// 6 bytes; a sum of 12 bytes, and the operand of 48 bytes as float32.
// CHECK-LABEL: memory of 'mean'
// CHECK: peak {{ *}}66 bytes
// CHECK-NOT: not exact
func.func @mean(%x: tensor<3x4xbf16>) -> tensor<3xbf16> {
  %0 = koila.mean_dim %x {dim = array<i64: 1>} : (tensor<3x4xbf16>) -> tensor<3xbf16>
  return %0 : tensor<3xbf16>
}

// -----

// 12 bytes; exponentials of 48 bytes, maxima of 12.
// CHECK-LABEL: memory of 'logsumexp'
// CHECK: peak {{ *}}72 bytes
// CHECK-NOT: not exact
func.func @logsumexp(%x: tensor<3x4xf32>) -> tensor<3xf32> {
  %0 = koila.logsumexp %x {dim = array<i64: 1>} : (tensor<3x4xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

// 12 bytes; exponentials of 240 bytes, maxima of 12, and over dims that lie
// apart the exponentials and their sums as float32, 480 and 24.
// CHECK-LABEL: memory of 'logsumexp_apart'
// CHECK: peak {{ *}}768 bytes
// CHECK-NOT: not exact
func.func @logsumexp_apart(%x: tensor<4x6x5xbf16>) -> tensor<6xbf16> {
  %0 = koila.logsumexp %x {dim = array<i64: 0, 2>} : (tensor<4x6x5xbf16>) -> tensor<6xbf16>
  return %0 : tensor<6xbf16>
}

// -----

// 4 bytes; a mean of 4, and its divisor, 12.
// CHECK-LABEL: memory of 'var'
// CHECK: peak {{ *}}20 bytes
// CHECK-NOT: not exact
func.func @var(%x: tensor<3x4xf32>) -> tensor<f32> {
  %0 = koila.var %x {unbiased = true} : (tensor<3x4xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// 1 byte, and the operand as 12 bytes of bool.
// CHECK-LABEL: memory of 'any'
// CHECK: peak {{ *}}13 bytes
// CHECK-NOT: not exact
func.func @any(%x: tensor<3x4xf32>) -> tensor<i1> {
  %0 = koila.any %x : (tensor<3x4xf32>) -> tensor<i1>
  return %0 : tensor<i1>
}

// -----

//===----------------------------------------------------------------------===//
// Normalisations
//===----------------------------------------------------------------------===//

// 96 bytes; mean and reciprocal deviation of each group of each sample, 16.
// CHECK-LABEL: memory of 'group_norm'
// CHECK: peak {{ *}}112 bytes
// CHECK-NOT: not exact
func.func @group_norm(%x: tensor<1x4x6xf32>) -> tensor<1x4x6xf32> {
  %0 = koila.group_norm %x {num_groups = 2, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32>
  return %0 : tensor<1x4x6xf32>
}

// -----

// 48 bytes; of channels that are the last in memory, though contiguous, 96 for
// scale and shift, and the statistics, 48.
// CHECK-LABEL: memory of 'group_norm_one_pixel'
// CHECK: peak {{ *}}192 bytes
// CHECK-NOT: not exact
func.func @group_norm_one_pixel(%x: tensor<1x1x1x1x6xf64>) -> tensor<1x6x1x1x1xf64> {
  %p = koila.permute %x {dims = array<i64: 0, 4, 1, 2, 3>} : (tensor<1x1x1x1x6xf64>) -> tensor<1x6x1x1x1xf64>
  %0 = koila.group_norm %p {num_groups = 3, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<1x6x1x1x1xf64>) -> tensor<1x6x1x1x1xf64>
  return %0 : tensor<1x6x1x1x1xf64>
}

// -----

// 48 bytes; without the weight 48 more, and 12 of the reciprocal roots.
// CHECK-LABEL: memory of 'rms_norm'
// CHECK: peak {{ *}}108 bytes
// CHECK-NOT: not exact
func.func @rms_norm(%x: tensor<3x4xf32>, %w: tensor<4xf32>) -> tensor<3x4xf32> {
  %0 = koila.rms_norm %x, %w {normalized_shape = array<i64: 4>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// 96 bytes; scale, shift, mean and reciprocal deviation of 4 channels, 64.
// CHECK-LABEL: memory of 'instance_norm'
// CHECK: peak {{ *}}160 bytes
// CHECK-NOT: not exact
func.func @instance_norm(%x: tensor<2x2x6xf32>) -> tensor<2x2x6xf32> {
  %0 = koila.instance_norm %x {use_input_stats = true, momentum = 0.1 : f64, eps = 1.0e-05 : f64, cudnn_enabled = true, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0>} : (tensor<2x2x6xf32>) -> tensor<2x2x6xf32>
  return %0 : tensor<2x2x6xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Pools, padding, interpolation
//===----------------------------------------------------------------------===//

// 16 bytes, and int64 indices of 32.
// CHECK-LABEL: memory of 'max_pool3d'
// CHECK: peak {{ *}}48 bytes
// CHECK-NOT: not exact
func.func @max_pool3d(%x: tensor<1x1x2x4x4xf32>) -> tensor<1x1x1x2x2xf32> {
  %0 = koila.max_pool3d %x {kernel_size = array<i64: 2>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<1x1x2x4x4xf32>) -> tensor<1x1x1x2x2xf32>
  return %0 : tensor<1x1x1x2x2xf32>
}

// -----

// Of a transposed operand also a copy, 48 bytes.
// CHECK-LABEL: memory of 'avg_pool1d'
// CHECK: peak {{ *}}60 bytes
// CHECK-NOT: not exact
func.func @avg_pool1d(%x: tensor<4x3xf32>) -> tensor<3x1xf32> {
  %t = koila.t %x : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %0 = koila.avg_pool1d %t {kernel_size = array<i64: 4>, stride = array<i64>, padding = array<i64: 0>} : (tensor<3x4xf32>) -> tensor<3x1xf32>
  return %0 : tensor<3x1xf32>
}

// -----

// 144 bytes; small images are resized as channels-last copies of both.
// CHECK-LABEL: memory of 'bilinear'
// CHECK: peak {{ *}}320 bytes
// CHECK-NOT: not exact
func.func @bilinear(%x: tensor<1x2x2x2xf32>) -> tensor<1x2x3x6xf32> {
  %0 = koila.upsample_bilinear2d %x {output_size = array<i64: 3, 6>, align_corners = false} : (tensor<1x2x2x2xf32>) -> tensor<1x2x3x6xf32>
  return %0 : tensor<1x2x3x6xf32>
}

// -----

// 48 bytes, and for each of 12 columns a place and a weight, 12.
// CHECK-LABEL: memory of 'nearest'
// CHECK: peak {{ *}}192 bytes
// CHECK-NOT: not exact
func.func @nearest(%x: tensor<1x1x6xf32>) -> tensor<1x1x12xf32> {
  %0 = koila.upsample_nearest1d %x {output_size = array<i64: 12>} : (tensor<1x1x6xf32>) -> tensor<1x1x12xf32>
  return %0 : tensor<1x1x12xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Joining, moving, indexing
//===----------------------------------------------------------------------===//

// 40 bytes; the int64 part goes through a temporary of its own type, 32.
// CHECK-LABEL: memory of 'cat'
// CHECK: peak {{ *}}72 bytes
// CHECK-NOT: not exact
func.func @cat(%x: tensor<6xf32>, %y: tensor<4xi64>) -> tensor<10xf32> {
  %0 = koila.cat %x, %y {dim = 0} : (tensor<6xf32>, tensor<4xi64>) -> tensor<10xf32>
  return %0 : tensor<10xf32>
}

// -----

// Rolled in one dim after the other.
// CHECK-LABEL: memory of 'roll'
// CHECK: peak {{ *}}96 bytes
// CHECK-NOT: not exact
func.func @roll(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = koila.roll %x {shifts = array<i64: 1, 1>, dims = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// 112 bytes; rows of what is strided, 48.
// CHECK-LABEL: memory of 'index_select_strided'
// CHECK: peak {{ *}}160 bytes
// CHECK-NOT: not exact
func.func @index_select_strided(%x: tensor<3x4xf32>, %i: tensor<7xi64>) -> tensor<4x7xf32> {
  %t = koila.t %x : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %0 = koila.index_select %t, %i {dim = 1 : i64} : (tensor<4x3xf32>, tensor<7xi64>) -> tensor<4x7xf32>
  return %0 : tensor<4x7xf32>
}

// -----

// Of no places no index is cast.
// CHECK-LABEL: memory of 'index_nothing'
// CHECK: peak {{ *}}0 bytes
// CHECK-NOT: not exact
func.func @index_nothing(%x: tensor<7x5xf32>, %i: tensor<7x0xi32>) -> tensor<7x0x5xf32> {
  %0 = koila.index_Tensor_hacked_twin %x, %i : (tensor<7x5xf32>, tensor<7x0xi32>) -> tensor<7x0x5xf32>
  return %0 : tensor<7x0x5xf32>
}

// -----

// 200 bytes: whole rows of a half type are not read as float32.
// CHECK-LABEL: memory of 'gather_rows'
// CHECK: peak {{ *}}200 bytes
// CHECK-NOT: not exact
func.func @gather_rows(%x: tensor<5x20xbf16>, %i: tensor<5x1xi64>) -> tensor<5x20xbf16> {
  %e = koila.expand %i {size = array<i64: 5, 20>, implicit = false} : (tensor<5x1xi64>) -> tensor<5x20xi64>
  %0 = koila.gather %x, %e {dim = 0, sparse_grad = false} : (tensor<5x20xbf16>, tensor<5x20xi64>) -> tensor<5x20xbf16>
  return %0 : tensor<5x20xbf16>
}

// -----

// 200 bytes; each of two threads sums a row as float32, 80.
// CHECK-LABEL: memory of 'scatter_rows'
// CHECK: peak {{ *}}360 bytes
// CHECK-NOT: not exact
func.func @scatter_rows(%x: tensor<5x20xbf16>, %i: tensor<5x1xi64>) -> tensor<5x20xbf16> {
  %e = koila.expand %i {size = array<i64: 5, 20>, implicit = false} : (tensor<5x1xi64>) -> tensor<5x20xi64>
  %0 = koila.scatter_add %x, %e, %x {dim = 0 : i64} : (tensor<5x20xbf16>, tensor<5x20xi64>, tensor<5x20xbf16>) -> tensor<5x20xbf16>
  return %0 : tensor<5x20xbf16>
}

// -----

// 16 bytes; the int32 index as int64, 32.
// CHECK-LABEL: memory of 'gather'
// CHECK: peak {{ *}}48 bytes
// CHECK-NOT: not exact
func.func @gather(%x: tensor<4xf32>, %i: tensor<4xi32>) -> tensor<4xf32> {
  %0 = koila.gather %x, %i {dim = 0, sparse_grad = false} : (tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Products, attention
//===----------------------------------------------------------------------===//

// 192 bytes; leading dims that are not in order are made one by a copy, 384.
// CHECK-LABEL: memory of 'matmul'
// CHECK: peak {{ *}}576 bytes
// CHECK-NOT: not exact
func.func @matmul(%x: tensor<2x4x3x4xf32>, %y: tensor<2x3x4x2xf32>) -> tensor<2x3x4x2xf32> {
  %t = koila.transpose_int %x {dim0 = 1, dim1 = 2} : (tensor<2x4x3x4xf32>) -> tensor<2x3x4x4xf32>
  %0 = koila.matmul %t, %y : (tensor<2x3x4x4xf32>, tensor<2x3x4x2xf32>) -> tensor<2x3x4x2xf32>
  return %0 : tensor<2x3x4x2xf32>
}

// -----

// 120 bytes; sums of 10 rows, 40, and for each of two threads 5 x 5 scores,
// maxima and sums of 5 rows, and 5 x 3 results, 400.
// CHECK-LABEL: memory of 'attention'
// CHECK: peak {{ *}}560 bytes
// CHECK-NOT: not exact
func.func @attention(%x: tensor<1x2x5x3xf32>) -> tensor<1x2x5x3xf32> {
  %0 = koila.scaled_dot_product_attention %x, %x, %x {dropout_p = 0.0 : f64, is_causal = false, enable_gqa = false} : (tensor<1x2x5x3xf32>, tensor<1x2x5x3xf32>, tensor<1x2x5x3xf32>) -> tensor<1x2x5x3xf32>
  return %0 : tensor<1x2x5x3xf32>
}

// -----

// 32 bytes; sums of 2 queries, 8; for each of two threads 2 x 3 scores, maxima
// and sums of 2 rows, and 2 x 4 results, 144; a mask in columns copied, 24.
// CHECK-LABEL: memory of 'attention_mask'
// CHECK: peak {{ *}}208 bytes
// CHECK-NOT: not exact
func.func @attention_mask(%q: tensor<1x1x2x4xf32>, %k: tensor<1x1x3x4xf32>, %m: tensor<3x2xf32>) -> tensor<1x1x2x4xf32> {
  %0 = koila.transpose_int %m {dim0 = 0, dim1 = 1} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %1 = koila.scaled_dot_product_attention %q, %k, %k, %0 {dropout_p = 0.0 : f64, is_causal = false, enable_gqa = false} : (tensor<1x1x2x4xf32>, tensor<1x1x3x4xf32>, tensor<1x1x3x4xf32>, tensor<2x3xf32>) -> tensor<1x1x2x4xf32>
  return %1 : tensor<1x1x2x4xf32>
}

// -----

// By way of matmul, since weights are dropped: the scaled query, 120, and for
// the scores of 2 x 5 x 5 numbers, 200 each: the softmax, the noise, and the
// product of both; the latter goes into the result with the query held.
// CHECK-LABEL: memory of 'attention_dropout'
// CHECK: peak {{ *}}720 bytes
// CHECK-NOT: not exact
func.func @attention_dropout(%x: tensor<1x2x5x3xf32>) -> tensor<1x2x5x3xf32> {
  %0 = koila.scaled_dot_product_attention %x, %x, %x {dropout_p = 0.25 : f64, is_causal = false, enable_gqa = false} : (tensor<1x2x5x3xf32>, tensor<1x2x5x3xf32>, tensor<1x2x5x3xf32>) -> tensor<1x2x5x3xf32>
  return %0 : tensor<1x2x5x3xf32>
}

// -----

// Both grids, 96 bytes each, and the rows, 192.
// CHECK-LABEL: memory of 'cartesian_prod'
// CHECK: peak {{ *}}384 bytes
// CHECK-NOT: not exact
func.func @cartesian_prod(%x: tensor<4xf32>, %y: tensor<6xf32>) -> tensor<24x2xf32> {
  %0 = koila.cartesian_prod %x, %y : (tensor<4xf32>, tensor<6xf32>) -> tensor<24x2xf32>
  return %0 : tensor<24x2xf32>
}

// -----

// Strided rows are copied, 96 bytes; the columns take 320, and what they were
// put into first 96.
// CHECK-LABEL: memory of 'im2col'
// CHECK: peak {{ *}}512 bytes
// CHECK-NOT: not exact
func.func @im2col(%x: tensor<2x4x3xf32>) -> tensor<1x8x10xf32> {
  %0 = koila.transpose_int %x {dim0 = 1, dim1 = 2} : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
  %1 = koila.unsqueeze %0 {dim = 0 : i64} : (tensor<2x3x4xf32>) -> tensor<1x2x3x4xf32>
  %2 = koila.im2col %1 {kernel_size = array<i64: 2, 2>, dilation = array<i64: 1, 1>, padding = array<i64: 0, 1>, stride = array<i64: 1, 1>} : (tensor<1x2x3x4xf32>) -> tensor<1x8x10xf32>
  return %2 : tensor<1x8x10xf32>
}

// -----

// 512 bytes: strides suit BLAS, and nothing is copied.
// CHECK-LABEL: memory of 'einsum'
// CHECK: peak {{ *}}512 bytes
// CHECK-NOT: not exact
func.func @einsum(%x: tensor<2x8x8xf32>, %y: tensor<8x2x8xf32>) -> tensor<2x8x8xf32> {
  %0 = koila.einsum %x, %y {equation = "bij,jbk->bik"} : (tensor<2x8x8xf32>, tensor<8x2x8xf32>) -> tensor<2x8x8xf32>
  return %0 : tensor<2x8x8xf32>
}

// -----

// From the left: 96 bytes of a product that is summed later, then a copy of the
// last operand in the order of the sums, 288, and the result, 48.
// CHECK-LABEL: memory of 'einsum_of_three'
// CHECK: peak {{ *}}432 bytes
// CHECK-NOT: not exact
func.func @einsum_of_three(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>, %z: tensor<6x4x3xf32>) -> tensor<2x6xf32> {
  %0 = koila.einsum %x, %y, %z {equation = "bi,bj,oji->bo"} : (tensor<2x3xf32>, tensor<2x4xf32>, tensor<6x4x3xf32>) -> tensor<2x6xf32>
  return %0 : tensor<2x6xf32>
}

// -----

// A view, and a sum.
// CHECK-LABEL: memory of 'einsum_of_one'
// CHECK: peak {{ *}}8 bytes
// CHECK-NOT: not exact
func.func @einsum_of_one(%x: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<2xf32>) {
  %0 = koila.einsum %x {equation = "ij->ji"} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = koila.einsum %x {equation = "ij->i"} : (tensor<2x3xf32>) -> tensor<2xf32>
  return %0, %1 : tensor<3x2xf32>, tensor<2xf32>
}

// -----

// 576 bytes: nothing is summed, and integers are multiplied as float32.
// CHECK-LABEL: memory of 'einsum_of_types'
// CHECK: peak {{ *}}1.12 KiB (1,152 bytes)
// CHECK-NOT: not exact
func.func @einsum_of_types(%x: tensor<6x24xf32>, %y: tensor<6x24xi64>) -> tensor<6x24xf32> {
  %0 = koila.einsum %x, %y {equation = "bi,bi->bi"} : (tensor<6x24xf32>, tensor<6x24xi64>) -> tensor<6x24xf32>
  return %0 : tensor<6x24xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Convolutions without oneDNN, order, cells
//===----------------------------------------------------------------------===//

// 96 bytes; 18 columns for each of 4 pixels, 576.
// CHECK-LABEL: memory of 'conv_f64'
// CHECK: peak {{ *}}672 bytes
// CHECK-NOT: not exact
func.func @conv_f64(%x: tensor<1x2x4x4xf64>, %w: tensor<3x2x3x3xf64>) -> tensor<1x3x2x2xf64> {
  %0 = koila.conv2d %x, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1} : (tensor<1x2x4x4xf64>, tensor<3x2x3x3xf64>) -> tensor<1x3x2x2xf64>
  return %0 : tensor<1x3x2x2xf64>
}

// -----

// 384 bytes; 12 columns for each of 9 pixels, 864.
// CHECK-LABEL: memory of 'transposed_f64'
// CHECK: peak {{ *}}1.22 KiB
// CHECK-NOT: not exact
func.func @transposed_f64(%x: tensor<1x2x3x3xf64>, %w: tensor<2x3x2x2xf64>) -> tensor<1x3x4x4xf64> {
  %0 = koila.conv_transpose2d_input %x, %w {stride = array<i64: 1>, padding = array<i64: 0>, output_padding = array<i64: 0>, groups = 1, dilation = array<i64: 1>} : (tensor<1x2x3x3xf64>, tensor<2x3x2x2xf64>) -> tensor<1x3x4x4xf64>
  return %0 : tensor<1x3x4x4xf64>
}

// -----

// 648 bytes; 24 columns for each of 8 voxels, 1536, and ones for the bias, 216.
// CHECK-LABEL: memory of 'transposed_volume_f64'
// CHECK: peak {{ *}}2.34 KiB
// CHECK-NOT: not exact
func.func @transposed_volume_f64(%x: tensor<1x2x2x2x2xf64>, %w: tensor<2x3x2x2x2xf64>, %b: tensor<3xf64>) -> tensor<1x3x3x3x3xf64> {
  %0 = koila.conv_transpose3d_input %x, %w, %b {stride = array<i64: 1>, padding = array<i64: 0>, output_padding = array<i64: 0>, groups = 1, dilation = array<i64: 1>} : (tensor<1x2x2x2x2xf64>, tensor<2x3x2x2x2xf64>, tensor<3xf64>) -> tensor<1x3x3x3x3xf64>
  return %0 : tensor<1x3x3x3x3xf64>
}

// -----

// A result that is smaller than the input keeps as many bytes, 41472, beside the
// columns of a sample, 17280.
// CHECK-LABEL: memory of 'smaller_volume'
// CHECK: peak {{.*}}58,752 bytes
// CHECK-NOT: not exact
func.func @smaller_volume(%x: tensor<4x3x8x6x9xf64>, %w: tensor<3x5x1x1x1xf64>) -> tensor<4x5x6x4x7xf64> {
  %0 = koila.conv_transpose3d_input %x, %w {stride = array<i64: 1>, padding = array<i64: 1>, output_padding = array<i64: 0>, groups = 1, dilation = array<i64: 1>} : (tensor<4x3x8x6x9xf64>, tensor<3x5x1x1x1xf64>) -> tensor<4x5x6x4x7xf64>
  return %0 : tensor<4x5x6x4x7xf64>
}

// -----

// 512 bytes; the input padded at its ends, 1200, and columns, 3072.
// CHECK-LABEL: memory of 'same_f64'
// CHECK: peak {{ *}}4.67 KiB
// CHECK-NOT: not exact
func.func @same_f64(%x: tensor<2x3x4x4xf64>, %w: tensor<2x3x2x2xf64>) -> tensor<2x2x4x4xf64> {
  %0 = koila.conv2d_padding %x, %w {stride = array<i64: 1>, padding = "same", dilation = array<i64: 1>, groups = 1} : (tensor<2x3x4x4xf64>, tensor<2x3x2x2xf64>) -> tensor<2x2x4x4xf64>
  return %0 : tensor<2x2x4x4xf64>
}

// -----

// 96 bytes; the values, 48, and one row of places, 32.
// CHECK-LABEL: memory of 'argsort'
// CHECK: peak {{ *}}176 bytes
// CHECK-NOT: not exact
func.func @argsort(%x: tensor<3x4xf32>) -> tensor<3x4xi64> {
  %0 = koila.argsort %x {dim = -1, descending = false} : (tensor<3x4xf32>) -> tensor<3x4xi64>
  return %0 : tensor<3x4xi64>
}

// -----

// Three gates of the input and of the state, and two more states of 32 bytes.
// CHECK-LABEL: memory of 'gru_cell'
// CHECK: peak {{ *}}256 bytes
// CHECK-NOT: not exact
func.func @gru_cell(%x: tensor<2x5xf32>, %h: tensor<2x4xf32>, %i: tensor<12x5xf32>, %s: tensor<12x4xf32>) -> tensor<2x4xf32> {
  %0 = koila.gru_cell %x, %h, %i, %s {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<2x5xf32>, tensor<2x4xf32>, tensor<12x5xf32>, tensor<12x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

// Storage reaches to the last element, which koila does not count.
// CHECK-LABEL: memory of 'strided'
// CHECK: not exact: koila.empty_strided
func.func @strided() -> tensor<4xf32> {
  %0 = koila.empty_strided {size = array<i64: 4>, stride = array<i64: 5>} : () -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// 16 bytes; the first difference, 32 bytes, until the second is there.
// CHECK-LABEL: memory of 'diff'
// CHECK: peak {{ *}}48 bytes
// CHECK-NOT: not exact
func.func @diff(%x: tensor<3x4xf32>) -> tensor<1x4xf32> {
  %0 = koila.diff %x {dim = 0, n = 2, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<3x4xf32>) -> tensor<1x4xf32>
  return %0 : tensor<1x4xf32>
}

// -----

// 280 bytes; what is joined, 14x6x1 of 4 bytes.
// CHECK-LABEL: memory of 'diff_joined'
// CHECK: peak {{ *}}616 bytes
// CHECK-NOT: not exact
func.func @diff_joined(%x: tensor<14x4x1xf32>, %y: tensor<14x2x1xi1>) -> tensor<14x5x1xf32> {
  %0 = koila.diff %x, %y {dim = 1, n = 1, operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<14x4x1xf32>, tensor<14x2x1xi1>) -> tensor<14x5x1xf32>
  return %0 : tensor<14x5x1xf32>
}

// -----

// 240 bytes; five norms of 8 bytes, and as many quotients.
// CHECK-LABEL: memory of 'weight_norm'
// CHECK: peak {{ *}}320 bytes
// CHECK-NOT: not exact
func.func @weight_norm(%v: tensor<2x5x3x1xf64>, %g: tensor<1x5x1x1xf64>) -> tensor<2x5x3x1xf64> {
  %0 = koila._weight_norm %v, %g {dim = 1} : (tensor<2x5x3x1xf64>, tensor<1x5x1x1xf64>) -> tensor<2x5x3x1xf64>
  return %0 : tensor<2x5x3x1xf64>
}

// -----

// 64 bytes; nothing, whatever the order of the indices.
// CHECK-LABEL: memory of 'index_add'
// CHECK: peak {{ *}}64 bytes
// CHECK-NOT: not exact
func.func @index_add(%x: tensor<4x4xf32>, %i: tensor<2xi64>, %y: tensor<2x4xf32>) -> tensor<4x4xf32> {
  %0 = koila.index_add %x, %i, %y {dim = 0, alpha = 1 : i64} : (tensor<4x4xf32>, tensor<2xi64>, tensor<2x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// A constant of the program is a number to the executor: 128 bytes, 8 of the
// number, 4 of its cast. As an operand of max it is a tensor, and cast.
module {
  koila.param @two : tensor<f64> keys [] strides []
  // CHECK-LABEL: memory of 'constant'
  // CHECK: peak {{ *}}140 bytes
  // CHECK-NOT: not exact
  func.func @constant(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = koila.param.get @two {wrapped} : tensor<f64>
    %1 = koila.mul_Tensor %x, %0 : (tensor<8x4xf32>, tensor<f64>) -> tensor<8x4xf32>
    return %1 : tensor<8x4xf32>
  }
}

// -----

module {
  koila.param @two : tensor<f64> keys [] strides []
  // CHECK-LABEL: memory of 'tensor'
  // CHECK: peak {{ *}}132 bytes
  // CHECK-NOT: not exact
  func.func @tensor(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = koila.param.get @two {wrapped} : tensor<f64>
    %1 = koila.maximum %x, %0 : (tensor<8x4xf32>, tensor<f64>) -> tensor<8x4xf32>
    return %1 : tensor<8x4xf32>
  }
}

// -----

// 8192 bytes, and as much for the input in rows: a weight that can be trained is
// multiplied at once, also where that copies.
module {
  koila.param @w : tensor<16x16xf32> keys ["w"] strides [16, 1] requires_grad
  // CHECK-LABEL: memory of 'trained'
  // CHECK: peak {{ *}}16.00 KiB
  // CHECK-NOT: not exact
  func.func @trained(%x: tensor<2x16x64xf32>) -> tensor<2x64x16xf32> {
    %0 = koila.param.get @w : tensor<16x16xf32>
    %1 = koila.transpose_int %x {dim0 = 1, dim1 = 2} : (tensor<2x16x64xf32>) -> tensor<2x64x16xf32>
    %2 = koila.linear %1, %0 : (tensor<2x64x16xf32>, tensor<16x16xf32>) -> tensor<2x64x16xf32>
    return %2 : tensor<2x64x16xf32>
  }
}

// -----

module {
  koila.param @w : tensor<16x16xf32> keys ["w"] strides [16, 1]
  // CHECK-LABEL: memory of 'frozen'
  // CHECK: peak {{ *}}8.00 KiB
  // CHECK-NOT: not exact
  func.func @frozen(%x: tensor<2x16x64xf32>) -> tensor<2x64x16xf32> {
    %0 = koila.param.get @w : tensor<16x16xf32>
    %1 = koila.transpose_int %x {dim0 = 1, dim1 = 2} : (tensor<2x16x64xf32>) -> tensor<2x64x16xf32>
    %2 = koila.linear %1, %0 : (tensor<2x64x16xf32>, tensor<16x16xf32>) -> tensor<2x64x16xf32>
    return %2 : tensor<2x64x16xf32>
  }
}

// -----

// With a bias, what is contiguous is viewed as a matrix, whatever the strides of its
// dims of one are: nothing inside.
// CHECK-LABEL: memory of 'linear_of_ones'
// CHECK: peak {{ *}}160 bytes
// CHECK-NOT: not exact
func.func @linear_of_ones(%x: tensor<4x5x8x1xf32>, %w: tensor<2x8xf32>, %b: tensor<2xf32>) -> tensor<4x1x5x2xf32> {
  %0 = koila.permute %x {dims = array<i64: 0, 3, 1, 2>} : (tensor<4x5x8x1xf32>) -> tensor<4x1x5x8xf32>
  %1 = koila.linear %0, %w, %b : (tensor<4x1x5x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> tensor<4x1x5x2xf32>
  return %1 : tensor<4x1x5x2xf32>
}

// -----

// A mask that can be trained keeps attention from the flash kernel, also where no
// gradient is recorded: 1600 bytes, and 2600 inside.
module {
  koila.param @m : tensor<5x5xf32> keys ["m"] strides [5, 1] requires_grad
  // CHECK-LABEL: memory of 'trained_mask'
  // CHECK: peak {{ *}}4.10 KiB (4,200 bytes)
  // CHECK-NOT: not exact
  func.func @trained_mask(%x: tensor<5x2x5x8xf32>) -> tensor<5x2x5x8xf32> {
    %0 = koila.param.get @m : tensor<5x5xf32>
    %1 = koila.scaled_dot_product_attention %x, %x, %x, %0 {dropout_p = 0.0 : f64, is_causal = false, enable_gqa = false} : (tensor<5x2x5x8xf32>, tensor<5x2x5x8xf32>, tensor<5x2x5x8xf32>, tensor<5x5xf32>) -> tensor<5x2x5x8xf32>
    return %1 : tensor<5x2x5x8xf32>
  }
}

// -----

// Nothing is multiplied: what is added is scaled by a number, 12 bytes.
// CHECK-LABEL: memory of 'empty_product'
// CHECK: peak {{ *}}68 bytes
// CHECK-NOT: not exact
func.func @empty_product(%b: tensor<7xf32>, %x: tensor<2x0xf32>, %y: tensor<0x7xf32>) -> tensor<2x7xf32> {
  %0 = koila.addmm %b, %x, %y {beta = 1 : i64, alpha = 1 : i64} : (tensor<7xf32>, tensor<2x0xf32>, tensor<0x7xf32>) -> tensor<2x7xf32>
  return %0 : tensor<2x7xf32>
}

// -----

// Nor is an empty result scaled.
// CHECK-LABEL: memory of 'empty_result'
// CHECK: peak {{ *}}0 bytes
// CHECK-NOT: not exact
func.func @empty_result(%b: tensor<7xf32>, %x: tensor<0x0xf32>, %y: tensor<0x7xf32>) -> tensor<0x7xf32> {
  %0 = koila.addmm %b, %x, %y {beta = 1 : i64, alpha = 1 : i64} : (tensor<7xf32>, tensor<0x0xf32>, tensor<0x7xf32>) -> tensor<0x7xf32>
  return %0 : tensor<0x7xf32>
}
