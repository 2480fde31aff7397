// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch="budget=7000 threads=1" --koila-peak-memory="threads=1 batches=0 floor=false" --remark-format=emitRemark --remarks-filter=koila-tile-batch 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file %t

// The phase before the softmax is wide and needs small tiles; the one after it
// runs in tiles as large as the budget allows, and the peak stays within it.
// REMARK: remark: [Passed] BatchTiling {{.*}} Phase=1, Remark="a phase that needs less runs in larger tiles", Tile=32
// REMARK: remark: [Passed] BatchTiling {{.*}}PeakBytes=6144, Remark="the largest tile that fits the budget", Tile=2
// REMARK: peak {{.*}}(6,144 bytes)
// CHECK-LABEL: func.func @forward
// CHECK-SAME: tile = 2 : i64
// CHECK-DAG: arith.constant 2 : index
// CHECK: scf.for
// CHECK: koila.mean_dim
// CHECK: koila.softmax_int
// CHECK-DAG: %[[TILE:.*]] = arith.constant 32 : index
// CHECK-DAG: %[[ROUNDS:.*]] = arith.constant 6 : index
// CHECK: scf.for {{.*}} to %[[ROUNDS]] {{.*}} = %[[TILE]])
// CHECK: koila.tanh
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  koila.param @w : tensor<256x8xf32> keys ["w"] strides [8, 1]
  func.func @forward(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %w = koila.param.get @w : tensor<256x8xf32>
    %0 = koila.linear %x, %w : (tensor<?x8xf32>, tensor<256x8xf32>) -> tensor<?x256xf32>
    %1 = koila.exp %0 : (tensor<?x256xf32>) -> tensor<?x256xf32>
    %2 = koila.mean_dim %1 {dim = array<i64: 1>, keepdim = true} : (tensor<?x256xf32>) -> tensor<?x1xf32>
    %3 = koila.mul_Tensor %x, %2 : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
    %4 = koila.softmax_int %3 {dim = 0 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %5 = koila.exp %4 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %6 = koila.tanh %5 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %6 : tensor<?x8xf32>
  }
}
