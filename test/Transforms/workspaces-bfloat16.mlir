// Products of bfloat16: by instruction set, PyTorch computes them itself, oneDNN
// sums them up in float32, or oneDNN has buffers that are not known.
// test/oracle/memory-oracle.test compares the figures with PyTorch.

// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx2' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,ATEN
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx512_core' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,GEMM
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx512_core_vnni' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,GEMM
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx512_core_bf16' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,BRGEMM -DISA=avx512_core_bf16
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx512_core_amx' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,BRGEMM -DISA=avx512_core_amx
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx2_vnni_2' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,BRGEMM -DISA=avx2_vnni_2

// With more threads than were measured, a bound.
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=65 isa=avx512_core' -o /dev/null 2>&1 | FileCheck %s --check-prefix=THREADS
// THREADS: not exact: koila.mm, {{.*}}: products of bfloat16 were not measured with so many threads

// 17 rows of 17 columns, 578 bytes. Each of two threads has sums of 8 rows, which
// are 136 floats, in 192 places; 128 bytes to align the scratchpad.
// CHECK-LABEL: memory of 'mm'
// ATEN: peak {{ *}}578 bytes
// GEMM: peak {{.*}}2,242 bytes
// BRGEMM: not exact: koila.mm, {{.*}}: a product of bfloat16 in oneDNN on '[[ISA]]'
func.func @mm(%x: tensor<17x17xbf16>, %y: tensor<17x17xbf16>) -> tensor<17x17xbf16> {
  %0 = koila.mm %x, %y : (tensor<17x17xbf16>, tensor<17x17xbf16>) -> tensor<17x17xbf16>
  return %0 : tensor<17x17xbf16>
}

// -----

// 16 * 16 * 16 multiplications are too few for oneDNN; with instructions for
// bfloat16 that was not measured.
// CHECK-LABEL: memory of 'small'
// CHECK: peak {{ *}}512 bytes
// ATEN-NOT: not exact
// GEMM-NOT: not exact
// BRGEMM: not exact: koila.mm, {{.*}}: products of bfloat16 were not measured on this instruction set
func.func @small(%x: tensor<16x16xbf16>, %y: tensor<16x16xbf16>) -> tensor<16x16xbf16> {
  %0 = koila.mm %x, %y : (tensor<16x16xbf16>, tensor<16x16xbf16>) -> tensor<16x16xbf16>
  return %0 : tensor<16x16xbf16>
}

// -----

// A scaled product has its scale, 4 bytes more.
// CHECK-LABEL: memory of 'scaled'
// ATEN: peak {{ *}}578 bytes
// GEMM: peak {{.*}}2,246 bytes
// BRGEMM: not exact: koila.addmm, {{.*}}: a product of bfloat16 in oneDNN on '[[ISA]]'
func.func @scaled(%b: tensor<17xbf16>, %x: tensor<17x17xbf16>, %y: tensor<17x17xbf16>) -> tensor<17x17xbf16> {
  %0 = koila.addmm %b, %x, %y {beta = 1 : i64, alpha = 2 : i64} : (tensor<17xbf16>, tensor<17x17xbf16>, tensor<17x17xbf16>) -> tensor<17x17xbf16>
  return %0 : tensor<17x17xbf16>
}

// -----

// 3 matrices of 8 rows and 8 columns, 384 bytes: each thread has a whole one.
// CHECK-LABEL: memory of 'bmm'
// ATEN: peak {{ *}}384 bytes
// GEMM: peak {{.*}}1,024 bytes
// BRGEMM: not exact: koila.bmm, {{.*}}: a product of bfloat16 in oneDNN on '[[ISA]]'
func.func @bmm(%x: tensor<3x8x32xbf16>, %y: tensor<3x32x8xbf16>) -> tensor<3x8x8xbf16> {
  %0 = koila.bmm %x, %y : (tensor<3x8x32xbf16>, tensor<3x32x8xbf16>) -> tensor<3x8x8xbf16>
  return %0 : tensor<3x8x8xbf16>
}

// -----

// One sample: dot products of its row and those of the weight, 80 bytes.
// CHECK-LABEL: memory of 'linear'
// ATEN: peak {{ *}}80 bytes
// GEMM: peak {{ *}}80 bytes
// BRGEMM: not exact: koila.linear, {{.*}}: a product of bfloat16 in oneDNN on '[[ISA]]'
func.func @linear(%x: tensor<1x200xbf16>, %w: tensor<40x200xbf16>) -> tensor<1x40xbf16> {
  %0 = koila.linear %x, %w : (tensor<1x200xbf16>, tensor<40x200xbf16>) -> tensor<1x40xbf16>
  return %0 : tensor<1x40xbf16>
}
