// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks device=h100-80gb-hbm3' | FileCheck %s
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks device=h100-80gb-hbm3' --remark-format=emitRemark --remarks-filter=koila-tile-batch 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks device=h100-80gb-hbm3' | koila-opt -split-input-file --koila-verify-stage=stage=emittable -o /dev/null
// The offset is that of a card: of what is not known nothing is said.
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks device=cuda' --remark-format=emitRemark --remarks-filter=koila-tile-batch 2>&1 >/dev/null | FileCheck %s --check-prefix=UNKNOWN
// Draws in tiles move the generator otherwise.
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=per-tile device=h100-80gb-hbm3' --remark-format=emitRemark --remarks-filter=koila-tile-batch 2>&1 >/dev/null | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: Function=fused
// UNKNOWN-NOT: PhiloxOffset

// The kernel that dropout is on a GPU draws a mask of bools. It is given storage
// on the device of the arguments. The factor is 1 / 0.9 of float32.
// CHECK-LABEL: func.func @fused
// CHECK-SAME: koila.draws_on = "cuda"
// CHECK: %[[D:.*]] = koila.device %arg0
// CHECK: %[[E:.*]] = koila.empty_memory_format %{{.*}}, %[[D]] {device = #koila.dynamic
// CHECK: %{{.*}}, %[[M:.*]] = koila.native_dropout %[[E]] {p = 1.000000e-01 : f64, train = true} : (tensor<?x100000xf32>) -> (tensor<?x100000xf32>, tensor<?x100000xi1>)
// CHECK-NOT: koila.native_dropout
// CHECK: scf.for
// CHECK: %[[S:.*]] = tensor.extract_slice %[[M]]
// CHECK: %[[R:.*]] = koila.relu
// CHECK: %[[P:.*]] = koila.mul_Tensor %[[R]], %[[S]] : (tensor<?x100000xf32>, tensor<?x100000xi1>) -> tensor<?x100000xf32>
// CHECK: koila.mul_Scalar tied %[[P]] {other = 1.1111111640930176 : f64}
// REMARK: RandomNumbers | Category:koila-tile-batch | Function=fused | PhiloxOffset=24, Remark="the generator is moved as by the untiled program"
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @fused(%x: tensor<?x100000xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 100000]>}) -> tensor<?x100000xf32> {
    %0 = koila.relu %x : (tensor<?x100000xf32>) -> tensor<?x100000xf32>
    %1 = koila.dropout %0 {p = 0.1 : f64, train = true} : (tensor<?x100000xf32>) -> tensor<?x100000xf32>
    return %1 : tensor<?x100000xf32>
  }
}

// -----

// An argument is there as the untiled program has it, whatever its strides are.
// In place, and of channels, dropout is what it is on the CPU; numbers of a half
// type get the factor of float32, since the kernel computes in it.
// CHECK-LABEL: func.func @forms
// CHECK: koila.native_dropout %arg0 {p = 1.500000e-01 : f64, train = true} : (tensor<?x8x4xf16>)
// CHECK: koila.bernoulli_p
// CHECK: koila.bernoulli_p
// CHECK: koila.uniform
// CHECK: scf.for
// CHECK: koila.mul_Scalar tied %{{.*}} {other = 1.1764705181121826 : f64}
// CHECK: koila.div_Scalar %{{.*}} {other = 7.500000e-01 : f64}
// REMARK: Function=forms | PhiloxOffset=16, Remark="the generator is moved as by the untiled program"
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forms(%x: tensor<?x8x4xf16> {koila.name = "x", koila.dims = #koila.dims<[B, 8, 4]>}) -> tensor<?x8x4xf16> {
    %0 = koila.dropout %x {p = 0.15 : f64, train = true} : (tensor<?x8x4xf16>) -> tensor<?x8x4xf16>
    %1 = koila.dropout %0 {p = 0.25 : f64, tied, train = true} : (tensor<?x8x4xf16>) -> tensor<?x8x4xf16>
    %2 = koila.feature_dropout %1 {p = 0.25 : f64, train = true} : (tensor<?x8x4xf16>) -> tensor<?x8x4xf16>
    %3 = koila.rand_like %2 : (tensor<?x8x4xf16>) -> tensor<?x8x4xf16>
    %4 = koila.mul_Tensor %2, %3 : (tensor<?x8x4xf16>, tensor<?x8x4xf16>) -> tensor<?x8x4xf16>
    return %4 : tensor<?x8x4xf16>
  }
}

// -----

// Of float64 the factor is not rounded, and a view of all elements lies as what
// it is of.
// CHECK-LABEL: func.func @views
// CHECK: koila.empty_permuted {{.*}}device = #koila.dynamic{{.*}}physical_layout = array<i64: 0, 2, 1>
// CHECK: koila.native_dropout
// CHECK: scf.for
// CHECK: koila.mul_Scalar tied %{{.*}} {other = 1.1111111111111112 : f64}
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @views(%x: tensor<?x8x4xf64> {koila.name = "x", koila.dims = #koila.dims<[B, 8, 4]>}) -> tensor<?x4x8xf64> {
    %0 = koila.relu %x : (tensor<?x8x4xf64>) -> tensor<?x8x4xf64>
    %1 = koila.permute %0 {dims = array<i64: 0, 2, 1>} : (tensor<?x8x4xf64>) -> tensor<?x4x8xf64>
    %2 = koila.dropout %1 {p = 0.1 : f64, train = true} : (tensor<?x4x8xf64>) -> tensor<?x4x8xf64>
    return %2 : tensor<?x4x8xf64>
  }
}

// -----

// What draws nothing is of no device.
// CHECK-LABEL: func.func @nothing
// CHECK-NOT: koila.draws_on
// CHECK: koila.dropout
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @nothing(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.dropout %0 {p = 1.0 : f64, train = true} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}
