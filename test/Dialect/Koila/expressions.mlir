// RUN: koila-opt %s | koila-opt | FileCheck %s

// Expressions are read in any spelling and printed in one normal form.

// CHECK-LABEL: @sums
// CHECK-SAME: a = #koila.expr<B*B + 2*B - 3>
// CHECK-SAME: b = #koila.expr<0>
// CHECK-SAME: c = #koila.expr<-B + 1>
func.func private @sums() attributes {
  a = #koila.expr<B + (B - 1)*(B + 2) - 1 + 0*S - (0)>,
  b = #koila.expr<B - B>, c = #koila.expr<1 - B>}

// Divisions that are exact for every value are carried out.
// CHECK-LABEL: @divisions
// CHECK-SAME: a = #koila.expr<2*B>
// CHECK-SAME: b = #koila.expr<floordiv(3*B, 2)>
// CHECK-SAME: c = #koila.expr<-4>
// CHECK-SAME: d = #koila.expr<B - 8*floordiv(B, 8)>
func.func private @divisions() attributes {
  a = #koila.expr<floordiv(4*B*S, 2*S)>, b = #koila.expr<floordiv(3*B, 2)>,
  c = #koila.expr<floordiv(0 - 7, 2)>, d = #koila.expr<mod(B, 8)>}

// The order of commutative arguments does not matter.
// CHECK-LABEL: @atoms
// CHECK-SAME: a = #koila.expr<min(B, S)>
// CHECK-SAME: b = #koila.expr<3>
// CHECK-SAME: c = #koila.expr<B + 1>
// CHECK-SAME: d = #koila.expr<5>
func.func private @atoms() attributes {
  a = #koila.expr<min(S, B)>, b = #koila.expr<max(3, 2)>,
  c = #koila.expr<max(B, B + 1)>, d = #koila.expr<broadcast(B, 5)>}

// A rank of zero has no dims.
// CHECK-LABEL: @scalar
// CHECK-SAME: #koila.dims<[]>
func.func private @scalar(tensor<f32> {koila.dims = #koila.dims<[]>})
