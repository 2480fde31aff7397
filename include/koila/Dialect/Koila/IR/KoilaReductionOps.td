//===- KoilaReductionOps.td - Reductions -------------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAREDUCTIONOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAREDUCTIONOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

def Koila_MeanDimOp : Koila_TorchOp<"mean_dim",
  "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"> {
  let summary = "mean over dims";
  let description = [{
    The extents of `dim` are dropped, or become one with `keepdim`; no `dim`
    means all. Integers without `dtype` are refused, as are dims out of range
    or given twice. Over the batch dim it mixes samples. New storage.
  }];
  let arguments = (ins AnyTensor:$self, OptionalAttr<DenseI64ArrayAttr>:$dim,
                       DefaultValuedAttr<BoolAttr, "false">:$keepdim,
                       OptionalAttr<I64Attr>:$dtype);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "$self attr-dict `:` functional-type($self, $result)";
}

#endif // KOILA_DIALECT_KOILA_IR_KOILAREDUCTIONOPS_TD
