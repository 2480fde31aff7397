// A node of the graph that adds to the gradient of a leaf has the leaf: it lives as long as a tensor
// that was made of it, here until the loss is detached. The gradient has 512 bytes, what is made of
// two of them 1,024, and the loss 4; the leaf has 512 more. Source: AccumulateGrad, and measured
// with a program that reads a loss behind its backward pass.
//
// RUN: koila-opt %s --split-input-file --koila-peak-memory='mode=train threads=1 isa=avx2' -o /dev/null 2>&1 | FileCheck %s

// CHECK: memory of 'early'
// CHECK-NEXT: peak 1.50 KiB (1,540 bytes)
// CHECK-NEXT: at koila.cat
module {
  koila.param @w : tensor<32x4xf32> keys ["w"] strides [4, 1] requires_grad

  func.func @early(%x: tensor<32x4xf32>) -> (tensor<f32>, tensor<64x4xf32>) {
    %w = koila.param.get @w : tensor<32x4xf32>
    %d = koila.detach %w : (tensor<32x4xf32>) -> tensor<32x4xf32>
    %h = koila.add_Tensor %x, %d {alpha = 1 : i64} : (tensor<32x4xf32>, tensor<32x4xf32>) -> tensor<32x4xf32>
    %l = koila.leaf %h : (tensor<32x4xf32>) -> tensor<32x4xf32>
    %e = koila.mean %l : (tensor<32x4xf32>) -> tensor<f32>
    %loss = koila.detach %e : (tensor<f32>) -> tensor<f32>
    koila.backward %e {create_graph = false} : (tensor<f32>) -> ()
    %g = koila.leaf.grad %l : (tensor<32x4xf32>) -> tensor<32x4xf32>
    %c = koila.cat %g, %g {dim = 0 : i64} : (tensor<32x4xf32>, tensor<32x4xf32>) -> tensor<64x4xf32>
    return %loss, %c : tensor<f32>, tensor<64x4xf32>
  }
}

// -----

// CHECK: memory of 'late'
// CHECK-NEXT: peak 2.00 KiB (2,052 bytes)
// CHECK-NEXT: at koila.cat
// CHECK: 512 bytes activation add_Tensor
module {
  koila.param @w : tensor<32x4xf32> keys ["w"] strides [4, 1] requires_grad

  func.func @late(%x: tensor<32x4xf32>) -> (tensor<f32>, tensor<64x4xf32>) {
    %w = koila.param.get @w : tensor<32x4xf32>
    %d = koila.detach %w : (tensor<32x4xf32>) -> tensor<32x4xf32>
    %h = koila.add_Tensor %x, %d {alpha = 1 : i64} : (tensor<32x4xf32>, tensor<32x4xf32>) -> tensor<32x4xf32>
    %l = koila.leaf %h : (tensor<32x4xf32>) -> tensor<32x4xf32>
    %e = koila.mean %l : (tensor<32x4xf32>) -> tensor<f32>
    koila.backward %e {create_graph = false} : (tensor<f32>) -> ()
    %g = koila.leaf.grad %l : (tensor<32x4xf32>) -> tensor<32x4xf32>
    %c = koila.cat %g, %g {dim = 0 : i64} : (tensor<32x4xf32>, tensor<32x4xf32>) -> tensor<64x4xf32>
    %loss = koila.detach %e : (tensor<f32>) -> tensor<f32>
    return %loss, %c : tensor<f32>, tensor<64x4xf32>
  }
}

// -----

// A gradient that is given to a leaf itself is copied, since the program has it, too; the next is
// added in place: the leaf, the copy and the two that are given have 512 bytes each.

// CHECK: memory of 'given'
// CHECK-NEXT: peak 2.00 KiB (2,048 bytes)
// CHECK-NOT: not exact
module {
  koila.param @w : tensor<32x4xf32> keys ["w"] strides [4, 1] requires_grad

  func.func @given(%x: tensor<32x4xf32>) -> tensor<32x4xf32> {
    %w = koila.param.get @w : tensor<32x4xf32>
    %d = koila.detach %w : (tensor<32x4xf32>) -> tensor<32x4xf32>
    %h = koila.add_Tensor %x, %d {alpha = 1 : i64} : (tensor<32x4xf32>, tensor<32x4xf32>) -> tensor<32x4xf32>
    %l = koila.leaf %h : (tensor<32x4xf32>) -> tensor<32x4xf32>
    %g1 = koila.relu %x : (tensor<32x4xf32>) -> tensor<32x4xf32>
    %g2 = koila.tanh %x : (tensor<32x4xf32>) -> tensor<32x4xf32>
    koila.backward %l, %g1 {create_graph = false} : (tensor<32x4xf32>, tensor<32x4xf32>) -> ()
    koila.backward %l, %g2 {create_graph = false} : (tensor<32x4xf32>, tensor<32x4xf32>) -> ()
    %g = koila.leaf.grad %l : (tensor<32x4xf32>) -> tensor<32x4xf32>
    return %g : tensor<32x4xf32>
  }
}
