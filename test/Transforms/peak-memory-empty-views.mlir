// A tensor of no elements is contiguous whatever its strides: contiguous() gives it back,
// and with it the storage that it is a view of.

// RUN: koila-opt %s --koila-infer-shapes --koila-peak-memory='batches=0 threads=1' -o /dev/null 2>&1 | FileCheck %s

// CHECK: peak {{ *}}256 bytes
// CHECK: outputs {{ *}}256 bytes
func.func @keep(%x: tensor<8x4xf32> {koila.name = "x"}) -> (tensor<*x!koila.any>, tensor<*x!koila.any>) {
  %0 = koila.relu %x : (tensor<8x4xf32>) -> tensor<*x!koila.any>
  %1 = koila.slice_Tensor %0 {dim = 1 : i64, end = 0 : i64, start = 0 : i64, step = 1 : i64} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  %2 = koila.contiguous %1 {memory_format = 0 : i64} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  %3 = koila.relu %x : (tensor<8x4xf32>) -> tensor<*x!koila.any>
  return %2, %3 : tensor<*x!koila.any>, tensor<*x!koila.any>
}
