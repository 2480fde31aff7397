// Where one sample takes too much, the forward pass of its tile runs without records up to the
// last part, and the backward pass part by part: each runs its forward pass again, from leaves.
//
// RUN: koila-opt %s --koila-tile-batch='mode=train budget=7900 threads=1 isa=avx2' --batch B=1 --remark-format=emitRemark --remarks-filter-passed=koila-tile-batch 2>&1 | FileCheck %s
// RUN: not koila-opt %s --koila-tile-batch='mode=train budget=8000 threads=1 isa=avx2 recompute=never' --batch B=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=NEVER
// RUN: not koila-opt %s --koila-tile-batch='mode=train budget=100 threads=1 isa=avx2' --batch B=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=LEAST
// RUN: koila-opt %s --koila-tile-batch='mode=train budget=7692 threads=1 isa=avx2' --batch B=1 -o /dev/null
// The report's floor is the least that any of these takes.
// RUN: koila-opt %s --koila-peak-memory='mode=train threads=1 isa=avx2' --batch B=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=FLOOR

// NEVER: error: no tile fits the budget of 7.81 KiB (8,000 bytes): the smallest budget that works is 11.26 KiB (11,528 bytes), untiled, for B = 1
// LEAST: error: no tile fits the budget of 100 bytes: the smallest budget that works is 7.51 KiB (7,692 bytes), with tile 1 for B = 1
// FLOOR: floor 7.51 KiB (7,692 bytes)

// CHECK: Segments {{.*}}Parts=3, RecomputedPercent=62, {{.*}}in parts, each of which runs again its part of the forward pass
// CHECK: BatchTiling {{.*}}BudgetBytes=7900, PeakBytes=7692, {{.*}}Tile=1, UntiledPeakBytes=11528

// Up to the last part weights are detached, also what is made of them.
// CHECK: [[V:%.*]] = koila.param.get @v
// CHECK: [[W:%.*]] = koila.param.get @w
// CHECK: [[WD:%.*]] = koila.detach [[W]]
// CHECK: [[VT:%.*]] = koila.t [[V]]
// CHECK: [[VD:%.*]] = koila.detach [[VT]]
// CHECK: koila.matmul {{%.*}}, [[VD]]
// CHECK: koila.linear {{%.*}}, [[WD]]
// CHECK: [[FIRST:%.*]] = koila.relu tied
// CHECK: koila.matmul [[FIRST]], [[VD]]
// CHECK: [[SECOND:%.*]] = koila.relu tied
// The last part is differentiated as it is, from a leaf on; its result does not keep it.
// CHECK: [[LEAF:%.*]] = koila.leaf [[SECOND]]
// CHECK: koila.matmul [[LEAF]], [[VT]]
// CHECK: [[LOSS:%.*]] = koila.mean
// CHECK: [[RESULT:%.*]] = koila.detach [[LOSS]]
// CHECK: koila.backward {{%.*}} {create_graph = false} : (tensor<f32>) -> ()
// CHECK: [[GRAD:%.*]] = koila.leaf.grad [[LEAF]]
// Others run again, with what is made of weights and what was kept; leaves are not written.
// CHECK: [[OTHER:%.*]] = koila.leaf [[FIRST]]
// CHECK: [[AGAIN:%.*]] = koila.t [[V]]
// CHECK: koila.matmul [[OTHER]], [[AGAIN]]
// CHECK: koila.linear {{%.*}}, [[W]] :
// CHECK: [[OUT:%.*]] = koila.relu %
// CHECK: koila.backward [[OUT]], [[GRAD]]
// CHECK: [[NEXT:%.*]] = koila.leaf.grad [[OTHER]]
// CHECK-NOT: koila.leaf %
// CHECK: koila.backward {{%.*}}, [[NEXT]]
// CHECK: koila.add_Tensor tied {{%.*}}, [[RESULT]]

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<16x4xf32> keys ["v"] strides [4, 1] requires_grad
  koila.param @w : tensor<4x16xf32> keys ["w"] strides [16, 1] requires_grad

  func.func @step(%x: tensor<?x32x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 32, 4]>}) -> tensor<f32> {
    %v = koila.param.get @v : tensor<16x4xf32>
    %w = koila.param.get @w : tensor<4x16xf32>
    %vt = koila.t %v : (tensor<16x4xf32>) -> tensor<4x16xf32>
    %m0 = koila.matmul %x, %vt : (tensor<?x32x4xf32>, tensor<4x16xf32>) -> tensor<?x32x16xf32>
    %t0 = koila.tanh %m0 : (tensor<?x32x16xf32>) -> tensor<?x32x16xf32>
    %l0 = koila.linear %t0, %w : (tensor<?x32x16xf32>, tensor<4x16xf32>) -> tensor<?x32x4xf32>
    %r0 = koila.relu tied %l0 : (tensor<?x32x4xf32>) -> tensor<?x32x4xf32>
    %m1 = koila.matmul %r0, %vt : (tensor<?x32x4xf32>, tensor<4x16xf32>) -> tensor<?x32x16xf32>
    %t1 = koila.tanh %m1 : (tensor<?x32x16xf32>) -> tensor<?x32x16xf32>
    %l1 = koila.linear %t1, %w : (tensor<?x32x16xf32>, tensor<4x16xf32>) -> tensor<?x32x4xf32>
    %r1 = koila.relu tied %l1 : (tensor<?x32x4xf32>) -> tensor<?x32x4xf32>
    %m2 = koila.matmul %r1, %vt : (tensor<?x32x4xf32>, tensor<4x16xf32>) -> tensor<?x32x16xf32>
    %t2 = koila.tanh %m2 : (tensor<?x32x16xf32>) -> tensor<?x32x16xf32>
    %l2 = koila.linear %t2, %w : (tensor<?x32x16xf32>, tensor<4x16xf32>) -> tensor<?x32x4xf32>
    %r2 = koila.relu tied %l2 : (tensor<?x32x4xf32>) -> tensor<?x32x4xf32>
    %e = koila.mean %r2 : (tensor<?x32x4xf32>) -> tensor<f32>
    koila.backward %e {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %e : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
