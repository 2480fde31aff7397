// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 -verify-diagnostics

// Control flow that tiles cannot run each for itself: why, and at which
// operation.

// Inside, columns of all samples stand in one row.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @inside(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %p: i1 {koila.name = "p"}) -> tensor<?x4xf32> {
    // expected-error @below {{cannot tile the batch 'B': the batch is interleaved inside of control flow}}
    %r = scf.if %p -> tensor<?x4xf32> {
      %columns = koila.transpose_int %x {dim0 = 0 : i64, dim1 = 1 : i64} : (tensor<?x4xf32>) -> tensor<4x?xf32>
      %row = koila.reshape %columns {shape = array<i64: -1>} : (tensor<4x?xf32>) -> tensor<?xf32>
      %positive = koila.relu %row : (tensor<?xf32>) -> tensor<?xf32>
      %split = koila.view %positive {size = array<i64: 4, -1>} : (tensor<?xf32>) -> tensor<4x?xf32>
      %rows = koila.transpose_int %split {dim0 = 0 : i64, dim1 = 1 : i64} : (tensor<4x?xf32>) -> tensor<?x4xf32>
      scf.yield %rows : tensor<?x4xf32>
    } else {
      scf.yield %x : tensor<?x4xf32>
    }
    return %r : tensor<?x4xf32>
  }
}

// -----

// That row comes out of the branch, and tiles would read it.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @outside(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %p: i1 {koila.name = "p"}) -> tensor<?x4xf32> {
    // expected-error @below {{cannot tile the batch: it is interleaved in a result of control flow}}
    %r = scf.if %p -> tensor<?xf32> {
      %columns = koila.transpose_int %x {dim0 = 0 : i64, dim1 = 1 : i64} : (tensor<?x4xf32>) -> tensor<4x?xf32>
      %row = koila.reshape %columns {shape = array<i64: -1>} : (tensor<4x?xf32>) -> tensor<?xf32>
      scf.yield %row : tensor<?xf32>
    } else {
      %positive = koila.relu %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
      %columns = koila.transpose_int %positive {dim0 = 0 : i64, dim1 = 1 : i64} : (tensor<?x4xf32>) -> tensor<4x?xf32>
      %row = koila.reshape %columns {shape = array<i64: -1>} : (tensor<4x?xf32>) -> tensor<?xf32>
      scf.yield %row : tensor<?xf32>
    }
    %split = koila.view %r {size = array<i64: 4, -1>} : (tensor<?xf32>) -> tensor<4x?xf32>
    %rows = koila.transpose_int %split {dim0 = 0 : i64, dim1 = 1 : i64} : (tensor<4x?xf32>) -> tensor<?x4xf32>
    %result = koila.relu %rows : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return %result : tensor<?x4xf32>
  }
}

// -----

// Of how many columns the result is, the branch decides.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @two_shapes(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %p: i1 {koila.name = "p"}) -> tensor<?x?xf32> {
    // expected-error @below {{cannot tile the batch 'B': a result of this control flow is no tensor with the batch, or its extents are not known before it}}
    %r = scf.if %p -> tensor<?x?xf32> {
      %all = koila.relu %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
      %r = koila.refine %all : tensor<?x4xf32> to tensor<?x?xf32>
      scf.yield %r : tensor<?x?xf32>
    } else {
      %two = koila.slice_Tensor %x {dim = 1 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64} : (tensor<?x4xf32>) -> tensor<?x2xf32>
      %r = koila.refine %two : tensor<?x2xf32> to tensor<?x?xf32>
      scf.yield %r : tensor<?x?xf32>
    }
    return %r : tensor<?x?xf32>
  }
}

// -----

// The branch decides the rank, and tiles read one of both.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @two_ranks(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %p: i1 {koila.name = "p"}) -> tensor<?x4xf32> {
    // expected-error @below {{cannot tile the batch: control flow reads a tensor whose shape is not written into the program}}
    %r = scf.if %p -> tensor<*xf32> {
      %more = koila.unsqueeze %x {dim = 1 : i64} : (tensor<?x4xf32>) -> tensor<?x1x4xf32>
      %r = koila.refine %more : tensor<?x1x4xf32> to tensor<*xf32>
      scf.yield %r : tensor<*xf32>
    } else {
      %r = koila.refine %x : tensor<?x4xf32> to tensor<*xf32>
      scf.yield %r : tensor<*xf32>
    }
    %known = koila.refine %r : tensor<*xf32> to tensor<?x4xf32>
    %result = koila.relu %known : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return %result : tensor<?x4xf32>
  }
}

// -----

// Tiles would read the matrix after it is overwritten.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @written(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %w: tensor<4x4xf32> {koila.name = "w", koila.dims = #koila.dims<[4, 4]>}, %p: i1 {koila.name = "p"}) -> tensor<?x4xf32> {
    // expected-error @below {{cannot tile the batch 'B': control flow reads storage that is mutated in place}}
    %r = scf.if %p -> tensor<?x4xf32> {
      %product = koila.linear %x, %w : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
      scf.yield %product : tensor<?x4xf32>
    } else {
      scf.yield %x : tensor<?x4xf32>
    }
    %zeros = koila.fill_Scalar tied %w {koila.writes, value = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %r : tensor<?x4xf32>
  }
}

// -----

// Regions of other dialects are not followed.
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @generate(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<4xf32> {
    %zero = arith.constant 0 : index
    // expected-error @below {{cannot tile the batch 'B': the regions of 'tensor.generate' are no control flow}}
    %row = tensor.generate {
    ^bb0(%column: index):
      %element = tensor.extract %x[%zero, %column] : tensor<?x4xf32>
      tensor.yield %element : f32
    } : tensor<4xf32>
    return %row : tensor<4xf32>
  }
}
