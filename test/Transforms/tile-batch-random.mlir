// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks' | FileCheck %s --check-prefixes=CHECK,FULL
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=per-tile' 2>/dev/null | FileCheck %s --check-prefixes=CHECK,TILE
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=per-tile' 2>&1 >/dev/null | FileCheck %s --check-prefix=WARN
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks' --remark-format=emitRemark --remarks-filter=koila-tile-batch 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks' | koila-opt -split-input-file --koila-verify-stage=stage=emittable -o /dev/null

// A draw in the shape of a tensor does not wait for it: the shape is known. Two
// draws keep their order.
// CHECK-LABEL: func.func @noise
// CHECK-SAME: random = "[[MODE:full-batch-masks|per-tile]]"
// FULL-DAG: %[[E:.*]] = koila.empty_memory_format %{{.*}} {dtype = 6 : i64, size = array<i64: -9223372036854775808, 8>}
// FULL: %[[N:.*]] = koila.uniform %[[E]] {from = 0.000000e+00 : f64, tied, to = 1.000000e+00 : f64}
// FULL: %[[F:.*]] = koila.normal_functional
// FULL-NOT: koila.relu
// CHECK: scf.for
// FULL: tensor.extract_slice %[[N]]
// FULL: tensor.extract_slice %[[F]]
// CHECK: koila.relu
// TILE: koila.rand_like
// TILE: koila.randn_like
// CHECK-NOT: _like
// WARN: warning: random streams differ: 'koila.rand_like' at {{.*}} and 1 more draw anew in each tile; results equal those of the untiled program in distribution only, whatever the seed
// REMARK: [Passed] RandomNumbers | Category:koila-tile-batch | Function=noise | Remark="drawn for the whole batch"
// REMARK-NOT: Barrier
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @noise(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.rand_like %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.mul_Tensor %0, %1 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %3 = koila.randn_like %2 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %4 = koila.mul_Tensor %2, %3 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %4 : tensor<?x8xf32>
  }
}

// -----

// Dropout in training is noise, which is drawn whole, and a product per tile.
// CHECK-LABEL: func.func @dropout
// FULL: %[[N:.*]] = koila.bernoulli_p %{{.*}} {p = 7.500000e-01 : f64, tied}
// CHECK: scf.for
// FULL: %[[S:.*]] = tensor.extract_slice %[[N]]
// FULL: koila.div_Scalar %[[S]] {other = 7.500000e-01 : f64}
// FULL: koila.mul_Tensor
// TILE: koila.dropout %{{.*}} {p = 2.500000e-01 : f64, train = true}
// WARN: warning: random streams differ: 'koila.dropout' at {{.*}} draws anew in each tile
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @dropout(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.dropout %x {p = 0.25 : f64, train = true} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}

// -----

// Of each channel, in the order of memory of the tensor.
// CHECK-LABEL: func.func @layout
// FULL: koila.empty_memory_format {{.*}}size = array<i64: -9223372036854775808, 3, 1, 1>
// FULL: koila.empty_permuted {{.*}}physical_layout = array<i64: 0, 2, 3, 1>
// FULL: koila.uniform
// FULL: scf.for
// WARN: 'koila.feature_dropout' at {{.*}} and 1 more draw anew
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @layout(%x: tensor<?x4x5x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4, 5, 3]>}) -> tensor<?x3x4x5xf32> {
    %0 = koila.permute %x {dims = array<i64: 0, 3, 1, 2>} : (tensor<?x4x5x3xf32>) -> tensor<?x3x4x5xf32>
    %1 = koila.feature_dropout %0 {p = 0.25 : f64, train = true} : (tensor<?x3x4x5xf32>) -> tensor<?x3x4x5xf32>
    %2 = koila.rand_like %0 : (tensor<?x3x4x5xf32>) -> tensor<?x3x4x5xf32>
    %3 = koila.mul_Tensor %1, %2 : (tensor<?x3x4x5xf32>, tensor<?x3x4x5xf32>) -> tensor<?x3x4x5xf32>
    return %3 : tensor<?x3x4x5xf32>
  }
}

// -----

// A draw in the shape of one that has been replaced.
// CHECK-LABEL: func.func @after
// FULL: koila.bernoulli_p
// FULL: koila.normal_functional
// CHECK: scf.for
// FULL-NOT: koila.normal_functional
// WARN: 'koila.dropout' at {{.*}} and 1 more draw anew
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @after(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.dropout %x {p = 0.25 : f64, train = true} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.randn_like %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.mul_Tensor %0, %1 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}

// -----

// What draws by values needs them all: it runs whole, and later draws after it.
// CHECK-LABEL: func.func @values
// FULL: scf.for
// FULL: koila.sigmoid
// FULL: koila.bernoulli %
// FULL: koila.uniform
// FULL: scf.for
// TILE: scf.for
// TILE: koila.bernoulli %
// TILE: koila.rand_like
// TILE-NOT: koila.rand_like
// WARN: 'koila.bernoulli' at {{.*}} and 1 more draw anew
// REMARK: Barrier | {{.*}}Function=values | Reason="'koila.bernoulli' draws random numbers for the whole batch"
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @values(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.sigmoid %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.bernoulli %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.rand_like %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %3 = koila.mul_Tensor %1, %2 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %3 : tensor<?x8xf32>
  }
}

// -----

// One order of all samples, and numbers that all samples share, are drawn once
// in either way.
// CHECK-LABEL: func.func @shared
// CHECK: koila.randperm
// CHECK: koila.rand {{.*}}size = array<i64: 8>
// CHECK-NOT: koila.rand
// CHECK: scf.for
// CHECK-NOT: koila.rand
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @shared(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tensor<?x8xf32>, tensor<?xi64>) {
    %n = koila.size_int %x {dim = 0} : (tensor<?x8xf32>) -> i64
    %0 = koila.randperm %n {n = -9223372036854775808 : i64} : (i64) -> tensor<?xi64>
    %1 = koila.rand {size = array<i64: 8>} : () -> tensor<8xf32>
    %2 = koila.mul_Tensor %x, %1 : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    return %2, %0 : tensor<?x8xf32>, tensor<?xi64>
  }
}

// -----

// A probability of one, and no training, draw nothing.
// CHECK-LABEL: func.func @nothing
// CHECK-NOT: random =
// CHECK: scf.for
// CHECK: koila.dropout %{{.*}} {p = 1.000000e+00 : f64, train = true}
// WARN-NOT: warning
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @nothing(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.dropout %x {p = 1.0 : f64, train = true} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.dropout %0 {p = 0.0 : f64, train = true} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.exp %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}
