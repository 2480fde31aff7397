// RUN: koila-opt %s --koila-print-facts -o /dev/null 2>&1 | FileCheck %s

// Symbols of the user are other ones than those of analyses that are spelled the
// same: here the extent of an argument of which nothing is said, an integer that
// data decide, and the rows that a mask selects.

// CHECK: koila.add_Tensor{{.*}}"dims":["broadcast(_a1d0, _a1d0)"]
// CHECK: tensor.empty{{.*}}"dims":["_0"]
// CHECK: koila.cat{{.*}}"dims":["_0 + _0"]
// CHECK: koila.index_Tensor{{.*}}"dims":["_1m"]
// CHECK: koila.cat{{.*}}"dims":["_1m + _1m"]
func.func @apart(%x: tensor<?xf32> {koila.name = "x", koila.dims = #koila.dims<[_a1d0]>},
                 %y: tensor<?xf32> {koila.name = "y"},
                 %n: index,
                 %z: tensor<?xf32> {koila.name = "z", koila.dims = #koila.dims<[_0]>},
                 %m: tensor<4xi1> {koila.name = "m"},
                 %v: tensor<4xf32> {koila.name = "v"},
                 %u: tensor<?xf32> {koila.name = "u", koila.dims = #koila.dims<[_1m]>}) {
  %0 = koila.add_Tensor %x, %y {alpha = 1 : i64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %1 = tensor.empty(%n) : tensor<?xf32>
  %2 = koila.cat %1, %z {dim = 0 : i64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %3 = koila.index_Tensor %v, %m {indices_mask = array<i1: true>} : (tensor<4xf32>, tensor<4xi1>) -> tensor<?xf32>
  %4 = koila.cat %3, %u {dim = 0 : i64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return
}
