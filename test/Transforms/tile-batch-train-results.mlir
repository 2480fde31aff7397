// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='mode=train tile=4' | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='mode=train tile=4' --canonicalize --cse --loop-invariant-code-motion | FileCheck %s --check-prefix=CLEAN

// Further results: rows are joined, a reduction adds up, and where samples are mixed
// is a barrier behind the loops. One buffer serves the return, the barrier and
// the second phase. What is whole is detached whole.

// CHECK-LABEL: @results
// CHECK: %[[ROWS:.*]] = tensor.empty(%{{.*}}) : tensor<?x5xf32>
// CHECK: %[[PHASE:.*]]:5 = scf.for {{.*}} iter_args(%{{.*}} = %[[ROWS]],
// CHECK: scf.for
// CHECK: %[[Y:.*]] = koila.linear
// CHECK: %[[PART:.*]] = koila.mse_loss
// CHECK: %[[FREE:.*]] = koila.detach %[[Y]]
// CHECK: koila.gt_Scalar %[[FREE]]
// CHECK: koila.backward
// CHECK: koila.detach %[[PART]]
// CHECK: tensor.insert_slice %[[FREE]]
// CHECK-COUNT-2: scf.yield
// CHECK: %[[SHARES:.*]] = koila.softmax_int %[[PHASE]]#0
// CHECK: %[[RESULT:.*]] = koila.detach %[[SHARES]]
// CHECK: %[[OTHER:.*]]:3 = scf.for
// CHECK: scf.for
// CHECK: tensor.extract_slice %[[PHASE]]#0
// CHECK: tensor.extract_slice %[[SHARES]]
// CHECK: koila.sub_Tensor
// CHECK-NOT: koila.backward
// CHECK: return %{{.*}}, %[[PHASE]]#0, %[[RESULT]], %[[PHASE]]#2, %[[OTHER]]#0

// CLEAN-LABEL: @results
// CLEAN: koila.backward
// CLEAN: koila.softmax_int
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @results(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>},
                   %t: tensor<?x5xf32> {koila.name = "t", koila.dims = #koila.dims<[B, 5]>})
    -> (tensor<f32>, tensor<?x5xf32>, tensor<?x5xf32>, tensor<i64>, tensor<?x5xf32>) {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.mse_loss %y, %t {reduction = 1 : i64} : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<f32>
  %free = koila.detach %y : (tensor<?x5xf32>) -> tensor<?x5xf32>
  %positive = koila.gt_Scalar %free {other = 0 : i64} : (tensor<?x5xf32>) -> tensor<?x5xi1>
  %count = koila.sum %positive : (tensor<?x5xi1>) -> tensor<i64>
  %shares = koila.softmax_int %free {dim = 0 : i64} : (tensor<?x5xf32>) -> tensor<?x5xf32>
  %difference = koila.sub_Tensor %free, %shares {alpha = 1 : i64} : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<?x5xf32>
  %result = koila.detach %shares : (tensor<?x5xf32>) -> tensor<?x5xf32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value, %free, %result, %count, %difference : tensor<f32>, tensor<?x5xf32>, tensor<?x5xf32>, tensor<i64>, tensor<?x5xf32>
}
}

// -----

// Each tile has a leaf of its own, whose gradient is a part of the whole. What
// needs no gradient reads the argument, also in a phase before.

// CHECK-LABEL: @slices
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[PLAIN:.*]] = tensor.extract_slice %arg0
// CHECK: koila.gt_Scalar %[[PLAIN]]
// CHECK-NOT: koila.leaf
// CHECK-COUNT-2: scf.yield
// CHECK: %[[BUFFER:.*]] = tensor.empty(%{{.*}}) : tensor<?x6xf32>
// CHECK: %[[PHASE:.*]]:4 = scf.for {{.*}} iter_args(%{{.*}} = %[[BUFFER]],
// CHECK: scf.for
// CHECK: %[[ROWS:.*]] = tensor.extract_slice %arg0
// CHECK: %[[LEAF:.*]] = koila.leaf %[[ROWS]]
// CHECK: koila.linear %[[LEAF]]
// CHECK: koila.backward
// CHECK: %[[GRADIENT:.*]] = koila.leaf.grad %[[LEAF]]
// CHECK: tensor.insert_slice %[[GRADIENT]]
// CHECK: return %{{.*}}, %[[PHASE]]#0

// CLEAN-LABEL: @slices
// CLEAN: scf.for
// CLEAN: scf.for
// CLEAN: scf.for
// CLEAN: scf.for
// CLEAN: koila.leaf
// CLEAN: koila.backward
// CLEAN: koila.leaf.grad
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @slices(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>, koila.requires_grad}) -> (tensor<f32>, tensor<?x6xf32>) {
  %leaf = koila.leaf %x : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %leaf, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %sum = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  %positive = koila.gt_Scalar %leaf {other = 0 : i64} : (tensor<?x6xf32>) -> tensor<?x6xi1>
  %count = koila.sum %positive : (tensor<?x6xi1>) -> tensor<i64>
  %loss = koila.div_Tensor %sum, %count : (tensor<f32>, tensor<i64>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %gradient = koila.leaf.grad %leaf : (tensor<?x6xf32>) -> tensor<?x6xf32>
  return %value, %gradient : tensor<f32>, tensor<?x6xf32>
}
}

// -----

// All tiles add to the gradient of what has no batch, and so does what the loss
// has beside the samples. What is made of it, each tile makes again.

// CHECK-LABEL: @shared
// CHECK: %[[LEAF:.*]] = koila.leaf %arg1
// CHECK: %[[SUM:.*]] = koila.sum %[[LEAF]]
// CHECK: scf.for
// CHECK: scf.for
// CHECK: koila.tanh %[[LEAF]]
// CHECK: koila.detach %[[SUM]]
// CHECK: koila.backward
// CHECK-NOT: koila.leaf
// CHECK-COUNT-2: scf.yield
// CHECK: koila.backward
// CHECK: %[[GRADIENT:.*]] = koila.leaf.grad %[[LEAF]]
// CHECK: return %{{.*}}, %[[GRADIENT]]

// CLEAN-LABEL: @shared
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @shared(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>},
                  %s: tensor<6xf32> {koila.name = "s", koila.dims = #koila.dims<[6]>, koila.requires_grad}) -> (tensor<f32>, tensor<6xf32>) {
  %leaf = koila.leaf %s : (tensor<6xf32>) -> tensor<6xf32>
  %bounded = koila.tanh %leaf : (tensor<6xf32>) -> tensor<6xf32>
  %y = koila.mul_Tensor %x, %bounded : (tensor<?x6xf32>, tensor<6xf32>) -> tensor<?x6xf32>
  %sum = koila.sum %y : (tensor<?x6xf32>) -> tensor<f32>
  %rest = koila.sum %leaf : (tensor<6xf32>) -> tensor<f32>
  %loss = koila.add_Tensor %sum, %rest {alpha = 1 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %gradient = koila.leaf.grad %leaf : (tensor<6xf32>) -> tensor<6xf32>
  return %value, %gradient : tensor<f32>, tensor<6xf32>
}
}

// -----

// The gradient of a leaf is that of its own backward pass, also of one that
// may share storage with what is written in place.

// CHECK-LABEL: @marked
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[LEAF:.*]] = koila.leaf {{.*}} {koila.reads}
// CHECK: koila.backward
// CHECK: koila.leaf.grad %[[LEAF]]
// CHECK-NOT: koila.leaf
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<6xf32> keys ["w"] strides [1] requires_grad
func.func @marked(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>, koila.requires_grad})
    -> (tensor<f32>, tensor<?x6xf32>) {
  %w = koila.param.get @w : tensor<6xf32>
  %copy = koila.clone %w {koila.reads} : (tensor<6xf32>) -> tensor<6xf32>
  %i = arith.constant 2 : i64
  %two = koila.num_to_tensor %i {a = #koila.dynamic} : (i64) -> tensor<i64>
  %written = koila.mul_Tensor %copy, %two {koila.writes} : (tensor<6xf32>, tensor<i64>) -> tensor<6xf32>
  %whole = koila.sum %copy {koila.reads} : (tensor<6xf32>) -> tensor<f32>
  %leaf = koila.leaf %x {koila.reads} : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %y = koila.cos %leaf : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %part = koila.sum %y : (tensor<?x6xf32>) -> tensor<f32>
  %loss = koila.add_Tensor %part, %whole {alpha = 1 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %grad = koila.leaf.grad %leaf {koila.reads} : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value, %grad : tensor<f32>, tensor<?x6xf32>
}
}
