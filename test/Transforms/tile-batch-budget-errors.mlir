// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch='budget=1KiB threads=1' -verify-diagnostics

// What a budget needs: a value for each symbol, a figure for each operator, and a
// batch where the program as it is takes more.

// expected-error @below {{the peak of 3.12 KiB (3,200 bytes) exceeds the budget of 1.00 KiB (1,024 bytes), and no symbol is the batch: give one by --input}}
func.func @no_symbol(%x: tensor<800xf32> {koila.name = "x"}) -> tensor<800xf32> {
  %0 = koila.relu %x : (tensor<800xf32>) -> tensor<800xf32>
  return %0 : tensor<800xf32>
}

// -----

// Import says so of a program that PyTorch runs with other lives of tensors.
// expected-error @below {{a budget cannot be promised: tensors live longer in it, and no symbol is the batch, so that the program cannot be rewritten: give one by --input}}
func.func @lives(%x: tensor<8xf32> {koila.name = "x"}) -> tensor<8xf32> attributes {koila.lifetimes = "tensors live longer in it"} {
  %0 = koila.relu %x : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  // expected-error-re @below {{a budget cannot be promised: memory of 'aten::erfinv' is not known exactly (the size of a result is not known; it is counted as 0 bytes; no upper bound: an extent that koila does not know decides it) at {{.*}}; give tile=N instead}}
  func.func @opaque(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.torch_op "aten::erfinv"(%x) args [#koila.operand<0>] effects none : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}

// -----

// Also of a symbol that only an unused argument has.
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>, #koila.symbol<name = "S">]} {
  // expected-error @below {{budget needs a value for symbol 'S' (--batch S=N)}}
  func.func @no_value(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %y: tensor<?xf32> {koila.name = "y", koila.dims = #koila.dims<[S]>}) -> tensor<?x8xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}
