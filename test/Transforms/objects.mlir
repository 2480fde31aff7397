// RUN: split-file %s %t
// RUN: koila-opt %t/tiled.mlir --koila-tile-batch=tile=4 | FileCheck %s --check-prefix=TILED
// RUN: koila-opt %t/refused.mlir -split-input-file --koila-tile-batch=tile=4 -verify-diagnostics
// RUN: koila-opt %t/peak.mlir --koila-infer-shapes --koila-verify-stage=stage=inferred --koila-peak-memory=format=json -o /dev/null 2>&1 | FileCheck %s --check-prefix=PEAK
// RUN: koila-opt %t/statistics.mlir --koila-tile-batch="tile=4 batchnorm=per-tile" 2>/dev/null | FileCheck %s --check-prefix=STATISTICS

// What passes make of attributes that the program assigns, and of calls.

// They run whole, in the order of the program, beside the loops over tiles.
// TILED: %[[BEFORE:.*]] = koila.attr.get "last" {koila.reads}
// TILED: %[[TILES:.*]]:4 = scf.for
// TILED: koila.relu
// TILED: koila.mul_Tensor
// TILED: koila.attr.set "last" = %[[TILES]]#1
// TILED-NEXT: %[[AFTER:.*]] = koila.attr.get "last" {koila.reads}
// TILED-NEXT: koila.call_method "take" of %{{.*}}(%[[TILES]]#1)
// TILED-NEXT: return %[[TILES]]#0, %[[BEFORE]], %[[AFTER]]
//--- tiled.mlir
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @tiled(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tensor<?x8xf32>, i64, i64) {
    %stage = koila.attr.get "stage" -> !koila.torch<"__torch__.Stage">
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %before = koila.attr.get "last" {koila.reads} -> i64
    koila.attr.set "last" = %0 : tensor<?x8xf32>
    %after = koila.attr.get "last" {koila.reads} -> i64
    %1 = koila.call_method "take" of %stage(%0) : (!koila.torch<"__torch__.Stage">, tensor<?x8xf32>) -> !koila.torch<"NoneType">
    %2 = koila.sigmoid %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %3 = koila.mul_Tensor %2, %0 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %3, %before, %after : tensor<?x8xf32>, i64, i64
  }
}

//--- refused.mlir
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @assignment(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) {
    // expected-error @below {{cannot tile the batch 'B': 'koila.attr.set' has effects whose order tiling would change}}
    koila.attr.set "last" = %x : tensor<?x8xf32> {koila.reads}
    return
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @call(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<*x!koila.any> {
    %stage = koila.attr.get "stage" -> !koila.torch<"__torch__.Stage">
    // expected-error @below {{cannot tile the batch 'B': 'koila.call_method' has effects whose order tiling would change}}
    %0 = koila.call_method "take" of %stage(%x) : (!koila.torch<"__torch__.Stage">, tensor<?x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any>
  }
}

// -----

// What a call gives has no batch that is known.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @result(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %stage = koila.attr.get "stage" -> !koila.torch<"__torch__.Stage">
    // expected-error @below {{'koila.call_method' has effects}}
    %0 = koila.call_method "take" of %stage(%x) : (!koila.torch<"__torch__.Stage">, tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.relu %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}

// A marked read gives what was assigned; what an object kept before is said.
// PEAK: "inexact": [
// PEAK: "op": "koila.attr.set",
// PEAK-NEXT: "reason": "what the attribute held before the call goes, which is not taken off"
// PEAK-NOT: the size of a result is not known
//--- peak.mlir
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 4, batch = true>]} {
  func.func @peak(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<*x!koila.any> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    koila.attr.set "last" = %0 : tensor<?x8xf32>
    %1 = koila.attr.get "last" {koila.reads} -> tensor<*x!koila.any>
    return %1 : tensor<*x!koila.any>
  }
}

// Also where statistics of tiles release other reads from their order, and in
// the form of an earlier version.
// STATISTICS: scf.for
// STATISTICS: koila.batch_norm
// STATISTICS: koila.attr.set "last"
// STATISTICS-NEXT: koila.attr.get "last" {koila.reads} -> i64
// STATISTICS-NEXT: koila.torch_op "prim::GetAttr"() args ["last"] effects none {koila.reads}
//--- statistics.mlir
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @mean : tensor<5xf32> keys ["mean"] strides [1] buffer
  koila.param @var : tensor<5xf32> keys ["var"] strides [1] buffer
  func.func @forward(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}) -> (tensor<?x5xf32>, i64, i64) {
    %mean = koila.param.get @mean : tensor<5xf32>
    %var = koila.param.get @var : tensor<5xf32>
    %0 = koila.batch_norm %x running_mean %mean running_var %var {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    koila.attr.set "last" = %0 : tensor<?x5xf32>
    %last = koila.attr.get "last" {koila.reads} -> i64
    %old = koila.torch_op "prim::GetAttr"() args ["last"] effects none {koila.reads} : () -> i64
    return %0, %last, %old : tensor<?x5xf32>, i64, i64
  }
}
