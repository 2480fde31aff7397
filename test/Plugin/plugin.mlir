// The stock mlir-opt loads dialect and passes by one flag; the flag for passes
// does no harm beside it.

// RUN: %mlir-opt --load-dialect-plugin=%plugin %s --pass-pipeline='builtin.module(koila-infer-shapes,koila-verify-stage{stage=inferred})' | FileCheck %s
// RUN: %mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin %s --pass-pipeline='builtin.module(koila-infer-shapes)' | FileCheck %s
// RUN: %mlir-opt --load-dialect-plugin=%plugin %s --pass-pipeline='builtin.module(koila-infer-shapes,koila-peak-memory{threads=1})' -o %t 2>&1 | FileCheck %s --check-prefix=PEAK
// RUN: %mlir-opt --load-dialect-plugin=%plugin %s --pass-pipeline='builtin.module(koila-compile{tile=8})' | FileCheck %s --check-prefix=TILED

// Without the plugin the stock tool knows none of it.
// RUN: not %mlir-opt %s 2>&1 | FileCheck %s --check-prefix=WITHOUT
// WITHOUT: error: {{.*}}koila

// CHECK-LABEL: func.func @forward
// CHECK: koila.linear {{.*}} -> tensor<?x128xf32>
// CHECK: koila.relu {{.*}} -> tensor<?x128xf32>
// CHECK: koila.linear {{.*}} -> tensor<?x10xf32>

// PEAK: 64.00 KiB

// TILED: scf.for

module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  koila.param @"0.weight" : tensor<128x64xf32> keys ["0.weight"] strides [64, 1] requires_grad
  koila.param @"0.bias" : tensor<128xf32> keys ["0.bias"] strides [1] requires_grad
  koila.param @"2.weight" : tensor<10x128xf32> keys ["2.weight"] strides [128, 1] requires_grad
  koila.param @"2.bias" : tensor<10xf32> keys ["2.bias"] strides [1] requires_grad
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<*x!koila.any> {
    %w0 = koila.param.get @"0.weight" : tensor<128x64xf32>
    %b0 = koila.param.get @"0.bias" : tensor<128xf32>
    %0 = koila.linear %x, %w0, %b0 : (tensor<?x64xf32>, tensor<128x64xf32>, tensor<128xf32>) -> tensor<*x!koila.any>
    %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %w2 = koila.param.get @"2.weight" : tensor<10x128xf32>
    %b2 = koila.param.get @"2.bias" : tensor<10xf32>
    %2 = koila.linear %1, %w2, %b2 : (tensor<*x!koila.any>, tensor<10x128xf32>, tensor<10xf32>) -> tensor<*x!koila.any>
    return %2 : tensor<*x!koila.any>
  }
}
