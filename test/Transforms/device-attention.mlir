// Attention on GPUs by hand: which kernel runs goes by the type, the card and the
// mask.

// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='device=a100-sxm4-40gb mode=train grads=absent floor=false' -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='device=rtx-3060 mode=train grads=absent floor=false' -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='device=cuda mode=train grads=absent floor=false' -o /dev/null 2>&1 | FileCheck %s --check-prefix=ANY

// Flash attention of two times two heads of 130 positions, 32 wide, with a dropout:
// each tensor has 33,280 bytes. Kept are the result, a float32 for each position of
// each head (2,080), the seed and offset of the draws (16) and a number that is not
// used (8). Backward: gradient and result have heads before positions, and are
// copied; a gradient like each operand, a float32 for each of 256 positions of each
// head, and as many rows of 32. With the loss, and the gradient of one number:
// 33280 + 2104 + 2 + 2 + 2 * 33280 + 3 * 33280 + 4 * 256 * 4 * (1 + 32).

// CHECK: peak          329.06 KiB (336,956 bytes)
// CHECK-NOT: not exact
// CHECK: at            koila.scaled_dot_product_attention (backward)
// ANY: not exact
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 1, batch = true>]} {
koila.param @w : tensor<2x2x130x32xbf16> keys ["w"] strides [8320, 4160, 32, 1] requires_grad
func.func @flash(%x: tensor<?xf32> {koila.name = "x", koila.dims = #koila.dims<[B]>}) -> tensor<bf16> {
  %w = koila.param.get @w : tensor<2x2x130x32xbf16>
  %y = koila.scaled_dot_product_attention %w, %w, %w {dropout_p = 0.1 : f64, is_causal = false, enable_gqa = false} : (tensor<2x2x130x32xbf16>, tensor<2x2x130x32xbf16>, tensor<2x2x130x32xbf16>) -> tensor<2x2x130x32xbf16>
  %loss = koila.sum %y : (tensor<2x2x130x32xbf16>) -> tensor<bf16>
  koila.backward %loss {create_graph = false} : (tensor<bf16>) -> ()
  %value = koila.detach %loss : (tensor<bf16>) -> tensor<bf16>
  return %value : tensor<bf16>
}
}

// -----

// With a mask it is the other kernel, which makes the products for the gradient
// itself: two heads of 64 positions, 8 wide, 2,048 bytes a tensor. Kept: the
// result and a float32 a position (512). Backward: three gradients, a float32 a
// position, rows of 64 float32 with 16 bytes for each 64:
// 2048 + 512 + 2 + 2 + 3 * 2048 + 512 + 2 * (64 * 64 * 4 + 16).

// CHECK: peak          41.04 KiB (42,020 bytes)
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 1, batch = true>]} {
koila.param @w : tensor<1x64x2x8xbf16> keys ["w"] strides [1024, 16, 8, 1] requires_grad
koila.param @m : tensor<64x64xbf16> keys ["m"] strides [64, 1]
func.func @masked(%x: tensor<?xf32> {koila.name = "x", koila.dims = #koila.dims<[B]>}) -> tensor<bf16> {
  %m = koila.param.get @m : tensor<64x64xbf16>
  %p = koila.param.get @w : tensor<1x64x2x8xbf16>
  %w = koila.transpose_int %p {dim0 = 1, dim1 = 2} : (tensor<1x64x2x8xbf16>) -> tensor<1x2x64x8xbf16>
  %y = koila.scaled_dot_product_attention %w, %w, %w, %m {dropout_p = 0.0 : f64, is_causal = false, enable_gqa = false} : (tensor<1x2x64x8xbf16>, tensor<1x2x64x8xbf16>, tensor<1x2x64x8xbf16>, tensor<64x64xbf16>) -> tensor<1x2x64x8xbf16>
  %loss = koila.sum %y : (tensor<1x2x64x8xbf16>) -> tensor<bf16>
  koila.backward %loss {create_graph = false} : (tensor<bf16>) -> ()
  %value = koila.detach %loss : (tensor<bf16>) -> tensor<bf16>
  return %value : tensor<bf16>
}
}
