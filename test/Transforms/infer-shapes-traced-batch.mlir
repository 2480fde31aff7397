// RUN: koila-opt %s -split-input-file --koila-infer-shapes -verify-diagnostics

// A literal that equals the batch of the recorded shapes: tracing may have
// written it for the batch.

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @view(%x: tensor<?x12xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 12]>, koila.example = tensor<4x12xf32>}) -> tensor<4x?xf32> {
    // expected-warning @below {{the batch meets the number 4, which is the batch that the program was traced with; if tracing baked it in, re-trace with a dynamic batch, or analyse at B=4 only (--input with B=4)}}
    %0 = koila.view %x {size = array<i64: 4, -1>} : (tensor<?x12xf32>) -> tensor<4x?xf32>
    return %0 : tensor<4x?xf32>
  }
}

// -----

// Another number says nothing of the batch.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @view(%x: tensor<?x12xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 12]>, koila.example = tensor<4x12xf32>}) -> tensor<3x?xf32> {
    %0 = koila.view %x {size = array<i64: 3, -1>} : (tensor<?x12xf32>) -> tensor<3x?xf32>
    return %0 : tensor<3x?xf32>
  }
}
