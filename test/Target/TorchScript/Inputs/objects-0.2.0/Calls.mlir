module attributes {koila.training = false} {
  func.func @forward(%arg0: tensor<*x!koila.any> {koila.name = "x"}) -> tensor<*x!koila.any> {
    %0 = koila.torch_op "prim::GetAttr"() args ["stage"] effects none : () -> !koila.torch<"__torch__.Stage">
    %1 = koila.torch_op "prim::CallMethod"(%0, %arg0) args [#koila.operand<0>, #koila.operand<1>, "forward"] effects unknown {koila.reads} : (!koila.torch<"__torch__.Stage">, tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %2 = koila.torch_op "prim::CallMethod"(%0, %1) args [#koila.operand<0>, #koila.operand<1>, 3, unit, "scale"] effects unknown {koila.reads} : (!koila.torch<"__torch__.Stage">, tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %3 = koila.torch_op "prim::CallMethod"(%0, %arg0, %1) args [#koila.operand<0>, #koila.operand<1>, 2, #koila.operand<2>, "scale"] effects unknown {koila.reads} : (!koila.torch<"__torch__.Stage">, tensor<*x!koila.any>, tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %4 = koila.add_Tensor %2, %3 {alpha = 1 : i64, koila.reads} : (tensor<*x!koila.any>, tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %4 : tensor<*x!koila.any>
  }
}

