module attributes {koila.training = false} {
  func.func @forward(%arg0: tensor<*x!koila.any> {koila.name = "x"}) -> tensor<*x!koila.any> {
    %0 = koila.torch_op "prim::CreateObject"() args [] effects none {koila.reads} : () -> !koila.torch<"__torch__.Mean">
    %1 = koila.zeros  {koila.reads, size = array<i64: 4>} : () -> tensor<*x!koila.any>
    koila.torch_op "prim::SetAttr"(%0, %1) args [#koila.operand<0>, "sum", #koila.operand<1>] effects unknown {koila.reads} : (!koila.torch<"__torch__.Mean">, tensor<*x!koila.any>) -> ()
    koila.torch_op "prim::SetAttr"(%0) args [#koila.operand<0>, "count", 0] effects unknown {koila.reads} : (!koila.torch<"__torch__.Mean">) -> ()
    %c2_i64 = arith.constant 2 : i64
    %c0_i64 = arith.constant 0 : i64
    %c1_i64 = arith.constant 1 : i64
    scf.for %arg1 = %c0_i64 to %c2_i64 step %c1_i64  : i64 {
      %6 = koila.torch_op "prim::GetAttr"(%0) args [#koila.operand<0>, "sum"] effects none {koila.reads} : (!koila.torch<"__torch__.Mean">) -> tensor<*x!koila.any>
      %7 = koila.sum_dim_IntList %arg0 {dim = array<i64: 0>, koila.reads} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
      %8 = koila.add_Tensor %6, %7 {alpha = 1 : i64, koila.reads} : (tensor<*x!koila.any>, tensor<*x!koila.any>) -> tensor<*x!koila.any>
      koila.torch_op "prim::SetAttr"(%0, %8) args [#koila.operand<0>, "sum", #koila.operand<1>] effects unknown {koila.reads} : (!koila.torch<"__torch__.Mean">, tensor<*x!koila.any>) -> ()
      %9 = koila.torch_op "prim::GetAttr"(%0) args [#koila.operand<0>, "count"] effects none {koila.reads} : (!koila.torch<"__torch__.Mean">) -> i64
      %10 = koila.size_int %arg0 {dim = 0 : i64, koila.reads} : (tensor<*x!koila.any>) -> i64
      %11 = koila.torch_op "aten::add.int"(%9, %10) args [#koila.operand<0>, #koila.operand<1>] effects none {koila.reads} : (i64, i64) -> i64
      koila.torch_op "prim::SetAttr"(%0, %11) args [#koila.operand<0>, "count", #koila.operand<1>] effects unknown {koila.reads} : (!koila.torch<"__torch__.Mean">, i64) -> ()
    }
    %2 = koila.torch_op "prim::GetAttr"(%0) args [#koila.operand<0>, "sum"] effects none {koila.reads} : (!koila.torch<"__torch__.Mean">) -> tensor<*x!koila.any>
    %3 = koila.torch_op "prim::GetAttr"(%0) args [#koila.operand<0>, "count"] effects none {koila.reads} : (!koila.torch<"__torch__.Mean">) -> i64
    %4 = koila.div_Scalar %2, %3 {koila.reads, other = #koila.dynamic} : (tensor<*x!koila.any>, i64) -> tensor<*x!koila.any>
    %5 = koila.sub_Tensor %arg0, %4 {alpha = 1 : i64} : (tensor<*x!koila.any>, tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %5 : tensor<*x!koila.any>
  }
}

