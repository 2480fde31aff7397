// What fits at some number of samples need not at the one that is given: PyTorch
// raises there, so that there is no peak.

// RUN: not koila-opt %s --koila-peak-memory 2>&1 | FileCheck %s
// RUN: sed 's/value = 32/value = 16/' %s | koila-opt --koila-peak-memory -o /dev/null 2>&1 | FileCheck %s --check-prefix=FITS

// CHECK: [[#@LINE+9]]:{{.*}}error: 'koila.linear' op the weight takes 16 features, the input has 32
// CHECK: note: at B = 32
// CHECK-NOT: peak
// FITS: peak{{ +}}256 bytes

module attributes {koila.symbols = [#koila.symbol<name = "B", value = 32, batch = true>]} {
  koila.param @weight : tensor<64x16xf32> keys ["weight"] strides [16, 1]
  func.func @forward(%x: tensor<?xf32> {koila.name = "x", koila.dims = #koila.dims<[B]>}) -> tensor<64xf32> {
    %w = koila.param.get @weight : tensor<64x16xf32>
    %0 = koila.linear %x, %w : (tensor<?xf32>, tensor<64x16xf32>) -> tensor<64xf32>
    return %0 : tensor<64xf32>
  }
}
