// RUN: koila-opt %s | koila-opt | FileCheck %s
// RUN: koila-opt %s --emit-bytecode | koila-opt | FileCheck %s
// RUN: koila-opt %s --cse --canonicalize --loop-invariant-code-motion | FileCheck %s --check-prefix=CLEAN
// RUN: koila-opt %s --koila-infer-shapes | FileCheck %s --check-prefix=SHAPES

// Two leaves of one tensor are two tensors, each with a gradient of its own;
// one that nobody reads can go.

// CHECK-LABEL: @two
// CHECK: %[[A:.*]] = koila.leaf %arg0 : (tensor<4xf32>) -> tensor<4xf32>
// CHECK: koila.leaf.grad %[[A]] : (tensor<4xf32>) -> tensor<4xf32>

// CLEAN-LABEL: @two
// CLEAN-COUNT-2: koila.leaf %arg0
// CLEAN-NOT: koila.leaf %arg0
// CLEAN: koila.backward
// CLEAN-COUNT-2: koila.leaf.grad
func.func @two(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = koila.leaf %x : (tensor<4xf32>) -> tensor<4xf32>
  %b = koila.leaf %x : (tensor<4xf32>) -> tensor<4xf32>
  %unread = koila.leaf %x : (tensor<4xf32>) -> tensor<4xf32>
  %product = koila.mul_Tensor %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %loss = koila.sum %product : (tensor<4xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %ga = koila.leaf.grad %a : (tensor<4xf32>) -> tensor<4xf32>
  %gb = koila.leaf.grad %b : (tensor<4xf32>) -> tensor<4xf32>
  return %ga, %gb : tensor<4xf32>, tensor<4xf32>
}

// Each iteration has its own.

// CLEAN-LABEL: @loop
// CLEAN: scf.for
// CLEAN: koila.leaf
// CLEAN: koila.leaf.grad
func.func @loop(%x: tensor<4xf32>, %count: index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  scf.for %i = %zero to %count step %one {
    %a = koila.leaf %x : (tensor<4xf32>) -> tensor<4xf32>
    %loss = koila.sum %a : (tensor<4xf32>) -> tensor<f32>
    koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
    %g = koila.leaf.grad %a : (tensor<4xf32>) -> tensor<4xf32>
    koila.torch_op "prim::Print"(%g) args [#koila.operand<0>] effects unknown : (tensor<4xf32>) -> ()
  }
  return
}

// SHAPES-LABEL: @shapes
// SHAPES: koila.leaf %arg0 : (tensor<?x4xf32>) -> tensor<?x4xf32>
// SHAPES: koila.leaf.grad %{{.*}} : (tensor<?x4xf32>) -> tensor<?x4xf32>
func.func @shapes(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) {
  %a = koila.leaf %x : (tensor<?x4xf32>) -> tensor<*x!koila.any>
  %g = koila.leaf.grad %a : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  koila.torch_op "prim::Print"(%g) args [#koila.operand<0>] effects unknown : (tensor<*x!koila.any>) -> ()
  return
}
