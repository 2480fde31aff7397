//===- KoilaNormOps.td - Normalisations, softmax, dropout --*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILANORMOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILANORMOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

def Koila_BatchNormOp : Koila_TorchOp<"batch_norm",
  "aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
  "", [AttrSizedOperandSegments], "!getTraining()"> {
  let summary = "batch normalisation";
  let description = [{
    The result has shape, element type and strides of `input`. In eval mode
    each sample is normalised alone with the running statistics. In training
    mode samples meet, and the running statistics are written: such an
    operation is not built from a file, the opaque operator stands for it.
    New storage.
  }];
  let arguments = (ins AnyTensor:$input, Koila_OptionalTensor:$weight,
    Koila_OptionalTensor:$bias, Koila_OptionalTensor:$running_mean,
    Koila_OptionalTensor:$running_var, BoolAttr:$training, F64Attr:$momentum,
    F64Attr:$eps, BoolAttr:$cudnn_enabled);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = [{
    $input (`weight` $weight^)? (`bias` $bias^)?
    (`running_mean` $running_mean^)? (`running_var` $running_var^)?
    attr-dict `:` functional-type(operands, results)
  }];
}

def Koila_LayerNormOp : Koila_TorchOp<"layer_norm",
  "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enable=True) -> Tensor",
  "", [AttrSizedOperandSegments]> {
  let summary = "normalisation over the trailing dims";
  let description = [{
    The result has shape and element type of `input`, whose trailing extents
    must be `normalized_shape`. A batch among the normalised dims mixes
    samples. New storage; mean and reciprocal deviation of each row live
    inside.
  }];
  let arguments = (ins AnyTensor:$input, DenseI64ArrayAttr:$normalized_shape,
    Koila_OptionalTensor:$weight, Koila_OptionalTensor:$bias,
    DefaultValuedAttr<F64Attr, "1e-5">:$eps,
    DefaultValuedAttr<BoolAttr, "true">:$cudnn_enable);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = [{
    $input (`weight` $weight^)? (`bias` $bias^)?
    attr-dict `:` functional-type(operands, results)
  }];
}

class Koila_SoftmaxOp<string mnemonic, string schema>
    : Koila_TorchOp<mnemonic, schema> {
  let summary = "softmax over one dim, as `" # schema # "`";
  let description = [{
    The result has the shape of `self` and the element type `dtype`, or that
    of `self`. Over the batch dim it mixes samples. New storage.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$dim,
                       OptionalAttr<I64Attr>:$dtype);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "$self attr-dict `:` functional-type($self, $result)";
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferSoftmax(rule, getSelf(), getDim(),
                                          getDtype());
    }
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      ::koila::rules::inferAlongDimBatch(rule, getSelf(), getDim(), "softmax");
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {}
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      ::koila::rules::describeSoftmaxWorkspace(rule, getSelf(), getResult());
    }
  }];
}

def Koila_SoftmaxIntOp : Koila_SoftmaxOp<"softmax_int",
  "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor">;
def Koila_LogSoftmaxIntOp : Koila_SoftmaxOp<"log_softmax_int",
  "aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor">;

def Koila_DropoutOp : Koila_TorchOp<"dropout",
  "aten::dropout(Tensor input, float p, bool train) -> Tensor",
  "", [], "!getTrain() || getP().isZero()"> {
  let summary = "dropout outside training: the identity";
  let description = [{
    Returns `input` itself: an alias. With `train` it draws random numbers;
    such an operation is not built from a file, the opaque operator stands for
    it.
  }];
  let arguments = (ins AnyTensor:$input, F64Attr:$p, BoolAttr:$train);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type($input, $result)";
}

#endif // KOILA_DIALECT_KOILA_IR_KOILANORMOPS_TD
