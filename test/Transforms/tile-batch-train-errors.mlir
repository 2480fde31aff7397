// RUN: koila-opt %s --split-input-file --verify-diagnostics --koila-infer-shapes --koila-tile-batch='mode=train tile=4'
// RUN: not koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='tile=4' 2>&1 | FileCheck %s --check-prefix=INFERENCE
// RUN: not koila-opt %s --split-input-file --koila-infer-shapes --koila-tile-batch='mode=train loss=mse_loss tile=4' 2>&1 | FileCheck %s --check-prefix=LOSS

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
