// RUN: koila-opt %s | koila-opt | FileCheck %s
// RUN: koila-opt %s --mlir-print-op-generic | koila-opt | FileCheck %s
// RUN: koila-opt %s --emit-bytecode | koila-opt | FileCheck %s

// Weights, assumptions, refinement, the opaque operator: printed and read
// back, as text, in the generic form and as bytecode.

// CHECK: koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>, #koila.symbol<name = "S", lower = 1, upper = 512>]
module attributes {koila.symbols = [
    #koila.symbol<name = "B", value = 64, batch = true>,
    #koila.symbol<name = "S", lower = 1, upper = 512>],
    koila.archive = #koila.archive<path = "m.pt", fingerprint = "ab12", function = "forward">,
    koila.training = false} {
  // A weight with one name.
  // CHECK: koila.param @w : tensor<10x64xf32> keys ["fc.weight"] strides [64, 1] requires_grad
  koila.param @w : tensor<10x64xf32> keys ["fc.weight"] strides [64, 1] requires_grad
  // A tied weight is one declaration with two keys.
  // CHECK: koila.param @tied : tensor<4xf32> keys ["a", "b"] strides [1]
  koila.param @tied : tensor<4xf32> keys ["a", "b"] strides [1]
  // A buffer that is a view into another storage.
  // CHECK: koila.param @view : tensor<f64> keys ["c"] strides [] buffer {offset = 3 : i64, storage = "s0"}
  koila.param @view : tensor<f64> keys ["c"] strides [] buffer {offset = 3 : i64, storage = "s0"}
  // A tensor constant of the program.
  // CHECK: koila.param @k : tensor<2xi64> keys [] strides [1] constant 7
  koila.param @k : tensor<2xi64> keys [] strides [1] constant 7

  // CHECK-LABEL: func.func @weights
  func.func @weights() -> tensor<10x64xf32> {
    // CHECK: koila.param.get @w : tensor<10x64xf32>
    %0 = koila.param.get @w : tensor<10x64xf32>
    return %0 : tensor<10x64xf32>
  }

  // Every kind of argument attribute.
  // CHECK-LABEL: func.func @arguments
  // CHECK-SAME: koila.dims = #koila.dims<[B, 2*S, 3]>
  // CHECK-SAME: koila.range = #koila.range<0:B>
  func.func @arguments(
      %x: tensor<?x?x3xi64> {koila.name = "x", koila.dims = #koila.dims<[B, S + S, 3]>,
                             koila.range = #koila.range<0:B>, koila.requires_grad}) {
    return
  }

  // CHECK-LABEL: func.func @assumptions
  // CHECK-SAME: %[[X:.*]]: tensor<?x64xf32>
  func.func @assumptions(%x: tensor<?x64xf32>) {
    // CHECK: koila.assume dtype %[[X]] : tensor<?x64xf32> is f32
    koila.assume dtype %x : tensor<?x64xf32> is f32
    // CHECK: koila.assume rank %[[X]] : tensor<?x64xf32> is 2 : i64
    koila.assume rank %x : tensor<?x64xf32> is 2 : i64
    // CHECK: koila.assume extent %[[X]] : tensor<?x64xf32>[1] is #koila.expr<64>
    koila.assume extent %x : tensor<?x64xf32>[1] is #koila.expr<64>
    // CHECK: koila.assume contiguous %[[X]] : tensor<?x64xf32> is true
    koila.assume contiguous %x : tensor<?x64xf32> is true
    // CHECK: koila.assume device %[[X]] : tensor<?x64xf32> is "cpu"
    koila.assume device %x : tensor<?x64xf32> is "cpu"
    // CHECK: koila.assume training is false
    koila.assume training is false
    return
  }

  // CHECK-LABEL: func.func @refine
  // CHECK-SAME: %[[X:.*]]: tensor<*x!koila.any>
  func.func @refine(%x: tensor<*x!koila.any>) -> tensor<*xf32> {
    // CHECK: %[[R:.*]] = koila.refine %[[X]] : tensor<*x!koila.any> to tensor<?x64xf32>
    %0 = koila.refine %x : tensor<*x!koila.any> to tensor<?x64xf32>
    // CHECK: koila.refine %[[R]] : tensor<?x64xf32> to tensor<*xf32>
    %1 = koila.refine %0 : tensor<?x64xf32> to tensor<*xf32>
    return %1 : tensor<*xf32>
  }

  // Constants, nested lists, absent arguments, several results and aliases.
  // CHECK-LABEL: func.func @opaque
  // CHECK-SAME: %[[X:.*]]: tensor<4xf32>, %[[I:.*]]: i64
  func.func @opaque(%x: tensor<4xf32>, %i: i64) {
    // CHECK: koila.torch_op "aten::foo.bar"(%[[X]], %[[I]]) args [#koila.operand<0>, [#koila.operand<1>, 2], unit, "s", 1.000000e+00] effects none aliases {{\[\[}}0], []] : (tensor<4xf32>, i64) -> (tensor<*x!koila.any>, !koila.list<i64>)
    %0:2 = koila.torch_op "aten::foo.bar"(%x, %i)
        args [#koila.operand<0>, [#koila.operand<1>, 2], unit, "s", 1.0]
        effects none aliases [[0], []]
        : (tensor<4xf32>, i64) -> (tensor<*x!koila.any>, !koila.list<i64>)
    // CHECK: koila.torch_op "prim::Print"() args [] effects unknown : () -> ()
    koila.torch_op "prim::Print"() args [] effects unknown : () -> ()
    // CHECK: koila.torch_op "aten::rand"() args [] effects rng : () -> tensor<*x!koila.any>
    %1 = koila.torch_op "aten::rand"() args [] effects rng : () -> tensor<*x!koila.any>
    // CHECK: koila.torch_op "aten::copy_"(%[[X]]) args [#koila.operand<0>] effects write : (tensor<4xf32>) -> ()
    koila.torch_op "aten::copy_"(%x) args [#koila.operand<0>] effects write : (tensor<4xf32>) -> ()
    return
  }

  // CHECK-LABEL: func.func @custom
  // CHECK-SAME: %[[X:.*]]: tensor<4xf32>
  func.func @custom(%x: tensor<4xf32>) -> tensor<*x!koila.any> {
    // CHECK: koila.custom_op "mylib::op"(%[[X]]) args [#koila.operand<0>, 2.000000e+00, unit] : (tensor<4xf32>) -> tensor<*x!koila.any>
    %0 = koila.custom_op "mylib::op"(%x) args [#koila.operand<0>, 2.0, unit]
        : (tensor<4xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any>
  }

  // CHECK-LABEL: func.func private @types
  // CHECK-SAME: !koila.optional<tensor<*x!koila.any>>
  // CHECK-SAME: !koila.dict<!koila.torch<"str">, !koila.list<f64>>
  func.func private @types(!koila.optional<tensor<*x!koila.any>>,
                           !koila.dict<!koila.torch<"str">, !koila.list<f64>>)
}
