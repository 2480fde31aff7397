// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 | FileCheck %s
// RUN: koila-opt %s -split-input-file --koila-infer-shapes --koila-tile-batch=tile=4 --remark-format=emitRemark --remarks-filter=koila-tile-batch 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// What mixes samples runs whole; what comes before and after it is tiled in
// loops of its own. What crosses is kept whole, a view of it is made again.
// CHECK-LABEL: func.func @phases
// CHECK: %[[A:.*]]:3 = scf.for
// CHECK:   koila.relu
// CHECK-NOT: koila.view
// CHECK: %[[S:.*]] = koila.softmax_int %[[A]]#0
// CHECK: %[[R:.*]]:3 = scf.for
// CHECK:   %[[ROWS:.*]] = tensor.extract_slice %[[S]]
// CHECK:   %[[KEPT:.*]] = tensor.extract_slice %[[A]]#0
// CHECK:   koila.view %[[KEPT]]
// CHECK:   koila.exp %[[ROWS]]
// CHECK: return %[[R]]#0
// REMARK: remark: [Missed] Barrier | Category:koila-tile-batch | Function=phases | Reason="softmax over dim 0 mixes samples"
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @phases(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x2x4xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.view %0 {size = array<i64: -1, 2, 4>} : (tensor<?x8xf32>) -> tensor<?x2x4xf32>
    %2 = koila.softmax_int %0 {dim = 0} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %3 = koila.exp %2 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %4 = koila.view %3 {size = array<i64: -1, 2, 4>} : (tensor<?x8xf32>) -> tensor<?x2x4xf32>
    %5 = koila.add_Tensor %4, %1 {alpha = 1 : i64} : (tensor<?x2x4xf32>, tensor<?x2x4xf32>) -> tensor<?x2x4xf32>
    return %5 : tensor<?x2x4xf32>
  }
}

// -----

// Of two encoders each is tiled; the head of all pairs is not.
// CHECK-LABEL: func.func @pairs
// CHECK: %[[A:.*]]:4 = scf.for
// CHECK: %[[T:.*]] = koila.t %[[A]]#1
// CHECK: %[[P:.*]] = koila.matmul %[[A]]#0, %[[T]]
// CHECK-NOT: scf.for
// CHECK: return %[[P]]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @pairs(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %y: tensor<?x8xf32> {koila.name = "y", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x?xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.exp %y : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.t %1 : (tensor<?x8xf32>) -> tensor<8x?xf32>
    %3 = koila.matmul %0, %2 : (tensor<?x8xf32>, tensor<8x?xf32>) -> tensor<?x?xf32>
    return %3 : tensor<?x?xf32>
  }
}

// -----

// Effects run once, in their order, on whole tensors.
// CHECK-LABEL: func.func @effects
// CHECK: koila.torch_op "aten::first"()
// CHECK: scf.for
// CHECK:   koila.relu
// CHECK: koila.torch_op "aten::second"
// CHECK: koila.torch_op "aten::third"()
// CHECK: scf.for
// CHECK:   koila.mul_Tensor
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @effects(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.torch_op "aten::first"() args [] effects unknown : () -> tensor<8xf32>
    %1 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    koila.torch_op "aten::second"(%1) args [#koila.operand<0>] effects unknown : (tensor<?x8xf32>) -> ()
    %3 = koila.torch_op "aten::third"() args [] effects unknown : () -> tensor<8xf32>
    %4 = koila.mul_Tensor %1, %3 : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    return %4 : tensor<?x8xf32>
  }
}

// -----

// The number of samples, asked for anywhere, comes from the arguments.
// CHECK-LABEL: func.func @returned
// CHECK: scf.for
// CHECK: %[[N:.*]] = arith.index_cast %{{.*}} : index to i64
// CHECK: return %{{.*}}#0, %[[N]]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @returned(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> (tensor<?x8xf32>, i64) {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %n = koila.size_int %0 {dim = 0} : (tensor<?x8xf32>) -> i64
    return %0, %n : tensor<?x8xf32>, i64
  }
}

// -----

// A tensor that crosses keeps its strides: the buffer has the order of memory.
// CHECK-LABEL: func.func @strides
// CHECK: %[[EMPTY:.*]] = tensor.empty(%{{.*}}) : tensor<?x6x8xf32>
// CHECK: scf.for
// CHECK:   %[[V:.*]] = koila.exp
// CHECK:   %[[P:.*]] = koila.permute %[[V]] {dims = array<i64: 1, 0, 2>}
// CHECK:   tensor.insert_slice %[[P]]
// CHECK: %[[W:.*]] = koila.permute %{{.*}} {dims = array<i64: 1, 0, 2>} : (tensor<?x6x8xf32>) -> tensor<6x?x8xf32>
// CHECK: koila.softmax_int %[[W]] {dim = 1
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @strides(%x: tensor<?x6x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 6, 8]>}) -> tensor<6x?x8xf32> {
    %0 = koila.permute %x {dims = array<i64: 1, 0, 2>} : (tensor<?x6x8xf32>) -> tensor<6x?x8xf32>
    %1 = koila.exp %0 : (tensor<6x?x8xf32>) -> tensor<6x?x8xf32>
    %2 = koila.softmax_int %1 {dim = 1} : (tensor<6x?x8xf32>) -> tensor<6x?x8xf32>
    return %2 : tensor<6x?x8xf32>
  }
}

// -----

// squeeze() drops the dim of a single sample: smaller batches run untiled.
// CHECK-LABEL: func.func @squeezed
// CHECK-SAME: koila.tiled = {batch_symbol = "B", guard = "warn", least_batch = 2 : i64, tile = 4 : i64}
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @squeezed(%x: tensor<?x1x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 1, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.relu %x : (tensor<?x1x8xf32>) -> tensor<?x1x8xf32>
    %1 = koila.squeeze %0 : (tensor<?x1x8xf32>) -> tensor<?x8xf32>
    %2 = koila.exp %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}

// -----

// A mask that is written in place, and asks a tile for its type alone: it is
// made once, of a tensor without samples; who reads it afterwards runs in tiles.
// CHECK-LABEL: func.func @mask
// CHECK: %[[NONE:.*]] = tensor.empty() : tensor<0x8xf32>
// CHECK: %[[MASK:.*]] = koila.new_zeros %[[NONE]]
// CHECK: koila.fill_Scalar tied %[[MASK]]
// CHECK: scf.for
// CHECK:   koila.relu
// CHECK:   koila.add_Tensor %{{.*}}, %[[MASK]]
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @mask(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.new_zeros %0 {koila.reads, pin_memory = false, size = array<i64: 8>} : (tensor<?x8xf32>) -> tensor<8xf32>
    %2 = koila.fill_Scalar tied %1 {koila.writes, value = 2 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = koila.add_Tensor %0, %1 {alpha = 1 : i64, koila.reads} : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    return %3 : tensor<?x8xf32>
  }
}

// -----

// A tensor that is written after the read, or by what koila does not know, is
// read in order, for the whole batch.
// CHECK-LABEL: func.func @later
// CHECK: scf.for
// CHECK:   koila.relu
// CHECK: koila.add_Tensor
// CHECK: koila.torch_op "aten::mystery"
// CHECK: scf.for
// CHECK:   koila.exp
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @later(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %m: tensor<8xf32> {koila.name = "m", koila.dims = #koila.dims<[8]>}) -> tensor<?x8xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.add_Tensor %0, %m {alpha = 1 : i64, koila.reads} : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    koila.torch_op "aten::mystery"(%m) args [#koila.operand<0>] effects write : (tensor<8xf32>) -> ()
    %2 = koila.exp %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}

// -----

// CHECK-LABEL: func.func @written
// CHECK: scf.for
// CHECK:   koila.relu
// CHECK: koila.add_Tensor
// CHECK: koila.fill_Scalar
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @written(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %m: tensor<8xf32> {koila.name = "m", koila.dims = #koila.dims<[8]>}) -> tensor<?x8xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.add_Tensor %0, %m {alpha = 1 : i64, koila.reads} : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    %2 = koila.fill_Scalar tied %m {koila.writes, value = 2 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    return %1 : tensor<?x8xf32>
  }
}

// -----

// The number of samples that an operation kept in order gives is that of the
// tile, too, where a tile reads it.
// CHECK-LABEL: func.func @counted
// CHECK: scf.for
// CHECK:   scf.for
// CHECK:     %[[N:.*]] = arith.index_cast %{{.*}} : index to i64
// CHECK:     koila.full %[[N]]
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @counted(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %n = koila.size_int %x {dim = 0 : i64, koila.reads} : (tensor<?x8xf32>) -> i64
    %0 = koila.full %n {fill_value = 1.0 : f64, koila.reads, size = array<i64: -9223372036854775808, 8>} : (i64) -> tensor<?x8xf32>
    %1 = koila.exp %0 {koila.reads} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.fill_Scalar tied %x {koila.writes, value = 2 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}

// -----

// What only the second phase reads runs there, and is not kept whole for it; what
// is larger before than after stays in the first.
// CHECK-LABEL: func.func @sunk
// CHECK: scf.for
// CHECK:   scf.for
// CHECK-NOT: koila.sin
// CHECK:     koila.exp
// CHECK:     koila.sum_dim_IntList
// CHECK: koila.softmax_int
// CHECK: scf.for
// CHECK:   scf.for
// CHECK:     koila.sin %extracted_slice
// CHECK:     koila.cos
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @sunk(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.sin %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.cos %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %3 = koila.sum_dim_IntList %2 {dim = array<i64: 1>, keepdim = true} : (tensor<?x8xf32>) -> tensor<?x1xf32>
    %4 = koila.softmax_int %2 {dim = 0 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %5 = koila.add_Tensor %4, %1 {alpha = 1 : i64} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %6 = koila.add_Tensor %5, %3 {alpha = 1 : i64} : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
    return %6 : tensor<?x8xf32>
  }
}

// -----

// What nobody reads is not made, and what only that reads is not carried for it;
// nor is a barrier that nobody reads one.
// CHECK-LABEL: func.func @needless
// CHECK: %{{.*}}:3 = scf.for
// CHECK-NOT: koila.exp
// CHECK:   koila.relu
// CHECK: koila.softmax_int
// CHECK-NOT: koila.cumsum
// CHECK: %{{.*}}:3 = scf.for
// CHECK:   koila.sin
// CHECK-NOT: koila.mul_Tensor
// CHECK: return
// REMARK-NOT: cumsum
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @needless(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.exp %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.softmax_int %0 {dim = 0 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %3 = koila.cumsum %1 {dim = 0 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %4 = koila.mul_Tensor %1, %2 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %5 = koila.sin %2 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %5 : tensor<?x8xf32>
  }
}

// -----

// Of more samples there would be a second part, and an error.
// CHECK-LABEL: func.func @one_part
// CHECK: scf.for
// CHECK:   koila.relu
// CHECK: koila.unsafe_split_Tensor
// CHECK: scf.for
// CHECK:   koila.exp
// REMARK: splits along the batch dim
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @one_part(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}) -> tensor<?x8xf32> {
    %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = koila.unsafe_split_Tensor %0 {dim = 0 : i64, split_size = 30 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %2 = koila.exp %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}

// -----

// Control flow that nobody reads goes as well.
// CHECK-LABEL: func.func @idle_flow
// CHECK-NOT: scf.if
// CHECK-NOT: koila.relu
// CHECK: koila.exp
// CHECK: return
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @idle_flow(%x: tensor<?x8xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 8]>}, %p: i1 {koila.name = "p"}) -> tensor<?x8xf32> {
    scf.if %p {
      %0 = koila.relu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    }
    %1 = koila.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
}
