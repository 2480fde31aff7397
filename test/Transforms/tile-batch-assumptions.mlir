// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch=tile=4 | FileCheck %s
// RUN: koila-opt %s --koila-peak-memory=threads=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=PEAK

// What is assumed of a tensor that tiles replace goes with it.

module attributes {koila.symbols = [#koila.symbol<name = "B", value = 16, batch = true>]} {
  // CHECK-LABEL: func @forward
  // CHECK-NOT: koila.assume contiguous
  // CHECK: koila.neg
  // CHECK-NOT: koila.assume contiguous
  // CHECK: return
  // PEAK: peak          64 bytes
  func.func @forward(%x: tensor<?xf32> {koila.name = "x", koila.dims = #koila.dims<[B]>}) -> tensor<?xf32> {
    %0 = koila.neg %x : (tensor<?xf32>) -> tensor<?xf32>
    koila.assume contiguous %0 : tensor<?xf32> is true
    return %0 : tensor<?xf32>
  }
}
