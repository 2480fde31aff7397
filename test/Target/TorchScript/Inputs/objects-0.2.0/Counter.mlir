module attributes {koila.training = false} {
  koila.param @steps : tensor<i64> keys ["steps"] strides [] buffer
  koila.param @inner.last : tensor<4xf32> keys ["inner.last"] strides [1] buffer
  func.func @forward(%arg0: tensor<*x!koila.any> {koila.name = "x"}) -> tuple<tensor<*x!koila.any>, tensor<*x!koila.any>> {
    %0 = koila.torch_op "prim::GetAttr"() args ["steps"] effects none {koila.reads} : () -> tensor<*x!koila.any>
    %1 = koila.torch_op "prim::GetAttr"() args ["steps"] effects none {koila.reads} : () -> tensor<*x!koila.any>
    %2 = koila.add_Scalar %1 {alpha = 1 : i64, other = 1 : i64} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    koila.torch_op "prim::SetAttr"(%2) args ["steps", #koila.operand<0>] effects unknown : (tensor<*x!koila.any>) -> ()
    %3 = koila.torch_op "prim::GetAttr"() args ["calls"] effects none {koila.reads} : () -> i64
    %c1_i64 = arith.constant 1 : i64
    %4 = arith.addi %3, %c1_i64 : i64
    koila.torch_op "prim::SetAttr"(%4) args ["calls", #koila.operand<0>] effects unknown : (i64) -> ()
    %5 = koila.select_int %arg0 {dim = 0 : i64, index = 0 : i64} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %6 = koila.torch_op "prim::GetAttr"() args ["steps"] effects none {koila.reads} : () -> tensor<*x!koila.any>
    %7 = koila.mul_Tensor %5, %6 : (tensor<*x!koila.any>, tensor<*x!koila.any>) -> tensor<*x!koila.any>
    koila.torch_op "prim::SetAttr"(%7) args ["inner.last", #koila.operand<0>] effects unknown : (tensor<*x!koila.any>) -> ()
    koila.torch_op "prim::SetAttr"() args ["inner.name", "some"] effects unknown : () -> ()
    koila.torch_op "prim::SetAttr"() args ["seen", unit] effects unknown : () -> ()
    %8 = koila.torch_op "prim::GetAttr"() args ["calls"] effects none {koila.reads} : () -> i64
    %9 = koila.mul_Scalar %arg0, %8 {other = #koila.dynamic} : (tensor<*x!koila.any>, i64) -> tensor<*x!koila.any>
    %10 = koila.torch_op "prim::GetAttr"() args ["inner.last"] effects none {koila.reads} : () -> tensor<*x!koila.any>
    %11 = koila.add_Tensor %9, %10 {alpha = 1 : i64} : (tensor<*x!koila.any>, tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %12 = koila.construct tuple(%11, %0) : (tensor<*x!koila.any>, tensor<*x!koila.any>) -> tuple<tensor<*x!koila.any>, tensor<*x!koila.any>>
    return %12 : tuple<tensor<*x!koila.any>, tensor<*x!koila.any>>
  }
}

