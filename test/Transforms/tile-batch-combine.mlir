// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 | FileCheck %s
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 --remark-format=emitRemark --remarks-filter=koila-tile-batch 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// A mean over the batch: each tile gives its mean, weighed by its samples; what
// is divided by the number of all of them comes after the loops. Rounding of many
// small parts must not add up: they are added in float64.
// CHECK-LABEL: func.func @mean
// CHECK: %[[ZERO:.*]] = koila.fill_Scalar tied %{{.*}} {value = 0 : i64} : (tensor<8xf64>)
// CHECK: %[[L:.*]]:4 = scf.for {{.*}} iter_args({{.*}} = %[[ZERO]]
// CHECK:   %[[X:.*]] = koila.exp
// CHECK:   %[[M:.*]] = koila.mean_dim %[[X]]
// CHECK:   %[[N:.*]] = arith.index_cast
// CHECK:   koila.add_Tensor tied %{{.*}}, %[[M]], %[[N]] {alpha = #koila.dynamic}
// CHECK: %[[ALL:.*]] = koila.div_Scalar{{.*}} %[[L]]#1
// CHECK: %[[MEAN:.*]] = koila.to_dtype %[[ALL]]
// CHECK: scf.for
// CHECK:   koila.sub_Tensor %{{.*}}, %[[MEAN]]
// REMARK: remark: [Passed] Combined | Category:koila-tile-batch | Function=mean | Reason="mean over dim 0 mixes samples"
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @mean(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.mean_dim %0 {dim = array<i64: 0>} : (tensor<?x8xf32>) -> tensor<8xf32>
    %2 = koila.sub_Tensor %0, %1 {alpha = 1 : i64} : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}

// -----

// Sums, extrema and truth, each from where it starts.
// CHECK-LABEL: func.func @kinds
// CHECK-DAG: koila.fill_Scalar tied %{{.*}} {value = 0xFFF0000000000000 : f64} : (tensor<f32>)
// CHECK-DAG: koila.fill_Scalar tied %{{.*}} {value = 0x7FF0000000000000 : f64} : (tensor<8xf32>)
// CHECK-DAG: koila.fill_Scalar tied %{{.*}} {value = 1 : i64} : (tensor<8xi1>)
// CHECK: scf.for
// CHECK:   scf.for
// CHECK-DAG: koila.add_Tensor
// CHECK-DAG: koila.maximum
// CHECK-DAG: koila.minimum
// CHECK-DAG: koila.logical_or
// CHECK-DAG: koila.logical_and
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @kinds(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<i1>, tensor<8xi1>) {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.sum %0 : (tensor<?x8xf32>) -> tensor<f32>
    %2 = koila.max %0 : (tensor<?x8xf32>) -> tensor<f32>
    %3 = koila.amin %0 {dim = array<i64: 0>} : (tensor<?x8xf32>) -> tensor<8xf32>
    %4 = koila.gt_Scalar %0 {other = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xi1>
    %5 = koila.any %4 : (tensor<?x8xi1>) -> tensor<i1>
    %6 = koila.all_dim %4 {dim = 0 : i64} : (tensor<?x8xi1>) -> tensor<8xi1>
    return %1, %2, %3, %5, %6 : tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<i1>, tensor<8xi1>
  }
}

// -----

// A contraction, logarithms of sums of exponentials, and norms: each of the parts
// that tiles give.
// CHECK-LABEL: func.func @parts
// CHECK-DAG: koila.fill_Scalar tied %{{.*}} {value = 0 : i64} : (tensor<8x8xf64>)
// CHECK-DAG: koila.fill_Scalar tied %{{.*}} {value = 0xFFF0000000000000 : f64} : (tensor<8xf64>)
// CHECK-DAG: koila.fill_Scalar tied %{{.*}} {value = 0 : i64} : (tensor<8xf64>)
// CHECK-DAG: koila.fill_Scalar tied %{{.*}} {value = 0xFFF0000000000000 : f64} : (tensor<f32>)
// CHECK: scf.for
// CHECK:   scf.for
// CHECK:     %[[P:.*]] = koila.matmul
// CHECK:     koila.add_Tensor tied %{{.*}}, %[[P]]
// CHECK:     koila.logaddexp
// CHECK:     koila.addcmul tied
// CHECK:     koila.maximum
// CHECK: koila.sqrt tied
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @parts(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>) {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %t = koila.t %0 : (tensor<?x8xf32>) -> tensor<8x?xf32>
    %1 = koila.matmul %t, %0 : (tensor<8x?xf32>, tensor<?x8xf32>) -> tensor<8x8xf32>
    %2 = koila.logsumexp %0 {dim = array<i64: 0>} : (tensor<?x8xf32>) -> tensor<8xf32>
    %3 = koila.linalg_vector_norm %0 {ord = 2 : i64, dim = array<i64: 0>} : (tensor<?x8xf32>) -> tensor<8xf32>
    %4 = koila.norm_Scalar %0 {p = 0x7FF0000000000000 : f64} : (tensor<?x8xf32>) -> tensor<f32>
    return %1, %2, %3, %4 : tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>
  }
}

// -----

// A variance: the loops carry the mean and the squared deviations, in float64,
// and the distance of the means of two parts counts as well. What is divided by
// is the number of elements of all samples, less the correction.
// CHECK-LABEL: func.func @moments
// CHECK: scf.for
// CHECK:   %[[INNER:.*]]:5 = scf.for {{.*}} iter_args(%[[MEAN:.*]] = %{{.*}}, %[[SQUARES:.*]] = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[START:.*]] = %{{.*}})
// CHECK:     %[[X:.*]] = koila.exp
// CHECK-NOT: koila.std
// CHECK:     %[[WIDE:.*]] = koila.to_dtype %[[X]] {{.*}} -> tensor<?x8xf64>
// CHECK:     %[[M:.*]] = koila.mean_dim %[[WIDE]] {dim = array<i64: 0, 1>} : {{.*}} -> tensor<f64>
// CHECK:     %[[V:.*]] = koila.var_correction %[[WIDE]] {correction = 0 : i64, dim = array<i64: 0, 1>} : {{.*}} -> tensor<f64>
// CHECK:     %[[D:.*]] = koila.sub_Tensor %[[M]], %[[MEAN]]
// CHECK:     %[[STEP:.*]] = koila.mul_Scalar %[[D]]
// CHECK:     %[[STEP2:.*]] = koila.div_Scalar tied %[[STEP]]
// CHECK:     koila.add_Tensor tied %[[MEAN]], %[[STEP2]]
// CHECK:     %[[S:.*]] = koila.add_Tensor tied %[[SQUARES]], %[[V]]
// CHECK:     koila.addcmul tied %[[S]], %[[D]], %[[STEP2]], %{{.*}} {value = #koila.dynamic}
// CHECK: %[[COUNT:.*]] = arith.muli
// CHECK: koila.mul_Scalar tied
// CHECK: koila.div_Scalar tied
// CHECK: %[[LESS:.*]] = arith.subi %[[COUNT]]
// CHECK: koila.div_Scalar tied
// CHECK: koila.sqrt tied
// CHECK: koila.to_dtype
// REMARK: remark: [Passed] Combined | Category:koila-tile-batch | Function=moments | Reason="std over dim 0 mixes samples"
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @moments(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tensor<f32>, tensor<8xf32>) {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.std %0 : (tensor<?x8xf32>) -> tensor<f32>
    %2 = koila.var_dim %0 {dim = array<i64: 0>, unbiased = false} : (tensor<?x8xf32>) -> tensor<8xf32>
    return %1, %2 : tensor<f32>, tensor<8xf32>
  }
}

// -----

// More is taken off than a batch of one has, a variance beside the mean, and one
// of complex numbers: no work for tiles.
// CHECK-LABEL: func.func @whole_moments
// CHECK: scf.for
// CHECK:   koila.exp
// CHECK-NOT: koila.mean_dim
// CHECK: koila.var_correction %{{.*}} {correction = 2 : i64
// CHECK: koila.var_mean_dim
// CHECK: koila.std %{{.*}} : (tensor<?x8xcomplex<f32>>)
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @whole_moments(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>) {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.var_correction %0 {dim = array<i64: 0>, correction = 2 : i64} : (tensor<?x8xf32>) -> tensor<8xf32>
    %2:2 = koila.var_mean_dim %0 {dim = array<i64: 0>} : (tensor<?x8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
    %3 = koila.complex %0, %0 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xcomplex<f32>>
    %4 = koila.std %3 : (tensor<?x8xcomplex<f32>>) -> tensor<f32>
    return %1, %2#0, %2#1, %4 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>
  }
}

// -----

// An extremum with its place, among two rows per sample: the first of equals and
// the first NaN are kept, and a place in a tile is moved to where the tile starts.
// CHECK-LABEL: func.func @places
// CHECK-DAG: koila.fill_Scalar tied %{{.*}} {value = 0x7FF0000000000000 : f64} : (tensor<8xf32>)
// CHECK-DAG: koila.fill_Scalar tied %{{.*}} {value = 0 : i64} : (tensor<8xi64>)
// CHECK: scf.for
// CHECK:   scf.for {{.*}} iter_args(%[[BEST:.*]] = %{{.*}}, %[[PLACES:.*]] = %{{.*}}, %[[START:.*]] = %{{.*}})
// CHECK:     %[[V:.*]], %[[I:.*]] = koila.min_dim
// CHECK:     %[[GE:.*]] = koila.ge_Tensor %[[V]], %[[BEST]]
// CHECK:     %[[NAN:.*]] = koila.isnan %[[BEST]]
// CHECK:     %[[KEPT:.*]] = koila.logical_or tied %[[GE]], %[[NAN]]
// CHECK:     %[[ROWS:.*]] = arith.muli %[[START]]
// CHECK:     %[[OFFSET:.*]] = arith.index_cast %[[ROWS]]
// CHECK:     %[[MOVED:.*]] = koila.add_Scalar tied %[[I]], %[[OFFSET]]
// CHECK:     %[[P:.*]] = koila.where_self %[[KEPT]], %[[PLACES]], %[[MOVED]]
// CHECK:     koila.copy tied %[[PLACES]], %[[P]]
// CHECK:     koila.where_self %[[KEPT]], %[[BEST]], %[[V]]
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @places(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[2 * B, 8]>}) -> (tensor<8xf32>, tensor<8xi64>) {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1:2 = koila.min_dim %0 {dim = 0 : i64} : (tensor<?x8xf32>) -> (tensor<8xf32>, tensor<8xi64>)
    return %1#0, %1#1 : tensor<8xf32>, tensor<8xi64>
  }
}

// -----

// What is added to a product would be added by each tile; a norm of order 3 has no
// rule for parts.
// CHECK-LABEL: func.func @added
// CHECK: scf.for
// CHECK-NOT: koila.addmm
// CHECK: koila.addmm
// CHECK: koila.norm_Scalar
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @added(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %w: tensor<8x8xf32> {koila.name = "w"}) -> (tensor<8x8xf32>, tensor<f32>) {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %t = koila.t %0 : (tensor<?x8xf32>) -> tensor<8x?xf32>
    %1 = koila.addmm %w, %t, %0 {beta = 1 : i64, alpha = 1 : i64} : (tensor<8x8xf32>, tensor<8x?xf32>, tensor<?x8xf32>) -> tensor<8x8xf32>
    %2 = koila.norm_Scalar %0 {p = 3 : i64} : (tensor<?x8xf32>) -> tensor<f32>
    return %1, %2 : tensor<8x8xf32>, tensor<f32>
  }
}

// -----

// Half types round sums of sums, a product has no rule, and an argument is
// there as a whole: those are no work for tiles.
// CHECK-LABEL: func.func @whole
// CHECK: koila.sum %arg0
// CHECK: scf.for
// CHECK:   koila.exp
// CHECK-NOT: koila.sum
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @whole(%x: tensor<?x8xf16> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tensor<f16>, tensor<f16>, tensor<f16>) {
    %0 = koila.exp %x : (tensor<?x8xf16>) -> tensor<?x8xf16>
    %1 = koila.sum %x : (tensor<?x8xf16>) -> tensor<f16>
    %2 = koila.mean %0 : (tensor<?x8xf16>) -> tensor<f16>
    %3 = koila.prod %0 : (tensor<?x8xf16>) -> tensor<f16>
    return %1, %2, %3 : tensor<f16>, tensor<f16>, tensor<f16>
  }
}
