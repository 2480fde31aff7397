// RUN: koila-opt %s -split-input-file --koila-peak-memory -o /dev/null 2>&1 | FileCheck %s

// What losses, distances and searches hold: the peaks are those that PyTorch
// has, see test/oracle/memory_oracle.py.

// The result is a tensor of all losses that was made smaller; another one is
// reduced into it: 48, 48, and a count as int64 and as float32.
// CHECK-LABEL: memory of 'mse_loss'
// CHECK: peak {{ *}}108 bytes
// CHECK-NOT: not exact
func.func @mse_loss(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> tensor<f32> {
  %0 = koila.mse_loss %x, %y {reduction = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// Its storage of 48 bytes stays.
// CHECK-LABEL: memory of 'kept'
// CHECK: peak {{ *}}448 bytes
// CHECK: 48 bytes {{ *}}output {{ *}}mse_loss tensor<f32>
func.func @kept(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>, %z: tensor<100xf32>) -> (tensor<f32>, tensor<100xf32>) {
  %0 = koila.mse_loss %x, %y {reduction = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<f32>
  %1 = koila.neg %z : (tensor<100xf32>) -> tensor<100xf32>
  return %0, %1 : tensor<f32>, tensor<100xf32>
}

// -----

// CHECK-LABEL: memory of 'binary_cross_entropy_with_logits'
// CHECK: peak {{ *}}112 bytes
// CHECK-NOT: not exact
func.func @binary_cross_entropy_with_logits(%x: tensor<2x6xf32>, %y: tensor<2x6xf32>) -> tensor<f32> {
  %0 = koila.binary_cross_entropy_with_logits %x, %y {reduction = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x6xf32>, tensor<2x6xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// CHECK-LABEL: memory of 'cross_entropy_loss'
// CHECK: peak {{ *}}45 bytes
// CHECK-NOT: not exact
func.func @cross_entropy_loss(%x: tensor<3xf32>, %y: tensor<i64>) -> tensor<f32> {
  %0 = koila.cross_entropy_loss %x, %y {reduction = 1 : i64, ignore_index = -100 : i64, label_smoothing = 1.000000e-01 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<3xf32>, tensor<i64>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// How many targets have a weight is decided by data.
// CHECK-LABEL: memory of 'weighted'
// CHECK: not exact
func.func @weighted(%x: tensor<4x3xf32>, %y: tensor<4xi64>, %w: tensor<3xf32>) -> tensor<f32> {
  %0 = koila.cross_entropy_loss %x, %y, %w {reduction = 1 : i64, ignore_index = -100 : i64, label_smoothing = 1.000000e-01 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<4x3xf32>, tensor<4xi64>, tensor<3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// Rows of six numbers for both operands, and the result.
// CHECK-LABEL: memory of 'cdist'
// CHECK: peak {{.*}}5,040 bytes
// CHECK-NOT: not exact
func.func @cdist(%x: tensor<30x4xf32>, %y: tensor<30x4xf32>) -> tensor<30x30xf32> {
  %0 = koila.cdist %x, %y {p = 2.000000e+00 : f64} : (tensor<30x4xf32>, tensor<30x4xf32>) -> tensor<30x30xf32>
  return %0 : tensor<30x30xf32>
}

// -----

// A copy that makes the dim the last, through a block of 60 x 60.
// CHECK-LABEL: memory of 'median'
// CHECK: peak {{.*}}96,800 bytes
// CHECK-NOT: not exact
func.func @median(%x: tensor<100x200xf32>) -> (tensor<200xf32>, tensor<200xi64>) {
  %0:2 = koila.median_dim %x {dim = 0 : i64, keepdim = false} : (tensor<100x200xf32>) -> (tensor<200xf32>, tensor<200xi64>)
  return %0#0, %0#1 : tensor<200xf32>, tensor<200xi64>
}

// -----

// CHECK-LABEL: memory of 'multinomial'
// CHECK: peak {{ *}}90 bytes
// CHECK-NOT: not exact
func.func @multinomial(%x: tensor<2x4xf32>) -> tensor<2x2xi64> {
  %0 = koila.multinomial %x {num_samples = 2 : i64, replacement = false} : (tensor<2x4xf32>) -> tensor<2x2xi64>
  return %0 : tensor<2x2xi64>
}

// -----

// A copy of a transposed matrix goes through the block, too.
// CHECK-LABEL: memory of 'greatest'
// CHECK: peak {{.*}}94,404 bytes
// CHECK-NOT: not exact
func.func @greatest(%x: tensor<100x200xf32>) -> tensor<f32> {
  %0 = koila.t %x : (tensor<100x200xf32>) -> tensor<200x100xf32>
  %1 = koila.max %0 : (tensor<200x100xf32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// CHECK-LABEL: memory of 'flat'
// CHECK: peak {{.*}}94,400 bytes
// CHECK-NOT: not exact
func.func @flat(%x: tensor<100x200xf32>) -> tensor<20000xf32> {
  %0 = koila.t %x : (tensor<100x200xf32>) -> tensor<200x100xf32>
  %1 = koila.flatten_using_ints %0 : (tensor<200x100xf32>) -> tensor<20000xf32>
  return %1 : tensor<20000xf32>
}
