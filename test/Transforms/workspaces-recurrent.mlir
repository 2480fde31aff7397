// RUN: env ONEDNN_MAX_CPU_ISA=AVX2 koila-opt %s -split-input-file --koila-peak-memory=threads=2 -o /dev/null 2>&1 | FileCheck %s

// What recurrent layers, and others that import may carry opaquely, hold inside, as
// measured: the peak is the results and the figure in the comment.

// 240 bytes; a copy of the sequences, weights in blocks, and the scratchpad of
// oneDNN: 23560.
// CHECK-LABEL: memory of 'lstm'
// CHECK: peak {{ *}}23.2{{.*}}(23,800 bytes)
// CHECK-NOT: not exact
func.func @lstm(%x: tensor<2x4x3xf32>, %h: tensor<1x2x5xf32>, %c: tensor<1x2x5xf32>, %wi: tensor<20x3xf32>, %wh: tensor<20x5xf32>, %bi: tensor<20xf32>, %bh: tensor<20xf32>) -> tensor<2x4x5xf32> {
  %0:3 = "koila.lstm_input"(%x, %h, %c, %wi, %wh, %bi, %bh) {batch_first = true, bidirectional = false, dropout = 0.0, has_biases = true, num_layers = 1 : i64, train = false, operandSegmentSizes = array<i32: 1, 2, 4>} : (tensor<2x4x3xf32>, tensor<1x2x5xf32>, tensor<1x2x5xf32>, tensor<20x3xf32>, tensor<20x5xf32>, tensor<20xf32>, tensor<20xf32>) -> (tensor<2x4x5xf32>, tensor<1x2x5xf32>, tensor<1x2x5xf32>)
  return %0#0 : tensor<2x4x5xf32>
}

// -----

// 200 bytes; the gates of all inputs and the states of all steps: 600.
// CHECK-LABEL: memory of 'gru'
// CHECK: peak {{ *}}800 bytes
// CHECK-NOT: not exact
func.func @gru(%x: tensor<4x2x3xf32>, %h: tensor<1x2x5xf32>, %wi: tensor<15x3xf32>, %wh: tensor<15x5xf32>, %bi: tensor<15xf32>, %bh: tensor<15xf32>) -> tensor<4x2x5xf32> {
  %0:2 = "koila.gru_input"(%x, %h, %wi, %wh, %bi, %bh) {batch_first = false, bidirectional = false, dropout = 0.0, has_biases = true, num_layers = 1 : i64, train = false} : (tensor<4x2x3xf32>, tensor<1x2x5xf32>, tensor<15x3xf32>, tensor<15x5xf32>, tensor<15xf32>, tensor<15xf32>) -> (tensor<4x2x5xf32>, tensor<1x2x5xf32>)
  return %0#0 : tensor<4x2x5xf32>
}

// -----

// 400 bytes; states and outputs of two directions: 720.
// CHECK-LABEL: memory of 'both'
// CHECK: peak {{ *}}1.09 KiB (1,120 bytes)
// CHECK-NOT: not exact
func.func @both(%x: tensor<4x2x3xf32>, %h: tensor<2x2x5xf32>, %wi: tensor<5x3xf32>, %wh: tensor<5x5xf32>, %b: tensor<5xf32>) -> tensor<4x2x10xf32> {
  %0:2 = "koila.rnn_tanh_input"(%x, %h, %wi, %wh, %b, %b, %wi, %wh, %b, %b) {batch_first = false, bidirectional = true, dropout = 0.0, has_biases = true, num_layers = 1 : i64, train = false} : (tensor<4x2x3xf32>, tensor<2x2x5xf32>, tensor<5x3xf32>, tensor<5x5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5x3xf32>, tensor<5x5xf32>, tensor<5xf32>, tensor<5xf32>) -> (tensor<4x2x10xf32>, tensor<2x2x5xf32>)
  return %0#0 : tensor<4x2x10xf32>
}

// -----

// An LSTM of float64 is composed: 480 bytes, 1680 inside.
// CHECK-LABEL: memory of 'double'
// CHECK: peak {{ *}}2.11 KiB (2,160 bytes)
// CHECK-NOT: not exact
func.func @double(%x: tensor<4x2x3xf64>, %h: tensor<1x2x5xf64>, %c: tensor<1x2x5xf64>, %wi: tensor<20x3xf64>, %wh: tensor<20x5xf64>, %bi: tensor<20xf64>, %bh: tensor<20xf64>) -> tensor<4x2x5xf64> {
  %0:3 = "koila.lstm_input"(%x, %h, %c, %wi, %wh, %bi, %bh) {batch_first = false, bidirectional = false, dropout = 0.0, has_biases = true, num_layers = 1 : i64, train = false, operandSegmentSizes = array<i32: 1, 2, 4>} : (tensor<4x2x3xf64>, tensor<1x2x5xf64>, tensor<1x2x5xf64>, tensor<20x3xf64>, tensor<20x5xf64>, tensor<20xf64>, tensor<20xf64>) -> (tensor<4x2x5xf64>, tensor<1x2x5xf64>, tensor<1x2x5xf64>)
  return %0#0 : tensor<4x2x5xf64>
}

// -----

// Dropout between layers, which import carries opaquely: noise and what it makes
// of the outputs. 240 bytes, and 440 inside.
// CHECK-LABEL: memory of 'drops'
// CHECK: peak {{ *}}680 bytes
// CHECK-NOT: not exact
func.func @drops(%x: tensor<4x2x5xf32>, %h: tensor<2x2x5xf32>, %wi: tensor<5x5xf32>) -> tensor<*x!koila.any> {
  %list = koila.construct list(%wi, %wi, %wi, %wi) : (tensor<5x5xf32>, tensor<5x5xf32>, tensor<5x5xf32>, tensor<5x5xf32>) -> !koila.list<tensor<*x!koila.any>>
  %0:2 = koila.torch_op "aten::rnn_relu.input"(%x, %h, %list) args [#koila.operand<0>, #koila.operand<1>, #koila.operand<2>, false, 2, 5.000000e-01, true, false, false] effects rng : (tensor<4x2x5xf32>, tensor<2x2x5xf32>, !koila.list<tensor<*x!koila.any>>) -> (tensor<*x!koila.any>, tensor<*x!koila.any>)
  return %0#0 : tensor<*x!koila.any>
}

// -----

// Where all is dropped, the noise is one number.
// CHECK-LABEL: memory of 'drops_all'
// CHECK: a dropout of all that recurrent layers hand on
func.func @drops_all(%x: tensor<4x2x5xf32>, %h: tensor<2x2x5xf32>, %wi: tensor<5x5xf32>) -> tensor<4x2x5xf32> {
  %0:2 = "koila.rnn_relu_input"(%x, %h, %wi, %wi, %wi, %wi) {batch_first = false, bidirectional = false, dropout = 1.0, has_biases = false, num_layers = 2 : i64, train = true} : (tensor<4x2x5xf32>, tensor<2x2x5xf32>, tensor<5x5xf32>, tensor<5x5xf32>, tensor<5x5xf32>, tensor<5x5xf32>) -> (tensor<4x2x5xf32>, tensor<2x2x5xf32>)
  return %0#0 : tensor<4x2x5xf32>
}

// -----

// An instance_norm that writes statistics is opaque, too: 40 bytes of results,
// and the repeated statistics, mean and deviation, scale and shift, 16 each.
// CHECK-LABEL: memory of 'statistics'
// CHECK: peak {{ *}}88 bytes
// CHECK-NOT: not exact
func.func @statistics(%x: tensor<2x1x5xf32>, %mean: tensor<1xf32>, %var: tensor<1xf32>) -> tensor<*x!koila.any> {
  %0 = koila.torch_op "aten::instance_norm"(%x, %mean, %var) args [#koila.operand<0>, unit, unit, #koila.operand<1>, #koila.operand<2>, true, 1.000000e-01, 1.000000e-05, true] effects write aliases [[0, 1, 2]] {koila.writes} : (tensor<2x1x5xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}

// -----

// A rrelu in training: 24 bytes, and as much of noise.
// CHECK-LABEL: memory of 'rrelu'
// CHECK: peak {{ *}}48 bytes
// CHECK-NOT: not exact
func.func @rrelu(%x: tensor<6xf32>) -> tensor<*x!koila.any> {
  %0 = koila.torch_op "aten::rrelu"(%x) args [#koila.operand<0>, 1.250000e-01, 0.33333333333333331, true, unit] effects rng aliases [[0]] : (tensor<6xf32>) -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}
