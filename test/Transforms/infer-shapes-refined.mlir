// RUN: koila-opt %s --koila-print-facts -o /dev/null 2>&1 | FileCheck %s

// Extents that a refinement leaves open are those of its value: two of them need
// not be the same.

// CHECK: "dims":["[[FIRST:_[0-9]+d0]]","4"]{{.*}}"schema":"aten::exp"
// CHECK-NOT: "dims":["[[FIRST]]","4"]
// CHECK: "schema":"aten::sin"
func.func @apart(%x: tensor<*x!koila.any> {koila.name = "x"}, %y: tensor<*x!koila.any> {koila.name = "y"}) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %0 = koila.torch_op "aten::foo"(%x) args [#koila.operand<0>] effects none : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  %1 = koila.torch_op "aten::foo"(%y) args [#koila.operand<0>] effects none : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  %2 = koila.refine %0 : tensor<*x!koila.any> to tensor<?x4xf32>
  %3 = koila.refine %1 : tensor<*x!koila.any> to tensor<?x4xf32>
  %4 = koila.exp %2 : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %5 = koila.sin %3 : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %4, %5 : tensor<?x4xf32>, tensor<?x4xf32>
}
