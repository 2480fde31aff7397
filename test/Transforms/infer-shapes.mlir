// RUN: koila-opt %s -split-input-file --koila-infer-shapes | FileCheck %s
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-infer-shapes | FileCheck %s
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --verify-roundtrip | FileCheck %s

// Facts of arguments reach every result; the function type follows, and each
// fact is assumed at entry, once however often the pass runs.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x64xf32>
// CHECK-SAME: -> tensor<?x128xf32>
// CHECK-NEXT: koila.assume dtype %[[X]] : tensor<?x64xf32> is f32
// CHECK-NEXT: koila.assume rank %[[X]] : tensor<?x64xf32> is 2
// CHECK-NEXT: koila.assume extent %[[X]] : tensor<?x64xf32>[0] is #koila.expr<B>
// CHECK-NEXT: koila.assume extent %[[X]] : tensor<?x64xf32>[1] is #koila.expr<64>
// CHECK-NOT: koila.assume
// CHECK: koila.linear {{.*}} -> tensor<?x128xf32>
// CHECK: koila.relu {{.*}} -> tensor<?x128xf32>
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @w : tensor<128x64xf32> keys ["w"] strides [64, 1]
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<*x!koila.any> {
    %w = koila.param.get @w : tensor<128x64xf32>
    %0 = koila.linear %x, %w : (tensor<?x64xf32>, tensor<128x64xf32>) -> tensor<*x!koila.any>
    %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %1 : tensor<*x!koila.any>
  }
}

// -----

// The mode of the module is assumed as well.
// CHECK-LABEL: func.func @training
// CHECK-NEXT: koila.assume training is false
module attributes {koila.training = false} {
  func.func @training() {
    return
  }
}

// -----

// A static batch keeps the number in the argument and its assumption, and the
// name in the dims, so that it can still be tiled.
// CHECK-LABEL: func.func @static_batch
// CHECK: koila.assume extent %{{.*}}[0] is #koila.expr<8>
// CHECK: koila.relu {{.*}} -> tensor<?x4xf32>
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, lower = 8, upper = 8, batch = true>]} {
  func.func @static_batch(%x: tensor<8x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<8x4xf32> {
    %0 = koila.relu %x : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}

// -----

// Extents that fold to numbers are static, others dynamic.
// CHECK-LABEL: func.func @extents
// CHECK: koila.conv2d {{.*}} -> tensor<?x6x4x?xf32>
// CHECK: koila.flatten_using_ints {{.*}} -> tensor<?x?xf32>
// CHECK: koila.view {{.*}} -> tensor<?x2x3xf32>
func.func @extents(%x: tensor<?x3x8x?xf32> {koila.dims = #koila.dims<[B, 3, 8, W]>}, %w: tensor<6x3x3x3xf32>, %y: tensor<?x6xf32> {koila.dims = #koila.dims<[B, 6]>}) {
  %0 = koila.conv2d %x, %w {stride = array<i64: 2>, padding = array<i64: 1>, dilation = array<i64: 1>} : (tensor<?x3x8x?xf32>, tensor<6x3x3x3xf32>) -> tensor<*x!koila.any>
  %1 = koila.flatten_using_ints %0 {start_dim = 1 : i64} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  %s = koila.size_int %y {dim = 0} : (tensor<?x6xf32>) -> i64
  %2 = koila.view %y sizes(%s) {size = array<i64: -9223372036854775808, 2, -1>} : (tensor<?x6xf32>, i64) -> tensor<*x!koila.any>
  return
}

// -----

// Ranks of zero and extents of zero.
// CHECK-LABEL: func.func @corners
// CHECK: koila.relu {{.*}} -> tensor<f32>
// CHECK: koila.flatten_using_ints {{.*}} -> tensor<1xf32>
// CHECK: koila.mean_dim {{.*}} -> tensor<f32>
// CHECK: koila.relu {{.*}} -> tensor<0x4xf32>
// CHECK: koila.flatten_using_ints {{.*}} -> tensor<0xf32>
func.func @corners(%x: tensor<f32>, %z: tensor<0x4xf32>) {
  %0 = koila.relu %x : (tensor<f32>) -> tensor<*x!koila.any>
  %1 = koila.flatten_using_ints %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  %2 = koila.mean_dim %1 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  %3 = koila.relu %z : (tensor<0x4xf32>) -> tensor<*x!koila.any>
  %4 = koila.flatten_using_ints %3 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  return
}

// -----

// What an opaque operator makes stays unknown until a refinement.
// CHECK-LABEL: func.func @opaque
// CHECK: %[[O:.*]] = koila.torch_op {{.*}} -> tensor<*x!koila.any>
// CHECK: koila.relu %[[O]] : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
// CHECK: %[[R:.*]] = koila.refine %[[O]] : tensor<*x!koila.any> to tensor<?x4xf32>
// CHECK: koila.relu %[[R]] : (tensor<?x4xf32>) -> tensor<?x4xf32>
func.func @opaque(%x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>}) {
  %0 = koila.torch_op "aten::erfinv"(%x) args [#koila.operand<0>] effects none : (tensor<?x4xf32>) -> tensor<*x!koila.any>
  %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  %2 = koila.refine %0 : tensor<*x!koila.any> to tensor<?x4xf32>
  %3 = koila.relu %2 : (tensor<?x4xf32>) -> tensor<*x!koila.any>
  return
}

// -----

// A region operation, its arguments, yields and results take one type.
// CHECK-LABEL: func.func @loop
// CHECK: scf.for {{.*}} -> (tensor<?x4xf32>)
// CHECK: koila.relu {{.*}} -> tensor<?x4xf32>
// CHECK: scf.yield {{.*}} : tensor<?x4xf32>
func.func @loop(%x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>}, %n: index) -> tensor<*x!koila.any> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = koila.exp %x : (tensor<?x4xf32>) -> tensor<*x!koila.any>
  %1 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %0) -> tensor<*x!koila.any> {
    %2 = koila.relu %a : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    scf.yield %2 : tensor<*x!koila.any>
  }
  return %1 : tensor<*x!koila.any>
}

// -----

// Every function of the module; declarations are left alone.
// CHECK: func.func private @declared(tensor<*x!koila.any>) -> tensor<*x!koila.any>
// CHECK-LABEL: func.func @first
// CHECK: koila.relu {{.*}} -> tensor<2xf32>
// CHECK-LABEL: func.func @second
// CHECK: koila.relu {{.*}} -> tensor<3xf32>
func.func private @declared(tensor<*x!koila.any>) -> tensor<*x!koila.any>
func.func @first(%x: tensor<2xf32>) {
  %0 = koila.relu %x : (tensor<2xf32>) -> tensor<*x!koila.any>
  return
}
func.func @second(%x: tensor<3xf32>) {
  %0 = koila.relu %x : (tensor<3xf32>) -> tensor<*x!koila.any>
  return
}
