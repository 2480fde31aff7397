// What a card reserves for a step: weights, inputs, blocks of 512 bytes, and
// segments of 2 and 20 MiB. The second target has its own kernels: a product
// takes the workspace of cuBLAS once.

// RUN: koila-opt %s --koila-peak-memory="device=a100-sxm4-40gb allocator=cuda" -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --koila-peak-memory="device=h100-80gb-hbm3 allocator=cuda format=json output=%t.json" -o /dev/null
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// Where there is such an allocator, auto takes it.
// RUN: koila-opt %s --koila-peak-memory="device=h100-80gb-hbm3 allocator=auto format=json output=%t.auto.json snapshot=%t.pickle" -o /dev/null
// RUN: diff %t.json %t.auto.json
// RUN: koila-opt %s --koila-peak-memory="allocator=auto format=json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=CPU
// RUN: koila-opt %s --koila-peak-memory="device=cuda allocator=auto budget=1GiB format=json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=CPU
// CPU: "allocator": "exact"
// RUN: koila-opt %s --koila-peak-memory="device=h100-80gb-hbm3 format=events output=%t.events" -o /dev/null
// RUN: FileCheck %s --check-prefix=EVENTS --input-file=%t.events

// CHECK: a100-sxm4-40gb, torch 2.13.0
// CHECK: peak          1.00 MiB (1,048,576 bytes)
// 1 MiB each: two inputs, the result, and the workspace of 8,519,680 bytes.
// CHECK: allocated     {{.*}}(11,665,408 bytes) at most
// CHECK: reserved      24.00 MiB (25,165,824 bytes) at most

// JSON-DAG: "allocator": "cuda"
// JSON-DAG: "device": "h100-80gb-hbm3"
// 3 MiB and a workspace of 32 MiB.
// JSON-DAG: "allocated_peak": 36700160
// What its context takes was measured.
// JSON-DAG: "context_bytes": 718077952
// JSON-DAG: "device_total_bytes": 755826688

// EVENTS: "action": "alloc"
// EVENTS: "bytes": 1048576
// EVENTS: "left": "output"
// EVENTS: "action": "share"
// EVENTS: "bytes": 33554432
// EVENTS: "key": "cuBLAS"
func.func @f(%x: tensor<512x512xf32>, %y: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %0 = koila.mm %x, %y : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  return %0 : tensor<512x512xf32>
}
