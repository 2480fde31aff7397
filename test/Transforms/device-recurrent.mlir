// Recurrent layers on a GPU, by hand: three steps of two samples, from 4 to 8.

// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='device=a100-sxm4-40gb floor=false' -o /dev/null 2>&1 | FileCheck %s

// The outputs (192), the last state and cell (2 * 64), and all weights once more
// (448 * 4), which are not in one block of memory.

// CHECK: peak          2.06 KiB (2,112 bytes), not exact
// CHECK-DAG: not exact: koila.lstm_input, {{.*}}: the workspace of cuDNN for recurrent layers, which is not counted
// CHECK-DAG: not exact: koila.lstm_input, {{.*}}: whether the weights of recurrent layers are one block of memory; others are copied in each call
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 2, batch = true>]} {
koila.param @wi : tensor<32x4xf32> keys ["wi"] strides [4, 1]
koila.param @wh : tensor<32x8xf32> keys ["wh"] strides [8, 1]
koila.param @bi : tensor<32xf32> keys ["bi"] strides [1]
koila.param @bh : tensor<32xf32> keys ["bh"] strides [1]
func.func @apart(%x: tensor<3x?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[3, B, 4]>}, %h: tensor<1x?x8xf32> {koila.name = "h", koila.dims = #koila.dims<[1, B, 8]>}) -> tensor<3x?x8xf32> {
  %wi = koila.param.get @wi : tensor<32x4xf32>
  %wh = koila.param.get @wh : tensor<32x8xf32>
  %bi = koila.param.get @bi : tensor<32xf32>
  %bh = koila.param.get @bh : tensor<32xf32>
  %0:3 = "koila.lstm_input"(%x, %h, %h, %wi, %wh, %bi, %bh) {operandSegmentSizes = array<i32: 1, 2, 4>, batch_first = false, bidirectional = false, dropout = 0.0, has_biases = true, num_layers = 1 : i64, train = false} : (tensor<3x?x4xf32>, tensor<1x?x8xf32>, tensor<1x?x8xf32>, tensor<32x4xf32>, tensor<32x8xf32>, tensor<32xf32>, tensor<32xf32>) -> (tensor<3x?x8xf32>, tensor<1x?x8xf32>, tensor<1x?x8xf32>)
  return %0#0 : tensor<3x?x8xf32>
}
}

// -----

// One block of memory, and time behind the batch: the sequence is copied (96), and
// the outputs are 192, the last state 64. What is kept of other cells than those of
// an LSTM or a GRU is not known.

// CHECK: peak          352 bytes, not exact
// CHECK: not exact: koila.rnn_tanh_input, {{.*}}: the reserve of cuDNN for recurrent layers of this kind, which is not counted
// CHECK-NOT: one block of memory
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 2, batch = true>]} {
koila.param @wi : tensor<8x4xf32> keys ["wi"] strides [4, 1] {storage = "all"}
koila.param @wh : tensor<8x8xf32> keys ["wh"] strides [8, 1] {storage = "all", offset = 32}
func.func @flat(%x: tensor<?x3x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3, 4]>}, %h: tensor<1x?x8xf32> {koila.name = "h", koila.dims = #koila.dims<[1, B, 8]>}) -> tensor<?x3x8xf32> {
  %wi = koila.param.get @wi : tensor<8x4xf32>
  %wh = koila.param.get @wh : tensor<8x8xf32>
  %0:2 = "koila.rnn_tanh_input"(%x, %h, %wi, %wh) {batch_first = true, bidirectional = false, dropout = 0.0, has_biases = false, num_layers = 1 : i64, train = true} : (tensor<?x3x4xf32>, tensor<1x?x8xf32>, tensor<8x4xf32>, tensor<8x8xf32>) -> (tensor<?x3x8xf32>, tensor<1x?x8xf32>)
  return %0#0 : tensor<?x3x8xf32>
}
}
