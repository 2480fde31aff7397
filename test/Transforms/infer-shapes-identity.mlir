// RUN: koila-opt %s -split-input-file --koila-infer-shapes | FileCheck %s

// `a is b` decides branches only where it is certain. Each program merges two
// shapes: where the answer is known, the result has one of them.

// Both results of a branch are one value on each side, whichever is taken, and
// a view of it is no longer it for certain.
// CHECK-LABEL: func.func @same_on_both_sides
func.func @same_on_both_sides(%p: i1, %x: tensor<4x8xf32>, %y: tensor<4x8xf32>) {
  %b:2 = scf.if %p -> (tensor<4x8xf32>, tensor<*x!koila.any>) {
    %0 = koila.relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = koila.refine %0 : tensor<4x8xf32> to tensor<*x!koila.any>
    scf.yield %0, %1 : tensor<4x8xf32>, tensor<*x!koila.any>
  } else {
    %1 = koila.refine %y : tensor<4x8xf32> to tensor<*x!koila.any>
    scf.yield %y, %1 : tensor<4x8xf32>, tensor<*x!koila.any>
  }
  %is = koila.torch_op "aten::__is__"(%b#0, %b#1) args [#koila.operand<0>, #koila.operand<1>] effects none : (tensor<4x8xf32>, tensor<*x!koila.any>) -> i1
  // CHECK: scf.if %{{.*}} -> (tensor<2x16xf32>)
  %r = scf.if %is -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: 2, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: 8, 4>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}

// -----

// One side is not the same: nothing is known.
// CHECK-LABEL: func.func @other_on_one_side
func.func @other_on_one_side(%p: i1, %x: tensor<4x8xf32>, %y: tensor<4x8xf32>) {
  %b:2 = scf.if %p -> (tensor<4x8xf32>, tensor<4x8xf32>) {
    scf.yield %x, %x : tensor<4x8xf32>, tensor<4x8xf32>
  } else {
    scf.yield %x, %y : tensor<4x8xf32>, tensor<4x8xf32>
  }
  %is = koila.torch_op "aten::__is__"(%b#0, %b#1) args [#koila.operand<0>, #koila.operand<1>] effects none : (tensor<4x8xf32>, tensor<4x8xf32>) -> i1
  // CHECK: scf.if %{{[^ ]*}} -> (tensor<?x?xf32>)
  %r = scf.if %is -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: 2, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: 8, 4>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}

// -----

// The side that a rank rules out does not count.
// CHECK-LABEL: func.func @live_side
func.func @live_side(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) {
  %dim = koila.dim %x : (tensor<4x8xf32>) -> i64
  %two = arith.constant 2 : i64
  %p = arith.cmpi eq, %dim, %two : i64
  %b:2 = scf.if %p -> (tensor<4x8xf32>, tensor<4x8xf32>) {
    scf.yield %x, %x : tensor<4x8xf32>, tensor<4x8xf32>
  } else {
    scf.yield %x, %y : tensor<4x8xf32>, tensor<4x8xf32>
  }
  %is = koila.torch_op "aten::__isnot__"(%b#0, %b#1) args [#koila.operand<0>, #koila.operand<1>] effects none : (tensor<4x8xf32>, tensor<4x8xf32>) -> i1
  // CHECK: koila.torch_op "aten::__isnot__"
  // CHECK: scf.if %{{.*}} -> (tensor<8x4xf32>)
  %r = scf.if %is -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: 2, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: 8, 4>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}

// -----

// A tensor that the program made is neither the one it was made of nor another
// that the program made, and no view of it is.
// CHECK-LABEL: func.func @made
func.func @made(%x: tensor<4x8xf32>) {
  %s = koila.softmax_int %x {dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = koila.transpose_int %s {dim0 = 0 : i64, dim1 = 1 : i64} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %u = koila.transpose_int %x {dim0 = 0 : i64, dim1 = 1 : i64} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %is = koila.torch_op "aten::__is__"(%t, %u) args [#koila.operand<0>, #koila.operand<1>] effects none : (tensor<8x4xf32>, tensor<8x4xf32>) -> i1
  // CHECK: scf.if %{{.*}} -> (tensor<8x4xf32>)
  %r = scf.if %is -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: 2, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: 8, 4>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}

// -----

// Two arguments may be one tensor.
// CHECK-LABEL: func.func @arguments
func.func @arguments(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) {
  %is = koila.torch_op "aten::__is__"(%x, %y) args [#koila.operand<0>, #koila.operand<1>] effects none : (tensor<4x8xf32>, tensor<4x8xf32>) -> i1
  // CHECK: scf.if %{{[^ ]*}} -> (tensor<?x?xf32>)
  %r = scf.if %is -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: 2, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: 8, 4>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}

// -----

// Outside of training dropout gives the tensor it gets.
// CHECK-LABEL: func.func @alias
func.func @alias(%x: tensor<4x8xf32>) {
  %s = koila.softmax_int %x {dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = koila.dropout %s {p = 0.5 : f64, train = false} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %is = koila.torch_op "aten::__is__"(%s, %t) args [#koila.operand<0>, #koila.operand<1>] effects none : (tensor<4x8xf32>, tensor<4x8xf32>) -> i1
  // CHECK: scf.if %{{[^ ]*}} -> (tensor<?x?xf32>)
  %r = scf.if %is -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: 2, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: 8, 4>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}

// -----

// What a loop carries may be of any iteration.
// CHECK-LABEL: func.func @carried
func.func @carried(%x: tensor<4x8xf32>, %n: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %s = koila.softmax_int %x {dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = scf.for %i = %zero to %n step %one iter_args(%a = %s) -> (tensor<4x8xf32>) : i64 {
    %t = koila.softmax_int %x {dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    scf.yield %t : tensor<4x8xf32>
  }
  %is = koila.torch_op "aten::__is__"(%s, %c) args [#koila.operand<0>, #koila.operand<1>] effects none : (tensor<4x8xf32>, tensor<4x8xf32>) -> i1
  // CHECK: scf.if %{{[^ ]*}} -> (tensor<?x?xf32>)
  %r = scf.if %is -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: 2, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: 8, 4>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}

// -----

// A number becomes a tensor at each use: two values of one tensor.
// CHECK-LABEL: func.func @number
func.func @number(%x: tensor<4x8xf32>, %n: i64) {
  %s = koila.num_to_tensor %n {a = #koila.dynamic} : (i64) -> tensor<*x!koila.any>
  %t = koila.num_to_tensor %n {a = #koila.dynamic} : (i64) -> tensor<*x!koila.any>
  %is = koila.torch_op "aten::__is__"(%s, %t) args [#koila.operand<0>, #koila.operand<1>] effects none : (tensor<*x!koila.any>, tensor<*x!koila.any>) -> i1
  // CHECK: scf.if %{{[^ ]*}} -> (tensor<?x?xf32>)
  %r = scf.if %is -> (tensor<*x!koila.any>) {
    %v = koila.view %x {size = array<i64: 2, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  } else {
    %v = koila.view %x {size = array<i64: 8, 4>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %v : tensor<*x!koila.any>
  }
  return
}
