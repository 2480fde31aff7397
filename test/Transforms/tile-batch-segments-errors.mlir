// Steps that cannot run in segments: the error is that of tiles of one pass, and a
// note says why segments do not help.

// RUN: not koila-opt %s --split-input-file --koila-tile-batch='mode=train tile=4' 2>&1 | FileCheck %s
// RUN: not koila-opt %s --split-input-file --koila-tile-batch='mode=train recompute=never tile=4' 2>&1 | FileCheck %s --check-prefix=MARK

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  func.func @two(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %b = koila.mean %a : (tensor<?x5xf32>) -> tensor<f32>
    koila.backward %b {create_graph = false} : (tensor<f32>) -> ()
    // CHECK: error: cannot tile a second backward pass
    // CHECK: note: cannot run the backward pass over the batch 'B' in segments: it is not the one backward pass of a loss
    koila.backward %b {create_graph = false} : (tensor<f32>) -> ()
    return
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  func.func @written(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %b = koila.softmax_int %a {dim = 0 : i64} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    // CHECK: error: cannot tile
    // CHECK: note: {{.*}}'koila.relu' has effects, and would run twice
    %c = koila.relu tied %b {koila.writes} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %d = koila.mean %c : (tensor<?x5xf32>) -> tensor<f32>
    koila.backward %d {create_graph = false} : (tensor<f32>) -> ()
    return
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  func.func @read(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %b = koila.softmax_int %a {dim = 0 : i64} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %c = koila.relu tied %b {koila.writes} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    // CHECK: error: cannot tile
    // CHECK: note: {{.*}}'koila.mean' reads storage that is written in place, which would be written twice; write a new tensor, as by mul() in the place of mul_()
    %d = koila.mean %c {koila.reads} : (tensor<?x5xf32>) -> tensor<f32>
    koila.backward %d {create_graph = false} : (tensor<f32>) -> ()
    return
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @argument(%x: tensor<?x3xf32> {koila.name = "x", koila.requires_grad, koila.dims = #koila.dims<[B, 3]>}) {
    %b = koila.softmax_int %x {dim = 0 : i64} : (tensor<?x3xf32>) -> tensor<?x3xf32>
    %c = koila.mean %b : (tensor<?x3xf32>) -> tensor<f32>
    // CHECK: error: cannot tile
    // CHECK: note: {{.*}}argument 0 requires a gradient, which no leaf takes
    koila.backward %c {create_graph = false} : (tensor<f32>) -> ()
    return
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  func.func @pairs(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %t = koila.t %a : (tensor<?x5xf32>) -> tensor<5x?xf32>
    %p = koila.mm %a, %t : (tensor<?x5xf32>, tensor<5x?xf32>) -> tensor<?x?xf32>
    // CHECK: error: cannot tile
    // CHECK: note: {{.*}}the batch of 'koila.batch_norm' is not in one dim
    %b = koila.batch_norm %p {cudnn_enabled = true, eps = 1.0e-5 : f64, momentum = 1.0e-1 : f64, training = true} : (tensor<?x?xf32>) -> tensor<?x?xf32>
    %c = koila.mean %b : (tensor<?x?xf32>) -> tensor<f32>
    koila.backward %c {create_graph = false} : (tensor<f32>) -> ()
    return
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  func.func @list(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    // CHECK: error: cannot tile
    // CHECK: note: {{.*}}'koila.construct' gives a list or tuple that others read
    %l = koila.construct list(%a, %a) : (tensor<?x5xf32>, tensor<?x5xf32>) -> !koila.list<tensor<?x5xf32>>
    %b = koila.torch_op "aten::block_diag"(%l) args [#koila.operand<0>] effects none : (!koila.list<tensor<?x5xf32>>) -> tensor<*xf32>
    %c = koila.mean %b : (tensor<*xf32>) -> tensor<f32>
    koila.backward %c {create_graph = false} : (tensor<f32>) -> ()
    return
  }
}

// -----

// Marks of segments are koila's own.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  func.func @marked(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    // MARK: error: {{.*}}'koila.mean' is not apart for each sample
    %b = koila.mean %a {koila.segment = 0 : i64} : (tensor<?x5xf32>) -> tensor<f32>
    koila.backward %b {create_graph = false} : (tensor<f32>) -> ()
    return
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  func.func @detached(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %b = koila.detach %a : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %c = koila.mean %b : (tensor<?x5xf32>) -> tensor<f32>
    // CHECK: error: the loss has no gradient: no weight requires one, or it is detached on the way
    // CHECK: note: {{.*}}in segments: the loss has no gradient
    koila.backward %c {create_graph = false} : (tensor<f32>) -> ()
    return
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  func.func @each(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %b = koila.mean_dim %a {dim = array<i64: 1>, keepdim = false} : (tensor<?x5xf32>) -> tensor<?xf32>
    // CHECK: error: cannot tile the training step over the batch 'B': the loss has extent B; only of one element there is a gradient; name a loss of it
    // CHECK: note: {{.*}}in segments: the loss has extent B; only of one element there is a gradient
    koila.backward %b {create_graph = false} : (tensor<?xf32>) -> ()
    return
  }
}

// -----

// What a step returns has a gradient, which no tensor of a segment has.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  func.func @returned(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) -> tensor<f32> {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %b = koila.mean %a : (tensor<?x5xf32>) -> tensor<f32>
    // CHECK: error: cannot tile the training step: it returns a tensor with a gradient; detach it
    // CHECK: note: {{.*}}in segments: it returns a tensor with a gradient
    koila.backward %b {create_graph = false} : (tensor<f32>) -> ()
    return %b : tensor<f32>
  }
}
