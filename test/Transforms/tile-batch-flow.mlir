// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 | FileCheck %s
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 --remark-format=emitRemark --remarks-filter=koila-tile-batch 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// What an argument decides runs in each tile; what the branch reads of outside is
// a tile there, and types follow in all of it.
// CHECK-LABEL: func.func @branch
// CHECK-SAME: %[[P:arg1]]: i1
// CHECK: scf.for
// CHECK:   scf.for
// CHECK:     %[[T:.*]] = tensor.extract_slice %arg0
// CHECK:     %[[X:.*]] = koila.exp %[[T]]
// CHECK:     %[[R:.*]] = scf.if %[[P]] -> (tensor<?x8xf32>)
// CHECK:       koila.mul_Tensor %[[X]], %[[T]]
// CHECK:       koila.softmax_int
// CHECK:     } else {
// CHECK:       scf.yield %[[X]]
// CHECK:     tensor.insert_slice %[[R]]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @branch(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %p: i1 {koila.name = "p"}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = scf.if %p -> (tensor<?x8xf32>) {
      %2 = koila.mul_Tensor %0, %x : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
      %3 = koila.softmax_int %2 {dim = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
      scf.yield %3 : tensor<?x8xf32>
    } else {
      scf.yield %0 : tensor<?x8xf32>
    }
    return %1 : tensor<?x8xf32>
  }
}

// -----

// A loop in a tile; what comes after it is in the same tile.
// CHECK-LABEL: func.func @loop
// CHECK: scf.for
// CHECK:   scf.for
// CHECK:     koila.exp
// CHECK:     %[[R:.*]] = scf.for {{.*}} -> (tensor<?x8xf32>)
// CHECK:       koila.sin
// CHECK:     koila.relu %[[R]]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @loop(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %n: index {koila.name = "n"}) -> tensor<?x8xf32> {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = scf.for %i = %zero to %n step %one iter_args(%h = %0) -> (tensor<?x8xf32>) {
      %2 = koila.sin %h : (tensor<?x8xf32>) -> tensor<?x8xf32>
      scf.yield %2 : tensor<?x8xf32>
    }
    %3 = koila.relu %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %3 : tensor<?x8xf32>
  }
}

// -----

// Samples meet inside: the whole of it runs on the whole batch, and the reason is
// the one inside.
// CHECK-LABEL: func.func @mixes
// CHECK: scf.for
// CHECK:   koila.exp
// CHECK: scf.if
// CHECK:   koila.softmax_int
// REMARK: Barrier{{.*}}Function=mixes{{.*}}Reason="softmax over dim 0 mixes samples"
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @mixes(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %p: i1 {koila.name = "p"}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = scf.if %p -> (tensor<?x8xf32>) {
      %2 = koila.softmax_int %0 {dim = 0 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
      scf.yield %2 : tensor<?x8xf32>
    } else {
      scf.yield %0 : tensor<?x8xf32>
    }
    return %1 : tensor<?x8xf32>
  }
}

// -----

// As many steps as there are samples: a tile has another number.
// CHECK-LABEL: func.func @steps
// REMARK: Barrier{{.*}}Function=steps{{.*}}Reason="the number of samples decides this control flow; a tile has another one"
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @steps(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %n = koila.size_int %x {dim = 0 : i64} : (tensor<?x8xf32>) -> i64
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = scf.for %i = %zero to %n step %one iter_args(%h = %0) -> (tensor<?x8xf32>) : i64 {
      %2 = koila.sin %h : (tensor<?x8xf32>) -> tensor<?x8xf32>
      scf.yield %2 : tensor<?x8xf32>
    }
    return %1 : tensor<?x8xf32>
  }
}
