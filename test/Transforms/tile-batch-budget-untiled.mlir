// RUN: not koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=2047 threads=1" 2>&1 | FileCheck %s
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=2048 threads=1" 2>&1 | FileCheck %s --check-prefix=ENOUGH

// Where there is nothing but the result, tiles only take more.
// CHECK: error: no tile fits the budget of 2.00 KiB (2,047 bytes): the smallest budget that works is 2.00 KiB (2,048 bytes), untiled, for B = 64
// CHECK: note: live at the peak: 2.00 KiB (2,048 bytes), output
// CHECK-NOT: live at the peak

// ENOUGH: remark: enough memory
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}
