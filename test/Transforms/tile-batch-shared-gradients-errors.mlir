// RUN: not koila-opt %s --koila-tile-batch='mode=train tile=1' 2>&1 | FileCheck %s
// CHECK: error: cannot tile the training step: gradients of what branches read would share memory with others

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @a : tensor<5xf32> keys ["a"] strides [1] requires_grad
  koila.param @b : tensor<5xf32> keys ["b"] strides [1] requires_grad
  koila.param @w : tensor<5x5xf32> keys ["w"] strides [5, 1] requires_grad

  // The first is read in a branch.
  func.func @forward(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}, %flag: i1) -> tensor<f32> {
    %a = koila.param.get @a : tensor<5xf32>
    %b = koila.param.get @b : tensor<5xf32>
    %w = koila.param.get @w : tensor<5x5xf32>
    %c = scf.if %flag -> (tensor<?x5xf32>) {
      %rowa = koila.unsqueeze %a {dim = 0 : i64} : (tensor<5xf32>) -> tensor<1x5xf32>
      %sum = koila.add_Tensor %x, %rowa {alpha = 1 : i64} : (tensor<?x5xf32>, tensor<1x5xf32>) -> tensor<?x5xf32>
      scf.yield %sum : tensor<?x5xf32>
    } else {
      scf.yield %x : tensor<?x5xf32>
    }
    %rowb = koila.unsqueeze %b {dim = 0 : i64} : (tensor<5xf32>) -> tensor<1x5xf32>
    %d = koila.add_Tensor %c, %rowb {alpha = 1 : i64} : (tensor<?x5xf32>, tensor<1x5xf32>) -> tensor<?x5xf32>
    %e = koila.linear %d, %w : (tensor<?x5xf32>, tensor<5x5xf32>) -> tensor<?x5xf32>
    %f = koila.tanh %e : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %g = koila.sum %f : (tensor<?x5xf32>) -> tensor<f32>
    koila.backward %g {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %g : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
