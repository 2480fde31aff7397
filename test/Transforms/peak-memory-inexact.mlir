// RUN: koila-opt %s -split-input-file --allow-unregistered-dialect --koila-peak-memory=threads=1 -o /dev/null 2>&1 | FileCheck %s

// What the analysis does not know, it says; no figure looks exact that is not.

// An opaque operator.
// CHECK-LABEL: memory of 'opaque'
// CHECK: not exact: aten::erfinv, {{.*}}: koila has no memory rule for 'aten::erfinv'
func.func @opaque(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = koila.torch_op "aten::erfinv"(%x) args [#koila.operand<0>] effects none : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A trip count that data decides.
// CHECK-LABEL: memory of 'trips'
// CHECK: not exact: scf.for, {{.*}}: the trip count of a loop is not known
func.func @trips(%x: tensor<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %0 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
  }
  return
}

// -----

// The body of a while loop counts, not only its condition.
// CHECK-LABEL: memory of 'while'
// CHECK: peak {{ *}}32 bytes, not exact
func.func @while(%x: tensor<4xf32>, %p: i1) {
  scf.while : () -> () {
    scf.condition(%p)
  } do {
    %0 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    %1 = koila.relu %0 : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield
  }
  return
}

// -----

// What a callee allocates is not looked at.
// CHECK-LABEL: memory of 'caller'
// CHECK: not exact: func.call
func.func private @callee(tensor<4xf32>) -> tensor<4xf32>
func.func @caller(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @callee(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A foreign operation with a region: its result has bytes.
// CHECK-LABEL: memory of 'foreign'
// CHECK: peak {{ *}}16 bytes, not exact
func.func @foreign(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "foreign.op"(%x) ({
    "foreign.end"() : () -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Out of place, a copy into a part of a tensor takes the storage of all of it;
// of a tensor of its own it is as large as that.
// CHECK-LABEL: memory of 'part'
// CHECK: peak {{ *}}24 bytes, not exact
// CHECK: not exact: koila.copy, {{.*}}: a copy of a strided tensor, or of a part of one, is as large as the storage around it
func.func @part(%x: tensor<8xf32>, %y: tensor<6xf32>) -> tensor<6xf32> {
  %0 = koila.slice_Tensor %x {dim = 0 : i64, end = 6 : i64, start = 0 : i64, step = 1 : i64} : (tensor<8xf32>) -> tensor<6xf32>
  %1 = koila.copy %0, %y {non_blocking = false} : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  return %1 : tensor<6xf32>
}

// -----

// CHECK-LABEL: memory of 'own'
// CHECK: peak {{ *}}32 bytes
// CHECK-NOT: not exact
func.func @own(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = koila.copy %x, %y {non_blocking = false} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// Half types are summed in float32, 4 bytes for each of 30 elements and of the
// result, where PyTorch cannot read the dims as one.
// CHECK-LABEL: memory of 'apart'
// CHECK: peak {{ *}}126 bytes
// CHECK-NOT: not exact
func.func @apart(%x: tensor<5x1xf16>) -> tensor<f16> {
  %0 = koila.expand %x {implicit = false, size = array<i64: -1, 6>} : (tensor<5x1xf16>) -> tensor<5x6xf16>
  %1 = koila.sum %0 : (tensor<5x6xf16>) -> tensor<f16>
  return %1 : tensor<f16>
}

// -----

// So are two dims of a contiguous tensor with another between them.
// CHECK-LABEL: memory of 'around'
// CHECK: peak {{ *}}804 bytes
// CHECK-NOT: not exact
func.func @around(%x: tensor<4x6x8xbf16>) -> tensor<6xbf16> {
  %0 = koila.sum_dim_IntList %x {dim = array<i64: 0, 2>, keepdim = false} : (tensor<4x6x8xbf16>) -> tensor<6xbf16>
  return %0 : tensor<6xbf16>
}

// -----

// Neighbours make one.
// CHECK-LABEL: memory of 'neighbours'
// CHECK: peak {{ *}}8 bytes
// CHECK-NOT: not exact
func.func @neighbours(%x: tensor<4x6x8xbf16>) -> tensor<4xbf16> {
  %0 = koila.sum_dim_IntList %x {dim = array<i64: 1, 2>, keepdim = false} : (tensor<4x6x8xbf16>) -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// -----

// A foreign operation may allocate what it likes, also one without results.
// CHECK-LABEL: memory of 'effects'
// CHECK: peak {{ *}}0 bytes, not exact
// CHECK: not exact: foreign.fill, {{.*}}: koila has no memory rule for 'foreign.fill'
// CHECK: not exact: foreign.number, {{.*}}: koila has no memory rule for 'foreign.number'
func.func @effects() {
  "foreign.fill"() : () -> ()
  %0 = "foreign.number"() : () -> i64
  return
}

// -----

// So may a callee that is declared only. Numbers have no bytes.
// CHECK-LABEL: memory of 'calls'
// CHECK: not exact: func.call, {{.*}}: koila has no memory rule for 'func.call'
// CHECK-NOT: not exact
func.func private @declared()
func.func @calls(%a: f64, %n: i64) -> (f64, i64) {
  func.call @declared() : () -> ()
  %0 = arith.addf %a, %a : f64
  %1 = arith.divui %n, %n : i64
  return %0, %1 : f64, i64
}

// -----

// CHECK-LABEL: memory of 'parallel'
// CHECK: peak {{ *}}16 bytes, not exact
// CHECK: not exact: scf.parallel, {{.*}}: its iterations may run at the same time; one at a time is counted
// CHECK: not exact: scf.forall, {{.*}}: its iterations may run at the same time; one at a time is counted
func.func @parallel(%x: tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    %0 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    scf.reduce
  }
  scf.forall (%i) in (4) {
    %0 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
  }
  return
}

// -----

// CHECK-LABEL: memory of 'overflow'
// CHECK: peak {{.*}}, not exact
// CHECK-NOT: inputs
// CHECK: not exact: koila.relu, {{.*}}: needs more bytes than 64 bits can count
func.func @overflow(%x: tensor<9223372036854775807xf32>) {
  %0 = koila.relu %x : (tensor<9223372036854775807xf32>) -> tensor<9223372036854775807xf32>
  return
}

// -----

// No tensor has such an extent.
// CHECK-LABEL: memory of 'negative'
// CHECK: peak {{ *}}0 bytes, not exact
// CHECK: not exact: negative, {{.*}}: argument 0 would have extent -96; no such call runs
// CHECK: not exact: koila.relu, {{.*}}: a result would have extent -96; no such call runs
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 4, batch = true>]} {
  func.func @negative(%x: tensor<?xf32> {koila.dims = #koila.dims<[B - 100]>}) {
    %0 = koila.relu %x : (tensor<?xf32>) -> tensor<?xf32>
    return
  }
}

// -----

// The bytes of elements that PyTorch does not have are not known, nor what an
// encoding makes of them.
// CHECK-LABEL: memory of 'elements'
// CHECK: peak {{ *}}0 bytes, not exact
// CHECK: not exact: tensor.empty, {{.*}}: the size of a result is not known; it is counted as 0 bytes
// CHECK: not exact: tensor.empty, {{.*}}: the size of a result is not known; it is counted as 0 bytes
// CHECK: not exact: tensor.empty, {{.*}}: the size of a result is not known; it is counted as 0 bytes
func.func @elements() {
  %0 = tensor.empty() : tensor<4xi7>
  %1 = tensor.empty() : tensor<4xvector<4xf32>>
  %2 = tensor.empty() : tensor<4xf32, "sparse">
  return
}

// -----

// A number that a loop computes by other than koila's rules is not the first
// one in each iteration.
// CHECK-LABEL: memory of 'carried'
// CHECK: not exact: scf.for, {{.*}}: a number that the loop computes is not known
func.func @carried(%x: tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%n = %c4) -> index {
    %0 = tensor.empty(%n) : tensor<?xf32>
    %1 = arith.shli %n, %c1 : index
    scf.yield %1 : index
  }
  return
}

// -----

// Numbers without a sign: -1 is the largest of them. One branch is taken, and
// the figure is exact.
// CHECK-LABEL: memory of 'unsigned'
// CHECK: peak {{ *}}16 bytes{{$}}
// CHECK-NOT: not exact
func.func @unsigned(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.constant -1 : i64
  %1 = arith.constant 5 : i64
  %2 = arith.cmpi ult, %0, %1 : i64
  %3 = scf.if %2 -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  } else {
    %4 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %4 : tensor<4xf32>
  }
  return %3 : tensor<4xf32>
}

// -----

// What may wrap around decides no branch: n may be -1. What does wrap around
// decides the right one: 127 + 1 is -128 in 8 bits, and of 2^32 + 1 only 1 is left
// in 32, so that both make a tensor. A loop to -1 turns often.
// CHECK-LABEL: memory of 'wraps'
// CHECK: peak {{.*}}, not exact
// CHECK: output {{ *}}relu tensor<4xf32> {{.*}}:[[#@LINE+14]]
// CHECK: output {{ *}}relu tensor<4xf32> {{.*}}:[[#@LINE+23]]
// CHECK: output {{ *}}relu tensor<4xf32> {{.*}}:[[#@LINE+30]]
// CHECK: not exact: scf.for, {{.*}}: the trip count of a loop is not known
// CHECK: not exact: koila.relu, {{.*}}:[[#@LINE+34]]: which branch a call takes, data decide
func.func @wraps(%x: tensor<4xf32>, %n: i64) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  %m1 = arith.constant -1 : i64
  %n1 = arith.addi %n, %c1 : i64
  %0 = arith.cmpi ult, %n, %n1 : i64
  %1 = scf.if %0 -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  } else {
    %r = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %r : tensor<4xf32>
  }
  %c127 = arith.constant 127 : i8
  %one = arith.constant 1 : i8
  %sum = arith.addi %c127, %one : i8
  %2 = arith.cmpi sgt, %sum, %one : i8
  %3 = scf.if %2 -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  } else {
    %r = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %r : tensor<4xf32>
  }
  %big = arith.constant 4294967297 : index
  %cut = arith.index_cast %big : index to i32
  %c1_32 = arith.constant 1 : i32
  %4 = arith.cmpi eq, %cut, %c1_32 : i32
  %5 = scf.if %4 -> tensor<4xf32> {
    %r = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %r : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  scf.for unsigned %i = %c0 to %m1 step %c1 : i64 {
    %r = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
  }
  return %1, %3, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Data decide which branch runs: the figure is that of the larger one, a bound.
// CHECK-LABEL: memory of 'one_branch'
// CHECK: peak {{ *}}48 bytes, not exact, an upper bound
// CHECK: not exact: koila.cos, {{.*}}: which branch a call takes, data decide; others may need less
func.func @one_branch(%x: tensor<4xf32>, %p: i1) {
  %0 = koila.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  scf.if %p {
    %1 = koila.sin %x : (tensor<4xf32>) -> tensor<4xf32>
    %2 = koila.cos %1 : (tensor<4xf32>) -> tensor<4xf32>
  }
  %3 = koila.add_Tensor %0, %0 {alpha = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Both need as much, and a branch that ends in an exception does not count.
// CHECK-LABEL: memory of 'equal_branches'
// CHECK: peak {{ *}}16 bytes
// CHECK-NOT: not exact
func.func @equal_branches(%x: tensor<4xf32>, %p: i1) {
  scf.if %p {
    %1 = koila.sin %x : (tensor<4xf32>) -> tensor<4xf32>
  } else {
    scf.if %p {
      %2 = koila.torch_op "prim::RaiseException"() args ["no", unit] effects unknown : () -> none
    } else {
      %3 = koila.cos %x : (tensor<4xf32>) -> tensor<4xf32>
    }
  }
  return
}

// -----

// In place in the program; here what it writes is read again.
// CHECK-LABEL: memory of 'read_again'
// CHECK: peak {{ *}}32 bytes, not exact, an upper bound
// CHECK: not exact: koila.relu, {{.*}}: its result is counted as a new tensor, since what it writes may be read again
func.func @read_again(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = koila.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  %1 = koila.relu tied %0 : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// One tensor, whichever branch makes it.
// CHECK-LABEL: memory of 'either'
// CHECK: peak {{ *}}32 bytes
// CHECK-NOT: not exact
func.func @either(%x: tensor<4xf32>, %p: i1) -> tensor<4xf32> {
  %0 = scf.if %p -> tensor<4xf32> {
    %1 = koila.sin %x : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  } else {
    %2 = koila.cos %x : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %2 : tensor<4xf32>
  }
  %3 = koila.exp %0 : (tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// -----

// The caller's or a new one: at most the new one.
// CHECK-LABEL: memory of 'new_or_not'
// CHECK: peak {{ *}}32 bytes, not exact, an upper bound
// CHECK: not exact: koila.exp, {{.*}}: which branch a call takes, data decide; others may need less
func.func @new_or_not(%x: tensor<4xf32>, %p: i1) -> tensor<4xf32> {
  %0 = scf.if %p -> tensor<4xf32> {
    %1 = koila.sin %x : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  %3 = koila.exp %0 : (tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// -----

// One of two that were there before: which ends, data decide.
// CHECK-LABEL: memory of 'one_of_two'
// CHECK: peak {{ *}}48 bytes, not exact, an upper bound
// CHECK: not exact: koila.sin, {{.*}}: a branch hands on this tensor or another; all are counted
func.func @one_of_two(%x: tensor<4xf32>, %p: i1) -> tensor<4xf32> {
  %1 = koila.sin %x : (tensor<4xf32>) -> tensor<4xf32>
  %2 = koila.cos %x : (tensor<4xf32>) -> tensor<4xf32>
  %0 = scf.if %p -> tensor<4xf32> {
    scf.yield %1 : tensor<4xf32>
  } else {
    scf.yield %2 : tensor<4xf32>
  }
  %3 = koila.exp %0 : (tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// -----

// A view keeps all of what it is a view of: a new tensor in its place is no bound.
// CHECK-LABEL: memory of 'part_of_either'
// CHECK: peak {{ *}}{{[0-9]+}} bytes, not exact{{$}}
// CHECK: not exact: koila.relu, {{.*}}: its result is counted as a new tensor
func.func @part_of_either(%x: tensor<64xf32>, %n: i64) -> tensor<4xf32> {
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  %1 = koila.sin %x : (tensor<64xf32>) -> tensor<64xf32>
  %0 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %1) -> tensor<64xf32> : i64 {
    %2 = koila.cos %x : (tensor<64xf32>) -> tensor<64xf32>
    scf.yield %2 : tensor<64xf32>
  }
  %3 = koila.slice_Tensor %0 {dim = 0 : i64, end = 4 : i64, start = 0 : i64, step = 1 : i64} : (tensor<64xf32>) -> tensor<4xf32>
  %4 = koila.relu tied %3 : (tensor<4xf32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}
