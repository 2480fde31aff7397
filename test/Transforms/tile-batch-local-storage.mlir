// A tensor that the program makes and fills part by part: each tile makes and fills
// its own. What is made of all samples in the middle of that ends it.

// RUN: koila-opt %s --split-input-file --koila-tile-batch='tile=4' | FileCheck %s

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  // CHECK-LABEL: func.func @filled
  // CHECK: scf.for
  // CHECK: scf.for
  // CHECK: koila.zeros {{.*}}koila.reads{{.*}} -> tensor<2x?x3xf32>
  // CHECK: koila.copy tied {{.*}}koila.writes
  // CHECK: koila.copy tied {{.*}}koila.writes
  // Behind the last write.
  // CHECK: tensor.insert_slice {{.*}} : tensor<2x?x3xf32> into tensor<2x?x3xf32>
  // CHECK: return
  func.func @filled(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) -> tensor<2x?x3xf32> {
    %n = koila.size_int %x {dim = 0 : i64} : (tensor<?x3xf32>) -> i64
    %zeros = koila.zeros %n {device = {device = "cpu"}, koila.reads, pin_memory = false, size = array<i64: 2, -9223372036854775808, 3>} : (i64) -> tensor<2x?x3xf32>
    %a = koila.tanh %x : (tensor<?x3xf32>) -> tensor<?x3xf32>
    %0 = koila.select_int %zeros {dim = 0 : i64, index = 0 : i64, koila.reads} : (tensor<2x?x3xf32>) -> tensor<?x3xf32>
    %1 = koila.copy tied %0, %a {koila.writes, non_blocking = false} : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    %b = koila.exp %a : (tensor<?x3xf32>) -> tensor<?x3xf32>
    %2 = koila.select_int %zeros {dim = 0 : i64, index = 1 : i64, koila.reads} : (tensor<2x?x3xf32>) -> tensor<?x3xf32>
    %3 = koila.copy tied %2, %b {koila.writes, non_blocking = false} : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    return %zeros : tensor<2x?x3xf32>
  }
}

// -----

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  // The softmax over the batch is written to what it is made of.
  // CHECK-LABEL: func.func @meets
  // CHECK: {{^    %[0-9]+}} = koila.zeros
  // CHECK: scf.for
  // CHECK-NOT: koila.writes
  // CHECK: koila.tanh
  // CHECK: {{^    %[0-9]+}} = koila.copy tied {{.*}}koila.writes
  // CHECK: {{^    %[0-9]+}} = koila.softmax_int
  // CHECK: {{^    %[0-9]+}} = koila.copy tied {{.*}}koila.writes
  // CHECK: return
  func.func @meets(%x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>}) -> tensor<2x?x3xf32> {
    %n = koila.size_int %x {dim = 0 : i64} : (tensor<?x3xf32>) -> i64
    %zeros = koila.zeros %n {device = {device = "cpu"}, koila.reads, pin_memory = false, size = array<i64: 2, -9223372036854775808, 3>} : (i64) -> tensor<2x?x3xf32>
    %a = koila.tanh %x : (tensor<?x3xf32>) -> tensor<?x3xf32>
    %0 = koila.select_int %zeros {dim = 0 : i64, index = 0 : i64, koila.reads} : (tensor<2x?x3xf32>) -> tensor<?x3xf32>
    %1 = koila.copy tied %0, %a {koila.writes, non_blocking = false} : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    %b = koila.softmax_int %0 {dim = 0 : i64, koila.reads} : (tensor<?x3xf32>) -> tensor<?x3xf32>
    %2 = koila.select_int %zeros {dim = 0 : i64, index = 1 : i64, koila.reads} : (tensor<2x?x3xf32>) -> tensor<?x3xf32>
    %3 = koila.copy tied %2, %b {koila.writes, non_blocking = false} : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    return %zeros : tensor<2x?x3xf32>
  }
}
