// RUN: not koila-opt %s --koila-verify-stage=stage=inferred 2>&1 | FileCheck %s

// What the analysis of a stage finds contradictory fails the stage.

// CHECK: :[[#@LINE+6]]:8: error: 'koila.refine' op states rank 1 for a tensor of rank 2
func.func @forward(%x: tensor<2x4xf32>, %c: i1) {
  scf.if %c {
    scf.yield
  }
  %0 = koila.refine %x : tensor<2x4xf32> to tensor<*x!koila.any>
  %1 = koila.refine %0 : tensor<*x!koila.any> to tensor<8xf32>
  return
}
