// RUN: not koila-opt %s --allow-unregistered-dialect --koila-print-facts 2>&1 | FileCheck %s

// Also where the operation is not known that the blocks belong to; see
// test/Plugin/several-blocks.mlir for the other passes.
func.func @f(%x: tensor<4xf32>) {
  // CHECK: [[#@LINE+1]]:3: error: the storages of a region with several blocks are not known
  "foreign.op"() ({
    %0 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    "foreign.br"()[^next] : () -> ()
  ^next:
    "foreign.end"() : () -> ()
  }) : () -> ()
  return
}
