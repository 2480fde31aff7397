// RUN: koila-opt %s --koila-peak-memory="threads=1 mode=forward-with-grad" -o /dev/null 2>&1 | FileCheck %s

// A block without operations has no terminator that a gradient could go through.

// CHECK: peak 16 bytes, not exact
// CHECK: not exact: scf.forall, {{.*}}: its iterations may run at the same time
module {
  koila.param @w : tensor<4xf32> keys ["w"] strides [1] requires_grad
  func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
    %w = koila.param.get @w : tensor<4xf32>
    %0 = koila.mul_Tensor %x, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    scf.forall (%i) in (4) {
    }
    return %0 : tensor<4xf32>
  }
}
