// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-peak-memory=threads=1 -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-peak-memory="threads=1 mode=forward-with-grad" -o /dev/null 2>&1 | FileCheck %s --check-prefix=GRAD

// Loops that turn as often as data say: each turn needs what the others need, and as
// many tensors of turns before as the loop has variables.

// Before the loop 1 KiB, then one made by the turn before, and one of this turn;
// the one before the loop is gone by then.
// CHECK-LABEL: memory of 'hands_on'
// CHECK: peak 2.01 KiB (2,060 bytes), not exact, an upper bound
// CHECK: not exact: scf.for, {{.*}}: the trip count of a loop is not known
// CHECK: not exact: koila.exp, {{.*}}: its storage is handed on by a loop; as many as the loop has variables are counted
// Nothing has a gradient: each turn keeps nothing.
// GRAD-LABEL: memory of 'hands_on'
// GRAD: peak 2.01 KiB (2,060 bytes), not exact, an upper bound
func.func @hands_on(%x: tensor<256xf32> {koila.name = "x", koila.dims = #koila.dims<[256]>}, %n: index) -> tuple<tensor<256xf32>> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %0 = koila.exp %x : (tensor<256xf32>) -> tensor<256xf32>
  %1 = scf.for %i = %zero to %n step %one iter_args(%y = %0) -> (tensor<256xf32>) {
    %2 = koila.mul_Scalar %y {other = 2.0 : f64} : (tensor<256xf32>) -> tensor<256xf32>
    scf.yield %2 : tensor<256xf32>
  }
  %3 = koila.construct tuple(%1) : (tensor<256xf32>) -> tuple<tensor<256xf32>>
  return %3 : tuple<tensor<256xf32>>
}

// -----

// What was there before the loop is read in it: it stays.
// CHECK-LABEL: memory of 'reads_the_first'
// CHECK: peak 3.00 KiB (3,072 bytes), not exact, an upper bound
func.func @reads_the_first(%x: tensor<256xf32> {koila.name = "x", koila.dims = #koila.dims<[256]>}, %n: index) -> tensor<256xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %0 = koila.exp %x : (tensor<256xf32>) -> tensor<256xf32>
  %1 = scf.for %i = %zero to %n step %one iter_args(%y = %0) -> (tensor<256xf32>) {
    %2 = koila.mul_Tensor %y, %0 : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
    scf.yield %2 : tensor<256xf32>
  }
  return %1 : tensor<256xf32>
}

// -----

// What a turn makes at its end is there while the next makes what is larger.
// CHECK-LABEL: memory of 'hands_on_what_is_large'
// CHECK: peak 5.00 KiB (5,124 bytes), not exact, an upper bound
func.func @hands_on_what_is_large(%x: tensor<256xf32> {koila.name = "x", koila.dims = #koila.dims<[256]>}, %n: index) -> tensor<256xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %0 = koila.exp %x : (tensor<256xf32>) -> tensor<256xf32>
  %1 = scf.for %i = %zero to %n step %one iter_args(%y = %0) -> (tensor<256xf32>) {
    %2 = koila.cat %y, %y, %y {dim = 0 : i64} : (tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<768xf32>
    %3 = koila.sum_dim_IntList %2 {dim = array<i64: 0>, keepdim = false} : (tensor<768xf32>) -> tensor<f32>
    %4 = koila.add_Tensor %y, %3 {alpha = 1 : i64} : (tensor<256xf32>, tensor<f32>) -> tensor<256xf32>
    scf.yield %4 : tensor<256xf32>
  }
  return %1 : tensor<256xf32>
}

// -----

// What the inner loop starts with is there until the outer one ends.
// CHECK-LABEL: memory of 'starts_anew'
// CHECK: peak 3.02 KiB (3,092 bytes), not exact, an upper bound
func.func @starts_anew(%x: tensor<256xf32> {koila.name = "x", koila.dims = #koila.dims<[256]>}, %n: index) -> tensor<f32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %0 = koila.exp %x : (tensor<256xf32>) -> tensor<256xf32>
  %1 = koila.sum %x : (tensor<256xf32>) -> tensor<f32>
  %2 = scf.for %i = %zero to %n step %one iter_args(%sum = %1) -> (tensor<f32>) {
    %3 = scf.for %j = %zero to %n step %one iter_args(%y = %0) -> (tensor<256xf32>) {
      %4 = koila.mul_Scalar %y {other = 2.0 : f64} : (tensor<256xf32>) -> tensor<256xf32>
      scf.yield %4 : tensor<256xf32>
    }
    %5 = koila.sum %3 : (tensor<256xf32>) -> tensor<f32>
    %6 = koila.add_Tensor %sum, %5 {alpha = 1 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    scf.yield %6 : tensor<f32>
  }
  return %2 : tensor<f32>
}

// -----

// Of two variables one may have what the loop starts with while the other has what
// it made.
// CHECK-LABEL: memory of 'one_of_two'
// CHECK: peak 6.01 KiB (6,156 bytes), not exact, an upper bound
func.func @one_of_two(%x: tensor<256xf32> {koila.name = "x", koila.dims = #koila.dims<[256]>}, %c: i1, %n: index) -> tensor<256xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %0 = koila.exp %x : (tensor<256xf32>) -> tensor<256xf32>
  %1 = koila.cat %x, %x, %x {dim = 0 : i64} : (tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<768xf32>
  %2 = koila.slice_Tensor %1 {dim = 0 : i64, start = 0 : i64, end = 256 : i64, step = 1 : i64} : (tensor<768xf32>) -> tensor<256xf32>
  %3:2 = scf.for %i = %zero to %n step %one iter_args(%a = %0, %b = %2) -> (tensor<256xf32>, tensor<256xf32>) {
    %4 = koila.mul_Scalar %a {other = 2.0 : f64} : (tensor<256xf32>) -> tensor<256xf32>
    %5 = scf.if %c -> (tensor<256xf32>) {
      scf.yield %b : tensor<256xf32>
    } else {
      scf.yield %4 : tensor<256xf32>
    }
    scf.yield %4, %5 : tensor<256xf32>, tensor<256xf32>
  }
  return %3#1 : tensor<256xf32>
}

// -----

module {
  koila.param @w : tensor<256xf32> keys ["w"] strides [1] requires_grad
  // Autograd keeps something of each turn.
  // CHECK-LABEL: memory of 'trained'
  // CHECK: peak {{.*}}, not exact, an upper bound
  // GRAD-LABEL: memory of 'trained'
  // GRAD: peak {{.*}}bytes), not exact{{$}}
  func.func @trained(%x: tensor<256xf32> {koila.name = "x", koila.dims = #koila.dims<[256]>}, %n: index) -> tensor<256xf32> {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %w = koila.param.get @w : tensor<256xf32>
    %0 = koila.exp %x : (tensor<256xf32>) -> tensor<256xf32>
    %1 = scf.for %i = %zero to %n step %one iter_args(%y = %0) -> (tensor<256xf32>) {
      %2 = koila.mul_Tensor %y, %w : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
      %3 = koila.exp %2 : (tensor<256xf32>) -> tensor<256xf32>
      scf.yield %3 : tensor<256xf32>
    }
    return %1 : tensor<256xf32>
  }
}

// -----

// A list that each turn makes longer.
// CHECK-LABEL: memory of 'grows'
// CHECK: not exact: aten::append.t, {{.*}}: no upper bound: a list or object may grow with each iteration of a loop, and how many there are is not known; where sizes and numbers of the program decide how many there are, what it keeps is known
func.func @grows(%x: tensor<256xf32> {koila.name = "x", koila.dims = #koila.dims<[256]>}, %n: index) -> !koila.list<tensor<*x!koila.any>> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %0 = koila.construct list() {koila.reads} : () -> !koila.list<tensor<*x!koila.any>>
  scf.for %i = %zero to %n step %one {
    %1 = koila.exp %x {koila.reads} : (tensor<256xf32>) -> tensor<256xf32>
    %2 = koila.torch_op "aten::append.t"(%0, %1) args [#koila.operand<0>, #koila.operand<1>] effects write aliases [[0, 1]] {koila.views, koila.writes} : (!koila.list<tensor<*x!koila.any>>, tensor<256xf32>) -> !koila.list<tensor<*x!koila.any>>
    koila.keep_alive %2 : !koila.list<tensor<*x!koila.any>>
  }
  return %0 : !koila.list<tensor<*x!koila.any>>
}

// -----

// Nothing that a gradient flows to is handed on: each turn ends what it keeps.
// GRAD-LABEL: memory of 'ends_records'
// GRAD: peak 3.00 KiB (3,072 bytes), not exact, an upper bound
// GRAD-NOT: not modelled
module {
koila.param @v : tensor<256xf32> keys ["v"] strides [1] requires_grad
func.func @ends_records(%x: tensor<256xf32> {koila.name = "x", koila.dims = #koila.dims<[256]>}, %n: index) -> tensor<256xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %0 = koila.exp %x : (tensor<256xf32>) -> tensor<256xf32>
  %1 = scf.for %i = %zero to %n step %one iter_args(%y = %0) -> (tensor<256xf32>) {
    %leaf = koila.param.get @v : tensor<256xf32>
    %2 = koila.mul_Tensor %y, %leaf : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
    %3 = koila.exp %2 : (tensor<256xf32>) -> tensor<256xf32>
    %4 = koila.detach %3 : (tensor<256xf32>) -> tensor<256xf32>
    scf.yield %4 : tensor<256xf32>
  }
  return %1 : tensor<256xf32>
}
}
