// Normalisations by statistics of the batch: those are added up in one loop and
// read in the next, or with batchnorm=per-tile each tile is normalised by itself.

// RUN: koila-opt %s --koila-tile-batch='tile=4' | FileCheck %s --check-prefix=EXACT
// RUN: koila-opt %s --koila-tile-batch='tile=4 batchnorm=per-tile' 2> %t.log | FileCheck %s
// RUN: FileCheck %s --check-prefix=WARNING < %t.log
// RUN: not koila-opt %s --koila-tile-batch='tile=1 batchnorm=per-tile' 2>&1 | FileCheck %s --check-prefix=ONE
// RUN: not koila-opt %s --koila-tile-batch='tile=4 batchnorm=two-pass' 2>&1 | FileCheck %s --check-prefix=TWO

// EXACT-NOT: per_tile
// EXACT: scf.for
// EXACT: koila.batch_norm_update_stats
// EXACT: tensor.insert_slice
// EXACT: {{^    }}}
// The running statistics are written once.
// EXACT: {{^    }}%{{[0-9]+}} = koila.lerp_Scalar tied {{.*}}koila.writes
// EXACT: {{^    }}%{{[0-9]+}} = koila.lerp_Scalar {{.*}}koila.writes
// EXACT: scf.for
// EXACT: koila.batch_norm {{.*}}training = false
// EXACT-NOT: per_tile

// WARNING: warning: statistics differ: 'koila.batch_norm' {{.*}}normalises each tile by itself; results are not those of the untiled program, and running statistics are updated once a tile
// ONE: error: tile=1: a single sample may have no variance to normalise by; use tile=2 or more
// TWO: error: unknown batchnorm=two-pass; use batchnorm=exact or batchnorm=refuse or batchnorm=per-tile

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  koila.param @w : tensor<5xf32> keys ["w"] strides [1] requires_grad
  koila.param @mean : tensor<5xf32> keys ["mean"] strides [1] buffer
  koila.param @var : tensor<5xf32> keys ["var"] strides [1] buffer
  koila.param @count : tensor<i64> keys ["count"] strides [] buffer

  // The counter is written once, before the loops; the statistics in them.
  // CHECK-LABEL: func.func @forward
  // CHECK-SAME: batchnorm = "per-tile"
  // CHECK-SAME: least_batch = 2
  // CHECK: koila.add_Scalar {{.*}}koila.writes
  // CHECK: scf.for
  // CHECK: koila.batch_norm {{.*}}koila.per_tile
  func.func @forward(%x: tensor<?x5xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 5]>}) -> tensor<?x5xf32> {
    %a = koila.relu %x {koila.reads} : (tensor<?x5xf32>) -> tensor<?x5xf32>
    %count = koila.param.get @count : tensor<i64>
    %next = koila.add_Scalar tied %count {alpha = 1 : i64, koila.writes, other = 1 : i64} : (tensor<i64>) -> tensor<i64>
    %w = koila.param.get @w : tensor<5xf32>
    %mean = koila.param.get @mean : tensor<5xf32>
    %var = koila.param.get @var : tensor<5xf32>
    %b = koila.batch_norm %a weight %w running_mean %mean running_var %var {cudnn_enabled = true, eps = 1.0e-5 : f64, koila.reads, momentum = 1.0e-1 : f64, training = true} : (tensor<?x5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    %c = koila.exp %b : (tensor<?x5xf32>) -> tensor<?x5xf32>
    return %c : tensor<?x5xf32>
  }
}
