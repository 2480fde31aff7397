//===- KoilaMatmulOps.td - Products with matrices ----------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAMATMULOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAMATMULOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

def Koila_LinearOp : Koila_TorchOp<"linear",
  "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"> {
  let summary = "the last dim times a weight matrix, plus a bias";
  let description = [{
    `[..., in]` and `[out, in]` give `[..., out]`. Refused: a last extent that
    is known to differ from the weight's. A batch in any leading dim stays
    there; in the last dim it mixes samples. New storage.
  }];
  let arguments = (ins AnyTensor:$input, AnyTensor:$weight,
                       Koila_OptionalTensor:$bias);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight (`,` $bias^)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def Koila_AddmmOp : Koila_TorchOp<"addmm",
  "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"> {
  let summary = "beta * self + alpha * (mat1 @ mat2)";
  let description = [{
    `[n, k]` and `[k, m]` give `[n, m]`; `self` broadcasts to it. A batch in
    the rows of `mat1` stays there; in `k` it mixes samples. New storage.
  }];
  let arguments = (ins AnyTensor:$self, AnyTensor:$mat1, AnyTensor:$mat2,
    Koila_ScalarAttr:$beta,
    Koila_ScalarAttr:$alpha);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = [{
    $self `,` $mat1 `,` $mat2 attr-dict `:` functional-type(operands, results)
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_KOILAMATMULOPS_TD
