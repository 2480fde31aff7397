// The stock tool knows branches between blocks; the passes follow structured
// control flow only, and say so at the function, or where such a region is.

// RUN: %mlir-opt --load-dialect-plugin=%plugin %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(koila-infer-shapes)'
// RUN: not %mlir-opt --load-dialect-plugin=%plugin %s -split-input-file --pass-pipeline='builtin.module(koila-peak-memory)' 2>&1 | FileCheck %s --check-prefix=PEAK
// RUN: not %mlir-opt --load-dialect-plugin=%plugin %s -split-input-file --pass-pipeline='builtin.module(koila-tile-batch{tile=4})' 2>&1 | FileCheck %s --check-prefix=TILE
// RUN: not %mlir-opt --load-dialect-plugin=%plugin %s -split-input-file --pass-pipeline='builtin.module(koila-tile-batch{budget=1KiB})' 2>&1 | FileCheck %s --check-prefix=PEAK
// RUN: not %mlir-opt --load-dialect-plugin=%plugin %s -split-input-file --pass-pipeline='builtin.module(koila-verify-stage{stage=imported})' 2>&1 | FileCheck %s --check-prefix=IMPORTED
// RUN: not %mlir-opt --load-dialect-plugin=%plugin %s -split-input-file --pass-pipeline='builtin.module(koila-compile{tile=4})' 2>&1 | FileCheck %s --check-prefix=IMPORTED

// PEAK: [[#@LINE+7]]:3: error: cannot follow the memory of a function with several blocks
// PEAK: [[#@LINE+20]]:10: error: cannot follow the memory of a region with several blocks
// TILE: [[#@LINE+5]]:3: error: cannot tile a function with several blocks
// TILE: [[#@LINE+18]]:10: error: cannot tile a region with several blocks
// IMPORTED: [[#@LINE+3]]:3: error: has several blocks; import builds one
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
  // expected-error @below {{cannot infer the shapes of a function with several blocks}}
  func.func @forward(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<?x4xf32> {
    %0 = koila.relu %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    cf.br ^bb1
  ^bb1:
    %1 = koila.relu %0 : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return %1 : tensor<?x4xf32>
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, batch = true>]} {
  func.func @forward(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}) -> tensor<?x4xf32> {
    // expected-error @below {{cannot infer the shapes of a region with several blocks}}
    %0 = scf.execute_region -> tensor<?x4xf32> {
      %1 = koila.relu %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
      cf.br ^bb1
    ^bb1:
      scf.yield %1 : tensor<?x4xf32>
    }
    return %0 : tensor<?x4xf32>
  }
}
