// The rules of PyTorch 2.3 to 2.6: a product to which a bias is added has a
// workspace of its own. Without a bias, with one feature, and in the releases
// since, there is none.

// RUN: koila-opt %s --koila-peak-memory="device=a100-sxm4-40gb@torch-2.6 allocator=cuda" -o /dev/null 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: koila-opt %s --koila-peak-memory="device=a100-sxm4-40gb@torch-2.6 format=events output=%t.past" -o /dev/null
// RUN: FileCheck %s --check-prefix=PAST --input-file=%t.past
// RUN: koila-opt %s --koila-peak-memory="device=a100-sxm4-40gb format=events output=%t.now" -o /dev/null
// RUN: FileCheck %s --check-prefix=NOW --input-file=%t.now

// TEXT: a100-sxm4-40gb@torch-2.6, torch 2.6

// PAST-COUNT-2: "bytes": 1048576
// PAST-NOT: "bytes": 1048576
// NOW-NOT: "bytes": 1048576
func.func @f(%x: tensor<8x64xf32>, %w: tensor<32x64xf32>, %b: tensor<32xf32>,
             %v: tensor<1x32xf32>, %c: tensor<1xf32>)
    -> (tensor<8x32xf32>, tensor<8x1xf32>) {
  %0 = koila.linear %x, %w, %b : (tensor<8x64xf32>, tensor<32x64xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  %1 = koila.linear %x, %w : (tensor<8x64xf32>, tensor<32x64xf32>) -> tensor<8x32xf32>
  %2 = koila.linear %0, %v, %c : (tensor<8x32xf32>, tensor<1x32xf32>, tensor<1xf32>) -> tensor<8x1xf32>
  return %1, %2 : tensor<8x32xf32>, tensor<8x1xf32>
}
