// What segments keep depends on the budget: with room for all nothing is computed again but
// what lies between operators for gradients, with less more of it, and below the least of two
// plans that no budget changes the step is refused with that figure, which works.
// 
// RUN: koila-opt %s --koila-tile-batch='mode=train budget=5100 threads=1 isa=avx2' --batch B=64 --remark-format=emitRemark --remarks-filter=koila-tile-batch -o /dev/null 2>&1 | FileCheck %s --check-prefix=ROOM
// RUN: koila-opt %s --koila-tile-batch='mode=train budget=3000 threads=1 isa=avx2' --batch B=64 --remark-format=emitRemark --remarks-filter=koila-tile-batch -o /dev/null 2>&1 | FileCheck %s --check-prefix=LESS
// RUN: not koila-opt %s --koila-tile-batch='mode=train budget=2000 threads=1 isa=avx2' --batch B=64 -o /dev/null 2>&1 | FileCheck %s --check-prefix=LEAST
// RUN: koila-opt %s --koila-tile-batch='mode=train budget=2156 threads=1 isa=avx2' --batch B=64 -o /dev/null

// ROOM: Segments {{.*}}RecomputedPercent=71,
// ROOM: BatchTiling {{.*}}BudgetBytes=5100, PeakBytes=5068, {{.*}}Tile=16
// LESS: Segments {{.*}}RecomputedPercent=172,
// LESS: BatchTiling {{.*}}BudgetBytes=3000, PeakBytes=2796, {{.*}}Tile=8
// LEAST: error: no tile fits the budget of 1.95 KiB (2,000 bytes): the smallest budget that works is 2.11 KiB (2,156 bytes), with tile 1 for B = 64

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @v : tensor<5x3xf32> keys ["v"] strides [3, 1] requires_grad
  koila.param @w : tensor<5xf32> keys ["w"] strides [1] requires_grad
  koila.param @u : tensor<2x5xf32> keys ["u"] strides [5, 1] requires_grad

  func.func @forward(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) -> tensor<f32> {
    %v = koila.param.get @v : tensor<5x3xf32>
    %a = koila.linear %x, %v : (tensor<?x3xf32>, tensor<5x3xf32>) -> tensor<?x5xf32>
    %w = koila.param.get @w : tensor<5xf32>
    %b = koila.batch_norm %a weight %w bias %w {cudnn_enabled = true, eps = 1.0e-5 : f64, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    %r = koila.relu %b : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %u = koila.param.get @u : tensor<2x5xf32>
    %c = koila.linear %r, %u : (tensor<?x5xf32>, tensor<2x5xf32>) -> tensor<?x2xf32>
    %b2 = koila.batch_norm %c  {cudnn_enabled = true, eps = 1.0e-5 : f64, momentum = 1.0e-1 : f64, training = true} : (tensor<?x2xf32>) -> tensor<?x2xf32>
    %r2 = koila.relu %b2 : (tensor<?x2xf32>) -> tensor<?x2xf32>
    %e = koila.mean %r2 : (tensor<?x2xf32>) -> tensor<f32>
    koila.backward %e {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %e : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
