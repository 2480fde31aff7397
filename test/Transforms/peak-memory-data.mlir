// Extents that data decide count as the most that they can be.

// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='threads=1 batches=0 floor=false' -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='format=json threads=1 batches=0 floor=false' -o /dev/null 2>&1 | FileCheck %s --check-prefix=JSON

// Two columns of 12 places of 8 bytes, and half of them times two.
// CHECK-LABEL: memory of 'places'
// CHECK: peak {{ *}}288 bytes, not exact
// CHECK: not exact: koila.nonzero, {{.*}}: how many elements are not zero is decided by data; the most there can be is counted
// CHECK-NOT: not exact
// JSON: "bound": true
// JSON: "reason": "how many elements are not zero is decided by data
func.func @places(%x: tensor<4x3xf32>) -> (tensor<?x2xi64>, tensor<?xi64>) {
  %0 = koila.nonzero %x : (tensor<4x3xf32>) -> tensor<?x2xi64>
  %1 = koila.select_int %0 {dim = 1 : i64, index = 0 : i64} : (tensor<?x2xi64>) -> tensor<?xi64>
  %2 = koila.add_Tensor %1, %1 {alpha = 1 : i64} : (tensor<?xi64>, tensor<?xi64>) -> tensor<?xi64>
  return %0, %2 : tensor<?x2xi64>, tensor<?xi64>
}

// -----

// An expert: rows whose number data decide, through layers. Both columns of
// places are one storage, which one of them keeps alive: 8 rows in two columns
// (128), the rows (8 x 4 x 4 = 128), the layer (8 x 6 x 4 = 192) and its
// activation.
// CHECK-LABEL: memory of 'expert'
// CHECK: peak {{ *}}512 bytes, not exact
// CHECK: not exact: koila.where, {{.*}}: how many elements are not zero is decided by data
// CHECK-NOT: not exact
func.func @expert(%x: tensor<8x4xf32>, %hit: tensor<1x8xi64>, %w: tensor<6x4xf32>) -> (tensor<?x6xf32>, tensor<?xi64>) {
  %0:2 = koila.where %hit : (tensor<1x8xi64>) -> (tensor<?xi64>, tensor<?xi64>)
  %1 = koila.index_Tensor %x, %0#1 {indices_mask = array<i1: true>} : (tensor<8x4xf32>, tensor<?xi64>) -> tensor<?x4xf32>
  %2 = koila.linear %1, %w : (tensor<?x4xf32>, tensor<6x4xf32>) -> tensor<?x6xf32>
  %3 = koila.silu %2 : (tensor<?x6xf32>) -> tensor<?x6xf32>
  return %3, %0#1 : tensor<?x6xf32>, tensor<?xi64>
}

// -----

// What is selected and the rest: B - n is at most B, whatever n is. The sum of
// two sizes is at most the sum of both.
// CHECK-LABEL: memory of 'rest'
// CHECK: peak {{ *}}96 bytes, not exact
// CHECK: not exact: koila.masked_select, {{.*}}: how many elements a mask selects is decided by data
// CHECK-NOT: no upper bound
func.func @rest(%x: tensor<8xf32>, %m: tensor<8xi1>) -> tensor<?xf32> {
  %0 = koila.masked_select %x, %m : (tensor<8xf32>, tensor<8xi1>) -> tensor<?xf32>
  %n = koila.size_int %0 {dim = 0 : i64} : (tensor<?xf32>) -> i64
  %c8 = arith.constant 8 : i64
  %rest = arith.subi %c8, %n : i64
  %1 = koila.ones %rest {size = array<i64: -9223372036854775808>} : (i64) -> tensor<?xf32>
  %2 = koila.cat %0, %1 {dim = 0 : i64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %2 : tensor<?xf32>
}

// -----

// What sorts needs its places: 10 of 8 bytes in three copies.
// CHECK-LABEL: memory of 'unique'
// CHECK: peak {{ *}}240 bytes, not exact
// CHECK: not exact: koila._unique2, {{.*}}: how many elements differ is decided by data
// CHECK-NOT: not exact
func.func @unique(%x: tensor<10xi64>) -> tensor<?xi64> {
  %0:3 = koila._unique2 %x {return_counts = false, return_inverse = false, sorted = true} : (tensor<10xi64>) -> (tensor<?xi64>, tensor<0xi64>, tensor<0xi64>)
  return %0#0 : tensor<?xi64>
}

// -----

// Of many, extents are looked at here and there: copies of all are held whatever
// the result is, which is no more than a line through few and most.
// CHECK-LABEL: memory of 'many'
// CHECK: peak {{ *}}117.19 KiB (120,000 bytes), not exact
// CHECK: not exact: koila._unique2, {{.*}}: how many elements differ is decided by data
// CHECK-NOT: no upper bound
func.func @many(%x: tensor<5000xi64>) -> tensor<?xi64> {
  %0:3 = koila._unique2 %x {return_counts = false, return_inverse = false, sorted = true} : (tensor<5000xi64>) -> (tensor<?xi64>, tensor<0xi64>, tensor<0xi64>)
  return %0#0 : tensor<?xi64>
}

// -----

// A mask beside other indices: 6 x 2 floats, and the places in 6 rows.
// CHECK-LABEL: memory of 'mixed'
// CHECK: peak {{ *}}96 bytes, not exact
// CHECK: not exact: koila.index_Tensor, {{.*}}: how many elements a mask selects is decided by data
// CHECK-NOT: not exact
func.func @mixed(%x: tensor<6x5x2xf32>, %m: tensor<6xi1>, %i: tensor<1xi64>) -> tensor<?x2xf32> {
  %0 = koila.index_Tensor %x, %m, %i {indices_mask = array<i1: true, true>} : (tensor<6x5x2xf32>, tensor<6xi1>, tensor<1xi64>) -> tensor<?x2xf32>
  return %0 : tensor<?x2xf32>
}

// -----

// Nothing bounds what a number in the data says.
// CHECK-LABEL: memory of 'open'
// CHECK: not exact: koila.bincount, {{.*}}; no upper bound: how many numbers it counts is decided by data
// CHECK: not exact: koila.arange, {{.*}}; no upper bound: a number that koila does not know decides it
// CHECK: not exact: koila.repeat_interleave_Tensor, {{.*}}; no upper bound: how often rows are repeated is decided by data
func.func @open(%x: tensor<5xi64>, %n: tensor<i64>) -> (tensor<?xi64>, tensor<?xi64>, tensor<?xi64>) {
  %0 = koila.bincount %x {minlength = 0 : i64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<5xi64>) -> tensor<?xi64>
  %1 = koila.Int_Tensor %n : (tensor<i64>) -> i64
  %2 = koila.arange %1 {end = #koila.dynamic} : (i64) -> tensor<?xi64>
  %3 = koila.repeat_interleave_Tensor %x : (tensor<5xi64>) -> tensor<?xi64>
  return %0, %2, %3 : tensor<?xi64>, tensor<?xi64>, tensor<?xi64>
}

// -----

// A copy of a transposed tensor is a view where there is one row, or none: no
// more than the copy that is counted. Places, and 8 rows of 2 twice.
// CHECK-LABEL: memory of 'turned'
// CHECK: peak {{ *}}192 bytes, not exact
// CHECK: not exact: koila.where
// CHECK-NOT: not exact
func.func @turned(%x: tensor<8x2xf32>, %hit: tensor<8xi64>) -> (tensor<2x?xf32>, tensor<?xi64>) {
  %0 = koila.where %hit : (tensor<8xi64>) -> tensor<?xi64>
  %1 = koila.index_Tensor %x, %0 {indices_mask = array<i1: true>} : (tensor<8x2xf32>, tensor<?xi64>) -> tensor<?x2xf32>
  %2 = koila.t %1 : (tensor<?x2xf32>) -> tensor<2x?xf32>
  %3 = koila.contiguous %2 {memory_format = 0 : i64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  return %3, %0 : tensor<2x?xf32>, tensor<?xi64>
}

// -----

// CHECK-LABEL: memory of 'unranked'
// CHECK: not exact: my::op, {{.*}}; no upper bound: not even its rank is known
func.func @unranked(%x: tensor<4x8xf32>) -> tensor<*x!koila.any> {
  %0 = koila.torch_op "my::op"(%x) args [#koila.operand<0>] effects none : (tensor<4x8xf32>) -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}

// -----

// A nested tensor of 3 x 5 steps of 8 numbers, and where its sequences are: 480
// and 120. While it is padded there are three times as many. Of an operator
// without a rule for nested tensors nothing is known.
// CHECK-LABEL: memory of 'nested'
// CHECK: peak {{ *}}1.99 KiB (2,040 bytes), not exact
// CHECK: not exact: koila._nested_tensor_from_mask, {{.*}}: how many steps a mask keeps is decided by data; the most there can be is counted
// CHECK-NOT: size of a result
func.func @nested(%x: tensor<3x5x8xf32>, %m: tensor<3x5xi1>) -> tensor<3x5x8xf32> {
  %0 = koila._nested_tensor_from_mask %x, %m {mask_check = false} : (tensor<3x5x8xf32>, tensor<3x5xi1>) -> tensor<*xf32>
  %1 = koila.to_padded_tensor %0 {padding = 0.0 : f64, output_size = array<i64: 3, 5, 8>} : (tensor<*xf32>) -> tensor<3x5x8xf32>
  return %1 : tensor<3x5x8xf32>
}

// -----

// CHECK-LABEL: memory of 'nested_unknown'
// CHECK: not exact: koila.relu, {{.*}}: the size of a result is not known
// CHECK: not exact: koila.to_padded_tensor, {{.*}}: which sequences a nested tensor holds is unknown
func.func @nested_unknown(%x: tensor<3x5x8xf32>, %m: tensor<3x5xi1>) -> tensor<3x5x8xf32> {
  %0 = koila._nested_tensor_from_mask %x, %m {mask_check = false} : (tensor<3x5x8xf32>, tensor<3x5xi1>) -> tensor<*xf32>
  %1 = koila.relu %0 : (tensor<*xf32>) -> tensor<*xf32>
  %2 = koila.to_padded_tensor %1 {padding = 0.0 : f64, output_size = array<i64: 3, 5, 8>} : (tensor<*xf32>) -> tensor<3x5x8xf32>
  return %2 : tensor<3x5x8xf32>
}
