// What a boolean mask selects of samples, of which data decide how much it is.

// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='tile=4' | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='tile=4' --remarks-filter=koila-tile-batch -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Each tile selects of its own samples: a sum adds up.

// CHECK-LABEL: @sum
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[MASK:.*]] = tensor.extract_slice %arg1
// CHECK: %[[ROWS:.*]] = koila.exp
// CHECK: %[[SELECTED:.*]] = koila.index_Tensor %[[ROWS]], %[[MASK]]
// CHECK: %[[LOGS:.*]] = koila.log %[[SELECTED]]
// CHECK: %[[PART:.*]] = koila.sum %[[LOGS]]
// CHECK: koila.add_Tensor tied %{{.*}}, %[[PART]]
// CHECK-NOT: koila.index_Tensor
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @sum(%x: tensor<?x5x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5, 3]>}, %m: tensor<?x5xi1> {koila.name = "m", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
  %y = koila.exp %x : (tensor<?x5x3xf32>) -> tensor<?x5x3xf32>
  %s = koila.index_Tensor %y, %m {indices_mask = array<i1: true>} : (tensor<?x5x3xf32>, tensor<?x5xi1>) -> tensor<?x3xf32>
  %l = koila.log %s : (tensor<?x3xf32>) -> tensor<?x3xf32>
  %r = koila.sum %l : (tensor<?x3xf32>) -> tensor<f32>
  return %r : tensor<f32>
}
}

// -----

// A mean is divided by the three numbers of each row that the mask selects of all
// samples, which are counted before.

// CHECK-LABEL: @mean
// CHECK: %[[COUNT:.*]] = koila.sum %arg1 : (tensor<?x5xi1>) -> tensor<i64>
// CHECK: %[[ALL:.*]] = koila.mul_Scalar %[[COUNT]] {{.*}}3 : i64
// CHECK: scf.for
// CHECK: koila.index_Tensor
// CHECK: koila.mse_loss %{{.*}} {reduction = 2 : i64}
// CHECK: koila.add_Tensor tied
// CHECK: %[[TOTAL:.*]] = koila.to_dtype
// CHECK: koila.div_Tensor %[[TOTAL]], %[[ALL]]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @mean(%x: tensor<?x5x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5, 3]>}, %m: tensor<?x5xi1> {koila.name = "m", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
  %y = koila.exp %x : (tensor<?x5x3xf32>) -> tensor<?x5x3xf32>
  %s = koila.index_Tensor %y, %m {indices_mask = array<i1: true>} : (tensor<?x5x3xf32>, tensor<?x5xi1>) -> tensor<?x3xf32>
  %t = koila.index_Tensor %x, %m {indices_mask = array<i1: true>} : (tensor<?x5x3xf32>, tensor<?x5xi1>) -> tensor<?x3xf32>
  %r = koila.mse_loss %s, %t {reduction = 1 : i64} : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<f32>
  return %r : tensor<f32>
}
}

// -----

// Rows that are handed on are selected of the whole: those of a tile are no range.

// CHECK-LABEL: @returned
// CHECK: scf.for
// CHECK: koila.exp
// CHECK: tensor.insert_slice
// CHECK: koila.index_Tensor
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @returned(%x: tensor<?x5x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5, 3]>}, %m: tensor<?x5xi1> {koila.name = "m", koila.dims = #koila.dims<[B, 5]>}) -> tensor<?x3xf32> {
  %y = koila.exp %x : (tensor<?x5x3xf32>) -> tensor<?x5x3xf32>
  %s = koila.index_Tensor %y, %m {indices_mask = array<i1: true>} : (tensor<?x5x3xf32>, tensor<?x5xi1>) -> tensor<?x3xf32>
  return %s : tensor<?x3xf32>
}
}

// -----

// Rows of two masks belong to nobody, though there may be as many.

// CHECK-LABEL: @two_masks
// CHECK: scf.for
// CHECK: koila.exp
// CHECK: tensor.insert_slice
// CHECK: koila.index_Tensor
// CHECK: koila.index_Tensor
// CHECK: koila.mul_Tensor
// CHECK: return
// REMARK: Barrier {{.*}}Function=two_masks {{.*}}the rows of the operands belong to samples in different orders
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @two_masks(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}, %m: tensor<?x5xi1> {koila.name = "m", koila.dims = #koila.dims<[B, 5]>}, %n: tensor<?x5xi1> {koila.name = "n", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
  %y = koila.exp %x : (tensor<?x5xf32>) -> tensor<?x5xf32>
  %s = koila.index_Tensor %y, %m {indices_mask = array<i1: true>} : (tensor<?x5xf32>, tensor<?x5xi1>) -> tensor<?xf32>
  %t = koila.index_Tensor %y, %n {indices_mask = array<i1: true>} : (tensor<?x5xf32>, tensor<?x5xi1>) -> tensor<?xf32>
  %p = koila.mul_Tensor %s, %t : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %r = koila.sum %p : (tensor<?xf32>) -> tensor<f32>
  return %r : tensor<f32>
}
}

// -----

// An extremum needs a row in each tile.

// REMARK: Barrier {{.*}}Function=largest
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @largest(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}, %m: tensor<?x5xi1> {koila.name = "m", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
  %y = koila.exp %x : (tensor<?x5xf32>) -> tensor<?x5xf32>
  %s = koila.index_Tensor %y, %m {indices_mask = array<i1: true>} : (tensor<?x5xf32>, tensor<?x5xi1>) -> tensor<?xf32>
  %r = koila.max %s : (tensor<?xf32>) -> tensor<f32>
  return %r : tensor<f32>
}
}
