// A 0-dim constant of the program stands for a number, also where all tensors are of one
// type: it becomes a tensor on the way (8 bytes), before the result.

// RUN: koila-opt %s --koila-infer-shapes --koila-peak-memory='format=events threads=1' -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --koila-peak-memory='format=events threads=1' -o /dev/null 2>&1 | FileCheck %s

// CHECK: "action": "alloc",
// CHECK-NEXT: "bytes": 8,
// CHECK: "action": "alloc",
// CHECK-NEXT: "bytes": 256,
// CHECK: "action": "free",
// CHECK-NEXT: "bytes": 8,
// CHECK-NOT: "action"
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
koila.param @half : tensor<f64> keys ["half"] strides []
func.func @divide(%x: tensor<?x4xf64> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<*x!koila.any> {
  %half = koila.param.get @half {wrapped} : tensor<f64>
  %y = koila.div_Tensor %x, %half : (tensor<?x4xf64>, tensor<f64>) -> tensor<*x!koila.any>
  return %y : tensor<*x!koila.any>
}
}
