// RUN: koila-opt %s -split-input-file --allow-unregistered-dialect --koila-infer-shapes | FileCheck %s

// Operations of other dialects tie their types to operands, attributes or
// callees: what is inferred stops there where it would not fit.

// The sizes are operands, so that the types keep their `?`; what is made of the
// tensors is known.
// CHECK-LABEL: func.func @sizes
// CHECK: tensor.empty(%{{.*}}) : tensor<?xf32>
// CHECK: tensor.extract_slice %{{.*}} : tensor<64xf32> to tensor<?xf32>
// CHECK: koila.add_Tensor {{.*}} : (tensor<?xf32>, tensor<?xf32>) -> tensor<5xf32>
// CHECK: tensor.insert_slice {{.*}} : tensor<5xf32> into tensor<?xf32>
func.func @sizes(%x: tensor<64xf32>) -> tensor<?xf32> {
  %c5 = arith.constant 5 : index
  %0 = tensor.empty(%c5) : tensor<?xf32>
  %1 = tensor.extract_slice %x[0] [%c5] [1] : tensor<64xf32> to tensor<?xf32>
  %2 = koila.add_Tensor %0, %1 {alpha = 1 : i64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<*x!koila.any>
  %3 = koila.refine %2 : tensor<*x!koila.any> to tensor<5xf32>
  %4 = tensor.insert_slice %3 into %0[0] [5] [1] : tensor<5xf32> into tensor<?xf32>
  return %4 : tensor<?xf32>
}

// -----

// A callee has the types that it declares.
// CHECK-LABEL: func.func @calls
// CHECK: %[[R:.*]] = koila.relu {{.*}} -> tensor<4xf32>
// CHECK: %[[OLD:.*]] = koila.refine %[[R]] : tensor<4xf32> to tensor<*x!koila.any>
// CHECK: call @callee(%[[OLD]]) : (tensor<*x!koila.any>) -> ()
// CHECK: return %[[R]] : tensor<4xf32>
func.func private @callee(tensor<*x!koila.any>)
func.func @calls(%x: tensor<4xf32>) -> tensor<*x!koila.any> {
  %0 = koila.relu %x : (tensor<4xf32>) -> tensor<*x!koila.any>
  func.call @callee(%0) : (tensor<*x!koila.any>) -> ()
  return %0 : tensor<*x!koila.any>
}

// -----

// The result of a loop over slices is what is shared with it.
// CHECK-LABEL: func.func @shared
// CHECK: scf.forall {{.*}} -> (tensor<?xf32>)
func.func @shared(%x: tensor<4xf32>) -> tensor<?xf32> {
  %c5 = arith.constant 5 : index
  %0 = tensor.empty(%c5) : tensor<?xf32>
  %1 = scf.forall (%i) in (4) shared_outs(%o = %0) -> tensor<?xf32> {
    %2 = koila.relu %x : (tensor<4xf32>) -> tensor<*x!koila.any>
  }
  return %1 : tensor<?xf32>
}

// -----

// Not every function ends with a return.
// CHECK-LABEL: func.func @ends() -> tensor<4xf32>
func.func @ends() -> tensor<4xf32> {
  "foreign.end"() : () -> ()
}

// -----

// What koila does not know of an argument, it leaves to others.
// CHECK-LABEL: func.func @elements
// CHECK: koila.assume dtype %arg0 : tensor<4xi7> is i7
func.func @elements(%x: tensor<4xi7> {koila.dims = #koila.dims<[4]>}) {
  return
}
