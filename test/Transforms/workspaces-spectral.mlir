// RUN: koila-opt %s -split-input-file --koila-peak-memory=threads=2 -o /dev/null 2>&1 | FileCheck %s

// What transforms and functions of matrices hold inside, as measured: the peak
// is the results and the figure in the comment.

//===----------------------------------------------------------------------===//
// Fourier transforms
//===----------------------------------------------------------------------===//

// 192 bytes; a dim between others is transformed in a copy of 192.
// CHECK-LABEL: memory of 'between'
// CHECK: peak {{ *}}384 bytes
// CHECK-NOT: not exact
func.func @between(%x: tensor<2x3x4xcomplex<f32>>) -> tensor<2x3x4xcomplex<f32>> {
  %0 = koila.fft_fft %x {dim = 1 : i64} : (tensor<2x3x4xcomplex<f32>>) -> tensor<2x3x4xcomplex<f32>>
  return %0 : tensor<2x3x4xcomplex<f32>>
}

// -----

// 144 bytes; the signal, filled up to 120.
// CHECK-LABEL: memory of 'filled'
// CHECK: peak {{ *}}264 bytes
// CHECK-NOT: not exact
func.func @filled(%x: tensor<3x8xf32>) -> tensor<3x6xcomplex<f32>> {
  %0 = koila.fft_rfft %x {dim = -1 : i64, n = 10 : i64} : (tensor<3x8xf32>) -> tensor<3x6xcomplex<f32>>
  return %0 : tensor<3x6xcomplex<f32>>
}

// -----

// 144 bytes; the first dim is transformed to 192, of a copy.
// CHECK-LABEL: memory of 'two'
// CHECK: peak {{ *}}528 bytes
// CHECK-NOT: not exact
func.func @two(%x: tensor<2x3x4xcomplex<f32>>) -> tensor<2x3x6xf32> {
  %0 = koila.fft_irfft2 %x {dim = array<i64: -2, -1>} : (tensor<2x3x4xcomplex<f32>>) -> tensor<2x3x6xf32>
  return %0 : tensor<2x3x6xf32>
}

// -----

// 2040 bytes; frames by the window, of 1632.
// CHECK-LABEL: memory of 'stft'
// CHECK: peak {{.*}}3,672 bytes
// CHECK-NOT: not exact
func.func @stft(%x: tensor<3x50xf32>, %w: tensor<8xf32>) -> tensor<3x5x17xcomplex<f32>> {
  %0 = koila.stft_center %x, %w {center = true, hop_length = 3 : i64, n_fft = 8 : i64, normalized = false, pad_mode = "reflect", return_complex = true} : (tensor<3x50xf32>, tensor<8xf32>) -> tensor<3x5x17xcomplex<f32>>
  return %0 : tensor<3x5x17xcomplex<f32>>
}

// -----

// What reads a conjugate makes a tensor of it.
// CHECK-LABEL: memory of 'conjugate'
// CHECK: the next operator resolves the conjugate
func.func @conjugate(%x: tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>> {
  %0 = koila.fft_ihfft %x {dim = -1 : i64} : (tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>>
  return %0 : tensor<3x5xcomplex<f32>>
}

// -----

//===----------------------------------------------------------------------===//
// Functions of matrices
//===----------------------------------------------------------------------===//

// 300 bytes; factors, 300, with pivots and their check.
// CHECK-LABEL: memory of 'inverse'
// CHECK: peak {{ *}}699 bytes
// CHECK-NOT: not exact
func.func @inverse(%a: tensor<3x5x5xf32>) -> tensor<3x5x5xf32> {
  %0 = koila.linalg_inv %a : (tensor<3x5x5xf32>) -> tensor<3x5x5xf32>
  return %0 : tensor<3x5x5xf32>
}

// -----

// 12 bytes; factors, pivots, and the sign of the permutation.
// CHECK-LABEL: memory of 'det'
// CHECK: peak {{ *}}575 bytes
// CHECK-NOT: not exact
func.func @det(%a: tensor<3x5x5xf32>) -> tensor<3xf32> {
  %0 = koila.linalg_det %a : (tensor<3x5x5xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

// 120 bytes; factors and pivots.
// CHECK-LABEL: memory of 'solve'
// CHECK: peak {{ *}}519 bytes
// CHECK-NOT: not exact
func.func @solve(%a: tensor<3x5x5xf32>, %b: tensor<3x5x2xf32>) -> tensor<3x5x2xf32> {
  %0 = koila.linalg_solve %a, %b {left = true} : (tensor<3x5x5xf32>, tensor<3x5x2xf32>) -> tensor<3x5x2xf32>
  return %0 : tensor<3x5x2xf32>
}
