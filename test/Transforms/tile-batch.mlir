// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch="tile=4 guard=raise" | FileCheck %s
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch="tile=4 guard=raise" --koila-verify-stage=stage=tiled --koila-verify-stage=stage=emittable --verify-roundtrip -o /dev/null

// One copy of the body: the outer loop goes over tile sizes 4, 2, 1, the inner
// one over the tiles of that size that fit. Inputs are sliced, outputs
// inserted into one buffer, and the weight is read once.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>
// CHECK-SAME: koila.tiled = {batch_symbol = "B", guard = "raise", tile = 4 : i64}
// CHECK: koila.assume extent %[[X]] {{.*}}[0] is #koila.expr<B>
// CHECK: %[[W:.*]] = koila.param.get @w
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[TILE:.*]] = arith.constant 4 : index
// CHECK-DAG: %[[ROUNDS:.*]] = arith.constant 3 : index
// CHECK-DAG: %[[ROWS:.*]] = tensor.dim %[[X]]
// CHECK: %[[BUFFER:.*]] = tensor.empty(%[[ROWS]]) : tensor<?x16xf32>
// CHECK: %[[OUTER:.*]]:3 = scf.for {{.*}} to %[[ROUNDS]] {{.*}} iter_args(%[[A:.*]] = %[[BUFFER]], %[[START:.*]] = %{{.*}}, %[[SIZE:.*]] = %[[TILE]])
// CHECK: %[[LEFT:.*]] = arith.subi %[[ROWS]], %[[START]]
// CHECK: %[[TRIPS:.*]] = arith.floordivsi %[[LEFT]], %[[SIZE]]
// CHECK: scf.for {{.*}} to %[[TRIPS]] {{.*}} iter_args(%[[B:.*]] = %[[A]], %[[AT:.*]] = %[[START]])
// CHECK: %[[PART:.*]] = tensor.extract_slice %[[X]][%[[AT]], 0] [%[[SIZE]], 8] [1, 1]
// CHECK: %[[Y:.*]] = koila.linear %[[PART]], %[[W]]
// CHECK: %[[Z:.*]] = koila.relu tied %[[Y]]
// CHECK: tensor.insert_slice %[[Z]] into %[[B]][%[[AT]], 0]
// CHECK: arith.floordivsi %[[SIZE]]
// CHECK-NOT: koila.linear
// CHECK: return %[[OUTER]]#0
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @w : tensor<16x8xf32> keys ["w"] strides [8, 1]
  func.func @forward(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<*x!koila.any> {
    %w = koila.param.get @w : tensor<16x8xf32>
    %0 = koila.linear %x, %w : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<*x!koila.any>
    %1 = koila.relu tied %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %1 : tensor<*x!koila.any>
  }
}

// -----

// A multiple of the batch: 3 rows per sample in dim 1.
// CHECK-LABEL: func.func @factor
// CHECK: tensor.extract_slice %{{.*}}[0, %[[OFFSET:.*]]] [2, %[[SIZE:.*]]] [1, 1] : tensor<2x?xf32> to tensor<2x?xf32>
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[0, %{{.*}}] [2, %{{.*}}] [1, 1]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @factor(%x: tensor<2x?xf32> {koila.name = "x", koila.dims = #koila.dims<[2, 3*B]>}) -> tensor<2x?xf32> {
    %0 = koila.relu %x : (tensor<2x?xf32>) -> tensor<2x?xf32>
    return %0 : tensor<2x?xf32>
  }
}

// -----

// Work without the batch is done once, before the loops.
// CHECK-LABEL: func.func @outside
// CHECK: %[[E:.*]] = koila.exp
// CHECK: scf.for
// CHECK: koila.mul_Tensor %{{.*}}, %[[E]]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @outside(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %v: tensor<8xf32> {koila.name = "v"}) -> tensor<?x8xf32> {
    %0 = koila.exp %v : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.mul_Tensor %x, %0 : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}

// -----

// Two outputs, one of them twice and in a container, and an argument that is
// returned as it is.
// CHECK-LABEL: func.func @outputs
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>
// CHECK-COUNT-2: tensor.empty
// CHECK-NOT: tensor.empty
// CHECK: %[[R:.*]]:4 = scf.for
// CHECK: %[[T:.*]] = koila.construct tuple(%[[R]]#0
// CHECK: return %[[T]], %[[R]]#1, %[[R]]#0, %[[X]]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @outputs(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tuple<tensor<?x8xf32>>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %t = koila.construct tuple(%0) : (tensor<?x8xf32>) -> tuple<tensor<?x8xf32>>
    %1 = koila.exp %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %t, %1, %0, %x : tuple<tensor<?x8xf32>>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
  }
}

// -----

// The size of the batch, asked for inside, is the size of the tile.
// CHECK-LABEL: func.func @sizes
// CHECK: scf.for {{.*}} iter_args({{.*}}, %[[SIZE:.*]] = %c4)
// CHECK: %[[PART:.*]] = tensor.extract_slice
// CHECK: %[[N:.*]] = arith.index_cast %[[SIZE]]
// CHECK: koila.view %[[PART]] sizes(%[[N]])
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @sizes(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x2x4xf32> {
    %n = koila.size_int %x {dim = 0} : (tensor<?x8xf32>) -> i64
    %0 = koila.view %x sizes(%n) {size = array<i64: -9223372036854775808, 2, 4>} : (tensor<?x8xf32>, i64) -> tensor<?x2x4xf32>
    %1 = koila.relu %0 : (tensor<?x2x4xf32>) -> tensor<?x2x4xf32>
    return %1 : tensor<?x2x4xf32>
  }
}
