// RUN: koila-opt %s --koila-infer-shapes -o %t.mlir
// RUN: koila-opt %t.mlir --koila-peak-memory='threads=1' -o /dev/null 2>&1 | FileCheck %s --check-prefix=PEAK --implicit-check-not='not exact'
// RUN: koila-opt %t.mlir --koila-compile='tile=4 threads=1' | FileCheck %s --check-prefix=TILED

// A loop whose condition follows from its numbers, and that one of them leaves
// early: the third turn is the last.

// Two tensors of 16x32 floats.
// PEAK: peak {{ *}}4.00 KiB (4,096 bytes)

// TILED-LABEL: func.func @forward
// TILED-NOT: scf.while
// TILED-COUNT-3: koila.tanh
// TILED-NOT: koila.tanh
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 16, batch = true>]} {
  func.func @forward(%x: tensor<?x32xf32> {koila.dims = #koila.dims<[B, 32]>, koila.name = "x"}) -> tensor<*x!koila.any> {
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %two = arith.constant 2 : i64
    %true = arith.constant true
    %0 = koila.relu %x : (tensor<?x32xf32>) -> tensor<*x!koila.any>
    %1:3 = scf.while (%goes = %true, %i = %zero, %y = %0) : (i1, i64, tensor<*x!koila.any>) -> (i1, i64, tensor<*x!koila.any>) {
      %columns = koila.size_int %x {dim = 1 : i64} : (tensor<?x32xf32>) -> i64
      %inside = arith.cmpi slt, %i, %columns : i64
      %both = arith.andi %goes, %inside : i1
      scf.condition(%both) %goes, %i, %y : i1, i64, tensor<*x!koila.any>
    } do {
    ^bb0(%goes: i1, %i: i64, %y: tensor<*x!koila.any>):
      %z = koila.tanh %y : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
      %last = arith.cmpi eq, %i, %two : i64
      %more = scf.if %last -> (i1) {
        %false = arith.constant false
        scf.yield %false : i1
      } else {
        scf.yield %true : i1
      }
      %next = arith.addi %i, %one : i64
      scf.yield %more, %next, %z : i1, i64, tensor<*x!koila.any>
    }
    return %1#2 : tensor<*x!koila.any>
  }
}
