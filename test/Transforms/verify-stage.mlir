// RUN: koila-opt %s -split-input-file --koila-verify-stage=stage=imported --koila-verify-stage=stage=inferred --koila-verify-stage=stage=tiled --koila-verify-stage=stage=emittable | FileCheck %s

// What each stage accepts.

// CHECK-LABEL: func.func @forward
func.func @forward(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<*x!koila.any> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  // Only an opaque operator may leave a type unknown, and what is made of it.
  %0 = koila.torch_op "aten::erfinv"(%x) args [#koila.operand<0>] effects none : (tensor<?x4xf32>) -> tensor<*x!koila.any>
  %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  return %1 : tensor<*x!koila.any>
}

// -----

// Declarations promise nothing.
// CHECK-LABEL: func.func private @declared
func.func private @declared(tensor<*x!koila.any>) -> tensor<*x!koila.any>
