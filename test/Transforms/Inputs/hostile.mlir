// B0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 0, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    return %0 : tensor<?x64xf32> }
}

// -----

// Bbig
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 30000000000000000, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    %1 = koila.relu %0 : (tensor<?x64xf32>) -> tensor<?x64xf32>
    return %1 : tensor<?x64xf32> }
}

// -----

// Bhuge
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 9223372036854775807, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    %1 = koila.relu %0 : (tensor<?x64xf32>) -> tensor<?x64xf32>
    return %1 : tensor<?x64xf32> }
}

// -----

// Bnone
module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    return %0 : tensor<?x64xf32> }
}

// -----

// alias kind
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<*x!koila.any> {
    %0 = koila.torch_op "aten::foo"(%x) args [#koila.operand<0>] effects none aliases [[0 : ui8, 170141183460469231731687303715884105727 : i128, -1, 99]] : (tensor<?x64xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// alias odd
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<*x!koila.any> {
    %0 = koila.torch_op "aten::foo"(%x) args [#koila.operand<0>] effects none aliases ["q"] : (tensor<?x64xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// alias str
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<*x!koila.any> {
    %0 = koila.torch_op "aten::foo"(%x) args [#koila.operand<0>] effects none aliases [["x"]] : (tensor<?x64xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// assume bad
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) {
    koila.assume extent %x : tensor<4xf32>[-5] is #koila.expr<4>
    koila.assume rank %x : tensor<4xf32> is 170141183460469231731687303715884105727 : i128
    koila.assume device %x : tensor<4xf32> is "cpu"
    return }
}

// -----

// atom
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x", foo.bar = #koila.atom<"nonsense", <B>, <0>>}) { return }
}

// -----

// badname
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name=3}) { return }
}

// -----

// batch2
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x3xf32> {koila.name="x", koila.dims=#koila.dims<[2*B,3]>}, %y: tensor<?x3xf32> {koila.name="y", koila.dims=#koila.dims<[3*B,3]>}) -> (tensor<*x!koila.any>, tensor<*x!koila.any>) {
    %0 = koila.relu %x : (tensor<?x3xf32>) -> tensor<*x!koila.any>
    %1 = koila.relu %y : (tensor<?x3xf32>) -> tensor<*x!koila.any>
    return %1, %0 : tensor<*x!koila.any>, tensor<*x!koila.any> }
}

// -----

// batch dim1
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<3x?xf32> {koila.name="x", koila.dims=#koila.dims<[3, 2*B]>}) -> tensor<*x!koila.any> {
    %0 = koila.relu %x : (tensor<3x?xf32>) -> tensor<*x!koila.any>
    %1 = koila.mean_dim %0 {dim = array<i64: 0>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %1 : tensor<*x!koila.any> }
}

// -----

// call
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func private @g(%y: tensor<*x!koila.any>) -> tensor<*x!koila.any> {
    %c = arith.constant 4 : i64
    %e = tensor.empty() : tensor<16xf32>
    %0 = koila.relu %e : (tensor<16xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<*x!koila.any> {
    %r = koila.refine %x : tensor<?x64xf32> to tensor<*x!koila.any>
    %0 = func.call @g(%r) : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// call known
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func private @g(%y: tensor<64xf32> {koila.name="y"}) -> tensor<64xf32> {
    %0 = koila.relu %y : (tensor<64xf32>) -> tensor<64xf32>
    %1 = koila.relu %0 : (tensor<64xf32>) -> tensor<64xf32>
    return %1 : tensor<64xf32> }
  func.func @forward(%x: tensor<64xf32> {koila.name="x"}) -> tensor<64xf32> {
    %0 = func.call @g(%x) : (tensor<64xf32>) -> tensor<64xf32>
    return %0 : tensor<64xf32> }
}

// -----

// callee batch
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}, %y: tensor<?x?xf32> {koila.name="y", koila.dims=#koila.dims<[B, B]>}) -> tensor<?x64xf32> {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    return %0 : tensor<?x64xf32> }
}

// -----

// contradict
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x64xf32> {koila.name="x", koila.dims=#koila.dims<[2,64]>}) -> tensor<5x32xf64> {
    %0 = koila.relu %x : (tensor<2x64xf32>) -> tensor<*x!koila.any>
    %1 = koila.relu %0 : (tensor<*x!koila.any>) -> tensor<5x32xf64>
    return %1 : tensor<5x32xf64> }
}

// -----

// conv1d
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8xf32> {koila.name="x"}, %w: tensor<8x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv1d %x, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<8x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv1d 0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x0xf32> {koila.name="x"}, %w: tensor<8x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv1d %x, %w {stride = array<i64: 1>, padding = array<i64: 2>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x0xf32>, tensor<8x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv3d
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8x8xf32> {koila.name="x"}, %w: tensor<8x3x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv3d %x, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8x8x8xf32>, tensor<8x3x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv b0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<0x3x8x8xf32> {koila.name="x"}, %w: tensor<8x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<0x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv c0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x0x8x8xf32> {koila.name="x"}, %w: tensor<8x0x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x0x8x8xf32>, tensor<8x0x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv dw
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x8x9x9xf32> {koila.name="x"}, %w: tensor<8x1x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 8 : i64} : (tensor<2x8x9x9xf32>, tensor<8x1x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv emptylists
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}, %w: tensor<8x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64>, padding = array<i64>, dilation = array<i64>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv h0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x0x8xf32> {koila.name="x"}, %w: tensor<8x3x1x1xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x0x8xf32>, tensor<8x3x1x1xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv huge
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x2305843009213693952x8xf32> {koila.name="x"}, %w: tensor<8x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x2305843009213693952x8xf32>, tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv hugedil
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}, %w: tensor<8x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 9223372036854775807, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv hugegroups
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}, %w: tensor<8x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 9223372036854775807 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv hugepad
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}, %w: tensor<8x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 9223372036854775807, 4611686018427387904>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv hugestride
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}, %w: tensor<8x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 9223372036854775807, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv k0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}, %w: tensor<8x3x0x0xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x0x0xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv o0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}, %w: tensor<0x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<0x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv rank0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x3xf32> {koila.name="x",koila.dims=#koila.dims<[B,3]>}, %w: tensor<8x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila._convolution %x, %w {stride=array<i64>, padding=array<i64>, dilation=array<i64>, transposed=false, output_padding=array<i64>, groups=1:i64, benchmark=false, deterministic=false, cudnn_enabled=true, allow_tf32=true} : (tensor<?x3xf32>, tensor<8x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv rank4
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x3x4x4x4x4xf32> {koila.name="x",koila.dims=#koila.dims<[B,3,4,4,4,4]>}, %w: tensor<8x3x1x1x1x1xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila._convolution %x, %w {stride=array<i64:1,1,1,1>, padding=array<i64:0,0,0,0>, dilation=array<i64:1,1,1,1>, transposed=false, output_padding=array<i64>, groups=1:i64, benchmark=false, deterministic=false, cudnn_enabled=true, allow_tf32=true} : (tensor<?x3x4x4x4x4xf32>, tensor<8x3x1x1x1x1xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv unb
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<3x8x8xf32> {koila.name="x"}, %w: tensor<8x3x3x3xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// conv wbig
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<1x4611686018427387904x2x2xf32> {koila.name="x"}, %w: tensor<1x4611686018427387904x1x1xf32>{koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x4611686018427387904x2x2xf32>, tensor<1x4611686018427387904x1x1xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// dead size
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %s = koila.size_int %x {dim = 0} : (tensor<?x64xf32>) -> i64
    %v = koila.view %x sizes(%s) {size = array<i64: -9223372036854775808, 64>} : (tensor<?x64xf32>, i64) -> tensor<*x!koila.any>
    %0 = koila.relu %v : (tensor<*x!koila.any>) -> tensor<?x64xf32>
    return %0 : tensor<?x64xf32> }
}

// -----

// dimsint
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: i64 {koila.dims=#koila.dims<[B]>}) { return }
}

// -----

// dimsstr
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.dims="q"}) { return }
}

// -----

// empty outputs
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x0xf32> {koila.name="x", koila.dims=#koila.dims<[B,0]>}) -> tensor<*x!koila.any> {
    %0 = koila.relu %x : (tensor<?x0xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// enc
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32, "e"> {koila.name="x"}) -> tensor<4xf32, "e"> {
    %0 = koila.relu %x : (tensor<4xf32, "e">) -> tensor<4xf32, "e">
    %1 = tensor.cast %0 : tensor<4xf32, "e"> to tensor<4xf32>
    %2 = tensor.cast %1 : tensor<4xf32> to tensor<4xf32, "e">
    return %2 : tensor<4xf32, "e"> }
}

// -----

// execute region
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4x8xf32> {koila.name="x"}) -> tensor<4x8xf32> {
    %r = scf.execute_region -> tensor<4x8xf32> {
      %0 = koila.relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
      cf.br ^bb1(%0 : tensor<4x8xf32>)
      ^bb1(%q: tensor<4x8xf32>):
      %1 = koila.exp %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
      scf.yield %1 : tensor<4x8xf32>
    }
    return %r : tensor<4x8xf32> }
}

// -----

// exprmin
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?xf32> {koila.name="x", koila.dims=#koila.dims<[floordiv(-9223372036854775807 - 1, -1)]>}) { return }
}

// -----

// exprmin2
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?xf32> {koila.name="x", koila.dims=#koila.dims<[floordiv((-9223372036854775807 - 1)*B, -1)]>}) { return }
}

// -----

// exprmin3
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?xf32> {koila.name="x", koila.dims=#koila.dims<[floordiv(B*(-9223372036854775807 - 1), 0 - B)]>}) {  %0 = koila.relu %x : (tensor<?xf32>) -> tensor<?xf32>
    return }
}

// -----

// exprmin4
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 0, batch = true>, #koila.symbol<name="N", value=5>]} {
  func.func @forward(%x: tensor<?xf32> {koila.name="x", koila.dims=#koila.dims<[floordiv(N, B)]>}) {  %0 = koila.relu %x : (tensor<?xf32>) -> tensor<?xf32>
    return }
}

// -----

// exprneg
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?xf32> {koila.name="x", koila.dims=#koila.dims<[B - 100]>}) {  %0 = koila.relu %x : (tensor<?xf32>) -> tensor<?xf32>
    return }
}

// -----

// external
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func private @e(tensor<4xf32>) -> tensor<4xf32>
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) { return }
}

// -----

// fmt
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x", koila.memory_format=7}) { return }
}

// -----

// fmtcl
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x", koila.memory_format="channels_last"}) { return }
}

// -----

// forall
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4x8xf32> {koila.name="x"}) -> tensor<4x8xf32> {
    %0 = koila.relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %r = scf.forall (%i) in (4) shared_outs(%o = %0) -> (tensor<4x8xf32>) {
      %s = tensor.extract_slice %o[%i, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<1x8xf32>
      %t = koila.relu %s : (tensor<1x8xf32>) -> tensor<1x8xf32>
      scf.forall.in_parallel { tensor.parallel_insert_slice %t into %o[%i, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32> }
    }
    return %r : tensor<4x8xf32> }
}

// -----

// foreign
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) -> tensor<1024xf32> {
    %0 = "foo.bar"(%x) : (tensor<4xf32>) -> tensor<1024xf32>
    return %0 : tensor<1024xf32> }
}

// -----

// free container
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  koila.param @w : tensor<64x64xf32> keys ["w"] strides [64,1]
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %w = koila.param.get @w : tensor<64x64xf32>
    %t = koila.construct tuple(%w) : (tensor<64x64xf32>) -> tuple<tensor<64x64xf32>>
    %u = koila.torch_op "prim::TupleUnpack"(%t) args [#koila.operand<0>] effects none : (tuple<tensor<64x64xf32>>) -> tensor<64x64xf32>
    %0 = koila.linear %x, %u : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    return %0 : tensor<?x64xf32> }
}

// -----

// huge param
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  koila.param @w : tensor<4611686018427387904x8xf32> keys ["w"] strides [8, 1]
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<*x!koila.any> {
    %w = koila.param.get @w : tensor<4611686018427387904x8xf32>
    %2 = koila.relu %w : (tensor<4611686018427387904x8xf32>) -> tensor<*x!koila.any>
    return %2 : tensor<*x!koila.any> }
}

// -----

// huge sum
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<1500000000000000000xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.relu %x : (tensor<1500000000000000000xf32>) -> tensor<1500000000000000000xf32>
    %1 = koila.exp %0 : (tensor<1500000000000000000xf32>) -> tensor<1500000000000000000xf32>
    %2 = koila.exp %1 : (tensor<1500000000000000000xf32>) -> tensor<1500000000000000000xf32>
    %3 = koila.add_Tensor %0, %1 {alpha=1:i64} : (tensor<1500000000000000000xf32>,tensor<1500000000000000000xf32>) -> tensor<*x!koila.any>
    %4 = koila.add_Tensor %2, %3 {alpha=1:i64} : (tensor<1500000000000000000xf32>,tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %4 : tensor<*x!koila.any> }
}

// -----

// ifdiff
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4x8xf32> {koila.name="x"}, %p: i1 {koila.name="n"}) -> tensor<*x!koila.any> {
    %r = scf.if %p -> (tensor<*x!koila.any>) {
      %d = koila.view %x {size = array<i64: -1, 16>} : (tensor<4x8xf32>) -> tensor<*x!koila.any>
      scf.yield %d : tensor<*x!koila.any>
    } else {
      %d = koila.relu %x : (tensor<4x8xf32>) -> tensor<*x!koila.any>
      scf.yield %d : tensor<*x!koila.any>
    }
    return %r : tensor<*x!koila.any> }
}

// -----

// index add
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xindex> {koila.name="x"}, %y: tensor<4xi32> {koila.name="y"}) -> tensor<*x!koila.any> {
    %0 = koila.add_Tensor %x, %y {alpha=1:i64} : (tensor<4xindex>,tensor<4xi32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// index switch
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4x8xf32> {koila.name="x"}, %i: index {koila.name="i"}) -> tensor<4x8xf32> {
    %r = scf.index_switch %i -> tensor<4x8xf32>
    case 2 { %0 = koila.relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
      scf.yield %0 : tensor<4x8xf32> }
    default { scf.yield %x : tensor<4x8xf32> }
    return %r : tensor<4x8xf32> }
}

// -----

// lnorm neg
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<*x!koila.any> {
    %0 = koila.layer_norm %x {normalized_shape = array<i64: 64>} : (tensor<?x64xf32>) -> tensor<*x!koila.any>
    %1 = koila.flatten_using_ints %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %2 = koila.layer_norm %1 {normalized_shape = array<i64: -3>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %2 : tensor<*x!koila.any> }
}

// -----

// lnorm over
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4611686018427387904x4611686018427387904xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.layer_norm %x {normalized_shape = array<i64: 4611686018427387904, 4611686018427387904>} : (tensor<4611686018427387904x4611686018427387904xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// longcarry
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %n = arith.constant 1099511627776 : index
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c1) -> (index) {
      %d = arith.addi %a, %i : index
      scf.yield %d : index
    }
    return }
}

// -----

// longloop
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %n = arith.constant 1099511627776 : index
    scf.for %i = %c0 to %n step %c1 {
      %e = tensor.empty(%i) : tensor<?xf32>
      %r = koila.relu %e : (tensor<?xf32>) -> tensor<?xf32>
    }
    return }
}

// -----

// loopgrow
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4x8xf32> {koila.name="x"}, %n: index {koila.name="n"}) -> tensor<*x!koila.any> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %w = koila.refine %x : tensor<4x8xf32> to tensor<*x!koila.any>
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %w) -> (tensor<*x!koila.any>) {
      %d = koila.view %a {size = array<i64: -1, 16>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
      scf.yield %d : tensor<*x!koila.any>
    }
    return %r : tensor<*x!koila.any> }
}

// -----

// loopgrow2
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4x8xf32> {koila.name="x"}, %n: index {koila.name="n"}) -> tensor<?x?xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %w = tensor.cast %x : tensor<4x8xf32> to tensor<?x?xf32>
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %w) -> (tensor<?x?xf32>) {
      %d = koila.view %a {size = array<i64: -1, 16>} : (tensor<?x?xf32>) -> tensor<?x?xf32>
      scf.yield %d : tensor<?x?xf32>
    }
    return %r : tensor<?x?xf32> }
}

// -----

// negloop
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) {
    %c0 = arith.constant -9223372036854775808 : index
    %c1 = arith.constant 1 : index
    %n = arith.constant 9223372036854775807 : index
    scf.for %i = %c0 to %n step %c1 {
      %r = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    }
    return }
}

// -----

// nested
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  module @inner { func.func @f(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) { return } }
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) { return }
}

// -----

// nested container
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tuple<tuple<tensor<?x64xf32>>> {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    %t = koila.construct tuple(%0) : (tensor<?x64xf32>) -> tuple<tensor<?x64xf32>>
    %u = koila.construct tuple(%t) : (tuple<tensor<?x64xf32>>) -> tuple<tuple<tensor<?x64xf32>>>
    return %u : tuple<tuple<tensor<?x64xf32>>> }
}

// -----

// nofunc
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  koila.param @w : tensor<4xf32> keys ["w"] strides [1]
}

// -----

// noresult
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    return }
}

// -----

// nosym
module {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    return %0 : tensor<?x64xf32> }
}

// -----

// only external
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @e(tensor<4xf32>) -> tensor<4xf32>
}

// -----

// opaque region
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) -> tensor<1024xf32> {
    %0 = "foo.bar"(%x) ({ ^bb0(%a: tensor<?xf32>): "foo.yield"(%a) : (tensor<?xf32>) -> () }) : (tensor<4xf32>) -> tensor<1024xf32>
    return %0 : tensor<1024xf32> }
}

// -----

// opaque write
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<*x!koila.any> {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    koila.torch_op "aten::foo_"(%0) args [#koila.operand<0>] effects write : (tensor<?x64xf32>) -> ()
    %1 = koila.torch_op "aten::foo"(%0) args [#koila.operand<0>] effects unknown : (tensor<?x64xf32>) -> tensor<*x!koila.any>
    return %1 : tensor<*x!koila.any> }
}

// -----

// parallel
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4x8xf32> {koila.name="x"}) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    scf.parallel (%i, %j) = (%c0, %c0) to (%c1, %c1) step (%c1, %c1) {
      %0 = koila.relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
      scf.reduce
    }
    return }
}

// -----

// pool 0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<0x3x8x8xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil_mode = false} : (tensor<0x3x8x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// pool bigk
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 9223372036854775807>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 9223372036854775807>, ceil_mode = false} : (tensor<2x3x8x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// pool bigpad
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64>, padding = array<i64: 9223372036854775807>, dilation = array<i64: 1>, ceil_mode = false} : (tensor<2x3x8x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// pool c0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x0x8x8xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil_mode = false} : (tensor<2x0x8x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// pool ceil
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x7x7xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64: 2>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil_mode = true} : (tensor<2x3x7x7xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// pool ceilstep
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64: 9223372036854775807>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil_mode = true} : (tensor<2x3x8x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// pool huge
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x9223372036854775807x8xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 1>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil_mode = true} : (tensor<2x3x9223372036854775807x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// pool huge2
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x2305843009213693952x2xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 1>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil_mode = false} : (tensor<2x3x2305843009213693952x2xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// pool k0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64>, stride = array<i64>, padding = array<i64>, dilation = array<i64>, ceil_mode = false} : (tensor<2x3x8x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// pool ok
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x8x8xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 2>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil_mode = false} : (tensor<2x3x8x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// prim int
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> (tensor<?x64xf32>, i64) {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    %t = koila.torch_op "prim::dtype"(%0) args [#koila.operand<0>] effects none : (tensor<?x64xf32>) -> i64
    return %0, %t : tensor<?x64xf32>, i64 }
}

// -----

// rank0
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<f32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.relu %x : (tensor<f32>) -> tensor<*x!koila.any>
    %1 = koila.flatten_using_ints %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %2 = koila.mean_dim %0 {dim=array<i64:0>}: (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %3 = koila.softmax_int %0 {dim = -1} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %4 = koila.add_Tensor %3, %1 {alpha=1:i64}: (tensor<*x!koila.any>,tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %5 = koila.view %0 {size = array<i64>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %4 : tensor<*x!koila.any> }
}

// -----

// refine extent
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x64xf32> {koila.name="x", koila.dims=#koila.dims<[2,64]>}) -> tensor<*x!koila.any> {
    %0 = koila.relu %x : (tensor<2x64xf32>) -> tensor<*x!koila.any>
    %1 = koila.refine %0 : tensor<*x!koila.any> to tensor<5x32xf64>
    %3 = koila.relu %1 : (tensor<5x32xf64>) -> tensor<5x32xf64>
    %2 = koila.refine %3 : tensor<5x32xf64> to tensor<*x!koila.any>
    return %2 : tensor<*x!koila.any> }
}

// -----

// refine rank
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x4xf32> {koila.name="x", koila.dims=#koila.dims<[2,3,4]>}) -> tensor<*x!koila.any> {
    %0 = koila.relu %x : (tensor<2x3x4xf32>) -> tensor<*x!koila.any>
    %1 = koila.refine %0 : tensor<*x!koila.any> to tensor<?x64xf32>
    %2 = koila.refine %1 : tensor<?x64xf32> to tensor<*x!koila.any>
    return %2 : tensor<*x!koila.any> }
}

// -----

// resattr
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) -> (tensor<4xf32> {koila.dims="q"}) { return %x : tensor<4xf32> }
}

// -----

// return arg
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
    return %x, %x : tensor<?x64xf32>, tensor<?x64xf32> }
}

// -----

// return size
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> (tensor<?x64xf32>, i64) {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    %s = koila.size_int %0 {dim = 0} : (tensor<?x64xf32>) -> i64
    return %0, %s : tensor<?x64xf32>, i64 }
}

// -----

// size free
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  koila.param @w : tensor<8x8xf32> keys ["w"] strides [8,1]
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %w = koila.param.get @w : tensor<8x8xf32>
    %s = koila.size_int %x {dim = 1} : (tensor<?x64xf32>) -> i64
    %v = koila.view %w sizes(%s) {size = array<i64: -9223372036854775808>} : (tensor<8x8xf32>, i64) -> tensor<64xf32>
    %0 = koila.add_Tensor %x, %v {alpha = 1 : i64} : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32>
    return %0 : tensor<?x64xf32> }
}

// -----

// slice oob
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4x8xf32> {koila.name="x"}, %i: index {koila.name="i"}) -> tensor<8xf32> {
    %0 = koila.relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = tensor.extract_slice %0[%i, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<8xf32>
    %2 = koila.relu tied %1 : (tensor<8xf32>) -> tensor<8xf32>
    return %2 : tensor<8xf32> }
}

// -----

// square
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%i: index {koila.name="i"}) -> tensor<?xf32> {
    %0 = arith.muli %i, %i : index
    %1 = arith.muli %0, %0 : index
    %2 = arith.muli %1, %1 : index
    %3 = arith.muli %2, %2 : index
    %4 = arith.muli %3, %3 : index
    %5 = arith.muli %4, %4 : index
    %6 = arith.muli %5, %5 : index
    %7 = arith.muli %6, %6 : index
    %8 = arith.muli %7, %7 : index
    %9 = arith.muli %8, %8 : index
    %10 = arith.muli %9, %9 : index
    %11 = arith.muli %10, %10 : index
    %12 = arith.muli %11, %11 : index
    %13 = arith.muli %12, %12 : index
    %14 = arith.muli %13, %13 : index
    %15 = arith.muli %14, %14 : index
    %16 = arith.muli %15, %15 : index
    %17 = arith.muli %16, %16 : index
    %18 = arith.muli %17, %17 : index
    %19 = arith.muli %18, %18 : index
    %20 = arith.muli %19, %19 : index
    %21 = arith.muli %20, %20 : index
    %22 = arith.muli %21, %21 : index
    %23 = arith.muli %22, %22 : index
    %24 = arith.muli %23, %23 : index
    %25 = arith.muli %24, %24 : index
    %26 = arith.muli %25, %25 : index
    %27 = arith.muli %26, %26 : index
    %28 = arith.muli %27, %27 : index
    %29 = arith.muli %28, %28 : index
    %30 = arith.muli %29, %29 : index
    %31 = arith.muli %30, %30 : index
    %32 = arith.muli %31, %31 : index
    %33 = arith.muli %32, %32 : index
    %34 = arith.muli %33, %33 : index
    %35 = arith.muli %34, %34 : index
    %36 = arith.muli %35, %35 : index
    %37 = arith.muli %36, %36 : index
    %38 = arith.muli %37, %37 : index
    %39 = arith.muli %38, %38 : index
    %40 = arith.muli %39, %39 : index
    %41 = arith.muli %40, %40 : index
    %42 = arith.muli %41, %41 : index
    %43 = arith.muli %42, %42 : index
    %44 = arith.muli %43, %43 : index
    %45 = arith.muli %44, %44 : index
    %46 = arith.muli %45, %45 : index
    %47 = arith.muli %46, %46 : index
    %48 = arith.muli %47, %47 : index
    %49 = arith.muli %48, %48 : index
    %50 = arith.muli %49, %49 : index
    %51 = arith.muli %50, %50 : index
    %52 = arith.muli %51, %51 : index
    %53 = arith.muli %52, %52 : index
    %54 = arith.muli %53, %53 : index
    %55 = arith.muli %54, %54 : index
    %56 = arith.muli %55, %55 : index
    %57 = arith.muli %56, %56 : index
    %58 = arith.muli %57, %57 : index
    %59 = arith.muli %58, %58 : index
    %60 = arith.muli %59, %59 : index
    %61 = arith.muli %60, %60 : index
    %62 = arith.muli %61, %61 : index
    %63 = arith.muli %62, %62 : index
    %e = tensor.empty(%63) : tensor<?xf32>
    return %e : tensor<?xf32> }
}

// -----

// static stays
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 8, lower=8, upper=8, batch = true>]} {
  func.func @forward(%x: tensor<8x64xf32> {koila.name="x", koila.dims=#koila.dims<[B,64]>}) -> tensor<8x64xf32> {
    %0 = koila.relu %x : (tensor<8x64xf32>) -> tensor<8x64xf32>
    return %0 : tensor<8x64xf32> }
}

// -----

// symconv
module attributes {koila.symbols = [#koila.symbol<name="B", value=8, batch=true>, #koila.symbol<name="H", value=32>, #koila.symbol<name="W", value=33>]} {
  func.func @forward(%x: tensor<?x3x?x?xf32> {koila.name="x", koila.dims=#koila.dims<[B, 3, H, W]>}, %w: tensor<8x3x3x3xf32> {koila.name="w"}) -> tensor<*x!koila.any> {
    %0 = koila.conv2d %x, %w {stride=array<i64:2,2>,padding=array<i64:1>,dilation=array<i64:1>} : (tensor<?x3x?x?xf32>,tensor<8x3x3x3xf32>) -> tensor<*x!koila.any>
    %1 = koila.relu tied %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %1 : tensor<*x!koila.any> }
}

// -----

// symextent
module attributes {koila.symbols = [#koila.symbol<name="B", value=8, batch=true>, #koila.symbol<name="H", value=4>, #koila.symbol<name="W", value=7>]} {
  func.func @forward(%x: tensor<?x?x?xf32> {koila.name="x", koila.dims=#koila.dims<[B, H, floordiv(W, 2)]>}) -> tensor<*x!koila.any> {
    %0 = koila.flatten_using_ints %x {start_dim=1, end_dim=2} : (tensor<?x?x?xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// tied broadcast
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %e = tensor.empty() : tensor<1x64xf32>
    %0 = koila.add_Tensor tied %e, %x {alpha = 1 : i64} : (tensor<1x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
    return %0 : tensor<?x64xf32> }
}

// -----

// tied dtype
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<100xi8> {koila.name="x"}) -> tensor<100xf32> {
    %e = koila.neg %x : (tensor<100xi8>) -> tensor<100xi8>
    %0 = koila.sqrt tied %e : (tensor<100xi8>) -> tensor<100xf32>
    return %0 : tensor<100xf32> }
}

// -----

// tiledattr
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) attributes {koila.tiled = {tile = 1 : i128, guard="x", batch_symbol="B"}} { return }
}

// -----

// tiledattr2
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) attributes {koila.tiled = {tile = 170141183460469231731687303715884105727 : i128, guard="x", batch_symbol="B"}} { return }
}

// -----

// tiledattr3
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xf32> {koila.name="x"}) attributes {koila.tiled = {tile = 4 : ui8, guard="x", batch_symbol="B"}} { return }
}

// -----

// twice
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    return %0, %0 : tensor<?x64xf32>, tensor<?x64xf32> }
}

// -----

// two
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @a(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) { return }
  func.func @b(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) { return }
}

// -----

// unranked all
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<*x!koila.any> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.relu tied %x : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %1 = koila.flatten_using_ints %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %2 = koila.mean_dim %1 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %3 = koila.view %0 {size = array<i64: -1, 0>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %4 = koila.linear %2, %3 : (tensor<*x!koila.any>,tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %5 = koila.addmm %4, %4, %4 {beta=1:i64,alpha=1:i64} : (tensor<*x!koila.any>,tensor<*x!koila.any>,tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %6 = koila.conv2d %5, %4 {stride=array<i64:1>,padding=array<i64:1>,dilation=array<i64:1>} : (tensor<*x!koila.any>,tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %7 = koila.max_pool2d %6 {kernel_size=array<i64:1>,stride=array<i64:1>,padding=array<i64:0>,dilation=array<i64:1>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %8 = koila.adaptive_avg_pool2d %7 {output_size=array<i64:1,1>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %9 = koila.layer_norm %8 {normalized_shape=array<i64:1,1>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %10 = koila.softmax_int %9 {dim=0} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %11 = koila.dropout %10 {p=0.5:f64,train=true} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %12 = koila.add_Tensor tied %11, %0 {alpha=1:i64} : (tensor<*x!koila.any>,tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %s = koila.size_int %12 {dim=7} : (tensor<*x!koila.any>) -> i64
    %13 = koila.reshape %12 sizes(%s) {shape=array<i64: -9223372036854775808>} : (tensor<*x!koila.any>, i64) -> tensor<*x!koila.any>
    return %13 : tensor<*x!koila.any> }
}

// -----

// use after container
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> (tuple<tensor<?x64xf32>>, tensor<?x64xf32>) {
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    %t = koila.construct tuple(%0) : (tensor<?x64xf32>) -> tuple<tensor<?x64xf32>>
    %1 = koila.exp %0 : (tensor<?x64xf32>) -> tensor<?x64xf32>
    return %t, %1 : tuple<tensor<?x64xf32>>, tensor<?x64xf32> }
}

// -----

// vec add
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4xvector<2xf32>> {koila.name="x"}, %y: tensor<4xi32> {koila.name="y"}) -> tensor<*x!koila.any> {
    %0 = koila.add_Tensor %x, %y {alpha=1:i64} : (tensor<4xvector<2xf32>>,tensor<4xi32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// while
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<4x8xf32> {koila.name="x"}, %p: i1 {koila.name="n"}) -> tensor<4x8xf32> {
    %r = scf.while (%a = %x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
      scf.condition(%p) %a : tensor<4x8xf32>
    } do {
      ^bb0(%b: tensor<4x8xf32>):
      %0 = koila.relu %b : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %1 = koila.exp %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %d = koila.add_Tensor %0, %1 {alpha=1:i64} : (tensor<4x8xf32>,tensor<4x8xf32>) -> tensor<4x8xf32>
      scf.yield %d : tensor<4x8xf32>
    }
    return %r : tensor<4x8xf32> }
}

// -----

// zero
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<0x64xf32> {koila.name="x"}) -> (tensor<*x!koila.any>,tensor<*x!koila.any>) {
    %0 = koila.relu %x : (tensor<0x64xf32>) -> tensor<*x!koila.any>
    %1 = koila.flatten_using_ints %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %2 = koila.mean_dim %1 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %3 = koila.view %0 {size = array<i64: -1, 0>} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %2, %3 : tensor<*x!koila.any>, tensor<*x!koila.any> }
}

// -----

// sums of sizes that each fit, and a loop that nearly never ends
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<?x1152921504606846975xf32> {koila.name="x", koila.dims = #koila.dims<[B, 1152921504606846975]>}) -> tensor<*x!koila.any> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %end = arith.constant 9223372036854775807 : index
    %0 = koila.relu %x : (tensor<?x1152921504606846975xf32>) -> tensor<*x!koila.any>
    %1 = koila.exp %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %2 = koila.sigmoid %0 : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %3 = koila.add_Tensor %1, %2 {alpha = 1 : i64} : (tensor<*x!koila.any>, tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %n = arith.constant 9223372036854775807 : i64
    %r:2 = scf.for %i = %c0 to %end step %c1 iter_args(%a = %3, %k = %n) -> (tensor<*x!koila.any>, i64) {
      %m = arith.addi %k, %n : i64
      %e = koila.exp %a : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
      scf.yield %e, %m : tensor<*x!koila.any>, i64
    }
    return %r#0 : tensor<*x!koila.any> }
}

// -----

// a tensor of the largest size, and as much inside the operator
module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  func.func @forward(%x: tensor<2x3x9223372036854775807x8xf32> {koila.name="x"}) -> tensor<*x!koila.any> {
    %0 = koila.max_pool2d %x {kernel_size = array<i64: 1>, stride = array<i64>, padding = array<i64: 0>, dilation = array<i64: 64>, ceil_mode = true} : (tensor<2x3x9223372036854775807x8xf32>) -> tensor<*x!koila.any>
    return %0 : tensor<*x!koila.any> }
}

// -----

// An expression that would be written out with 2^40 parts.
func.func @doubling(%x: tensor<?xf32> {koila.name = "x", koila.dims = #koila.dims<[B]>}) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %v0 = tensor.dim %x, %c0 : tensor<?xf32>
  %w0 = arith.floordivsi %v0, %c3 : index
  %v1 = arith.maxsi %v0, %w0 : index
  %w1 = arith.floordivsi %v1, %c3 : index
  %v2 = arith.maxsi %v1, %w1 : index
  %w2 = arith.floordivsi %v2, %c3 : index
  %v3 = arith.maxsi %v2, %w2 : index
  %w3 = arith.floordivsi %v3, %c3 : index
  %v4 = arith.maxsi %v3, %w3 : index
  %w4 = arith.floordivsi %v4, %c3 : index
  %v5 = arith.maxsi %v4, %w4 : index
  %w5 = arith.floordivsi %v5, %c3 : index
  %v6 = arith.maxsi %v5, %w5 : index
  %w6 = arith.floordivsi %v6, %c3 : index
  %v7 = arith.maxsi %v6, %w6 : index
  %w7 = arith.floordivsi %v7, %c3 : index
  %v8 = arith.maxsi %v7, %w7 : index
  %w8 = arith.floordivsi %v8, %c3 : index
  %v9 = arith.maxsi %v8, %w8 : index
  %w9 = arith.floordivsi %v9, %c3 : index
  %v10 = arith.maxsi %v9, %w9 : index
  %w10 = arith.floordivsi %v10, %c3 : index
  %v11 = arith.maxsi %v10, %w10 : index
  %w11 = arith.floordivsi %v11, %c3 : index
  %v12 = arith.maxsi %v11, %w11 : index
  %w12 = arith.floordivsi %v12, %c3 : index
  %v13 = arith.maxsi %v12, %w12 : index
  %w13 = arith.floordivsi %v13, %c3 : index
  %v14 = arith.maxsi %v13, %w13 : index
  %w14 = arith.floordivsi %v14, %c3 : index
  %v15 = arith.maxsi %v14, %w14 : index
  %w15 = arith.floordivsi %v15, %c3 : index
  %v16 = arith.maxsi %v15, %w15 : index
  %w16 = arith.floordivsi %v16, %c3 : index
  %v17 = arith.maxsi %v16, %w16 : index
  %w17 = arith.floordivsi %v17, %c3 : index
  %v18 = arith.maxsi %v17, %w17 : index
  %w18 = arith.floordivsi %v18, %c3 : index
  %v19 = arith.maxsi %v18, %w18 : index
  %w19 = arith.floordivsi %v19, %c3 : index
  %v20 = arith.maxsi %v19, %w19 : index
  %w20 = arith.floordivsi %v20, %c3 : index
  %v21 = arith.maxsi %v20, %w20 : index
  %w21 = arith.floordivsi %v21, %c3 : index
  %v22 = arith.maxsi %v21, %w21 : index
  %w22 = arith.floordivsi %v22, %c3 : index
  %v23 = arith.maxsi %v22, %w22 : index
  %w23 = arith.floordivsi %v23, %c3 : index
  %v24 = arith.maxsi %v23, %w23 : index
  %w24 = arith.floordivsi %v24, %c3 : index
  %v25 = arith.maxsi %v24, %w24 : index
  %w25 = arith.floordivsi %v25, %c3 : index
  %v26 = arith.maxsi %v25, %w25 : index
  %w26 = arith.floordivsi %v26, %c3 : index
  %v27 = arith.maxsi %v26, %w26 : index
  %w27 = arith.floordivsi %v27, %c3 : index
  %v28 = arith.maxsi %v27, %w27 : index
  %w28 = arith.floordivsi %v28, %c3 : index
  %v29 = arith.maxsi %v28, %w28 : index
  %w29 = arith.floordivsi %v29, %c3 : index
  %v30 = arith.maxsi %v29, %w29 : index
  %w30 = arith.floordivsi %v30, %c3 : index
  %v31 = arith.maxsi %v30, %w30 : index
  %w31 = arith.floordivsi %v31, %c3 : index
  %v32 = arith.maxsi %v31, %w31 : index
  %w32 = arith.floordivsi %v32, %c3 : index
  %v33 = arith.maxsi %v32, %w32 : index
  %w33 = arith.floordivsi %v33, %c3 : index
  %v34 = arith.maxsi %v33, %w33 : index
  %w34 = arith.floordivsi %v34, %c3 : index
  %v35 = arith.maxsi %v34, %w34 : index
  %w35 = arith.floordivsi %v35, %c3 : index
  %v36 = arith.maxsi %v35, %w35 : index
  %w36 = arith.floordivsi %v36, %c3 : index
  %v37 = arith.maxsi %v36, %w36 : index
  %w37 = arith.floordivsi %v37, %c3 : index
  %v38 = arith.maxsi %v37, %w37 : index
  %w38 = arith.floordivsi %v38, %c3 : index
  %v39 = arith.maxsi %v38, %w38 : index
  %w39 = arith.floordivsi %v39, %c3 : index
  %v40 = arith.maxsi %v39, %w39 : index
  %e = tensor.empty(%v40) : tensor<?xf32>
  return
}
