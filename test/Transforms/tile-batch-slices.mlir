// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch=tile=4 | FileCheck %s

// A traced slice says 0 and the largest number where it takes all of a dim. In a
// tile that stays the extent it is of; it doubled with each slice once.

// CHECK-LABEL: func.func @slices
// CHECK: scf.for
// CHECK-COUNT-32: koila.slice_Tensor {{.*}} -> tensor<?x8xf32>
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @slices(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %s0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s1 = koila.slice_Tensor %s0 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s2 = koila.slice_Tensor %s1 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s3 = koila.slice_Tensor %s2 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s4 = koila.slice_Tensor %s3 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s5 = koila.slice_Tensor %s4 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s6 = koila.slice_Tensor %s5 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s7 = koila.slice_Tensor %s6 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s8 = koila.slice_Tensor %s7 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s9 = koila.slice_Tensor %s8 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s10 = koila.slice_Tensor %s9 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s11 = koila.slice_Tensor %s10 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s12 = koila.slice_Tensor %s11 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s13 = koila.slice_Tensor %s12 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s14 = koila.slice_Tensor %s13 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s15 = koila.slice_Tensor %s14 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s16 = koila.slice_Tensor %s15 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s17 = koila.slice_Tensor %s16 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s18 = koila.slice_Tensor %s17 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s19 = koila.slice_Tensor %s18 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s20 = koila.slice_Tensor %s19 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s21 = koila.slice_Tensor %s20 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s22 = koila.slice_Tensor %s21 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s23 = koila.slice_Tensor %s22 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s24 = koila.slice_Tensor %s23 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s25 = koila.slice_Tensor %s24 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s26 = koila.slice_Tensor %s25 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s27 = koila.slice_Tensor %s26 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s28 = koila.slice_Tensor %s27 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s29 = koila.slice_Tensor %s28 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s30 = koila.slice_Tensor %s29 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s31 = koila.slice_Tensor %s30 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %s32 = koila.slice_Tensor %s31 {dim = 0 : i64, start = 0 : i64, end = 9223372036854775807 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %r = koila.exp %s32 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %r : tensor<?x8xf32>
  }
}
