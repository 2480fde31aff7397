// The machine of a module, where options say nothing.

// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='format=json floor=false' -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='format=json floor=false threads=5 isa=avx' -o /dev/null 2>&1 | FileCheck %s --check-prefix=GIVEN

// CHECK: "device": "cpu"
// CHECK: "isa": "avx2"
// CHECK: "threads": 3
// GIVEN: "isa": "avx"
// GIVEN: "threads": 5
module attributes {koila.target = #koila.target<device = "cpu", threads = 3, isa = "avx2">} {
func.func @attribute(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
}

// -----

// CHECK: "isa": "sse41"
// CHECK: "threads": 7
// GIVEN: "isa": "avx"
// GIVEN: "threads": 5
module attributes {dlti.target_system_spec = #dlti.target_system_spec<
    "CPU" = #dlti.target_device_spec<"koila.threads" = 7 : i64, "koila.isa" = "sse41">>} {
func.func @spec(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
}

// -----

// What the attribute leaves out, the spec says.
// CHECK: "isa": "avx"
// CHECK: "threads": 7
module attributes {koila.target = #koila.target<device = "cpu", isa = "avx">,
    dlti.target_system_spec = #dlti.target_system_spec<
    "CPU" = #dlti.target_device_spec<"koila.threads" = 7 : ui32, "koila.isa" = "sse41">>} {
func.func @both(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
}
