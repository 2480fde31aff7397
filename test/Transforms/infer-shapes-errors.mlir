// RUN: koila-opt %s -split-input-file --koila-infer-shapes -verify-diagnostics

// Errors that appear only once shapes are known: the types say nothing.

func.func @linear(%x: tensor<2x3xf32>, %w: tensor<5x4xf32>) {
  %0 = koila.relu %x : (tensor<2x3xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{the weight takes 4 features, the input has 3}}
  %1 = koila.linear %0, %w : (tensor<*x!koila.any>, tensor<5x4xf32>) -> tensor<*x!koila.any>
  return
}

// -----

// Symbols: B elements cannot be told from S, but 3 from 4 can.
func.func @broadcast(%x: tensor<?x3xf32> {koila.dims = #koila.dims<[B, 3]>}, %y: tensor<?x4xf32> {koila.dims = #koila.dims<[S, 4]>}) {
  %0 = koila.relu %x : (tensor<?x3xf32>) -> tensor<*x!koila.any>
  // expected-error @below {{cannot broadcast extents 3 and 4 in dim 1}}
  %1 = koila.mul_Tensor %0, %y : (tensor<*x!koila.any>, tensor<?x4xf32>) -> tensor<*x!koila.any>
  return
}

// -----

// Inside a loop as well.
func.func @loop(%x: tensor<2x3xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = koila.relu %x : (tensor<2x3xf32>) -> tensor<*x!koila.any>
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @below {{dim 2 is out of range for rank 2}}
    %1 = koila.softmax_int %0 {dim = 2} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
  }
  return
}

// -----

// B rows do not fit into one; a written tensor keeps its shape.
func.func @written(%x: tensor<?x8xf32> {koila.dims = #koila.dims<[B, 8]>}, %y: tensor<1x8xf32>) {
  // expected-error @below {{the broadcast shape does not fit the tensor that is written in place}}
  %0 = koila.mul_Tensor tied %y, %x : (tensor<1x8xf32>, tensor<?x8xf32>) -> tensor<1x8xf32>
  return
}

// -----

// In a file the operation stands in a library: the note says what was given.
module attributes {koila.archive = #koila.archive<path = "m.pt", fingerprint = "ab12", function = "forward">} {
  // expected-note @below {{for the arguments of 'archive', which --input describes: 'x' is 'tensor<2x3xf32>', 'w' is 'tensor<5x4xf32>'}}
  func.func @archive(%x: tensor<2x3xf32> {koila.name = "x"}, %w: tensor<5x4xf32> {koila.name = "w"}) {
    %0 = koila.relu %x : (tensor<2x3xf32>) -> tensor<*x!koila.any>
    // expected-error @below {{the weight takes 4 features, the input has 3}}
    %1 = koila.linear %0, %w : (tensor<*x!koila.any>, tensor<5x4xf32>) -> tensor<*x!koila.any>
    return
  }
}

// -----

// A loss has one element, unless its gradient is given.
func.func @loss_of_vector(%x: tensor<3xf32>) {
  // expected-error @below {{the loss has extent 3; only of one element there is a gradient; name a loss of it, for example loss=cross_entropy}}
  koila.backward %x {create_graph = false} : (tensor<3xf32>) -> ()
  return
}

// -----

func.func @loss_of_integers(%x: tensor<i64>) {
  // expected-error @below {{a gradient of 'i64'}}
  koila.backward %x {create_graph = false} : (tensor<i64>) -> ()
  return
}

// -----

func.func @other_rank(%x: tensor<3xf32>, %gradient: tensor<1x3xf32>) {
  // expected-error @below {{a gradient of rank 2 for a tensor of rank 1}}
  koila.backward %x, %gradient {create_graph = false} : (tensor<3xf32>, tensor<1x3xf32>) -> ()
  return
}

// -----

// Types have no strides; the analysis has: only a reshape copies.
func.func @view_strides(%x: tensor<2x3xf32>) {
  %t = koila.t %x : (tensor<2x3xf32>) -> tensor<3x2xf32>
  // expected-error @below {{the strides of the operand do not allow a view of these sizes; a reshape would copy}}
  %0 = koila.view %t {size = array<i64: 6>} : (tensor<3x2xf32>) -> tensor<*x!koila.any>
  return
}

// -----

// No call is described by what contradicts itself.
func.func @both(%x: tensor<?xf32>) {
  // expected-note @below {{the other is here}}
  koila.assume extent %x : tensor<?xf32> [0] is #koila.expr<3>
  // expected-error @below {{'extent' cannot be both #koila.expr<5> and #koila.expr<3>}}
  koila.assume extent %x : tensor<?xf32> [0] is #koila.expr<5>
  return
}

// -----

func.func @dims(%x: tensor<?xf32> {koila.dims = #koila.dims<[2*B]>}) {
  // expected-error @below {{says that dim 0 of argument 0 is 5, 'koila.dims' has 2*B}}
  koila.assume extent %x : tensor<?xf32> [0] is #koila.expr<5>
  return
}
