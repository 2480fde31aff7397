// RUN: koila-opt %s | koila-opt | FileCheck %s
// RUN: koila-opt %s --mlir-print-op-generic | koila-opt | FileCheck %s
// RUN: koila-opt %s --emit-bytecode | koila-opt | FileCheck %s

// Attributes and methods: printed and read back, as text, in the generic form
// and as bytecode.

// CHECK-LABEL: func.func @attributes
// CHECK-SAME: %[[X:.*]]: tensor<?x4xf32>, %[[STATE:.*]]: !koila.torch<"__torch__.State">
func.func @attributes(%x: tensor<?x4xf32>, %state: !koila.torch<"__torch__.State">) {
  // The module itself.
  // CHECK: koila.attr.get "" -> !koila.torch<"__torch__.Model">
  %self = koila.attr.get "" -> !koila.torch<"__torch__.Model">
  // CHECK: koila.attr.get "encoder.0.modes" -> !koila.list<!koila.torch<"str">>
  %modes = koila.attr.get "encoder.0.modes" -> !koila.list<!koila.torch<"str">>
  // CHECK: %[[STEPS:.*]] = koila.attr.get "steps" {koila.reads} -> i64
  %steps = koila.attr.get "steps" {koila.reads} -> i64
  // CHECK: %[[MEAN:.*]] = koila.attr.get "mean" of %[[STATE]] : !koila.torch<"__torch__.State"> {koila.reads} -> tensor<*x!koila.any>
  %mean = koila.attr.get "mean" of %state : !koila.torch<"__torch__.State">
      {koila.reads} -> tensor<*x!koila.any>
  // CHECK: koila.attr.set "encoder.steps" = %[[STEPS]] : i64
  koila.attr.set "encoder.steps" = %steps : i64
  // CHECK: koila.attr.set "mean" of %[[STATE]] : !koila.torch<"__torch__.State"> = %[[X]] : tensor<?x4xf32> {koila.reads}
  koila.attr.set "mean" of %state : !koila.torch<"__torch__.State">
      = %x : tensor<?x4xf32> {koila.reads}
  return
}

// CHECK-LABEL: func.func @methods
// CHECK-SAME: %[[X:.*]]: tensor<?x4xf32>, %[[STAGE:.*]]: !koila.torch<"__torch__.Stage">
func.func @methods(%x: tensor<?x4xf32>, %stage: !koila.torch<"__torch__.Stage">) {
  // CHECK: %[[NONE:.*]] = koila.constant unit
  %none = koila.constant unit -> !koila.torch<"NoneType">
  // CHECK: koila.call_method "reset" of %[[STAGE]]() : (!koila.torch<"__torch__.Stage">) -> !koila.torch<"NoneType">
  %0 = koila.call_method "reset" of %stage()
      : (!koila.torch<"__torch__.Stage">) -> !koila.torch<"NoneType">
  // CHECK: koila.call_method "embed" of %[[STAGE]](%[[X]], %[[NONE]]) {koila.reads} : (!koila.torch<"__torch__.Stage">, tensor<?x4xf32>, !koila.torch<"NoneType">) -> tensor<*x!koila.any>
  %1 = koila.call_method "embed" of %stage(%x, %none) {koila.reads}
      : (!koila.torch<"__torch__.Stage">, tensor<?x4xf32>,
         !koila.torch<"NoneType">) -> tensor<*x!koila.any>
  return
}
