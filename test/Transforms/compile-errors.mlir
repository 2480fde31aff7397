// RUN: koila-opt %s -split-input-file --koila-compile=tile=4 -verify-diagnostics

// Each stage of the pipeline refuses for itself.

// expected-error @below {{argument 0 has no 'koila.name'; import gives names}}
func.func @imported(%x: tensor<4xf32>) {
  return
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @inferred(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}, %w: tensor<5x4xf32> {koila.name = "w"}) {
    %0 = koila.relu %x : (tensor<?x3xf32>) -> tensor<*x!koila.any>
    // expected-error @below {{the weight takes 4 features, the input has 3}}
    %1 = koila.linear %0, %w : (tensor<*x!koila.any>, tensor<5x4xf32>) -> tensor<*x!koila.any>
    return
  }
}

// -----

// Upstream operations outside the table of emission.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @emittable(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}, %n: index {koila.name = "n"}) -> (tensor<?x3xf32>, index) {
    // expected-error @below {{cannot be written as TorchScript}}
    %r = arith.remsi %n, %n : index
    %0 = koila.relu %x : (tensor<?x3xf32>) -> tensor<?x3xf32>
    return %0, %r : tensor<?x3xf32>, index
  }
}
