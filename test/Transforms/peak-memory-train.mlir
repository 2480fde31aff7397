// The peak of a training step, by hand.

// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='mode=train threads=1 floor=false' -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --split-input-file --koila-infer-shapes --koila-peak-memory='mode=train threads=1 floor=false grads=absent' -o /dev/null 2>&1 | FileCheck %s --check-prefix=FIRST

// The gradient of the product is 8 x 4 floats; its sum over the samples has four,
// beside the loss and its gradient: 128 + 16 + 4 + 4. The first step is the same:
// the sum becomes the gradient of the weight.

// CHECK: peak          152 bytes
// CHECK: at            koila.mul_Tensor (backward)
// CHECK-NOT: not exact
// FIRST: peak          152 bytes
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
koila.param @w : tensor<4xf32> keys ["w"] strides [1] requires_grad
func.func @sum(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<4xf32>
  %y = koila.mul_Tensor %x, %w : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %loss = koila.sum %y : (tensor<?x4xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// A weight that two layers share, and few samples. In the backward pass of the
// first layer its new gradient (4 x 4 floats) meets that of the second, which is a
// view, so that the sum is a third: 3 x 64. With the loss and its gradient 200.

// CHECK: peak          200 bytes
// CHECK: at            koila.linear (backward)
// CHECK-COUNT-3: 64 bytes  gradient
// FIRST: peak          200 bytes
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 2, batch = true>]} {
koila.param @w : tensor<4x4xf32> keys ["w"] strides [4, 1] requires_grad
func.func @shared(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<4x4xf32>
  %y = koila.linear %x, %w : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  %z = koila.linear %y, %w : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  %loss = koila.sum %z : (tensor<?x4xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// What is kept for a second backward pass is not modelled.

// CHECK: peak          152 bytes, not exact
// CHECK: not exact: koila.backward, {{.*}}: a backward pass that keeps its graph
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
koila.param @w : tensor<4xf32> keys ["w"] strides [1] requires_grad
func.func @kept(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<4xf32>
  %y = koila.mul_Tensor %x, %w : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %loss = koila.sum %y : (tensor<?x4xf32>) -> tensor<f32>
  koila.backward %loss {retain_graph = true, create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// Nor is one that a branch may leave out.

// CHECK: not exact: koila.backward, {{.*}}: a backward pass in a branch
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
koila.param @w : tensor<4xf32> keys ["w"] strides [1] requires_grad
func.func @branch(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %wanted: i1) -> tensor<f32> {
  %w = koila.param.get @w : tensor<4xf32>
  %y = koila.mul_Tensor %x, %w : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %loss = koila.sum %y : (tensor<?x4xf32>) -> tensor<f32>
  scf.if %wanted {
    koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  }
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// The gradient of an argument is the tensor that the backward pass makes, here
// the product of the gradient of the loss and the weight, and goes on to the
// caller: 8 x 4 floats. Meanwhile there are the gradient of the weight for all
// samples (128), for the weight (16), the loss and its gradient.

// CHECK: peak          280 bytes{{$}}
// FIRST: peak          280 bytes{{$}}
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
koila.param @w : tensor<4xf32> keys ["w"] strides [1] requires_grad
func.func @leaf(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>, koila.requires_grad}) -> (tensor<f32>, tensor<?x4xf32>) {
  %leaf = koila.leaf %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %w = koila.param.get @w : tensor<4xf32>
  %y = koila.mul_Tensor %leaf, %w : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %loss = koila.sum %y : (tensor<?x4xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %gradient = koila.leaf.grad %leaf : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %value, %gradient : tensor<f32>, tensor<?x4xf32>
}
}

// -----

// A leaf that lives on keeps its gradient, too.

// CHECK: not exact: koila.leaf.grad, {{.*}}: the leaf, which has the gradient, too, lives on
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
func.func @kept_leaf(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>, koila.requires_grad}) -> (tensor<f32>, tensor<f32>) {
  %leaf = koila.leaf %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %loss = koila.sum %leaf : (tensor<?x4xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %gradient = koila.leaf.grad %leaf : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %sum = koila.sum %gradient : (tensor<?x4xf32>) -> tensor<f32>
  %size = koila.max %leaf : (tensor<?x4xf32>) -> tensor<f32>
  %last = koila.detach %size : (tensor<f32>) -> tensor<f32>
  return %value, %last : tensor<f32>, tensor<f32>
}
}

// -----

// What a CTC loss adds up (2 x 4 x 7 floats) stays for its gradient, which takes as
// much again beside the gradient of the logarithms (160). The product is 160, the
// losses 8, and the loss and its gradient 4 each: 224 + 224 + 160 + 160 + 8 + 8.
// Lengths of the targets are data, so that it may be less.

// CHECK: peak          784 bytes
// CHECK: at            koila.ctc_loss_Tensor (backward)
// CHECK: not exact: koila.ctc_loss_Tensor, {{.*}}: how long the targets of ctc_loss are is decided by data
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 2, batch = true>]} {
koila.param @w : tensor<5xf32> keys ["w"] strides [1] requires_grad
func.func @ctc(%x: tensor<4x?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[4, B, 5]>}, %targets: tensor<?x3xi64> {koila.name = "targets", koila.dims = #koila.dims<[B, 3]>}, %lengths: tensor<?xi64> {koila.name = "lengths", koila.dims = #koila.dims<[B]>}, %counts: tensor<?xi64> {koila.name = "counts", koila.dims = #koila.dims<[B]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<5xf32>
  %y = koila.mul_Tensor %x, %w : (tensor<4x?x5xf32>, tensor<5xf32>) -> tensor<4x?x5xf32>
  %loss = koila.ctc_loss_Tensor %y, %targets, %lengths, %counts {blank = 0 : i64, reduction = 2 : i64, zero_infinity = false} : (tensor<4x?x5xf32>, tensor<?x3xi64>, tensor<?xi64>, tensor<?xi64>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}

// -----

// What a mask selects may be all: the gradient of 8 x 5 floats (160), which becomes
// one of the product (160), beside two places of 8 bytes for each (640), where the
// mask is true. With the loss and its gradient 968.

// CHECK: peak          968 bytes
// CHECK: at            koila.index_Tensor (backward)
// CHECK: not exact: koila.index_Tensor, {{.*}}: how many elements a mask selects is decided by data
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
koila.param @w : tensor<5xf32> keys ["w"] strides [1] requires_grad
func.func @selected(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}, %m: tensor<?x5xi1> {koila.name = "m", koila.dims = #koila.dims<[B, 5]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<5xf32>
  %y = koila.mul_Tensor %x, %w : (tensor<?x5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
  %s = koila.index_Tensor %y, %m {indices_mask = array<i1: true>} : (tensor<?x5xf32>, tensor<?x5xi1>) -> tensor<?xf32>
  %e = koila.exp %s : (tensor<?xf32>) -> tensor<?xf32>
  %loss = koila.sum %e : (tensor<?xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value : tensor<f32>
}
}
