// RUN: koila-opt %s --koila-infer-shapes --koila-peak-memory='threads=1' -o /dev/null 2>&1 | FileCheck %s --check-prefix=KEPT
// RUN: grep -v 'koila.keep_alive %%0' %s > %t.mlir
// RUN: koila-opt %t.mlir --koila-infer-shapes --koila-peak-memory='threads=1' -o /dev/null 2>&1 | FileCheck %s --check-prefix=FREED
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch='tile=2' | FileCheck %s --check-prefix=TILED --implicit-check-not=koila.keep_alive

// PyTorch keeps `%0` until a branch that is gone ended: three tensors of 4x8
// floats at the peak; without the mark two.

// KEPT: peak {{ *}}384 bytes
// KEPT-NOT: not exact
// FREED: peak {{ *}}256 bytes
// FREED-NOT: not exact

// What is rewritten has the lives of its own text.
// TILED-LABEL: func.func @forward
// TILED: koila.sin
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 4, batch = true>]} {
  func.func @forward(%x: tensor<?x8xf32> {koila.dims = #koila.dims<[B, 8]>, koila.name = "x"}) -> tensor<?x8xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.exp %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.sin %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    koila.keep_alive %0 : tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}
