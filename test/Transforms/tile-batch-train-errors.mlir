// RUN: koila-opt %s --split-input-file --verify-diagnostics --koila-infer-shapes --koila-tile-batch='mode=train recompute=never tile=4'
// RUN: not koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='tile=4' 2>&1 | FileCheck %s --check-prefix=INFERENCE
// RUN: not koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='mode=train recompute=never loss=mse_loss tile=4' 2>&1 | FileCheck %s --check-prefix=LOSS

// INFERENCE: error: runs a backward pass: tile it with mode=train
// LOSS: error: loss=mse_loss: the training step was made with ''

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @root(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> () {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %sum = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  // expected-error @+1 {{the loss is no sum over the samples: the gradient of 'koila.sqrt' depends on the loss of the whole batch}}
  %loss = koila.sqrt %sum : (tensor<f32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @twice(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> () {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false, retain_graph = false} : (tensor<f32>) -> ()
  // expected-error @+1 {{cannot tile a second backward pass: add the losses up and run one}}
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @graph(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> () {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  // expected-error @+1 {{cannot tile a backward pass with a gradient of its own, or one whose graph is kept}}
  koila.backward %loss {create_graph = false, retain_graph = true} : (tensor<f32>) -> ()
  return
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
// expected-error @+1 {{mode=train needs a training step, and there is no koila.backward}}
func.func @none(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> tensor<?x5xf32> {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  return %y : tensor<?x5xf32>
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @returned(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> tensor<f32> {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  // expected-error @+1 {{it returns a tensor with a gradient; detach it}}
  %loss = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return %loss : tensor<f32>
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1]
func.func @frozen(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> () {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  // expected-error @+1 {{the loss has no gradient: no weight requires one, or it is detached on the way}}
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @vector(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> () {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  // expected-error @+1 {{the loss has extent 5; only of one element there is a gradient}}
  koila.backward %y {create_graph = false} : (tensor<?x5xf32>) -> ()
  return
}
}

// -----

// A further result may mix samples only without its gradient.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @recorded(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> (tensor<f32>, tensor<?x5xf32>) {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  // expected-error @+1 {{softmax over dim 0 mixes samples, and its gradient flows to the samples}}
  %shares = koila.softmax_int %y {dim = 0 : i64} : (tensor<?x5xf32>) -> tensor<?x5xf32>
  %twice = koila.mul_Tensor %shares, %y : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<?x5xf32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %result = koila.detach %twice : (tensor<?x5xf32>) -> tensor<?x5xf32>
  return %value, %result : tensor<f32>, tensor<?x5xf32>
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @unreached(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>},
                     %t: tensor<?x5xf32> {koila.name = "t", koila.dims = #koila.dims<[B, 5]>, koila.requires_grad}) -> (tensor<f32>, tensor<?x5xf32>) {
  // expected-error @+1 {{argument 't' requires a gradient (@grad), and the loss does not depend on it, or not in a way that has one}}
  %leaf = koila.leaf %t : (tensor<?x5xf32>) -> tensor<?x5xf32>
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %classes = koila.argmax %leaf {dim = 1 : i64, keepdim = false} : (tensor<?x5xf32>) -> tensor<?xi64>
  %loss = koila.cross_entropy_loss %y, %classes {ignore_index = -100 : i64, label_smoothing = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0>, reduction = 2 : i64} : (tensor<?x5xf32>, tensor<?xi64>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %gradient = koila.leaf.grad %leaf : (tensor<?x5xf32>) -> tensor<?x5xf32>
  return %value, %gradient : tensor<f32>, tensor<?x5xf32>
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @early(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>, koila.requires_grad}) -> (tensor<f32>, tensor<?x6xf32>) {
  %leaf = koila.leaf %x : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %loss = koila.sum %leaf : (tensor<?x6xf32>) -> tensor<f32>
  // expected-error @+1 {{the gradient of argument 'x' is read before the backward pass}}
  %gradient = koila.leaf.grad %leaf : (tensor<?x6xf32>) -> tensor<?x6xf32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  return %value, %gradient : tensor<f32>, tensor<?x6xf32>
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @penalty(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>, koila.requires_grad}) -> (tensor<f32>, tensor<f32>) {
  %leaf = koila.leaf %x : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %loss = koila.sum %leaf : (tensor<?x6xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  // expected-error @+1 {{the gradient of argument 'x', which tiles make, is read in the step; return it alone}}
  %gradient = koila.leaf.grad %leaf : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %sum = koila.sum %gradient : (tensor<?x6xf32>) -> tensor<f32>
  return %value, %sum : tensor<f32>, tensor<f32>
}
}

// -----

// The mean of the batch, through which its gradient would have to flow.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @mixed(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>, koila.requires_grad}) -> (tensor<f32>, tensor<?x6xf32>) {
  %leaf = koila.leaf %x : (tensor<?x6xf32>) -> tensor<?x6xf32>
  // expected-error @+1 {{softmax over dim 0 mixes samples, and its gradient flows to the samples}}
  %shares = koila.softmax_int %leaf {dim = 0 : i64} : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %twice = koila.mul_Tensor %shares, %leaf : (tensor<?x6xf32>, tensor<?x6xf32>) -> tensor<?x6xf32>
  %loss = koila.sum %twice : (tensor<?x6xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %gradient = koila.leaf.grad %leaf : (tensor<?x6xf32>) -> tensor<?x6xf32>
  return %value, %gradient : tensor<f32>, tensor<?x6xf32>
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @half(%x: tensor<?x6xf16> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>},
                %s: tensor<6xf16> {koila.name = "s", koila.dims = #koila.dims<[6]>, koila.requires_grad}) -> (tensor<f32>, tensor<6xf16>) {
  // expected-error @+1 {{the gradient of argument 's', which has no batch, would be rounded to its half type with each tile}}
  %leaf = koila.leaf %s : (tensor<6xf16>) -> tensor<6xf16>
  %y = koila.mul_Tensor %x, %leaf : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %wide = koila.to_dtype %y {copy = false, dtype = 6 : i64, non_blocking = false} : (tensor<?x6xf16>) -> tensor<?x6xf32>
  %loss = koila.sum %wide : (tensor<?x6xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %gradient = koila.leaf.grad %leaf : (tensor<6xf16>) -> tensor<6xf16>
  return %value, %gradient : tensor<f32>, tensor<6xf16>
}
}

// -----

// Something may write to the argument, as import marks it.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @written(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>, koila.requires_grad}) -> (tensor<f32>, tensor<?x6xf32>) {
  %leaf = koila.leaf %x {koila.reads} : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %loss = koila.sum %leaf {koila.reads} : (tensor<?x6xf32>) -> tensor<f32>
  // expected-error @+1 {{argument 'x' requires a gradient, and 'koila.fill_Scalar' writes in place, for the whole batch, what others see}}
  %zeros = koila.fill_Scalar tied %x {koila.writes, value = 0 : i64} : (tensor<?x6xf32>) -> tensor<?x6xf32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %gradient = koila.leaf.grad %leaf : (tensor<?x6xf32>) -> tensor<?x6xf32>
  return %value, %gradient : tensor<f32>, tensor<?x6xf32>
}
}
