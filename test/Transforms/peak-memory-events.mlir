// What a call allocates and frees, block by block.

// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='format=events threads=1' -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='format=events threads=1 output=%t.json' -o /dev/null
// RUN: FileCheck %s --input-file %t.json
// RUN: sed 's/value = 8, //' %s > %t.mlir
// RUN: not koila-opt %t.mlir --koila-infer-shapes --koila-peak-memory=format=events -o /dev/null 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='format=events threads=1 budget=100' -o /dev/null 2>&1 | FileCheck %s --check-prefix=BUDGET
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='format=events threads=1 samples=2,8 output=%t.json' -o /dev/null
// RUN: FileCheck %s --input-file %t.json --check-prefix=SAMPLES
// RUN: not koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='format=events samples=2,many' -o /dev/null 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='format=json samples=2' -o /dev/null 2>&1 | FileCheck %s --check-prefix=FORMAT
// RUN: sed 's/, batch = true//' %s > %t.mlir
// RUN: not koila-opt %t.mlir --koila-infer-shapes --koila-peak-memory='format=events samples=2' -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE

// A number becomes a tensor of 64 bits, which is cast; then comes the result.

// CHECK: "schema": 1,
// CHECK-NEXT: "events": [
// CHECK: "action": "alloc",
// CHECK-NEXT: "bytes": 8,
// CHECK-NEXT: "exact": true,
// CHECK-NEXT: "id": 0,
// CHECK-NEXT: "index": 0,
// VALUE: error: format=events needs a value for symbol 'B' (--batch B=N)
// SAMPLES: "schema": 1,
// SAMPLES-NEXT: "batches": [
// SAMPLES: "batch": 2,
// SAMPLES: "action": "alloc",
// SAMPLES: "bytes": 32,
// SAMPLES: "batch": 8,
// SAMPLES: "bytes": 128,
// MANY: error: samples=2,many: 'many' is no number of samples
// FORMAT: error: samples=2 belongs to format=events
// NONE: error: samples=2: no symbol is the batch
// BUDGET: error: the peak of 140 bytes exceeds the budget of 100 bytes
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
func.func @add(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<?x4xf32> {
  %y = koila.add_Scalar %x {other = 2 : i64, alpha = 1 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
}
