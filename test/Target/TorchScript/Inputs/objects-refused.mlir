//--- nothing.mlir
// An attribute that the archive has not.
func.func @forward(%x: tensor<*x!koila.any> {koila.name = "x"})
    -> i64 {
  %0 = koila.attr.get "nothing" -> i64
  return %0 : i64
}
//--- inner.mlir
// An interface declares methods alone.
func.func @forward(%x: tensor<*x!koila.any> {koila.name = "x"}) {
  %n = arith.constant 3 : i64
  koila.attr.set "stage.calls" = %n : i64
  return
}
//--- unknown.mlir
// A class that no value of the archive's program has.
func.func @forward(%x: tensor<*x!koila.any> {koila.name = "x"})
    -> !koila.torch<"__torch__.Nothing"> {
  %0 = koila.attr.get "stage" -> !koila.torch<"__torch__.Stage">
  %1 = koila.call_method "forward" of %0(%x) : (!koila.torch<"__torch__.Stage">, tensor<*x!koila.any>) -> !koila.torch<"__torch__.Nothing">
  return %1 : !koila.torch<"__torch__.Nothing">
}
//--- old-get.mlir
// No name.
func.func @forward(%x: tensor<*x!koila.any> {koila.name = "x"})
    -> i64 {
  %0 = koila.torch_op "prim::GetAttr"(%x) args [#koila.operand<0>] effects none : (tensor<*x!koila.any>) -> i64
  return %0 : i64
}
//--- old-set.mlir
// Two objects.
func.func @forward(%x: tensor<*x!koila.any> {koila.name = "x"}) {
  koila.torch_op "prim::SetAttr"(%x) args [unit, unit, "calls", 3] effects unknown : (tensor<*x!koila.any>) -> ()
  return
}
