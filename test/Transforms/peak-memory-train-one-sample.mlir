// Tiles of one sample of a training step are analysed with that number, as those of inference are.
// Rows of one sample are contiguous, so that nothing copies them, and the figure is exact; those of
// two are copied.
//
// RUN: koila-opt %s --koila-tile-batch='mode=train tile=1 threads=1 isa=avx2' --batch B=4 | FileCheck %s --check-prefix=ONE
// RUN: koila-opt %s --koila-tile-batch='mode=train tile=2 threads=1 isa=avx2' --batch B=4 | FileCheck %s --check-prefix=TWO

// ONE: \22exact\22:true
// ONE-SAME: \22peak_bytes\22:272,
// TWO: \22exact\22:true
// TWO-SAME: \22peak_bytes\22:500,

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @w : tensor<3x4xf32> keys ["w"] strides [4, 1] requires_grad

  func.func @step(%x: tensor<?x6x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6, 4]>}) -> tensor<f32> {
    %w = koila.param.get @w : tensor<3x4xf32>
    %y = koila.linear %x, %w : (tensor<?x6x4xf32>, tensor<3x4xf32>) -> tensor<?x6x3xf32>
    %s = koila.slice_Tensor %y {dim = 1 : i64, end = 5 : i64, start = 0 : i64, step = 1 : i64} : (tensor<?x6x3xf32>) -> tensor<?x5x3xf32>
    %c = koila.contiguous %s {memory_format = 0 : i64} : (tensor<?x5x3xf32>) -> tensor<?x5x3xf32>
    %v = koila.sin %c : (tensor<?x5x3xf32>) -> tensor<?x5x3xf32>
    %e = koila.mean %v : (tensor<?x5x3xf32>) -> tensor<f32>
    koila.backward %e {create_graph = false} : (tensor<f32>) -> ()
    %loss = koila.detach %e : (tensor<f32>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
