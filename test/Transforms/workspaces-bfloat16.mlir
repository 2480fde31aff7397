// Products of half types: by instruction set, PyTorch computes them itself, oneDNN
// sums them up in float32 or copies blocks, or its blocks are not known. With AMX they
// depend on the caches, which a machine that is only named has none of; what they are
// with them is in test/Unit/AmxProductTest.cpp.
// test/oracle/memory-oracle.test compares the figures with PyTorch.

// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx2' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,ATEN
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx512_core' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,GEMM
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx512_core_vnni' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,GEMM
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx512_core_bf16' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,BLOCKS
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx512_core_fp16' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,BLOCKS,FP16
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx512_core_amx' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,AMX,FP16
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=2 isa=avx2_vnni_2' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=CHECK,VNNI

// With more threads than were measured, a bound.
// RUN: koila-opt %s -split-input-file --koila-peak-memory='threads=65 isa=avx512_core' -o /dev/null 2>&1 | FileCheck %s --check-prefix=THREADS
// THREADS: not exact: koila.mm, {{.*}}: products of bfloat16 were not measured with so many threads

// 17 rows of 17 columns, 578 bytes. Each of two threads has sums of 8 rows, which
// are 136 floats, in 192 places; 128 bytes to align the scratchpad. In blocks each
// has 16 places of 40 bytes, 32 rows of 64 columns, and sums of 16 rows, and three
// buffers are aligned.
// CHECK-LABEL: memory of 'mm'
// ATEN: peak {{ *}}578 bytes
// GEMM: peak {{.*}}2,242 bytes
// BLOCKS: peak {{.*}}12,610 bytes
// AMX: not exact: koila.mm, {{.*}}: the blocks of a product of bfloat16 with AMX
// VNNI: not exact: koila.mm, {{.*}}: a product of bfloat16 in oneDNN on 'avx2_vnni_2'
func.func @mm(%x: tensor<17x17xbf16>, %y: tensor<17x17xbf16>) -> tensor<17x17xbf16> {
  %0 = koila.mm %x, %y : (tensor<17x17xbf16>, tensor<17x17xbf16>) -> tensor<17x17xbf16>
  return %0 : tensor<17x17xbf16>
}

// -----

// 16 * 16 * 16 multiplications are too few for oneDNN; what was not measured there
// is not known, either.
// CHECK-LABEL: memory of 'small'
// CHECK: peak {{ *}}512 bytes
// ATEN-NOT: not exact
// GEMM-NOT: not exact
// BLOCKS-NOT: not exact
// AMX-NOT: not exact
// VNNI: not exact: koila.mm, {{.*}}: products of bfloat16 were not measured on this instruction set
func.func @small(%x: tensor<16x16xbf16>, %y: tensor<16x16xbf16>) -> tensor<16x16xbf16> {
  %0 = koila.mm %x, %y : (tensor<16x16xbf16>, tensor<16x16xbf16>) -> tensor<16x16xbf16>
  return %0 : tensor<16x16xbf16>
}

// -----

// A scaled product has its scale, 4 bytes more.
// CHECK-LABEL: memory of 'scaled'
// ATEN: peak {{ *}}578 bytes
// GEMM: peak {{.*}}2,246 bytes
// BLOCKS: peak {{.*}}12,614 bytes
// AMX: not exact: koila.addmm, {{.*}}: the blocks of a product of bfloat16 with AMX
// VNNI: not exact: koila.addmm, {{.*}}: a product of bfloat16 in oneDNN on 'avx2_vnni_2'
func.func @scaled(%b: tensor<17xbf16>, %x: tensor<17x17xbf16>, %y: tensor<17x17xbf16>) -> tensor<17x17xbf16> {
  %0 = koila.addmm %b, %x, %y {beta = 1 : i64, alpha = 2 : i64} : (tensor<17xbf16>, tensor<17x17xbf16>, tensor<17x17xbf16>) -> tensor<17x17xbf16>
  return %0 : tensor<17x17xbf16>
}

// -----

// 3 matrices of 8 rows and 8 columns, 384 bytes: each thread has a whole one.
// CHECK-LABEL: memory of 'bmm'
// ATEN: peak {{ *}}384 bytes
// GEMM: peak {{.*}}1,024 bytes
// BLOCKS: peak {{.*}}10,752 bytes
// AMX: not exact: koila.bmm, {{.*}}: the blocks of a product of bfloat16 with AMX
// VNNI: not exact: koila.bmm, {{.*}}: a product of bfloat16 in oneDNN on 'avx2_vnni_2'
func.func @bmm(%x: tensor<3x8x32xbf16>, %y: tensor<3x32x8xbf16>) -> tensor<3x8x8xbf16> {
  %0 = koila.bmm %x, %y : (tensor<3x8x32xbf16>, tensor<3x32x8xbf16>) -> tensor<3x8x8xbf16>
  return %0 : tensor<3x8x8xbf16>
}

// -----

// One sample: dot products of its row and those of the weight, 80 bytes. With
// instructions for bfloat16 it is no exception.
// CHECK-LABEL: memory of 'linear'
// ATEN: peak {{ *}}80 bytes
// GEMM: peak {{ *}}80 bytes
// BLOCKS: peak {{.*}}59,408 bytes
// AMX: not exact: koila.linear, {{.*}}: the blocks of a product of bfloat16 with AMX
// VNNI: not exact: koila.linear, {{.*}}: a product of bfloat16 in oneDNN on 'avx2_vnni_2'
func.func @linear(%x: tensor<1x200xbf16>, %w: tensor<40x200xbf16>) -> tensor<1x40xbf16> {
  %0 = koila.linear %x, %w : (tensor<1x200xbf16>, tensor<40x200xbf16>) -> tensor<1x40xbf16>
  return %0 : tensor<1x40xbf16>
}

// -----

// float16 is copied as float32 in blocks, both factors; with no instructions for it
// PyTorch multiplies.
// CHECK-LABEL: memory of 'half'
// ATEN: peak {{ *}}578 bytes
// GEMM: peak {{ *}}578 bytes
// FP16: peak {{.*}}25,026 bytes
// VNNI: not exact: koila.mm, {{.*}}: a product of float16 in oneDNN on 'avx2_vnni_2'
func.func @half(%x: tensor<17x17xf16>, %y: tensor<17x17xf16>) -> tensor<17x17xf16> {
  %0 = koila.mm %x, %y : (tensor<17x17xf16>, tensor<17x17xf16>) -> tensor<17x17xf16>
  return %0 : tensor<17x17xf16>
}

// -----

// A factor in columns is copied, too, and the two threads share the sums: each has
// the whole result.
// CHECK-LABEL: memory of 'shared'
// BLOCKS: peak {{.*}}302,848 bytes
func.func @shared(%x: tensor<4096x64xbf16>, %y: tensor<4096x48xbf16>) -> tensor<64x48xbf16> {
  %t = koila.t %x : (tensor<4096x64xbf16>) -> tensor<64x4096xbf16>
  %0 = koila.mm %t, %y : (tensor<64x4096xbf16>, tensor<4096x48xbf16>) -> tensor<64x48xbf16>
  return %0 : tensor<64x48xbf16>
}

// -----

// No rows are no work.
// CHECK-LABEL: memory of 'none'
// CHECK: peak {{ *}}0 bytes
func.func @none(%x: tensor<0x54xbf16>, %y: tensor<54x89xbf16>) -> tensor<0x89xbf16> {
  %0 = koila.einsum %x, %y {equation = "ij,jk"} : (tensor<0x54xbf16>, tensor<54x89xbf16>) -> tensor<0x89xbf16>
  return %0 : tensor<0x89xbf16>
}
