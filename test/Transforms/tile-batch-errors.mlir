// RUN: koila-opt %s -split-input-file --koila-tile-batch=tile=4 -verify-diagnostics
// RUN: not koila-opt %s --koila-tile-batch=tile=3 2>&1 | FileCheck %s --check-prefix=POWER
// RUN: not koila-opt %s --koila-tile-batch=tile=-4 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not koila-opt %s --koila-tile-batch 2>&1 | FileCheck %s --check-prefix=NEITHER
// RUN: not koila-opt %s --koila-tile-batch="tile=4 budget=1KiB" 2>&1 | FileCheck %s --check-prefix=NEITHER
// RUN: not koila-opt %s --koila-tile-batch="tile=4 random=always" 2>&1 | FileCheck %s --check-prefix=RANDOM
// RUN: not koila-opt %s --koila-tile-batch="tile=4 guard=none" 2>&1 | FileCheck %s --check-prefix=GUARD

// Refused options; the program does not matter.
// POWER: error: tile=3 is no power of two
// NEGATIVE: error: tile=-4 is no power of two
// NEITHER: error: give either tile=N (a power of two) or budget=BYTES, for example budget=64MiB
// RANDOM: error: unknown random=always; use random=refuse or random=full-batch-masks or random=per-tile
// GUARD: error: unknown guard=none; use guard=warn or guard=raise

// Samples meet: the error stands at the operation, with the user's place.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @softmax(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    // expected-error @below {{cannot tile the batch 'B': softmax over dim 0 mixes samples}}
    %0 = koila.softmax_int %x {dim = 0} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @opaque(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    // expected-error @below {{koila does not know how 'aten::erfinv' treats samples}}
    %0 = koila.torch_op "aten::erfinv"(%x) args [#koila.operand<0>] effects none : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}

// -----

// A write that others see runs whole; there is nothing else.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @effect(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    // expected-error @below {{'aten::print' has effects whose order tiling would change}}
    %0 = koila.torch_op "aten::print"(%x) args [#koila.operand<0>] effects unknown : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}

// -----

// Random numbers, drawn by an operator that koila knows or not.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @random(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    // expected-error-re @below {{cannot tile the batch: 'koila.rand_like' draws random numbers, and tiles would draw others: random streams differ in tiles at {{.*}}; random=full-batch-masks draws as the untiled program does, random=per-tile draws anew in each tile}}
    %0 = koila.rand_like %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.mul_Tensor %x, %0 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @opaque_random(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    // expected-error @below {{'aten::rand' draws random numbers}}
    %0 = koila.torch_op "aten::rand"() args [] effects rng : () -> tensor<8xf32>
    %1 = koila.mul_Tensor %x, %0 : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @flow(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %p: i1 {koila.name = "p"}) {
    // expected-error @below {{'aten::mystery' has effects whose order tiling would change, inside of this control flow}}
    scf.if %p {
      %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
      koila.torch_op "aten::mystery"(%0) args [#koila.operand<0>] effects write : (tensor<?x8xf32>) -> ()
    }
    return
  }
}

// -----

// A batch size that tracing wrote into a view.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @literal(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x?xf32> {
    // expected-error @below {{a literal batch size was perhaps baked in by tracing}}
    %0 = koila.view %x {size = array<i64: 64, -1>} : (tensor<?x8xf32>) -> tensor<?x?xf32>
    return %0 : tensor<?x?xf32>
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  // expected-error @below {{cannot tile the batch 'B': an argument has the batch in two dims}}
  func.func @twice(%x: tensor<?x?xf32> {koila.name = "x", koila.dims = #koila.dims<[B, B]>}) {
    return
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  // expected-error @below {{no argument has a dim that is a multiple of 'B'; give one by --input, for example 'x=float32[B,3,224,224]'}}
  func.func @absent(%x: tensor<8xf32> {koila.name = "x"}) {
    return
  }
}

// -----

// expected-error @below {{no symbol is the batch: give one by --input}}
func.func @no_symbol(%x: tensor<8xf32> {koila.name = "x"}) {
  return
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  // expected-error @below {{is tiled already; compile the original program instead}}
  func.func @again(%x: tensor<?xf32> {koila.name = "x", koila.dims = #koila.dims<[B]>}) attributes {koila.tiled = {tile = 2 : i64, guard = "warn", batch_symbol = "B"}} {
    return
  }
}

// -----

// expected-error @below {{the shape of argument 0 is not known; give --input, for example --input='float32[B,64]', and run --koila-infer-shapes}}
func.func @unknown(%x: tensor<*x!koila.any> {koila.name = "x"}) {
  return
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @as_it_came(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<*x!koila.any> {
    // expected-error @below {{cannot tile the batch: this result is computed by nothing, so that there is nothing to do in tiles}}
    %0 = koila.refine %x : tensor<?x4xf32> to tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any>
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  // expected-error @below {{cannot tile the batch: argument 0 is always empty}}
  func.func @empty(%x: tensor<?x0xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 0]>}) -> tensor<?x0xf32> {
    %0 = koila.relu %x : (tensor<?x0xf32>) -> tensor<?x0xf32>
    return %0 : tensor<?x0xf32>
  }
}

// -----

// How many columns the mask selects, data decide.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @masked(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %m: tensor<4xi1> {koila.name = "m", koila.dims = #koila.dims<[4]>}) -> tensor<?x?xf32> {
    %at = koila.nonzero %m : (tensor<4xi1>) -> tensor<?x1xi64>
    %columns = koila.squeeze_dim %at {dim = 1 : i64} : (tensor<?x1xi64>) -> tensor<?xi64>
    // expected-error @below {{cannot tile the batch: the extent of dim 1 of this result is not known before it is computed}}
    %0 = koila.index_select %x, %columns {dim = 1 : i64} : (tensor<?x4xf32>, tensor<?xi64>) -> tensor<?x?xf32>
    return %0 : tensor<?x?xf32>
  }
}

// -----

// Numbers of the whole batch are i64, as in PyTorch; an index is counted in tiles.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @number(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> (tensor<?x4xf32>, index) {
    %n = koila.size_int %x {dim = 0 : i64} : (tensor<?x4xf32>) -> i64
    %index = arith.index_cast %n : i64 to index
    %0 = koila.relu %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-error @below {{cannot tile the batch 'B': the program returns a number that follows the batch}}
    return %0, %index : tensor<?x4xf32>, index
  }
}

// -----

// Nothing but a product, which has to run before its matrix is overwritten.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @order(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %w: tensor<4x4xf32> {koila.name = "w", koila.dims = #koila.dims<[4, 4]>}) -> tensor<?x4xf32> {
    // expected-error @below {{cannot tile the batch 'B': 'koila.linear' reads storage that is mutated in place}}
    %y = koila.linear %x, %w {koila.reads} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    %zeros = koila.fill_Scalar tied %w {koila.writes, value = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %y : tensor<?x4xf32>
  }
}

// -----

// An opaque operator gives the factor, of any element type.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @element_type(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<?x4x!koila.any> {
    %factor = koila.torch_op "aten::mystery"() args [] effects none : () -> tensor<1x!koila.any>
    // expected-error @below {{cannot tile the batch: the shape of this result is not known}}
    %0 = koila.mul_Tensor %x, %factor : (tensor<?x4xf32>, tensor<1x!koila.any>) -> tensor<?x4x!koila.any>
    return %0 : tensor<?x4x!koila.any>
  }
}

// -----

// Softmax over the batch reads all rows at once; which strides einsum gives them
// depends on whether S is one.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @strides(%x: tensor<?x?xf32> {koila.name = "x", koila.dims = #koila.dims<[B, S]>}, %y: tensor<3x?x?xf32> {koila.name = "y", koila.dims = #koila.dims<[3, S, B]>}) -> tensor<?x3xf32> {
    // expected-error @below {{cannot tile the batch: this result is kept whole between loops, and its strides are not known there}}
    %sums = koila.einsum %x, %y {equation = "bs,jsb->bj"} : (tensor<?x?xf32>, tensor<3x?x?xf32>) -> tensor<?x3xf32>
    %shares = koila.softmax_int %sums {dim = 0 : i64} : (tensor<?x3xf32>) -> tensor<?x3xf32>
    return %shares : tensor<?x3xf32>
  }
}
