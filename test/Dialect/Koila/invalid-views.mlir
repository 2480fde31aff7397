// RUN: koila-opt %s -split-input-file -verify-diagnostics

// Sizes of views, and tensors that are joined, that PyTorch refuses.

func.func @expand_rank(%x: tensor<2x6xf32>) {
  // expected-error @below {{has 1 sizes for an operand of rank 2}}
  %0 = koila.expand %x {implicit = false, size = array<i64: 6>} : (tensor<2x6xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @expand_inferred(%x: tensor<6xf32>) {
  // expected-error @below {{size -1 in dim 0, which the operand has not}}
  %0 = koila.expand %x {implicit = false, size = array<i64: -1, 6>} : (tensor<6xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @view_anything(%x: tensor<0x3xf32>) {
  // expected-error @below {{a size of -1 beside one of 0 can be anything}}
  %0 = koila.view %x {size = array<i64: -1, 0>} : (tensor<0x3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @unflatten(%x: tensor<6xf32>) {
  // expected-error @below {{has no sizes}}
  %0 = koila.unflatten_int %x {dim = 0 : i64, sizes = array<i64>} : (tensor<6xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @cat_rank(%x: tensor<2x3xf32>, %y: tensor<3xf32>) {
  // expected-error @below {{cannot join tensors of rank 2 and 1}}
  %0 = koila.cat %x, %y {dim = 0 : i64} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @cat_extent(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>) {
  // expected-error @below {{joined tensors have extents 3 and 4 in dim 1}}
  %0 = koila.cat %x, %y {dim = 0 : i64} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @cat_scalars(%x: tensor<f32>, %y: tensor<f32>) {
  // expected-error @below {{cannot join tensors without dims}}
  %0 = koila.cat %x, %y {dim = 0 : i64} : (tensor<f32>, tensor<f32>) -> tensor<*x!koila.any>
  return
}

// -----

func.func @stack_shapes(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>) {
  // expected-error @below {{stacks tensors of different shapes}}
  %0 = koila.stack %x, %y {dim = 0 : i64} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<*x!koila.any>
  return
}
