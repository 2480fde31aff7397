// RUN: koila-opt %s -split-input-file --allow-unregistered-dialect --koila-peak-memory=threads=1 -o /dev/null 2>&1 | FileCheck %s

// What the analysis does not know, it says; no figure looks exact that is not.

// An opaque operator.
// CHECK-LABEL: memory of 'opaque'
// CHECK: not exact: aten::erfinv, {{.*}}: koila has no memory rule for 'aten::erfinv'
func.func @opaque(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = koila.torch_op "aten::erfinv"(%x) args [#koila.operand<0>] effects none : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A trip count that data decides.
// CHECK-LABEL: memory of 'trips'
// CHECK: not exact: scf.for, {{.*}}: the trip count of a loop is not known
func.func @trips(%x: tensor<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %0 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
  }
  return
}

// -----

// The body of a while loop counts, not only its condition.
// CHECK-LABEL: memory of 'while'
// CHECK: peak {{ *}}32 bytes, not exact
func.func @while(%x: tensor<4xf32>, %p: i1) {
  scf.while : () -> () {
    scf.condition(%p)
  } do {
    %0 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    %1 = koila.relu %0 : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield
  }
  return
}

// -----

// What a callee allocates is not looked at.
// CHECK-LABEL: memory of 'caller'
// CHECK: not exact: func.call
func.func private @callee(tensor<4xf32>) -> tensor<4xf32>
func.func @caller(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @callee(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A foreign operation with a region: its result has bytes.
// CHECK-LABEL: memory of 'foreign'
// CHECK: peak {{ *}}16 bytes, not exact
func.func @foreign(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "foreign.op"(%x) ({
    "foreign.end"() : () -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Out of place, a copy into a part of a tensor takes the storage of all of it;
// of a tensor of its own it is as large as that.
// CHECK-LABEL: memory of 'part'
// CHECK: peak {{ *}}24 bytes, not exact
// CHECK: not exact: koila.copy, {{.*}}: a copy of a strided tensor, or of a part of one, is as large as the storage around it
func.func @part(%x: tensor<8xf32>, %y: tensor<6xf32>) -> tensor<6xf32> {
  %0 = koila.slice_Tensor %x {dim = 0 : i64, end = 6 : i64, start = 0 : i64, step = 1 : i64} : (tensor<8xf32>) -> tensor<6xf32>
  %1 = koila.copy %0, %y {non_blocking = false} : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  return %1 : tensor<6xf32>
}

// -----

// CHECK-LABEL: memory of 'own'
// CHECK: peak {{ *}}32 bytes
// CHECK-NOT: not exact
func.func @own(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = koila.copy %x, %y {non_blocking = false} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// Half types are summed in float32 where PyTorch cannot read the dims as one.
// CHECK-LABEL: memory of 'apart'
// CHECK: not exact: koila.sum, {{.*}}: a sum of half types over dims that are not adjacent
func.func @apart(%x: tensor<5x1xf16>) -> tensor<f16> {
  %0 = koila.expand %x {implicit = false, size = array<i64: -1, 6>} : (tensor<5x1xf16>) -> tensor<5x6xf16>
  %1 = koila.sum %0 : (tensor<5x6xf16>) -> tensor<f16>
  return %1 : tensor<f16>
}
