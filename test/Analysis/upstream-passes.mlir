// RUN: koila-opt %s -split-input-file --koila-infer-shapes --canonicalize --cse --loop-invariant-code-motion --koila-tile-batch=tile=8 --canonicalize --cse --loop-invariant-code-motion --koila-verify-stage=stage=tiled --koila-verify-stage=stage=emittable --koila-peak-memory=threads=1 2> %t.between | FileCheck %s
// RUN: FileCheck %s --check-prefixes=PEAK,BETWEEN < %t.between
// RUN: koila-opt %s -split-input-file --koila-compile=tile=8 --koila-peak-memory=threads=1 -o /dev/null 2>&1 | FileCheck %s --check-prefixes=PEAK,ALONE

// Upstream passes between koila's leave programs tiled and emittable, and no
// figure becomes too small.

// One output: the same peak, 2048 bytes and two values of a tile.
// CHECK-LABEL: func.func @one
// CHECK: scf.for
// PEAK-LABEL: memory of 'one'
// PEAK: peak {{ *}}2.50 KiB (2,560 bytes){{$}}
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @one(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.relu tied %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.tanh %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}

// -----

// -cse merges the equal buffers of two outputs into one tensor.empty: neither
// loop may write into it any more, and the figure is said to be inexact.
// CHECK-LABEL: func.func @two
// CHECK: tensor.empty
// CHECK-NOT: tensor.empty
// PEAK-LABEL: memory of 'two'
// ALONE: peak {{ *}}4.50 KiB (4,608 bytes){{$}}
// BETWEEN: peak {{ *}}{{[4-9]\.[0-9]+}} KiB {{.*}}, not exact
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @two(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.tanh %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0, %1 : tensor<?x8xf32>, tensor<?x8xf32>
  }
}
