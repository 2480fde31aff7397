// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=3584 threads=1" | FileCheck %s --check-prefixes=TILED,T16
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=3583 threads=1" | FileCheck %s --check-prefixes=TILED,T8
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=2144 threads=1" | FileCheck %s --check-prefixes=TILED,T1
// RUN: not koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=2143 threads=1" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=6144 threads=1" 2>&1 | FileCheck %s --check-prefix=ENOUGH
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=3584 threads=1" --koila-peak-memory="budget=3584 threads=1" -o /dev/null
// RUN: koila-opt %s --koila-infer-shapes --koila-tile-batch="budget=3584 threads=1" --batch B=63 --koila-peak-memory="budget=3584 threads=1" -o /dev/null

// 64 samples of 32 bytes: untiled three values, 6144 bytes. Tiled, the output
// of 2048 bytes and three values of a tile: the largest tile that fits to the
// byte, and a refusal that names the smallest budget.

// TILED-LABEL: func.func @forward
// TILED-SAME: holds_to = 64
// T16-SAME: tile = 16
// T8-SAME: tile = 8
// T1-SAME: tile = 1

// NONE: error: no tile fits the budget of 2.09 KiB (2,143 bytes): the smallest budget that works is 2.09 KiB (2,144 bytes), with tile 1 for B = 64
// NONE: note: live at the peak: 2.00 KiB (2,048 bytes), output
// NONE: note: live at the peak: 32 bytes, activation

// ENOUGH: remark: enough memory: the untiled peak of 6.00 KiB (6,144 bytes) is within the budget
// ENOUGH-NOT: scf.for
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.exp %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.mul_Tensor %0, %1 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}
