// RUN: koila-opt %s -split-input-file -verify-diagnostics

// What operations and attributes refuse, one program each.

//===----------------------------------------------------------------------===//
// Attributes of modules and arguments
//===----------------------------------------------------------------------===//

// expected-error @below {{symbol 'B' is listed twice}}
module attributes {koila.symbols = [#koila.symbol<name = "B">, #koila.symbol<name = "B">]} {}

// -----

// expected-error @below {{more than one symbol is the batch}}
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>, #koila.symbol<name = "S", batch = true>]} {}

// -----

// expected-error @below {{'koila.symbols' holds 3 : i64, expected #koila.symbol}}
module attributes {koila.symbols = [3]} {}

// -----

// expected-error @below {{'koila.symbols' is an array of #koila.symbol on a module}}
func.func private @symbols() attributes {koila.symbols = []}

// -----

// expected-error @below {{'koila.training' is true or false}}
module attributes {koila.training = "no"} {}

// -----

// expected-error @below {{'koila.archive' is a #koila.archive}}
module attributes {koila.archive = "model.pt"} {}

// -----

// expected-error @below {{'koila.report' is a string}}
module attributes {koila.report = 3} {}

// -----

func.func @reads(%x: tensor<4xf32>) {
  // expected-error @below {{'koila.reads' is a unit attribute}}
  %0 = koila.relu %x {koila.reads = false} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// expected-error @below {{'koila.tiled' needs tile, guard and batch_symbol}}
func.func private @tiled() attributes {koila.tiled = {tile = 0 : i64, guard = "warn", batch_symbol = "B"}}

// -----

// expected-error @below {{argument 1: 'koila.dims' has 1 dims, the type has 2}}
func.func private @dims(i64, tensor<?x4xf32> {koila.dims = #koila.dims<[B]>})

// -----

// expected-error @below {{argument 0: dim 0 is 5 in 'koila.dims' and 4 in the type}}
func.func private @dims(tensor<4xf32> {koila.dims = #koila.dims<[5]>})

// -----

// expected-error @below {{argument 0: extent -5 of dim 0 is negative}}
func.func private @dims(tensor<?xf32> {koila.dims = #koila.dims<[0 - 5]>})

// -----

// expected-error @below {{argument 0: 'koila.dims' is a #koila.dims on a ranked tensor}}
func.func private @dims(tensor<*xf32> {koila.dims = #koila.dims<[5]>})

// -----

// expected-error @below {{argument 0: 'koila.name' is a string}}
func.func private @name(tensor<4xf32> {koila.name = 3})

// -----

// expected-error @below {{argument 0: 'koila.range' is a #koila.range}}
func.func private @range(tensor<4xi64> {koila.range = [0, 3]})

// -----

// expected-error @below {{symbol 'B' has value 5 outside its range}}
func.func private @symbol() attributes {a = #koila.symbol<name = "B", value = 5, lower = 6>}

// -----

// expected-error @below {{symbol 'B' has an empty range}}
func.func private @symbol() attributes {a = #koila.symbol<name = "B", lower = 6, upper = 5>}

// -----

// expected-error @below {{symbol 'B' has a negative value or bound}}
func.func private @symbol() attributes {a = #koila.symbol<name = "B", lower = -1>}

// -----

// expected-error @below {{a symbol needs a name}}
func.func private @symbol() attributes {a = #koila.symbol<name = "">}

// -----

// expected-error @below {{unknown function 'pow', expected floordiv, mod, min, max or broadcast}}
func.func private @expr() attributes {a = #koila.expr<pow(B, 2)>}

// -----

//===----------------------------------------------------------------------===//
// Weights, refinement, assumptions, the opaque operator
//===----------------------------------------------------------------------===//

// expected-error @below {{needs a static tensor type, got 'tensor<?xf32>'}}
koila.param @w : tensor<?xf32> keys ["w"] strides [1]

// -----

// expected-error @below {{has 1 strides for rank 2}}
koila.param @w : tensor<2x3xf32> keys ["w"] strides [1]

// -----

func.func @unknown_weight() {
  // expected-error @below {{'w' names no koila.param of this module}}
  %0 = koila.param.get @w : tensor<4xf32>
  return
}

// -----

koila.param @w : tensor<4xf32> keys ["w"] strides [1]
func.func @other_type() {
  // expected-error @below {{has type 'tensor<5xf32>', but 'w' is 'tensor<4xf32>'}}
  %0 = koila.param.get @w : tensor<5xf32>
  return
}

// -----

func.func @refine_element(%x: tensor<*xf32>) {
  // expected-error @below {{cannot turn element type 'f32' into 'f64'}}
  %0 = koila.refine %x : tensor<*xf32> to tensor<*xf64>
  return
}

// -----

func.func @refine_rank(%x: tensor<2xf32>) {
  // expected-error @below {{cannot turn 'tensor<2xf32>' into 'tensor<2x1xf32>'}}
  %0 = koila.refine %x : tensor<2xf32> to tensor<2x1xf32>
  return
}

// -----

func.func @assume_value() {
  // expected-error @below {{'rank' needs a value}}
  koila.assume rank is 2
  return
}

// -----

func.func @assume_training(%x: tensor<f32>) {
  // expected-error @below {{'training' takes no value}}
  koila.assume training %x : tensor<f32> is true
  return
}

// -----

func.func @assume_tensor(%n: i64) {
  // expected-error @below {{'rank' needs a tensor}}
  koila.assume rank %n : i64 is 2
  return
}

// -----

func.func @assume_path() {
  // expected-error @below {{a path belongs to 'attribute', and only to it}}
  koila.assume training "layer1.inplace" is true
  return
}

// -----

func.func @assume_no_path() {
  // expected-error @below {{a path belongs to 'attribute', and only to it}}
  koila.assume attribute is true
  return
}

// -----

func.func @assume_dim(%x: tensor<4xf32>) {
  // expected-error @below {{a dim belongs to 'extent', and only to it}}
  koila.assume extent %x : tensor<4xf32> is #koila.expr<4>
  return
}

// -----

func.func @assume_kind(%x: tensor<4xf32>) {
  // expected-error @below {{'dtype' cannot be 4 : i64}}
  koila.assume dtype %x : tensor<4xf32> is 4
  return
}

// -----

func.func @opaque_name() {
  // expected-error @below {{'relu' is no qualified operator name}}
  koila.torch_op "relu"() args [] effects none : () -> ()
  return
}

// -----

func.func @opaque_operand(%x: tensor<4xf32>) {
  // expected-error @below {{argument #koila.operand<1> of 1 operands}}
  koila.torch_op "aten::foo"(%x) args [[#koila.operand<1>]] effects none : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @custom_name() {
  // expected-error @below {{'relu' is no qualified operator name}}
  koila.custom_op "relu"() args [] : () -> ()
  return
}

// -----

func.func @custom_operand(%x: tensor<4xf32>) {
  // expected-error @below {{argument #koila.operand<1> of 1 operands}}
  koila.custom_op "mylib::op"(%x) args [#koila.operand<1>] : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @opaque_aliases(%x: tensor<4xf32>) {
  // expected-error @below {{has 1 alias entries for 0 results}}
  koila.torch_op "aten::foo"(%x) args [#koila.operand<0>] effects none aliases [[0]] : (tensor<4xf32>) -> ()
  return
}

// -----

// An alias entry is a list of operand numbers.
func.func @opaque_alias_kind(%x: tensor<4xf32>) {
  // expected-error @below {{has an alias entry ["x"] that is no list of operand indices}}
  %0 = koila.torch_op "aten::foo"(%x) args [#koila.operand<0>] effects none aliases [["x"]] : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Operands that PyTorch refuses
//===----------------------------------------------------------------------===//

func.func @broadcast(%x: tensor<3xf32>, %y: tensor<2x4xf32>) {
  // expected-error @below {{cannot broadcast extents 3 and 4 in dim 1}}
  %0 = koila.mul_Tensor %x, %y : (tensor<3xf32>, tensor<2x4xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @result_extent(%x: tensor<3xf32>) {
  // expected-error @below {{has result extent 4 in dim 0, the operands give 3}}
  %0 = koila.relu %x : (tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @result_rank(%x: tensor<3xf32>) {
  // expected-error @below {{has a result of rank 2, the operands give rank 1}}
  %0 = koila.relu %x : (tensor<3xf32>) -> tensor<3x1xf32>
  return
}

// -----

func.func @result_element(%x: tensor<3xf32>) {
  // expected-error @below {{has result element type 'f64', the operands give 'f32'}}
  %0 = koila.relu %x : (tensor<3xf32>) -> tensor<3xf64>
  return
}

// -----

func.func @refused_element(%x: tensor<3xcomplex<f32>>) {
  // expected-error @below {{is not defined for elements of type 'complex<f32>'}}
  %0 = koila.special_entr %x : (tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
  return
}

// -----

func.func @linear(%x: tensor<2x3xf32>, %w: tensor<5x4xf32>) {
  // expected-error @below {{the weight takes 4 features, the input has 3}}
  %0 = koila.linear %x, %w : (tensor<2x3xf32>, tensor<5x4xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @linear_scalar(%x: tensor<f32>, %w: tensor<5x4xf32>) {
  // expected-error @below {{expects an operand of rank 1 or more}}
  %0 = koila.linear %x, %w : (tensor<f32>, tensor<5x4xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @addmm(%s: tensor<f32>, %x: tensor<2x3xf32>, %w: tensor<4x5xf32>) {
  // expected-error @below {{cannot multiply 3 columns with 4 rows}}
  %0 = koila.addmm %s, %x, %w {alpha = 1, beta = 1} : (tensor<f32>, tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @conv_channels(%x: tensor<1x3x8x8xf32>, %w: tensor<6x2x3x3xf32>) {
  // expected-error @below {{the weight takes 4 channels, the input has 3}}
  %0 = koila.conv2d %x, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 2} : (tensor<1x3x8x8xf32>, tensor<6x2x3x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @conv_kernel(%x: tensor<1x3x2x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{the kernel is larger than the padded input in spatial dim 0}}
  %0 = koila.conv2d %x, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<1x3x2x8xf32>, tensor<6x3x3x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @conv_stride(%x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{stride 0 is below 1}}
  %0 = koila.conv2d %x, %w {stride = array<i64: 0>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @conv_rank(%x: tensor<8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{expects an input of rank 4 (or 3 without batch), got 2}}
  %0 = koila.conv2d %x, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @pool_padding(%x: tensor<1x3x8x8xf32>) {
  // expected-error @below {{padding 2 is more than half of kernel_size 2}}
  %0 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64>, padding = array<i64: 2>, dilation = array<i64: 1>} : (tensor<1x3x8x8xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @pool_window(%x: tensor<1x3x2x2xf32>) {
  // expected-error @below {{the window is larger than the padded input in spatial dim 0}}
  %0 = koila.max_pool2d %x {kernel_size = array<i64: 3>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>} : (tensor<1x3x2x2xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @adaptive(%x: tensor<1x3x2x2xf32>) {
  // expected-error @below {{output_size -1 is negative}}
  %0 = koila.adaptive_avg_pool2d %x {output_size = array<i64: 1, -1>} : (tensor<1x3x2x2xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @batch_norm(%x: tensor<1x3x2x2xf32>, %v: tensor<4xf32>) {
  // expected-error @below {{normalises 3 channels with a vector for 4}}
  %0 = koila.batch_norm %x running_mean %v running_var %v {training = false, momentum = 0.1 : f64, eps = 1.0e-5 : f64, cudnn_enabled = true} : (tensor<1x3x2x2xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @layer_norm(%x: tensor<2x3xf32>) {
  // expected-error @below {{normalises extent 4, the input has 3}}
  %0 = koila.layer_norm %x {normalized_shape = array<i64: 4>} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @softmax_dim(%x: tensor<2x3xf32>) {
  // expected-error @below {{dim -3 is out of range for rank 2}}
  %0 = koila.softmax_int %x {dim = -3} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @softmax_dtype(%x: tensor<2x3xf32>) {
  // expected-error @below {{dtype code 99 is unknown}}
  %0 = koila.softmax_int %x {dim = 0, dtype = 99} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @mean_twice(%x: tensor<2x3xf32>) {
  // expected-error @below {{a dim is out of range for rank 2, or given twice}}
  %0 = koila.mean_dim %x {dim = array<i64: 1, -1>} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @mean_integers(%x: tensor<2x3xi64>) {
  // expected-error @below {{mean of integers needs a floating-point dtype}}
  %0 = koila.mean_dim %x : (tensor<2x3xi64>) -> tensor<*xf32>
  return
}

// -----

func.func @flatten_order(%x: tensor<2x3xf32>) {
  // expected-error @below {{start_dim 1 comes after end_dim 0}}
  %0 = koila.flatten_using_ints %x {start_dim = 1 : i64, end_dim = 0 : i64} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @view_count(%x: tensor<2x3xf32>) {
  // expected-error @below {{sizes hold 8 elements, the operand has 6}}
  %0 = koila.view %x {size = array<i64: 8>} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @view_split(%x: tensor<2x3xf32>) {
  // expected-error @below {{cannot split 6 elements into groups of 4}}
  %0 = koila.view %x {size = array<i64: -1, 4>} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @view_two(%x: tensor<2x3xf32>) {
  // expected-error @below {{only one size can be -1}}
  %0 = koila.view %x {size = array<i64: -1, -1>} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @view_dynamic(%x: tensor<2x3xf32>) {
  // expected-error @below {{has no operand for a computed element of "size"}}
  %0 = koila.view %x {size = array<i64: -9223372036854775808>} : (tensor<2x3xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @view_more(%x: tensor<2x3xf32>, %n: i64) {
  // expected-error @below {{has more dynamic sizes than its list says}}
  %0 = koila.view %x sizes(%n) {size = array<i64: 6>} : (tensor<2x3xf32>, i64) -> tensor<*xf32>
  return
}

// -----

func.func @size_scalar(%x: tensor<f32>) {
  // expected-error @below {{dim 0 is out of range for rank 0}}
  %0 = koila.size_int %x {dim = 0} : (tensor<f32>) -> i64
  return
}

// -----

// A tie needs a result that fits into the operand.
func.func @tied_element(%x: tensor<4xi8>) {
  // expected-error @below {{result type 'f32' cannot be written into 'i8' in place}}
  %0 = koila.sqrt tied %x : (tensor<4xi8>) -> tensor<4xf32>
  return
}

// -----

// A tie needs a result that fits: a broadcast makes a larger one.
func.func @tied_broadcast(%x: tensor<4x8xf32>, %e: tensor<1x8xf32>) {
  // expected-error @below {{the broadcast shape does not fit the tensor that is written in place}}
  %0 = koila.mul_Tensor tied %e, %x : (tensor<1x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

// Of integers there is no gradient.
func.func @leaf_of_integers(%x: tensor<4xi64>) {
  // expected-error @below {{a gradient of 'i64'}}
  %0 = koila.leaf %x : (tensor<4xi64>) -> tensor<4xi64>
  return
}

// -----

// Of other tensors no backward pass leaves one.
func.func @gradient_of_no_leaf(%x: tensor<4xf32>) {
  // expected-error @below {{reads the gradient of what is no koila.leaf}}
  %0 = koila.leaf.grad %x : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// What no tensor of PyTorch is
//===----------------------------------------------------------------------===//

func.func @axis(%x: tensor<?xf32>) {
  // expected-error @below {{speaks of dim 5 of 'tensor<?xf32>'}}
  koila.assume extent %x : tensor<?xf32> [5] is #koila.expr<3>
  return
}

// -----

func.func @extent(%x: tensor<4xf32>) {
  // expected-error @below {{'extent' cannot be #koila.expr<3> of 'tensor<4xf32>'}}
  koila.assume extent %x : tensor<4xf32> [0] is #koila.expr<3>
  return
}

// -----

func.func @rank(%x: tensor<?xf32>) {
  // expected-error @below {{'rank' cannot be 4 : i64 of 'tensor<?xf32>'}}
  koila.assume rank %x : tensor<?xf32> is 4
  return
}

// -----

func.func @dtype(%x: tensor<*x!koila.any>) {
  // expected-error @below {{'dtype' cannot be tuple<f32> of 'tensor<*x!koila.any>'}}
  koila.assume dtype %x : tensor<*x!koila.any> is tuple<f32>
  return
}

// -----

func.func @keys(%x: !koila.any) {
  // expected-error @below {{'value' cannot be {keys = ["a", "a"], values = [1, 2]}}}
  koila.assume value %x : !koila.any is {keys = ["a", "a"], values = [1, 2]}
  return
}

// -----

// expected-error @below {{has the negative stride -1}}
koila.param @stride : tensor<4x4xf32> keys ["w"] strides [-1, 4]

// -----

// expected-error @below {{has the key "w" twice}}
koila.param @key : tensor<4xf32> keys ["w", "w"] strides [1]

// -----

// expected-error @below {{has type 'tensor<4xi7>', whose bytes koila does not know}}
koila.param @type : tensor<4xi7> keys ["w"] strides [1]

// -----

func.func @element(%x: tensor<4xvector<4xf32>>) {
  // expected-error @below {{takes or makes 'tensor<4xvector<4xf32>>', of whose elements koila knows nothing}}
  %0 = koila.relu %x : (tensor<4xvector<4xf32>>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @encoding(%x: tensor<4xf32, "sparse">) {
  // expected-error @below {{takes or makes 'tensor<4xf32, "sparse">', and PyTorch's tensors have no encoding}}
  %0 = koila.relu %x : (tensor<4xf32, "sparse">) -> tensor<*x!koila.any>
  return
}

// -----

// expected-error @below {{argument 0: 'koila.range' is the empty range #koila.range<5:5>}}
func.func private @range(i64 {koila.range = #koila.range<5:5>})

// -----

// expected-error @below {{an expression is nested more than 100 times}}
func.func private @deep(tensor<?xf32> {koila.dims = #koila.dims<[((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((B))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))]>})

// -----

func.func @computed(%x: tensor<2x8x9x9xf32>, %w: tensor<8x1x3x3xf32>) {
  // expected-error @below {{has no operand for a computed element of "dilation"}}
  %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: -9223372036854775808, 1>, groups = 8 : i64} : (tensor<2x8x9x9xf32>, tensor<8x1x3x3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @nested_rank(%x: tensor<2x5xf32>, %m: tensor<2x5xi1>) {
  // expected-error @below {{expects sequences of rank 3, got 2}}
  %0 = koila._nested_tensor_from_mask %x, %m {mask_check = false} : (tensor<2x5xf32>, tensor<2x5xi1>) -> tensor<*xf32>
  return
}

// -----

func.func @nested_mask_rank(%x: tensor<2x5x8xf32>, %m: tensor<5xi1>) {
  // expected-error @below {{expects a mask of rank 2, got 1}}
  %0 = koila._nested_tensor_from_mask %x, %m {mask_check = false} : (tensor<2x5x8xf32>, tensor<5xi1>) -> tensor<*xf32>
  return
}

// -----

func.func @nested_mask_type(%x: tensor<2x5x8xf32>, %m: tensor<2x5xf32>) {
  // expected-error @below {{expects a mask of type bool}}
  %0 = koila._nested_tensor_from_mask %x, %m {mask_check = false} : (tensor<2x5x8xf32>, tensor<2x5xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @nested_mask(%x: tensor<2x5x8xf32>, %m: tensor<2x4xi1>) {
  // expected-error @below {{a mask of 2 rows and 4 columns does not fit}}
  %0 = koila._nested_tensor_from_mask %x, %m {mask_check = false} : (tensor<2x5x8xf32>, tensor<2x4xi1>) -> tensor<*xf32>
  return
}

// -----

func.func @padded(%x: tensor<2x5x8xf32>) {
  // expected-error @below {{expects a nested tensor}}
  %0 = koila.to_padded_tensor %x {padding = 0.0 : f64} : (tensor<2x5x8xf32>) -> tensor<*xf32>
  return
}
