// RUN: %mlir-opt --load-dialect-plugin=%plugin %s -split-input-file --pass-pipeline='builtin.module(koila-infer-shapes,koila-peak-memory{threads=1})' -o %t.mlir 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=TYPES < %t.mlir

// Dialects that only the stock tool knows: what allocates is named, and what is
// inferred stops where their types are tied.

// CHECK-LABEL: memory of 'buffers'
// CHECK: peak {{ *}}0 bytes, not exact
// CHECK: not exact: memref.alloc, {{.*}}: koila has no memory rule for 'memref.alloc'
// CHECK: not exact: memref.alloca, {{.*}}: koila has no memory rule for 'memref.alloca'
// CHECK: not exact: bufferization.to_buffer, {{.*}}: koila has no memory rule for 'bufferization.to_buffer'
// CHECK: not exact: bufferization.clone, {{.*}}: koila has no memory rule for 'bufferization.clone'
// Reading, writing and freeing makes nothing.
// CHECK-NOT: not exact
func.func @buffers(%x: tensor<4xf32>, %m: memref<4xf32>, %v: f32) -> f32 {
  %c0 = arith.constant 0 : index
  %0 = memref.alloc() : memref<100xf32>
  %1 = memref.alloca() : memref<100xf32>
  %2 = bufferization.to_buffer %x : tensor<4xf32> to memref<4xf32>
  %3 = bufferization.clone %2 : memref<4xf32> to memref<4xf32>
  memref.store %v, %m[%c0] : memref<4xf32>
  memref.dealloc %0 : memref<100xf32>
  %4 = memref.load %m[%c0] : memref<4xf32>
  return %4 : f32
}

// -----

// CHECK-LABEL: memory of 'tensors'
// CHECK: not exact: linalg.exp, {{.*}}: the size of a result is not known; it is counted as 0 bytes
// TYPES-LABEL: func.func @tensors
// TYPES: %[[R:.*]] = koila.relu {{.*}} -> tensor<4xf32>
// TYPES: %[[OLD:.*]] = koila.refine %[[R]] : tensor<4xf32> to tensor<?xf32>
// TYPES: linalg.exp ins({{.*}}) outs(%[[OLD]] : tensor<?xf32>) -> tensor<?xf32>
func.func @tensors(%x: tensor<4xf32>) -> tensor<?xf32> {
  %0 = koila.relu %x : (tensor<4xf32>) -> tensor<?xf32>
  %1 = linalg.exp ins(%x : tensor<4xf32>) outs(%0 : tensor<?xf32>) -> tensor<?xf32>
  return %1 : tensor<?xf32>
}
