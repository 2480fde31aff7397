// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='tile=4 random=full-batch-masks' -verify-diagnostics

// Of other devices it is not known what a draw for the whole batch is.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @device(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    // expected-error @below {{random=full-batch-masks is exact on the CPU and with CUDA, and 'koila.rand_like' draws on xpu:0}}
    %0 = koila.rand_like %x {device = {device = "xpu:0"}} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.mul_Tensor %x, %0 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}

// -----

// What draws by values of the whole batch is no work for tiles.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @values(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    // expected-error @below {{cannot tile the batch 'B': 'koila.bernoulli' draws random numbers for the whole batch}}
    %0 = koila.bernoulli %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}

// -----

// PyTorch drops channels of two dims and more, with a probability.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @channels(%x: tensor<?xf32> {koila.name = "x", koila.dims = #koila.dims<[B]>}) -> tensor<?xf32> {
    // expected-error @below {{drops channels, and there is no dim of them}}
    %0 = koila.feature_dropout %x {p = 0.5 : f64, train = true} : (tensor<?xf32>) -> tensor<?xf32>
    return %0 : tensor<?xf32>
  }
}

// -----

// A dropout draws another mask on a GPU, where this one may be.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @named(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.rand_like %x {device = {device = "cuda:0"}} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    // expected-error @below {{random=full-batch-masks: 'koila.dropout' draws other masks on a GPU than on the CPU, and the program names cuda:0, where device=cuda would be right}}
    %1 = koila.dropout %0 {p = 0.5 : f64, train = true} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}
