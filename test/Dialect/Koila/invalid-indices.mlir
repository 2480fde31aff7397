// RUN: koila-opt %s -split-input-file -verify-diagnostics

// Indices, and what is written where they point, that PyTorch refuses.

func.func @index_type(%x: tensor<4x4xf32>, %i: tensor<2xf32>) {
  // expected-error @below {{takes indices of int64 or int32, got 'f32'}}
  %0 = koila.index_select %x, %i {dim = 0 : i64} : (tensor<4x4xf32>, tensor<2xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @gather_type(%x: tensor<4x4xf32>, %i: tensor<2x4xi16>) {
  // expected-error @below {{takes indices of int64 or int32, got 'i16'}}
  %0 = koila.gather %x, %i {dim = 0 : i64, sparse_grad = false} : (tensor<4x4xf32>, tensor<2x4xi16>) -> tensor<*xf32>
  return
}

// -----

func.func @no_rows(%x: tensor<0x4xf32>, %i: tensor<2xi64>) {
  // expected-error @below {{selects 2 rows of a dim that has none}}
  %0 = koila.index_select %x, %i {dim = 0 : i64} : (tensor<0x4xf32>, tensor<2xi64>) -> tensor<*xf32>
  return
}

// -----

func.func @written_type(%x: tensor<4x4xf32>, %i: tensor<2xi64>, %y: tensor<2x4xf64>) {
  // expected-error @below {{writes 'f64' into 'f32'}}
  %0 = koila.index_add %x, %i, %y {dim = 0 : i64, alpha = 1 : i64} : (tensor<4x4xf32>, tensor<2xi64>, tensor<2x4xf64>) -> tensor<*xf32>
  return
}

// -----

func.func @expand_rank(%x: tensor<4x4xf32>, %m: tensor<2x4x4xi1>, %y: tensor<4xf32>) {
  // expected-error @below {{rank 3 does not broadcast to rank 2}}
  %0 = koila.masked_scatter %x, %m, %y {tied} : (tensor<4x4xf32>, tensor<2x4x4xi1>, tensor<4xf32>) -> tensor<4x4xf32>
  return
}
