// RUN: koila-opt %s -split-input-file --koila-peak-memory='mode=forward-with-grad threads=1' -o /dev/null 2>&1 | FileCheck %s

// What autograd keeps of operators that PyTorch composes of others; the peaks
// are those that PyTorch has, see test/oracle/memory_oracle.py.

// The difference of 48 bytes is kept, for abs; losses, their mean, and a count
// as int64 and as float32.
// CHECK-LABEL: memory of 'absolute'
// CHECK: peak {{ *}}112 bytes
// CHECK-NOT: not exact
func.func @absolute(%x: tensor<3x4xf32> {koila.requires_grad}, %y: tensor<3x4xf32>) -> tensor<f32> {
  %0 = koila.l1_loss %x, %y {reduction = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// The same before 400 bytes of something else.
// CHECK-LABEL: memory of 'kept'
// CHECK: peak {{ *}}452 bytes
// CHECK: 48 bytes saved l1_loss
func.func @kept(%x: tensor<3x4xf32> {koila.requires_grad}, %y: tensor<3x4xf32>, %z: tensor<100xf32>) -> (tensor<f32>, tensor<100xf32>) {
  %0 = koila.l1_loss %x, %y {reduction = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<f32>
  %1 = koila.neg %z : (tensor<100xf32>) -> tensor<100xf32>
  return %0, %1 : tensor<f32>, tensor<100xf32>
}

// -----

// Nothing is made for the gradient, which needs the targets alone.
// CHECK-LABEL: memory of 'divergence'
// CHECK: peak {{ *}}144 bytes
// CHECK-NOT: saved kl_div
// CHECK-NOT: not exact
func.func @divergence(%x: tensor<3x4xf32> {koila.requires_grad}, %y: tensor<3x4xf32>) -> tensor<f32> {
  %0 = koila.kl_div %x, %y {reduction = 1 : i64, log_target = false} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// Of the first operand the norm and its clone, of the second what is multiplied:
// 12, 12 and 48 bytes. Then come 400 bytes of something else.
// CHECK-LABEL: memory of 'cosine'
// CHECK: peak {{ *}}484 bytes
// CHECK: 72 bytes saved cosine_similarity
// CHECK-NOT: not exact
func.func @cosine(%x: tensor<3x4xf32> {koila.requires_grad}, %y: tensor<3x4xf32>, %z: tensor<100xf32>) -> (tensor<3xf32>, tensor<100xf32>) {
  %0 = koila.cosine_similarity %x, %y {dim = 1 : i64, eps = 1.0e-8 : f64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3xf32>
  %1 = koila.neg %z : (tensor<100xf32>) -> tensor<100xf32>
  return %0, %1 : tensor<3xf32>, tensor<100xf32>
}

// -----

// Along the last dim the kernel adds up in a buffer of each thread, and leaves
// the norms.
// CHECK-LABEL: memory of 'norms'
// CHECK: peak {{ *}}128 bytes
// CHECK-NOT: not exact
func.func @norms(%v: tensor<2x3x4xf32> {koila.requires_grad}, %g: tensor<1x1x4xf32> {koila.requires_grad}) -> tensor<2x3x4xf32> {
  %0 = koila._weight_norm %v, %g {dim = 2 : i64} : (tensor<2x3x4xf32>, tensor<1x1x4xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// -----

// Means of two bags of six indices: 32 bytes; the bag of each index, of which
// one more was made, 56; sizes and places of maxima, 16 each; a divisor of 40.
// CHECK-LABEL: memory of 'bags'
// CHECK: peak {{ *}}160 bytes
// CHECK-NOT: not exact
func.func @bags(%w: tensor<5x4xf32> {koila.requires_grad}, %i: tensor<6xi64>, %o: tensor<2xi64>) -> tensor<2x4xf32> {
  %0:4 = koila.embedding_bag %w, %i, %o {scale_grad_by_freq = false, mode = 1 : i64, sparse = false, include_last_offset = false} : (tensor<5x4xf32>, tensor<6xi64>, tensor<2xi64>) -> (tensor<2x4xf32>, tensor<6xi64>, tensor<2xi64>, tensor<2xi64>)
  return %0#0 : tensor<2x4xf32>
}

// -----

// A copy of the sequences, 96 bytes; outputs and states, 240; what oneDNN leaves
// for the gradient, seven pages. Inside are the sum of the biases, weights with
// padded rows and a scratchpad: 80, 1024 and 16952.
// CHECK-LABEL: memory of 'lstm'
// CHECK: peak {{.*}}(47,064 bytes)
// CHECK-NOT: not exact
func.func @lstm(%x: tensor<2x4x3xf32> {koila.requires_grad}, %h: tensor<1x2x5xf32>, %c: tensor<1x2x5xf32>, %wi: tensor<20x3xf32>, %wh: tensor<20x5xf32>, %bi: tensor<20xf32>, %bh: tensor<20xf32>) -> tensor<2x4x5xf32> {
  %0:3 = "koila.lstm_input"(%x, %h, %c, %wi, %wh, %bi, %bh) {batch_first = true, bidirectional = false, dropout = 0.0, has_biases = true, num_layers = 1 : i64, train = false, operandSegmentSizes = array<i32: 1, 2, 4>} : (tensor<2x4x3xf32>, tensor<1x2x5xf32>, tensor<1x2x5xf32>, tensor<20x3xf32>, tensor<20x5xf32>, tensor<20xf32>, tensor<20xf32>) -> (tensor<2x4x5xf32>, tensor<1x2x5xf32>, tensor<1x2x5xf32>)
  return %0#0 : tensor<2x4x5xf32>
}

// -----

// The gates of all inputs, 480 bytes; each of four steps leaves the gates of the
// state, what two of them overwrote, the new gate and the state: 280. The
// outputs are stacked before the gates go: 160.
// CHECK-LABEL: memory of 'gru'
// CHECK: peak {{.*}}(1,760 bytes)
// CHECK-NOT: not exact
func.func @gru(%x: tensor<4x2x3xf32>, %h: tensor<1x2x5xf32>, %wi: tensor<15x3xf32> {koila.requires_grad}, %wh: tensor<15x5xf32> {koila.requires_grad}, %bi: tensor<15xf32>, %bh: tensor<15xf32>) -> tensor<4x2x5xf32> {
  %0:2 = "koila.gru_input"(%x, %h, %wi, %wh, %bi, %bh) {batch_first = false, bidirectional = false, dropout = 0.0, has_biases = true, num_layers = 1 : i64, train = false} : (tensor<4x2x3xf32>, tensor<1x2x5xf32>, tensor<15x3xf32>, tensor<15x5xf32>, tensor<15xf32>, tensor<15xf32>) -> (tensor<4x2x5xf32>, tensor<1x2x5xf32>)
  return %0#0 : tensor<4x2x5xf32>
}

// -----

// The reciprocal roots (12 bytes) and the normalised rows (48) are kept, of
// which the weight's gradient comes. Then come 400 bytes of something else.
// CHECK-LABEL: memory of 'rms_norm'
// CHECK: peak {{ *}}508 bytes
// CHECK: 60 bytes saved rms_norm
// CHECK-NOT: not exact
func.func @rms_norm(%x: tensor<3x4xf32> {koila.requires_grad}, %w: tensor<4xf32> {koila.requires_grad}, %z: tensor<100xf32>) -> (tensor<3x4xf32>, tensor<100xf32>) {
  %0 = koila.rms_norm %x, %w {normalized_shape = array<i64: 4>, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %1 = koila.neg %z : (tensor<100xf32>) -> tensor<100xf32>
  return %0, %1 : tensor<3x4xf32>, tensor<100xf32>
}

// -----

// Nothing is kept of rows that are repeated: 144 + 400.
// CHECK-LABEL: memory of 'repeated'
// CHECK: peak {{ *}}544 bytes
// CHECK-NOT: saved
// CHECK-NOT: not exact
func.func @repeated(%x: tensor<3x4xf32> {koila.requires_grad}, %z: tensor<100xf32>) -> (tensor<9x4xf32>, tensor<100xf32>) {
  %0 = koila.repeat_interleave_self_int %x {repeats = 3 : i64, dim = 0 : i64} : (tensor<3x4xf32>) -> tensor<9x4xf32>
  %1 = koila.neg %z : (tensor<100xf32>) -> tensor<100xf32>
  return %0, %1 : tensor<9x4xf32>, tensor<100xf32>
}

// -----

// The product of the first two (48 bytes) is kept for the gradient of the third.
// CHECK-LABEL: memory of 'einsum_of_three'
// CHECK: peak {{ *}}688 bytes
// CHECK: 48 bytes saved einsum
// CHECK-NOT: not exact
func.func @einsum_of_three(%x: tensor<3x2xf32> {koila.requires_grad}, %y: tensor<3x2xf32>, %v: tensor<3x5xf32> {koila.requires_grad}, %z: tensor<100xf32>) -> (tensor<3x2x2x5xf32>, tensor<100xf32>) {
  %0 = koila.einsum %x, %y, %v {equation = "bi,bj,bk->bijk"} : (tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x5xf32>) -> tensor<3x2x2x5xf32>
  %1 = koila.neg %z : (tensor<100xf32>) -> tensor<100xf32>
  return %0, %1 : tensor<3x2x2x5xf32>, tensor<100xf32>
}

// -----

// The signal that was filled up (120 bytes) is kept: how many there were is read
// of it. With 144 bytes of half a spectrum 664.
// CHECK-LABEL: memory of 'spectrum'
// CHECK: peak {{ *}}664 bytes
// CHECK: 120 bytes saved fft_rfft
// CHECK-NOT: not exact
func.func @spectrum(%x: tensor<3x8xf32> {koila.requires_grad}, %z: tensor<100xf32>) -> (tensor<3x6xcomplex<f32>>, tensor<100xf32>) {
  %0 = koila.fft_rfft %x {dim = -1 : i64, n = 10 : i64} : (tensor<3x8xf32>) -> tensor<3x6xcomplex<f32>>
  %1 = koila.neg %z : (tensor<100xf32>) -> tensor<100xf32>
  return %0, %1 : tensor<3x6xcomplex<f32>>, tensor<100xf32>
}

// -----

// A computed size is known where sizes decide it.
// CHECK-LABEL: memory of 'sized'
// CHECK: peak {{ *}}664 bytes
// CHECK-NOT: not exact
func.func @sized(%x: tensor<3x8xf32> {koila.requires_grad}, %z: tensor<100xf32>) -> (tensor<3x6xcomplex<f32>>, tensor<100xf32>) {
  %two = arith.constant 2 : i64
  %size = koila.size_int %x {dim = 1 : i64} : (tensor<3x8xf32>) -> i64
  %n = arith.addi %size, %two : i64
  %0 = koila.fft_rfft %x, %n {dim = -1 : i64, n = -9223372036854775808 : i64} : (tensor<3x8xf32>, i64) -> tensor<3x6xcomplex<f32>>
  %1 = koila.neg %z : (tensor<100xf32>) -> tensor<100xf32>
  return %0, %1 : tensor<3x6xcomplex<f32>>, tensor<100xf32>
}
