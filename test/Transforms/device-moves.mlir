// What moves elements on a GPU: rows are read, a roll of two dims makes both,
// and what adds to zeros makes nothing else. Of a vector cub scans with a
// scratch that is not known.

// RUN: koila-opt %s --koila-peak-memory="device=cuda function=roll format=events output=%t.roll" -o /dev/null
// RUN: FileCheck %s --check-prefix=ROLL --input-file=%t.roll
// RUN: koila-opt %s --koila-peak-memory="device=cuda function=pad format=events output=%t.pad" -o /dev/null
// RUN: FileCheck %s --check-prefix=PAD --input-file=%t.pad
// RUN: koila-opt %s --koila-peak-memory="device=cuda function=scan" -o /dev/null 2>&1 | FileCheck %s --check-prefix=SCAN
// RUN: koila-opt %s --koila-peak-memory="device=cuda function=loss format=events output=%t.loss" -o /dev/null
// RUN: FileCheck %s --check-prefix=LOSS --input-file=%t.loss
// RUN: koila-opt %s --koila-peak-memory="device=cpu threads=1 function=loss format=events output=%t.cpu" -o /dev/null
// RUN: FileCheck %s --check-prefix=CPU --input-file=%t.cpu

// Both rolls are there at once.
// ROLL-COUNT-2: "action": "alloc"
// ROLL-NOT: "action": "alloc"
func.func @roll(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = koila.roll %x {shifts = array<i64: 1, 2>, dims = array<i64: 0, 1>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// The result, and a copy of the transposed image for a moment.
// PAD: "action": "alloc"
// PAD: "bytes": 480
// PAD: "action": "alloc"
// PAD-NEXT: "bytes": 192
// PAD: "action": "free"
// PAD-NEXT: "bytes": 192
// PAD-NOT: "action": "alloc"
func.func @pad(%x: tensor<1x2x4x6xf32>) -> tensor<1x2x10x6xf32> {
  %0 = koila.transpose_int %x {dim0 = 2, dim1 = 3} : (tensor<1x2x4x6xf32>) -> tensor<1x2x6x4xf32>
  %1 = koila.reflection_pad2d %0 {padding = array<i64: 1, 1, 2, 2>} : (tensor<1x2x6x4xf32>) -> tensor<1x2x10x6xf32>
  return %1 : tensor<1x2x10x6xf32>
}

// SCAN: the scratch of cub for a scan of one vector
func.func @scan(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = koila.cumsum %x {dim = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// log_sigmoid has a buffer on the CPU alone, and numbers are no tensors on a
// GPU: the logarithms, the losses and the result.
// LOSS-COUNT-3: "action": "alloc"
// LOSS-NOT: "action": "alloc"
// CPU-COUNT-4: "action": "alloc"
func.func @loss(%x: tensor<2x6xf32>, %y: tensor<2x6xf32>) -> tensor<f32> {
  %0 = koila.binary_cross_entropy_with_logits %x, %y {reduction = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x6xf32>, tensor<2x6xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}
