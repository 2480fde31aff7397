// RUN: koila-opt %s -split-input-file --koila-peak-memory='mode=forward-with-grad threads=1' -o /dev/null 2>&1 | FileCheck %s

// What autograd keeps: each tensor of 10 x 4 float32 has 160 bytes.
// test/oracle/accuracy.test compares whole programs with PyTorch.

// gelu keeps its operand, exp its result; neg keeps nothing.
// CHECK-LABEL: memory of 'operand', forward-with-grad
// CHECK: peak {{ *}}480 bytes
// CHECK-NOT: not exact
func.func @operand(%x: tensor<10x4xf32> {koila.requires_grad}) -> tensor<10x4xf32> {
  %0 = koila.neg %x : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %1 = koila.gelu %0 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %2 = koila.neg %1 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %3 = koila.exp %2 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  return %3 : tensor<10x4xf32>
}

// -----

// Nothing is recorded where nothing wants a gradient.
// CHECK-LABEL: memory of 'unwanted'
// CHECK: peak {{ *}}320 bytes
func.func @unwanted(%x: tensor<10x4xf32>) -> tensor<10x4xf32> {
  %0 = koila.neg %x : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %1 = koila.gelu %0 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %2 = koila.neg %1 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  return %2 : tensor<10x4xf32>
}

// -----

// A record goes with the last tensor that was made of it: after detach, nothing
// holds that of gelu, nor the operand it saved.
// CHECK-LABEL: memory of 'released'
// CHECK: peak {{ *}}320 bytes
func.func @released(%x: tensor<10x4xf32> {koila.requires_grad}) -> tensor<10x4xf32> {
  %0 = koila.neg %x : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %1 = koila.gelu %0 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %2 = koila.detach %1 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %3 = koila.neg %2 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  return %3 : tensor<10x4xf32>
}

// -----

// mul keeps a factor only if the other one wants a gradient.
// CHECK-LABEL: memory of 'factors'
// CHECK: peak {{ *}}480 bytes
func.func @factors(%x: tensor<10x4xf32> {koila.requires_grad}, %y: tensor<10x4xf32>) -> tensor<10x4xf32> {
  %0 = koila.neg %x : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %1 = koila.neg %y : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %2 = koila.mul_Tensor %0, %1 : (tensor<10x4xf32>, tensor<10x4xf32>) -> tensor<10x4xf32>
  %3 = koila.neg %2 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  return %3 : tensor<10x4xf32>
}

// -----

// layer_norm keeps its operand, and mean and deviation of ten rows: 80 bytes.
// CHECK-LABEL: memory of 'statistics'
// CHECK: peak {{ *}}560 bytes
// CHECK: 80 bytes saved layer_norm
func.func @statistics(%x: tensor<10x4xf32> {koila.requires_grad}) -> tensor<10x4xf32> {
  %0 = koila.neg %x : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %1 = koila.layer_norm %0 {normalized_shape = array<i64: 4>} : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %2 = koila.neg %1 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  return %2 : tensor<10x4xf32>
}

// -----

// In place, silu copies what it overwrites.
// CHECK-LABEL: memory of 'overwritten'
// CHECK: peak {{ *}}480 bytes
func.func @overwritten(%x: tensor<10x4xf32> {koila.requires_grad}) -> tensor<10x4xf32> {
  %0 = koila.neg %x : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %1 = koila.silu tied %0 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %2 = koila.neg %1 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  return %2 : tensor<10x4xf32>
}

// -----

// The indices of 2 x 3 x 2 x 2 maxima: 192 bytes of int64.
// CHECK-LABEL: memory of 'indices'
// CHECK: peak {{ *}}768 bytes
func.func @indices(%x: tensor<2x3x4x4xf32> {koila.requires_grad}) -> tensor<2x3x2x2xf32> {
  %0 = koila.neg %x : (tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %1 = koila.max_pool2d %0 {ceil_mode = false, dilation = array<i64: 1, 1>, kernel_size = array<i64: 2, 2>, padding = array<i64: 0, 0>, stride = array<i64: 2, 2>} : (tensor<2x3x4x4xf32>) -> tensor<2x3x2x2xf32>
  %2 = koila.neg %1 : (tensor<2x3x2x2xf32>) -> tensor<2x3x2x2xf32>
  return %2 : tensor<2x3x2x2xf32>
}

// -----

// The extents of the other tensor are read, not the tensor: no gradient.
// CHECK-LABEL: memory of 'extents'
// CHECK: peak {{ *}}320 bytes
func.func @extents(%x: tensor<10x4xf32> {koila.requires_grad}, %y: tensor<10x1xf32>) -> tensor<10x4xf32> {
  %0 = koila.expand_as %y, %x : (tensor<10x1xf32>, tensor<10x4xf32>) -> tensor<10x4xf32>
  %1 = koila.neg %0 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %2 = koila.gelu %1 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %3 = koila.neg %2 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  return %3 : tensor<10x4xf32>
}

// -----

// Before the first write that brings a gradient nothing is recorded of a tensor:
// exp drops its result. After the second, the records of both are alive: 160 bytes
// for each of the tensor and what gelu saved twice.
// CHECK-LABEL: memory of 'parts'
// CHECK: peak {{ *}}480 bytes{{$}}
// CHECK-NOT: not exact
func.func @parts(%x: tensor<10x4xf32> {koila.requires_grad}) -> tensor<10x4xf32> {
  %0 = koila.zeros_like %x {koila.reads} : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %1 = koila.exp %0 {koila.reads} : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %2 = koila.sum %1 : (tensor<10x4xf32>) -> tensor<f32>
  %3 = koila.neg %x : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %4 = koila.gelu %3 : (tensor<10x4xf32>) -> tensor<10x4xf32>
  %5 = koila.select_int %0 {dim = 1 : i64, index = 0 : i64, koila.reads} : (tensor<10x4xf32>) -> tensor<10xf32>
  %6 = koila.select_int %4 {dim = 1 : i64, index = 1 : i64} : (tensor<10x4xf32>) -> tensor<10xf32>
  %7 = koila.copy tied %5, %6 {koila.writes, non_blocking = false} : (tensor<10xf32>, tensor<10xf32>) -> tensor<10xf32>
  %8 = koila.select_int %0 {dim = 1 : i64, index = 2 : i64, koila.reads} : (tensor<10x4xf32>) -> tensor<10xf32>
  %9 = koila.copy tied %8, %6 {koila.writes, non_blocking = false} : (tensor<10xf32>, tensor<10xf32>) -> tensor<10xf32>
  %10 = koila.neg %0 {koila.reads} : (tensor<10x4xf32>) -> tensor<10x4xf32>
  return %10 : tensor<10x4xf32>
}

// -----

// Each turn of a loop may keep what its gradient needs.
// CHECK-LABEL: memory of 'loop'
// CHECK: not exact: scf.for, {{.*}}: no upper bound: each iteration keeps what its gradient needs, and how many there are is not known; under torch.no_grad(), or where sizes and numbers of the program decide how many there are, there is one
// CHECK: not exact: koila.gelu, {{.*}}: what autograd keeps of a branch or loop is not modelled
func.func @loop(%x: tensor<10x4xf32> {koila.requires_grad}, %n: index) -> tensor<10x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = scf.for %i = %c0 to %n step %c1 iter_args(%y = %x) -> (tensor<10x4xf32>) {
    %1 = koila.gelu %y : (tensor<10x4xf32>) -> tensor<10x4xf32>
    %2 = koila.neg %1 : (tensor<10x4xf32>) -> tensor<10x4xf32>
    scf.yield %2 : tensor<10x4xf32>
  }
  return %0 : tensor<10x4xf32>
}

// -----

// Lengths that are full of a number are known: 32; the logarithms of all sums,
// 448, losses and counts, which are kept, the quotients, and a mean of them.
// CHECK-LABEL: memory of 'lengths', forward-with-grad
// CHECK: peak {{ *}}520 bytes
// CHECK-NOT: not exact
func.func @lengths(%x: tensor<8x2x5xf32> {koila.requires_grad}, %targets: tensor<2x3xi64>) -> tensor<f32> {
  %0 = koila.full {dtype = 4 : i64, fill_value = 8 : i64, size = array<i64: 2>} : () -> tensor<2xi64>
  %1 = koila.full {dtype = 4 : i64, fill_value = 3 : i64, size = array<i64: 2>} : () -> tensor<2xi64>
  %2 = koila.ctc_loss_Tensor %x, %targets, %0, %1 {blank = 0 : i64, reduction = 1 : i64, zero_infinity = false} : (tensor<8x2x5xf32>, tensor<2x3xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// Of matrices without rows nothing is kept.
// CHECK-LABEL: memory of 'no_rows', forward-with-grad
// CHECK: peak {{ *}}{{[0-9]+}} bytes
func.func @no_rows(%x: tensor<2x0x3xf32> {koila.requires_grad}) -> tensor<2x0xf32> {
  %0 = koila.linalg_svdvals %x : (tensor<2x0x3xf32>) -> tensor<2x0xf32>
  return %0 : tensor<2x0xf32>
}
