// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks device=cuda' -verify-diagnostics
// The control: on the CPU, where noise is drawn, they are in order.
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks' -o /dev/null

// Of a part of a tensor the kernel goes through the elements in another order
// than of a dense one, and of one that begins elsewhere, too.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @strided(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x4xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.slice_Tensor %0 {dim = 1 : i64, end = 4 : i64, start = 0 : i64, step = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x4xf32>
    // expected-error-re @below {{random=full-batch-masks: on a GPU the mask of 'koila.dropout' depends on how its input lies in memory, which is not known here: it may be a part of a tensor at {{.*}}; copy it before (clone()), or random=per-tile draws anew in each tile}}
    %2 = koila.dropout %1 {p = 0.5 : f64, train = true} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return %2 : tensor<?x4xf32>
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @begins_elsewhere(%x: tensor<?x2x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 2, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.permute %x {dims = array<i64: 1, 0, 2>} : (tensor<?x2x8xf32>) -> tensor<2x?x8xf32>
    %1 = koila.contiguous %0 {memory_format = 0 : i64} : (tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
    %2 = koila.select_int %1 {dim = 0 : i64, index = 1 : i64} : (tensor<2x?x8xf32>) -> tensor<?x8xf32>
    // expected-error @below {{depends on how its input lies in memory}}
    %3 = koila.dropout %2 {p = 0.5 : f64, train = true} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %3 : tensor<?x8xf32>
  }
}

// -----

// What a kernel of attention returns may be a part of a wider tensor.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @attention(%q: tensor<?x2x4x8xf32> {koila.name = "q", koila.dims = #koila.dims<[B, 2, 4, 8]>}) -> tensor<?x2x4x8xf32> {
    %0 = koila.scaled_dot_product_attention %q, %q, %q {dropout_p = 0.0 : f64, enable_gqa = false, is_causal = false} : (tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32>) -> tensor<?x2x4x8xf32>
    // expected-error @below {{depends on how its input lies in memory}}
    %1 = koila.dropout %0 {p = 0.5 : f64, train = true} : (tensor<?x2x4x8xf32>) -> tensor<?x2x4x8xf32>
    return %1 : tensor<?x2x4x8xf32>
  }
}

// -----

// Attention with a dropout of its own.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @inside(%q: tensor<?x2x4x8xf32> {koila.name = "q", koila.dims = #koila.dims<[B, 2, 4, 8]>}) -> tensor<?x2x4x8xf32> {
    // expected-error-re @below {{random=full-batch-masks: on a GPU 'koila.scaled_dot_product_attention' draws inside of a kernel, and which one runs may depend on more than its operands at {{.*}}; random=per-tile draws anew in each tile}}
    %0 = koila.scaled_dot_product_attention %q, %q, %q {dropout_p = 0.5 : f64, enable_gqa = false, is_causal = false} : (tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32>) -> tensor<?x2x4x8xf32>
    %1 = koila.relu %0 : (tensor<?x2x4x8xf32>) -> tensor<?x2x4x8xf32>
    return %1 : tensor<?x2x4x8xf32>
  }
}
