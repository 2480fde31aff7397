// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-peak-memory='format=json threads=1' -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-peak-memory='format=json threads=1 floor=false' -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE
// NONE-NOT: "floor_bytes": {{[0-9]}}

// Tiles of one sample: the output of 64 rows of 32 bytes, and a row
// each of exp and softmax.
// CHECK: "floor_bytes": 2112,
// CHECK: "function": "tiles"
// CHECK: "peak_bytes": 4096
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @tiles(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.softmax_int %0 {dim = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}

// -----

// What cannot be tiled has none.
// CHECK: "floor_bytes": null
// CHECK: "function": "whole"
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @whole(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.softmax_int %x {dim = 0 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}

// -----

// Nor has a program without a value for the batch.
// CHECK: "floor_bytes": null
// CHECK: "function": "open"
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @open(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}
