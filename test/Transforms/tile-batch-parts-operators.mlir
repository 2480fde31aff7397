// At the end of a part, what operators differentiate does not run again: a sum hands its gradient
// on, and the gradients of a product are products of what it reads.
//
// RUN: koila-opt %s --koila-tile-batch='mode=train budget=8000 threads=1 isa=avx2' --batch B=1 --remark-format=emitRemark --remarks-filter-passed=koila-tile-batch 2>&1 | FileCheck %s

// CHECK: Segments {{.*}}Parts=3, RecomputedPercent=29,
// CHECK: BatchTiling {{.*}}BudgetBytes=8000, PeakBytes=7948, {{.*}}Tile=1, UntiledPeakBytes=12056

// CHECK: [[V:%.*]] = koila.param.get @v
// CHECK: [[W:%.*]] = koila.param.get @w
// CHECK: [[B:%.*]] = koila.param.get @b
// The last part, by autograd.
// CHECK: koila.backward {{%.*}} {create_graph = false} : (tensor<f32>) -> ()
// CHECK: [[GRAD:%.*]] = koila.leaf.grad
// The part before it, up to what its last product reads.
// CHECK-NEXT: [[LEAF:%.*]] = koila.leaf
// CHECK-NEXT: koila.linear [[LEAF]], [[V]]
// CHECK-NEXT: [[READ:%.*]] = koila.tanh
// CHECK-NEXT: [[INPUT:%.*]] = koila.detach [[READ]]
// CHECK-NEXT: [[WEIGHT:%.*]] = koila.detach [[W]]
// CHECK-NEXT: [[BEFORE:%.*]] = koila.matmul [[GRAD]], [[WEIGHT]]
// CHECK-NEXT: [[ROWS:%.*]] = koila.flatten_using_ints [[GRAD]]
// CHECK-NEXT: [[TURNED:%.*]] = koila.t [[ROWS]]
// CHECK-NEXT: [[READ_ROWS:%.*]] = koila.flatten_using_ints [[INPUT]]
// CHECK-NEXT: [[OF_WEIGHT:%.*]] = koila.matmul [[TURNED]], [[READ_ROWS]]
// CHECK-NEXT: [[OF_BIAS:%.*]] = koila.sum_dim_IntList [[ROWS]] {dim = array<i64: 0>}
// CHECK-NEXT: koila.backward [[W]], [[OF_WEIGHT]]
// CHECK-NEXT: koila.backward [[B]], [[OF_BIAS]]
// CHECK-NEXT: koila.backward [[READ]], [[BEFORE]]
// Beside what comes through the product there is what the sum hands on.
// CHECK-NEXT: [[THROUGH:%.*]] = koila.leaf.grad [[LEAF]]
// CHECK: koila.add_Tensor [[GRAD]], [[THROUGH]]

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<16x4xf32> keys ["v"] strides [4, 1] requires_grad
  koila.param @w : tensor<4x16xf32> keys ["w"] strides [16, 1] requires_grad
  koila.param @b : tensor<4xf32> keys ["b"] strides [1] requires_grad

  func.func @step(%x: tensor<?x32x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 32, 4]>}) -> tensor<f32> {
    %v = koila.param.get @v : tensor<16x4xf32>
    %w = koila.param.get @w : tensor<4x16xf32>
    %b = koila.param.get @b : tensor<4xf32>
    %m0 = koila.linear %x, %v : (tensor<?x32x4xf32>, tensor<16x4xf32>) -> tensor<?x32x16xf32>
    %t0 = koila.tanh %m0 : (tensor<?x32x16xf32>) -> tensor<?x32x16xf32>
    %l0 = koila.linear %t0, %w, %b : (tensor<?x32x16xf32>, tensor<4x16xf32>, tensor<4xf32>) -> tensor<?x32x4xf32>
    %r0 = koila.add_Tensor %x, %l0 {alpha = 1 : i64} : (tensor<?x32x4xf32>, tensor<?x32x4xf32>) -> tensor<?x32x4xf32>
    %m1 = koila.linear %r0, %v : (tensor<?x32x4xf32>, tensor<16x4xf32>) -> tensor<?x32x16xf32>
    %t1 = koila.tanh %m1 : (tensor<?x32x16xf32>) -> tensor<?x32x16xf32>
    %l1 = koila.linear %t1, %w, %b : (tensor<?x32x16xf32>, tensor<4x16xf32>, tensor<4xf32>) -> tensor<?x32x4xf32>
    %d1 = koila.dropout %l1 {p = 0.000000e+00 : f64, train = true} : (tensor<?x32x4xf32>) -> tensor<?x32x4xf32>
    %r1 = koila.add_Tensor %r0, %d1 {alpha = 1 : i64} : (tensor<?x32x4xf32>, tensor<?x32x4xf32>) -> tensor<?x32x4xf32>
    %m2 = koila.linear %r1, %v : (tensor<?x32x4xf32>, tensor<16x4xf32>) -> tensor<?x32x16xf32>
    %t2 = koila.tanh %m2 : (tensor<?x32x16xf32>) -> tensor<?x32x16xf32>
    %l2 = koila.linear %t2, %w, %b : (tensor<?x32x16xf32>, tensor<4x16xf32>, tensor<4xf32>) -> tensor<?x32x4xf32>
    %r2 = koila.add_Tensor %r1, %l2 {alpha = 1 : i64} : (tensor<?x32x4xf32>, tensor<?x32x4xf32>) -> tensor<?x32x4xf32>
    %e = koila.mean %r2 : (tensor<?x32x4xf32>) -> tensor<f32>
    koila.backward %e {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %e : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
