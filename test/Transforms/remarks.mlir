// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=3584 threads=1" --koila-peak-memory="threads=1 output=%t.report" --remarks-filter=".*" -o /dev/null 2>&1 | FileCheck %s

// Decisions are remarks: each tile that was weighed, the choice, the peak.

// CHECK: remark: [Analysis] BatchTiling | Category:koila-tile-batch | Function=forward | BudgetBytes=3584, PeakBytes={{[0-9]+}}, Tile=64
// CHECK: remark: [Analysis] BatchTiling {{.*}} PeakBytes=3584, Tile=16
// CHECK: remark: [Analysis] BatchTiling {{.*}} PeakBytes=2144, Tile=1
// CHECK: remark: [Passed] BatchTiling {{.*}} PeakBytes=3584, Remark="the largest tile that fits the budget", Tile=16, UntiledPeakBytes=6144
// CHECK: remark: [Analysis] PeakMemory {{.*}} Exact=true, PeakBytes=3584
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.exp %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.mul_Tensor %0, %1 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}
