// RUN: koila-opt %s --koila-infer-shapes -o %t.mlir
// RUN: koila-opt %t.mlir --koila-peak-memory='threads=1' -o /dev/null 2>&1 | FileCheck %s --check-prefix=PEAK --implicit-check-not='not exact'
// RUN: koila-opt %t.mlir --koila-compile='tile=2 threads=1' | FileCheck %s

// The weights that nobody needs are no tensor: it has no bytes, and no shape is
// missing.

// PEAK: peak {{ *}}18.00 KiB (18,432 bytes)

// CHECK: scf.for
// CHECK: %{{.*}}, %{{.*}} = koila._native_multi_head_attention %[[X:.*]], %[[X]], %[[X]]
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 4, batch = true>]} {
  koila.param @w : tensor<96x32xf32> keys ["w"] strides [32, 1]
  koila.param @b : tensor<96xf32> keys ["b"] strides [1]
  koila.param @p : tensor<32x32xf32> keys ["p"] strides [32, 1]
  koila.param @q : tensor<32xf32> keys ["q"] strides [1]
  func.func @forward(%x: tensor<?x6x32xf32> {koila.dims = #koila.dims<[B, 6, 32]>, koila.name = "x"}) -> tensor<*x!koila.any> {
    %w = koila.param.get @w : tensor<96x32xf32>
    %b = koila.param.get @b : tensor<96xf32>
    %p = koila.param.get @p : tensor<32x32xf32>
    %q = koila.param.get @q : tensor<32xf32>
    %result, %weights = koila._native_multi_head_attention %x, %x, %x, %w, %b, %p, %q {average_attn_weights = true, embed_dim = 32 : i64, need_weights = false, num_head = 4 : i64} : (tensor<?x6x32xf32>, tensor<?x6x32xf32>, tensor<?x6x32xf32>, tensor<96x32xf32>, tensor<96xf32>, tensor<32x32xf32>, tensor<32xf32>) -> (tensor<*x!koila.any>, tensor<*x!koila.any>)
    return %result : tensor<*x!koila.any>
  }
}
