// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='mode=train recompute=never tile=4' -verify-diagnostics

// Gradients that tiles cannot add up: the error stands where one is needed.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @in_branch(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}, %p: i1 {koila.name = "p"}) {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  scf.if %p {
    // expected-error @+1 {{cannot tile a backward pass that runs inside of control flow}}
    koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  }
  return
}
}

// -----

// An operator without a rule stands between the losses of the tiles and the loss.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @opaque(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %sum = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  // expected-error @+1 {{cannot tile the training step over the batch 'B': what the gradient of 'aten::mystery' depends on is not known}}
  %loss = koila.torch_op "aten::mystery"(%sum) args [#koila.operand<0>] effects none : (tensor<f32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return
}
}

// -----

// Tensors in a list may require gradients, and no guard sees them.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
// expected-error @+1 {{cannot tile the training step: argument 1 may hold tensors that require gradients; give them as arguments of their own}}
func.func @list(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}, %more: !koila.list<tensor<*x!koila.any>> {koila.name = "more"}) {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<9x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @frequency(%x: tensor<?x15xi64> {koila.name = "x", koila.dims = #koila.dims<[B, 15]>}) {
  %w = koila.param.get @w : tensor<9x6xf32>
  // expected-error @+1 {{cannot tile the training step over the batch 'B': with scale_grad_by_freq the gradient of a sample depends on the indices of all others}}
  %y = koila.embedding %w, %x {padding_idx = -1 : i64, scale_grad_by_freq = true, sparse = false} : (tensor<9x6xf32>, tensor<?x15xi64>) -> tensor<?x15x6xf32>
  %loss = koila.sum %y : (tensor<?x15x6xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return
}
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @of_weights_alone(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> tensor<?x6xf32> {
  %w = koila.param.get @w : tensor<5x6xf32>
  %loss = koila.sum %w : (tensor<5x6xf32>) -> tensor<f32>
  %result = koila.relu %x : (tensor<?x6xf32>) -> tensor<?x6xf32>
  // expected-error @+1 {{cannot tile the training step over the batch 'B': the loss does not come of its samples}}
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return %result : tensor<?x6xf32>
}
}

// -----

// A branch that makes the weight: its gradient would be taken once a tile.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @chosen_weight(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}, %p: i1 {koila.name = "p"}) {
  %w = koila.param.get @w : tensor<5x6xf32>
  // expected-error @+1 {{cannot tile the training step over the batch 'B': every tile would have to run 'scf.if' again for its gradient}}
  %chosen = scf.if %p -> tensor<5x6xf32> {
    %positive = koila.relu %w : (tensor<5x6xf32>) -> tensor<5x6xf32>
    scf.yield %positive : tensor<5x6xf32>
  } else {
    scf.yield %w : tensor<5x6xf32>
  }
  %y = koila.linear %x, %chosen : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return
}
}

// -----

// The sum of all samples weights each of them: a second loop, which the graph of
// the first does not reach.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
func.func @weighted_by_sum(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) {
  %w = koila.param.get @w : tensor<5x6xf32>
  %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %detached = koila.detach %y : (tensor<?x5xf32>) -> tensor<?x5xf32>
  %total = koila.sum %detached : (tensor<?x5xf32>) -> tensor<f32>
  // expected-error @+1 {{cannot tile the training step over the batch 'B': 'koila.mul_Tensor' needs a number of the whole batch which is made of what the tiles compute}}
  %weighted = koila.mul_Tensor %y, %total : (tensor<?x5xf32>, tensor<f32>) -> tensor<?x5xf32>
  %loss = koila.sum %weighted : (tensor<?x5xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  return
}
}

// -----

// Columns of all samples in one row: of a tile there is no range of it.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @interleaved_leaf(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}) -> (tensor<f32>, tensor<?xf32>) {
  %columns = koila.transpose_int %x {dim0 = 0 : i64, dim1 = 1 : i64} : (tensor<?x6xf32>) -> tensor<6x?xf32>
  %row = koila.reshape %columns {shape = array<i64: -1>} : (tensor<6x?xf32>) -> tensor<?xf32>
  // expected-error @+1 {{cannot tile the training step over the batch 'B': the batch is interleaved in a tensor, which requires a gradient}}
  %leaf = koila.leaf %row : (tensor<?xf32>) -> tensor<?xf32>
  %loss = koila.sum %leaf : (tensor<?xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %gradient = koila.leaf.grad %leaf : (tensor<?xf32>) -> tensor<?xf32>
  return %value, %gradient : tensor<f32>, tensor<?xf32>
}
}

// -----

// The first product has to run before its bias is overwritten, for all samples.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
koila.param @v : tensor<5x6xf32> keys ["v"] strides [6, 1] requires_grad
func.func @whole(%x: tensor<?x6xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6]>}, %bias: tensor<5xf32> {koila.name = "bias", koila.dims = #koila.dims<[5]>}) -> (tensor<f32>, tensor<?x5xi1>) {
  %w = koila.param.get @w : tensor<5x6xf32>
  %v = koila.param.get @v : tensor<5x6xf32>
  // expected-error @+1 {{cannot tile the training step over the batch 'B': 'koila.linear' runs on the whole batch, and the gradients of all tiles would flow through it}}
  %y = koila.linear %x, %w, %bias {koila.reads} : (tensor<?x6xf32>, tensor<5x6xf32>, tensor<5xf32>) -> tensor<?x5xf32>
  %zeros = koila.fill_Scalar tied %bias {koila.writes, value = 0 : i64} : (tensor<5xf32>) -> tensor<5xf32>
  %z = koila.linear %x, %v : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
  %loss = koila.sum %z : (tensor<?x5xf32>) -> tensor<f32>
  koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
  %value = koila.detach %loss : (tensor<f32>) -> tensor<f32>
  %positive = koila.gt_Scalar %y {other = 0 : i64} : (tensor<?x5xf32>) -> tensor<?x5xi1>
  return %value, %positive : tensor<f32>, tensor<?x5xi1>
}
}
