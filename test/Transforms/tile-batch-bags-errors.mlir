// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 -verify-diagnostics

// Bags begin where data say.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @given(%w: tensor<9x6xf32>, %x: tensor<?xi64> {koila.name = "x", koila.dims = #koila.dims<[15*B]>}, %begin: tensor<?xi64> {koila.name = "o", koila.dims = #koila.dims<[B]>}) -> tensor<?x6xf32> {
  // expected-error @below {{cannot tile the batch 'B': which indices of embedding_bag belong to a sample is decided by data}}
  %y:4 = koila.embedding_bag %w, %x, %begin {scale_grad_by_freq = false, mode = 0 : i64, sparse = false, include_last_offset = false} : (tensor<9x6xf32>, tensor<?xi64>, tensor<?xi64>) -> (tensor<?x6xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64>)
  return %y#0 : tensor<?x6xf32>
}
}

// -----

// As many bags as samples, but each a little smaller than what a sample has: the
// last one takes what is left.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @smaller(%w: tensor<9x6xf32>, %x: tensor<?x15xi64> {koila.name = "x", koila.dims = #koila.dims<[B, 15]>}) -> tensor<?x6xf32> {
  %samples = koila.size_int %x {dim = 0 : i64} : (tensor<?x15xi64>) -> i64
  %size = arith.constant 14 : i64
  %count = arith.muli %samples, %size : i64
  %begin = koila.arange_start_step %count {start = 0 : i64, end = #koila.dynamic, step = 14 : i64} : (i64) -> tensor<?xi64>
  %rows = koila.reshape %x {shape = array<i64: -1>} : (tensor<?x15xi64>) -> tensor<?xi64>
  // expected-error @below {{cannot tile the batch 'B': which indices of embedding_bag belong to a sample is decided by data}}
  %y:4 = koila.embedding_bag %w, %rows, %begin {scale_grad_by_freq = false, mode = 0 : i64, sparse = false, include_last_offset = false} : (tensor<9x6xf32>, tensor<?xi64>, tensor<?xi64>) -> (tensor<?x6xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64>)
  return %y#0 : tensor<?x6xf32>
}
}

// -----

// Where bags begin is returned: numbers of the whole batch, which no tile has.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
func.func @returned(%w: tensor<9x6xf32>, %x: tensor<?x15xi64> {koila.name = "x", koila.dims = #koila.dims<[B, 15]>}) -> (tensor<?x6xf32>, tensor<?xi64>) {
  %count = koila.numel %x : (tensor<?x15xi64>) -> i64
  %begin = koila.arange_start_step %count {start = 0 : i64, end = #koila.dynamic, step = 15 : i64} : (i64) -> tensor<?xi64>
  %rows = koila.reshape %x {shape = array<i64: -1>} : (tensor<?x15xi64>) -> tensor<?xi64>
  // expected-error @below {{cannot tile the batch 'B': which indices of embedding_bag belong to a sample is decided by data}}
  %y:4 = koila.embedding_bag %w, %rows, %begin {scale_grad_by_freq = false, mode = 0 : i64, sparse = false, include_last_offset = false} : (tensor<9x6xf32>, tensor<?xi64>, tensor<?xi64>) -> (tensor<?x6xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64>)
  return %y#0, %begin : tensor<?x6xf32>, tensor<?xi64>
}
}
