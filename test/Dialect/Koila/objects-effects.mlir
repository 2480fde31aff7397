// RUN: koila-opt %s --canonicalize --cse --loop-invariant-code-motion --cse --canonicalize | FileCheck %s

// Upstream passes keep assignments and calls, and the order of what reads
// beside them.

// An attribute that the function does not assign is a value like others.
// CHECK-LABEL: func.func @unassigned
// CHECK-NEXT: %[[MODES:.*]] = koila.attr.get "modes"
// CHECK-NEXT: return %[[MODES]], %[[MODES]]
func.func @unassigned() -> (!koila.list<i64>, !koila.list<i64>) {
  %unused = koila.attr.get "mode" -> i64
  %0 = koila.attr.get "modes" -> !koila.list<i64>
  %1 = koila.attr.get "modes" -> !koila.list<i64>
  return %0, %1 : !koila.list<i64>, !koila.list<i64>
}

// CHECK-LABEL: func.func @assigned
// CHECK-SAME: %[[X:.*]]: i64
// CHECK-NEXT: %[[BEFORE:.*]] = koila.attr.get "steps"
// CHECK-NEXT: koila.attr.set "steps" = %[[X]]
// CHECK-NEXT: %[[AFTER:.*]] = koila.attr.get "steps"
// CHECK-NEXT: koila.attr.set "steps" = %[[BEFORE]]
// CHECK-NEXT: koila.attr.set "steps" = %[[BEFORE]]
// CHECK-NEXT: return %[[BEFORE]], %[[AFTER]]
func.func @assigned(%x: i64) -> (i64, i64) {
  %before = koila.attr.get "steps" {koila.reads} -> i64
  koila.attr.set "steps" = %x : i64
  %after = koila.attr.get "steps" {koila.reads} -> i64
  koila.attr.set "steps" = %before : i64
  koila.attr.set "steps" = %before : i64
  return %before, %after : i64, i64
}

// An object may be the same under another name.
// CHECK-LABEL: func.func @objects
// CHECK: koila.attr.get "mean" of %[[A:.*]] :
// CHECK-NEXT: koila.attr.set "mean" of %[[B:.*]] :
// CHECK-NEXT: koila.attr.get "mean" of %[[A]] :
func.func @objects(%a: !koila.torch<"__torch__.State">,
                   %b: !koila.torch<"__torch__.State">,
                   %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = koila.attr.get "mean" of %a : !koila.torch<"__torch__.State"> {koila.reads} -> tensor<4xf32>
  koila.attr.set "mean" of %b : !koila.torch<"__torch__.State"> = %x : tensor<4xf32>
  %1 = koila.attr.get "mean" of %a : !koila.torch<"__torch__.State"> {koila.reads} -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// Two calls are two calls, also where nobody reads what they return, and they
// may assign what is read around them.
// CHECK-LABEL: func.func @calls
// CHECK: koila.attr.get "steps"
// CHECK-NEXT: koila.call_method "next"
// CHECK-NEXT: koila.attr.get "steps"
// CHECK-NEXT: koila.call_method "next"
// CHECK-NEXT: koila.attr.get "steps"
// CHECK-NEXT: return
func.func @calls(%stage: !koila.torch<"__torch__.Stage">) -> (i64, i64, i64) {
  %0 = koila.attr.get "steps" {koila.reads} -> i64
  %1 = koila.call_method "next" of %stage() : (!koila.torch<"__torch__.Stage">) -> i64
  %2 = koila.attr.get "steps" {koila.reads} -> i64
  %3 = koila.call_method "next" of %stage() : (!koila.torch<"__torch__.Stage">) -> i64
  %4 = koila.attr.get "steps" {koila.reads} -> i64
  return %0, %2, %4 : i64, i64, i64
}

// Each iteration reads what the one before assigned.
// CHECK-LABEL: func.func @loop
// CHECK: scf.for
// CHECK-NEXT: %[[STEPS:.*]] = koila.attr.get "steps"
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[STEPS]]
// CHECK-NEXT: koila.attr.set "steps" = %[[NEXT]]
// CHECK-NEXT: koila.attr.set "seen" =
// CHECK-NEXT: }
func.func @loop(%count: index, %step: i64) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  scf.for %i = %zero to %count step %one {
    %steps = koila.attr.get "steps" {koila.reads} -> i64
    %next = arith.addi %steps, %step : i64
    koila.attr.set "steps" = %next : i64
    koila.attr.set "seen" = %step : i64
  }
  return
}

// What is unknown may read and assign attributes, too.
// CHECK-LABEL: func.func @unknown
// CHECK: koila.attr.get "steps"
// CHECK-NEXT: koila.torch_op "prim::Enter"
// CHECK-NEXT: koila.attr.get "steps"
func.func @unknown(%object: !koila.torch<"__torch__.Context">) -> (i64, i64) {
  %0 = koila.attr.get "steps" {koila.reads} -> i64
  koila.torch_op "prim::Enter"(%object) args [#koila.operand<0>] effects unknown
      : (!koila.torch<"__torch__.Context">) -> ()
  %1 = koila.attr.get "steps" {koila.reads} -> i64
  return %0, %1 : i64, i64
}
