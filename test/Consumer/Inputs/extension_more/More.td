include "koila/Extension/ExtensionOp.td"

def More_Dialect : Dialect {
  let name = "more";
  let cppNamespace = "::more";
  let dependentDialects = ["::koila::KoilaDialect"];
}

// A number that the program may compute, and a twin that writes in place.
def More_ScaleOp : Koila_ExtensionOp<More_Dialect, "scale",
    "more::scale(Tensor x, Scalar factor) -> Tensor",
    "more::scale_(Tensor(a!) x, Scalar factor) -> Tensor(a!)"> {
  let arguments = (ins AnyTensor:$x, Koila_ScalarAttr:$factor, UnitAttr:$tied,
                       Variadic<AnyType>:$dynamic);
  let shapeRule = [{
    rule.setResult(0, rule.tensor(getX()));
    return ::mlir::success();
  }];
  let batchRule = [{
    if (!rule.argumentFact("factor").isFree())
      return rule.mix("the factor depends on the number of samples");
    rule.setResult(0, rule.fact(getX()));
  }];
  let workspaceRule = "";
}

// Several results, and arguments of all kinds.
def More_PartsOp : Koila_ExtensionOp<More_Dialect, "parts",
    "more::parts(Tensor[] xs, Tensor? bias=None, int[2] by=[1, 2], bool again=False) -> (Tensor, Tensor)",
    "", [AttrSizedOperandSegments]> {
  let arguments = (ins Variadic<AnyTensor>:$xs, Koila_OptionalTensor:$bias,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{1, 2}">:$by,
                       DefaultValuedAttr<BoolAttr, "false">:$again);
  let results = (outs AnyTensor:$first, AnyTensor:$second);
  let shapeRule = [{
    if (getXs().empty())
      return rule.emitError() << "takes at least one tensor";
    for (unsigned index : {0, 1})
      rule.setResult(index, rule.tensor(getXs().front()));
    return ::mlir::success();
  }];
  let batchRule = [{
    if (getBias() && !rule.fact(getBias()).isFree())
      return rule.mix("the bias has a batch");
    for (::mlir::Value x : getXs())
      if (!(rule.fact(x) == rule.fact(getXs().front())))
        return rule.mix("the batch is not in the same place");
    rule.setAll(rule.fact(getXs().front()));
  }];
  // The sum of all, which is not returned.
  let workspaceRule = [{
    if (auto x = rule.tensor(getXs().front()))
      rule.setTransient(x->numBytes());
    else
      rule.setInexact("the size of a tensor is not known");
  }];
}

// Draws by the generator.
def More_NoiseOp : Koila_ExtensionOp<More_Dialect, "noise",
    "more::noise(Tensor x) -> Tensor", "", [], "true", Koila_Draws> {
  let arguments = (ins AnyTensor:$x);
  let shapeRule = [{
    rule.setResult(0, rule.tensor(getX()));
    return ::mlir::success();
  }];
  let batchRule = "rule.setResult(0, rule.fact(getX()));";
  let workspaceRule = "";
}
