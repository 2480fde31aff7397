// RUN: koila-opt %s -split-input-file --koila-infer-shapes | FileCheck %s

// Where control flow merges different shapes, or a callee's result becomes
// known, the types around it stay consistent.

// Branches of different extents.
// CHECK-LABEL: func.func @branches
// CHECK: scf.if %{{.*}} -> (tensor<
func.func @branches(%p: i1, %x: tensor<4x8xf32>) {
  %r = scf.if %p -> (tensor<*x!koila.any>) {
    %d = koila.view %x {size = array<i64: -1, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %d : tensor<*x!koila.any>
  } else {
    %d = koila.relu %x : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %d : tensor<*x!koila.any>
  }
  return
}

// -----

// A call of a function whose result type becomes known.
// CHECK-LABEL: func.func @caller
// CHECK: call @callee
func.func private @callee() -> tensor<*x!koila.any> {
  %e = tensor.empty() : tensor<16xf32>
  %0 = koila.relu %e : (tensor<16xf32>) -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}
func.func @caller() -> tensor<*x!koila.any> {
  %0 = func.call @callee() : () -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}

// -----

// A loop that no call gets into: its result is known, what its body gets is
// not, and one terminator hands on to both.
// CHECK-LABEL: func.func @never
// CHECK: scf.while {{.*}} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
// CHECK: %[[IN:.*]] = koila.refine %{{.*}} : tensor<4x8xf32> to tensor<*x!koila.any>
// CHECK: scf.condition(%{{.*}}) %[[IN]] : tensor<*x!koila.any>
// CHECK: } do {
// CHECK: koila.refine %{{.*}} : tensor<*x!koila.any> to tensor<4x8xf32>
func.func @never(%x: tensor<4x8xf32>) -> tensor<*x!koila.any> {
  %no = arith.constant false
  %0 = koila.relu %x : (tensor<4x8xf32>) -> tensor<*x!koila.any>
  %r = scf.while (%a = %0) : (tensor<*x!koila.any>) -> tensor<*x!koila.any> {
    scf.condition(%no) %a : tensor<*x!koila.any>
  } do {
  ^bb0(%b: tensor<*x!koila.any>):
    %1 = koila.exp %b : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    scf.yield %1 : tensor<*x!koila.any>
  }
  return %r : tensor<*x!koila.any>
}

// -----

// A branch that raises leaves its variables as they are: the other one decides.
// CHECK-LABEL: func.func @raises
// CHECK: scf.if %{{.*}} -> (tensor<4x8xf32>)
// CHECK: %[[NONE:.*]] = koila.uninitialized : tensor<*x!koila.any>
// CHECK: koila.refine %[[NONE]] : tensor<*x!koila.any> to tensor<4x8xf32>
func.func @raises(%p: i1, %x: tensor<4x8xf32>) -> tensor<*x!koila.any> {
  %r = scf.if %p -> (tensor<*x!koila.any>) {
    %0 = koila.uninitialized : tensor<*x!koila.any>
    scf.yield %0 : tensor<*x!koila.any>
  } else {
    %1 = koila.relu %x : (tensor<4x8xf32>) -> tensor<*x!koila.any>
    scf.yield %1 : tensor<*x!koila.any>
  }
  return %r : tensor<*x!koila.any>
}

// -----

// What a known choice does not take may have any shape.
// CHECK-LABEL: func.func @chosen
// CHECK-SAME: %[[Y:[a-z0-9]+]]: tensor<8x0xf32>
// CHECK: %[[E:.*]] = koila.exp %[[Y]] : (tensor<8x0xf32>) -> tensor<8x0xf32>
// CHECK: %[[ANY:.*]] = koila.refine %[[E]] : tensor<8x0xf32> to tensor<*x!koila.any>
// CHECK: %[[OTHER:.*]] = koila.refine %[[ANY]] : tensor<*x!koila.any> to tensor<4xf32>
// CHECK: arith.select %{{.*}}, %{{.*}}, %[[OTHER]] : tensor<4xf32>
func.func @chosen(%x: tensor<4xf32>, %y: tensor<8x0xf32>, %p: i1 {koila.value = true}) -> tensor<*x!koila.any> {
  %0 = koila.relu %x : (tensor<4xf32>) -> tensor<*x!koila.any>
  %1 = koila.exp %y : (tensor<8x0xf32>) -> tensor<*x!koila.any>
  %2 = arith.select %p, %0, %1 : tensor<*x!koila.any>
  return %2 : tensor<*x!koila.any>
}

// -----

// PyTorch gives complex numbers of float16, which koila has no type for.
// CHECK-LABEL: func.func @half_complex
// CHECK: koila.add_Tensor {{.*}} -> tensor<3x!koila.any>
func.func @half_complex(%x: tensor<complex<f32>>, %y: tensor<3xf16>) -> tensor<*x!koila.any> {
  %0 = koila.add_Tensor %x, %y {alpha = 1 : i64} : (tensor<complex<f32>>, tensor<3xf16>) -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}
