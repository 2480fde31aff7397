// The events of loops and branches: their largest sum is the peak, and where they
// stand for others, they say so.

// RUN: split-file %s %t
// RUN: %python %S/../oracle/sums_of_files.py koila-opt %t/loop.mlir %t/branch.mlir %t/larger.mlir | FileCheck %s

// One iteration stands for all of a loop that hands on what it makes.
// CHECK: loop.mlir: peak 16, events 16, 0 of 1 exact
// Of a branch that data decide, what another would keep is not left behind.
// CHECK: branch.mlir: peak 8192, events 8192
// CHECK: larger.mlir: peak 224, events 224, 0 of 8 exact

//--- loop.mlir
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c10 = arith.constant 10 : index
  %r = scf.for %i = %c0 to %c10 step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %y = koila.relu %a : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

//--- branch.mlir
func.func @f(%x: tensor<1024xf32> {koila.requires_grad}, %c: i1) -> tensor<1024xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %c1 step %c1 { scf.yield }
  %r = scf.if %c -> tensor<1024xf32> {
    %y = koila.dropout %x {p = 5.0e-1 : f64, train = true} : (tensor<1024xf32>) -> tensor<1024xf32>
    scf.yield %y : tensor<1024xf32>
  } else {
    %y = koila.dropout %x {p = 5.0e-1 : f64, train = true} : (tensor<1024xf32>) -> tensor<1024xf32>
    scf.yield %y : tensor<1024xf32>
  }
  %s = koila.relu %r : (tensor<1024xf32>) -> tensor<1024xf32>
  %t = koila.relu %s : (tensor<1024xf32>) -> tensor<1024xf32>
  return %t : tensor<1024xf32>
}

//--- larger.mlir
func.func @f(%x: tensor<4xf32>, %c: i1) -> (tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %c1 step %c1 { scf.yield }
  %r = scf.if %c -> tensor<?xf32> {
    %z = koila.cat %x, %x {dim = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
    %q = tensor.cast %z : tensor<8xf32> to tensor<?xf32>
    scf.yield %q : tensor<?xf32>
  } else {
    %a = koila.cat %x, %x, %x, %x, %x, %x, %x {dim = 0 : i64} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<28xf32>
    %b = koila.relu %a : (tensor<28xf32>) -> tensor<28xf32>
    %s = koila.sum %b : (tensor<28xf32>) -> tensor<f32>
    %y = koila.add_Tensor %x, %s {alpha = 1 : i64} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %q = tensor.cast %y : tensor<4xf32> to tensor<?xf32>
    scf.yield %q : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
