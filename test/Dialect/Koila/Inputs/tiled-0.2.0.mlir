module attributes {koila.archive = #koila.archive<path = "net.pt", fingerprint = "0674f6364f723e211b9952ac94c3c8410885e7a42528b08549701a013d0625b9", function = "forward">, koila.report = "{\22allocator\22:\22exact\22,\22batch\22:{\22symbol\22:\22B\22,\22value\22:64},\22batch_pieces\22:[],\22by_kind\22:[{\22bytes\22:36864,\22name\22:\22workspace\22,\22tensors\22:1},{\22bytes\22:18432,\22name\22:\22activation\22,\22tensors\22:1},{\22bytes\22:1024,\22name\22:\22output\22,\22tensors\22:1}],\22by_line\22:[{\22bytes\22:55296,\22name\22:\22net.py:8\22,\22tensors\22:2},{\22bytes\22:1024,\22name\22:\22net.py:13\22,\22tensors\22:1}],\22by_module\22:[{\22bytes\22:55296,\22name\22:\22conv\22,\22tensors\22:2},{\22bytes\22:1024,\22name\22:\22the top module\22,\22tensors\22:1}],\22device\22:\22cpu\22,\22exact\22:false,\22executor\22:\22no-profiling\22,\22floor_bytes\22:6064,\22function\22:\22forward\22,\22gradient_bytes\22:0,\22inexact\22:[{\22bound\22:false,\22location\22:{\22column\22:30,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:13,\22module\22:\22head\22},\22op\22:\22koila.linear\22,\22reason\22:\22the size of a result is not known; it is counted as 0 bytes\22},{\22bound\22:false,\22location\22:{\22column\22:16,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:13,\22module\22:\22\22},\22op\22:\22koila.softmax_int\22,\22reason\22:\22the size of a result is not known; it is counted as 0 bytes\22},{\22bound\22:false,\22location\22:{\22column\22:13,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22pool\22},\22op\22:\22koila.max_pool2d\22,\22reason\22:\22its storage is handed on by a loop or branch\22}],\22input_bytes\22:49152,\22isa\22:\22avx512_core_vnni\22,\22live_at_peak\22:[{\22bytes\22:36864,\22kind\22:\22workspace\22,\22location\22:{\22column\22:45,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22conv\22},\22name\22:\22koila.conv2d\22,\22type\22:\22\22},{\22bytes\22:18432,\22kind\22:\22activation\22,\22location\22:{\22column\22:45,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22conv\22},\22name\22:\22conv\22,\22type\22:\22tensor<16x8x6x6xf32>\22},{\22bytes\22:1024,\22kind\22:\22output\22,\22location\22:{\22column\22:16,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:13,\22module\22:\22\22},\22name\22:\22empty\22,\22type\22:\22tensor<64x4xf32>\22}],\22max_batch\22:null,\22mode\22:\22inference\22,\22optimizer_bytes\22:0,\22output_bytes\22:1024,\22outside_allocator_bytes\22:null,\22parameter_bytes\22:2200,\22peak_bytes\22:56320,\22peak_location\22:{\22column\22:45,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22conv\22},\22promise\22:null,\22schema\22:1,\22storages\22:[{\22bytes\22:1024,\22freed_by\22:null,\22from\22:0,\22kind\22:\22output\22,\22location\22:{\22column\22:16,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:13,\22module\22:\22\22},\22name\22:\22empty\22,\22to\22:7,\22type\22:\22tensor<64x4xf32>\22},{\22bytes\22:18432,\22freed_by\22:{\22location\22:{\22column\22:35,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22norm\22},\22op\22:\22koila.batch_norm\22},\22from\22:1,\22kind\22:\22activation\22,\22location\22:{\22column\22:45,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22conv\22},\22name\22:\22conv\22,\22to\22:2,\22type\22:\22tensor<1x8x6x6xf32>\22},{\22bytes\22:18432,\22freed_by\22:{\22location\22:{\22column\22:13,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22pool\22},\22op\22:\22koila.max_pool2d\22},\22from\22:2,\22kind\22:\22activation\22,\22location\22:{\22column\22:35,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22norm\22},\22name\22:\22norm\22,\22to\22:3,\22type\22:\22tensor<1x8x6x6xf32>\22},{\22bytes\22:9216,\22freed_by\22:{\22location\22:{\22column\22:0,\22file\22:\22net.pt\22,\22function\22:\22forward\22,\22line\22:0,\22module\22:\22\22},\22op\22:\22scf.for\22},\22from\22:3,\22kind\22:\22activation\22,\22location\22:{\22column\22:13,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22pool\22},\22name\22:\22pool\22,\22to\22:7,\22type\22:\22tensor<1x8x3x3xf32>\22}],\22threads\22:1,\22timeline\22:[{\22index\22:0,\22live_bytes\22:1024,\22location\22:{\22column\22:16,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:13,\22module\22:\22\22},\22op\22:\22tensor.empty\22,\22transient_bytes\22:0},{\22index\22:1,\22live_bytes\22:19456,\22location\22:{\22column\22:45,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22conv\22},\22op\22:\22koila.conv2d\22,\22transient_bytes\22:36864},{\22index\22:2,\22live_bytes\22:37888,\22location\22:{\22column\22:35,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22norm\22},\22op\22:\22koila.batch_norm\22,\22transient_bytes\22:64},{\22index\22:3,\22live_bytes\22:24064,\22location\22:{\22column\22:13,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:8,\22module\22:\22pool\22},\22op\22:\22koila.max_pool2d\22,\22transient_bytes\22:9216},{\22index\22:4,\22live_bytes\22:10240,\22location\22:{\22column\22:17,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:12,\22module\22:\22\22},\22op\22:\22koila.mul_Scalar\22,\22transient_bytes\22:12},{\22index\22:5,\22live_bytes\22:5632,\22location\22:{\22column\22:30,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:13,\22module\22:\22head\22},\22op\22:\22koila.linear\22,\22transient_bytes\22:0},{\22index\22:6,\22live_bytes\22:5632,\22location\22:{\22column\22:16,\22file\22:\22net.py\22,\22function\22:\22\22,\22line\22:13,\22module\22:\22\22},\22op\22:\22koila.softmax_int\22,\22transient_bytes\22:0},{\22index\22:7,\22live_bytes\22:5632,\22location\22:{\22column\22:0,\22file\22:\22net.pt\22,\22function\22:\22forward\22,\22line\22:0,\22module\22:\22\22},\22op\22:\22tensor.insert_slice\22,\22transient_bytes\22:0}],\22torch\22:\222.13.0\22}", koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>], koila.training = false} {
  koila.param @conv.weight : tensor<8x3x3x3xf32> keys ["conv.weight"] strides [27, 9, 3, 1] requires_grad
  koila.param @conv.bias : tensor<8xf32> keys ["conv.bias"] strides [1] requires_grad
  koila.param @norm.weight : tensor<8xf32> keys ["norm.weight"] strides [1] requires_grad
  koila.param @norm.bias : tensor<8xf32> keys ["norm.bias"] strides [1] requires_grad
  koila.param @head.weight : tensor<4x72xf32> keys ["head.weight"] strides [72, 1] requires_grad
  koila.param @head.bias : tensor<4xf32> keys ["head.bias"] strides [1] requires_grad
  koila.param @norm.running_mean : tensor<8xf32> keys ["norm.running_mean"] strides [1] buffer
  koila.param @norm.running_var : tensor<8xf32> keys ["norm.running_var"] strides [1] buffer
  koila.param @norm.num_batches_tracked : tensor<i64> keys ["norm.num_batches_tracked"] strides [] buffer
  func.func @forward(%arg0: tensor<?x3x8x8xf32> {koila.dims = #koila.dims<[B, 3, 8, 8]>, koila.name = "x"}, %arg1: f64 {koila.default = 2.000000e+00 : f64, koila.name = "scale", koila.value = 2.000000e+00 : f64}) -> tensor<?x4xf32> attributes {koila.specialized, koila.tiled = {batch_symbol = "B", guard = "warn", tile = 16 : i64}} {
    koila.assume dtype %arg0 : tensor<?x3x8x8xf32> is f32
    koila.assume rank %arg0 : tensor<?x3x8x8xf32> is 4 : i64
    koila.assume extent %arg0 : tensor<?x3x8x8xf32>[0] is #koila.expr<B>
    koila.assume extent %arg0 : tensor<?x3x8x8xf32>[1] is #koila.expr<3>
    koila.assume extent %arg0 : tensor<?x3x8x8xf32>[2] is #koila.expr<8>
    koila.assume extent %arg0 : tensor<?x3x8x8xf32>[3] is #koila.expr<8>
    koila.assume training is false
    koila.assume attribute "norm.training" is false
    koila.assume attribute "drop.training" is false
    %0 = koila.param.get @conv.weight : tensor<8x3x3x3xf32>
    %1 = koila.param.get @conv.bias : tensor<8xf32>
    %2 = koila.param.get @norm.weight : tensor<8xf32>
    %3 = koila.param.get @norm.bias : tensor<8xf32>
    %4 = koila.param.get @norm.running_mean : tensor<8xf32>
    %5 = koila.param.get @norm.running_var : tensor<8xf32>
    %6 = koila.torch_op "aten::gt.float"(%arg1) args [#koila.operand<0>, 1.000000e+00] effects none : (f64) -> i1
    %7 = koila.param.get @head.weight : tensor<4x72xf32>
    %8 = koila.param.get @head.bias : tensor<4xf32>
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c0_0 = arith.constant 0 : index
    %dim = tensor.dim %arg0, %c0_0 : tensor<?x3x8x8xf32>
    %c16 = arith.constant 16 : index
    %c5 = arith.constant 5 : index
    %9 = tensor.empty(%dim) : tensor<?x4xf32>
    %10:3 = scf.for %arg2 = %c0 to %c5 step %c1 iter_args(%arg3 = %9, %arg4 = %c0, %arg5 = %c16) -> (tensor<?x4xf32>, index, index) {
      %11 = arith.subi %dim, %arg4 : index
      %12 = arith.floordivsi %11, %arg5 : index
      %13:2 = scf.for %arg6 = %c0 to %12 step %c1 iter_args(%arg7 = %arg3, %arg8 = %arg4) -> (tensor<?x4xf32>, index) {
        %extracted_slice = tensor.extract_slice %arg0[%arg8, 0, 0, 0] [%arg5, 3, 8, 8] [1, 1, 1, 1] : tensor<?x3x8x8xf32> to tensor<?x3x8x8xf32>
        %15 = koila.conv2d %extracted_slice, %0, %1 {dilation = array<i64: 1, 1>, padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<?x3x8x8xf32>, tensor<8x3x3x3xf32>, tensor<8xf32>) -> tensor<?x8x6x6xf32>
        %16 = koila.batch_norm %15 weight %2 bias %3 running_mean %4 running_var %5 {cudnn_enabled = true, eps = 1.000000e-05 : f64, momentum = 1.000000e-01 : f64, training = false} : (tensor<?x8x6x6xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x8x6x6xf32>
        %17 = koila.relu tied %16 : (tensor<?x8x6x6xf32>) -> tensor<?x8x6x6xf32>
        %18 = koila.max_pool2d %17 {dilation = array<i64: 1, 1>, kernel_size = array<i64: 2, 2>, padding = array<i64: 0, 0>, stride = array<i64: 2, 2>} : (tensor<?x8x6x6xf32>) -> tensor<?x8x3x3xf32>
        %19 = koila.flatten_using_ints %18 {start_dim = 1 : i64} : (tensor<?x8x3x3xf32>) -> tensor<?x72xf32>
        %20 = scf.if %6 -> (tensor<?x72xf32>) {
          %25 = koila.mul_Scalar %19, %arg1 {other = #koila.dynamic} : (tensor<?x72xf32>, f64) -> tensor<?x72xf32>
          scf.yield %25 : tensor<?x72xf32>
        } else {
          scf.yield %19 : tensor<?x72xf32>
        }
        %21 = koila.dropout %20 {p = 5.000000e-01 : f64, train = false} : (tensor<?x72xf32>) -> tensor<?x72xf32>
        %22 = koila.linear %21, %7, %8 : (tensor<?x72xf32>, tensor<4x72xf32>, tensor<4xf32>) -> tensor<?x4xf32>
        %23 = koila.softmax_int %22 {dim = -1 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
        %c0_1 = arith.constant 0 : index
        %dim_2 = tensor.dim %23, %c0_1 : tensor<?x4xf32>
        %inserted_slice = tensor.insert_slice %23 into %arg7[%arg8, 0] [%dim_2, 4] [1, 1] : tensor<?x4xf32> into tensor<?x4xf32>
        %24 = arith.addi %arg8, %arg5 : index
        scf.yield %inserted_slice, %24 : tensor<?x4xf32>, index
      }
      %14 = arith.floordivsi %arg5, %c2 : index
      scf.yield %13#0, %13#1, %14 : tensor<?x4xf32>, index, index
    }
    return %10#0 : tensor<?x4xf32>
  }
}

