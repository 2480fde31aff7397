//===- NormOps.td - Normalisations, softmax, dropout -------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_NORMOPS_TD
#define KOILA_DIALECT_KOILA_IR_NORMOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"
include "koila/Interfaces/BackwardOperator.td"
include "koila/Interfaces/RandomOp.td"

/// See NormOps.h.
def Koila_SingleSampleGradientUnreliable : NativeOpTrait<"SingleSampleGradientUnreliable"> {
  let cppNamespace = "::koila";
}

def Koila_BatchNormOp : Koila_TorchOp<"batch_norm",
  "aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
  "", [AttrSizedOperandSegments, Koila_SingleSampleGradientUnreliable,
       Koila_BatchStatisticsInterface], "true", Koila_Updates> {
  let summary = "batch normalisation";
  let description = [{
    The result has shape, element type and strides of `input`. In eval mode
    each sample is normalised alone with the running statistics. In training
    mode samples are mixed, and the running statistics are written; with the mark
    `koila.per_tile` each tile is normalised by itself. New storage.
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
  let differentiationRule = "::koila::rules::describeNormDerivative(rule);";
  let extraClassDeclaration = baseDeclaration # [{
    bool usesBatchStatistics() { return getTraining(); }
    /// The running statistics, in training mode.
    ::llvm::SmallVector<::mlir::OpOperand *> getUpdated();
  }];
}

def Koila_BatchNormUpdateStatsOp : Koila_RuledOp<"batch_norm_update_stats",
  "aten::batch_norm_update_stats(Tensor input, Tensor? running_mean, Tensor? running_var, float momentum) -> (Tensor, Tensor)",
  "", [AttrSizedOperandSegments], "!getRunningMean() && !getRunningVar()"> {
  let description = [{
    The mean of each channel over all else, and the mean of the squares of what
    is off it. Over the batch it mixes samples: tiles have means and squares of
    their own, which are combined. With running statistics, which it would write,
    it stays opaque. New storage.
  }];
  let arguments = (ins AnyTensor:$input, Koila_OptionalTensor:$running_mean,
    Koila_OptionalTensor:$running_var, F64Attr:$momentum);
  let results = (outs AnyTensor:$mean, AnyTensor:$variance);
  let shapeRule = "return ::koila::rules::inferBatchNormStats(rule, getInput());";
  let batchRule = "::koila::rules::inferBatchNormStatsBatch(rule, getInput());";
}

def Koila_NativeBatchNormBackwardOp : Koila_RuledOp<"native_batch_norm_backward",
  "aten::native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean, Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, bool train, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
  "", [AttrSizedOperandSegments]> {
  let description = [{
    The gradients of batch_norm's input, weight and bias, of which `output_mask`
    names those that are computed; the others are no tensors. Those of weight and
    bias are sums over the batch, with `train` that of the input depends on them,
    and samples are mixed. New storage.
  }];
  let arguments = (ins AnyTensor:$grad_out, AnyTensor:$input,
    Koila_OptionalTensor:$weight, Koila_OptionalTensor:$running_mean,
    Koila_OptionalTensor:$running_var, Koila_OptionalTensor:$save_mean,
    Koila_OptionalTensor:$save_invstd, BoolAttr:$train, F64Attr:$eps,
    DenseBoolArrayAttr:$output_mask);
  let results = (outs AnyTensor:$grad_input, AnyTensor:$grad_weight,
                      AnyTensor:$grad_bias);
  let shapeRule = "return ::koila::rules::inferNativeBatchNormBackward(rule);";
  let batchRule = "::koila::rules::inferNativeBatchNormBackwardBatch(rule);";
  let storageRule = "::koila::rules::describeMaskedStorage(rule, getOutputMask());";
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
    DefaultValuedAttr<BoolAttr, "true">:$cudnn_enable,
    Variadic<AnyType>:$dynamic);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = [{
    $input (`weight` $weight^)? (`bias` $bias^)? (`shape` `(` $dynamic^ `)`)?
    attr-dict `:` functional-type(operands, results)
  }];
  let differentiationRule = "::koila::rules::describeNormDerivative(rule);";
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
  let extraClassDefinition = baseDefinition # [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferSoftmax(rule, getSelf(), getDim(),
                                          getDtype());
    }
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      ::koila::rules::inferAlongDimBatch(rule, getSelf(), getDim(), "softmax");
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {}
  }];
  let differentiationRule = "rule.save(getResult());";
}

def Koila_SoftmaxIntOp : Koila_SoftmaxOp<"softmax_int",
  "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor">;
def Koila_LogSoftmaxIntOp : Koila_SoftmaxOp<"log_softmax_int",
  "aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor">;

class Koila_RawSoftmaxFamilyOp<string mnemonic, string schema>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    As softmax, without a cast before it. A half type becomes float32 with
    `half_to_float`.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$dim, BoolAttr:$half_to_float);
  let shapeRule = "return ::koila::rules::inferSoftmax(rule, getSelf(), getDim(), "
      "getHalfToFloat() ? std::optional<int64_t>(6) : std::nullopt);";
  let batchRule = "::koila::rules::inferAlongDimBatch(rule, getSelf(), getDim(), \"softmax\");";
}
def Koila_RawSoftmaxOp : Koila_RawSoftmaxFamilyOp<"_softmax",
  "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor">;
def Koila_RawLogSoftmaxOp : Koila_RawSoftmaxFamilyOp<"_log_softmax",
  "aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor">;

def Koila_RmsNormOp : Koila_RuledOp<"rms_norm",
  "aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
  "", [AttrSizedOperandSegments]> {
  let description = [{
    Divides by the root of the mean square over the trailing dims, whose
    extents must be `normalized_shape`. The element type is that of `input`.
    A batch among those dims mixes samples. New storage.
  }];
  let arguments = (ins AnyTensor:$input, DenseI64ArrayAttr:$normalized_shape,
    Koila_OptionalTensor:$weight, OptionalAttr<F64Attr>:$eps,
    Variadic<AnyType>:$dynamic);
  let shapeRule = [{
    if (failed(::koila::rules::inferTrailingNorm(rule, getInput(), {getWeight()})))
      return ::mlir::failure();
    rule.setResult(0, ::koila::rules::inSuggestedFormat(rule.tensor(getInput())));
    return ::mlir::success();
  }];
  let batchRule = "::koila::rules::inferTrailingNormBatch(rule, getInput(), {getWeight()});";
  let differentiationRule = "::koila::rules::describeNormDerivative(rule);";
}

def Koila_NativeLayerNormOp : Koila_RuledOp<"native_layer_norm",
  "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
  "", [AttrSizedOperandSegments]> {
  let description = [{
    As layer_norm, with mean and reciprocal deviation of each row. New storage.
  }];
  let arguments = (ins AnyTensor:$input, DenseI64ArrayAttr:$normalized_shape,
    Koila_OptionalTensor:$weight, Koila_OptionalTensor:$bias, F64Attr:$eps,
    Variadic<AnyType>:$dynamic);
  let results = (outs AnyTensor:$result, AnyTensor:$mean, AnyTensor:$rstd);
  let shapeRule = "return ::koila::rules::inferNativeLayerNorm(rule, getInput(), {getWeight(), getBias()});";
  let batchRule = "::koila::rules::inferTrailingNormBatch(rule, getInput(), {getWeight(), getBias()});";
}

def Koila_GroupNormOp : Koila_RuledOp<"group_norm",
  "aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enabled=True) -> Tensor",
  "", [AttrSizedOperandSegments]> {
  let description = [{
    Normalises groups of channels of each sample. Refused are channels that
    the groups do not divide. The batch stays in dim 0. New storage.
  }];
  let arguments = (ins AnyTensor:$input, I64Attr:$num_groups,
    Koila_OptionalTensor:$weight, Koila_OptionalTensor:$bias, F64Attr:$eps,
    BoolAttr:$cudnn_enabled);
  let shapeRule = "return ::koila::rules::inferGroupNorm(rule, getNumGroups(), getWeight(), getBias());";
  let batchRule = "::koila::rules::inferSampleNormBatch(rule, {getWeight(), getBias()});";
  let differentiationRule = "::koila::rules::describeNormDerivative(rule);";
}

def Koila_InstanceNormOp : Koila_RuledOp<"instance_norm",
  "aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor",
  "", [AttrSizedOperandSegments, Koila_SingleSampleGradientUnreliable],
  "!getUseInputStats() || !getRunningMean()"> {
  let description = [{
    Normalises each channel of each sample. With `use_input_stats` and running
    statistics it writes these; such an operation is not built from a file.
    The batch stays in dim 0. New storage.
  }];
  let arguments = (ins AnyTensor:$input, Koila_OptionalTensor:$weight,
    Koila_OptionalTensor:$bias, Koila_OptionalTensor:$running_mean,
    Koila_OptionalTensor:$running_var, BoolAttr:$use_input_stats,
    F64Attr:$momentum, F64Attr:$eps, BoolAttr:$cudnn_enabled);
  let shapeRule = [{
    return ::koila::rules::inferInstanceNorm(rule, getUseInputStats(),
        {getWeight(), getBias(), getRunningMean(), getRunningVar()});
  }];
  let batchRule = [{
    ::koila::rules::inferSampleNormBatch(rule,
        {getWeight(), getBias(), getRunningMean(), getRunningVar()});
  }];
  let differentiationRule = "::koila::rules::describeNormDerivative(rule);";
}

/// `feature`: whole channels are dropped; `alpha`: by affine values that keep
/// mean and variance. Source: aten/src/ATen/native/Dropout.cpp.
class Koila_DropoutFamilyOp<string mnemonic, string feature, string alpha>
    : Koila_RuledOp<mnemonic,
        "aten::" # mnemonic # "(Tensor input, float p, bool train) -> Tensor",
        "aten::" # mnemonic # "_(Tensor(a!) self, float p, bool train) -> Tensor(a!)",
        [Koila_BackwardOperatorInterface], "true", Koila_DrawsSometimes> {
  let description = [{
    Outside training, and for `p` of 0, `input` itself: an alias. In training
    `input` times noise, which is drawn unless `p` is 1; new storage, or that of
    `input`. The batch stays where it is; tiles would draw other noise.
  }];
  let arguments = (ins AnyTensor:$input, F64Attr:$p, BoolAttr:$train,
                       UnitAttr:$tied);
  let extraClassDeclaration = baseDeclaration # [{
    /// Whether the result is another tensor than the input.
    bool drops() { return getTrain() && !getP().isZero(); }
    bool draws() { return drops() && !getP().isExactlyValue(1.0); }
    bool drawsByShape() {
      return draws() && !::koila::isOrdered(getOperation());
    }
    bool hasBackwardOperator(::koila::ShapeRule::Lookup) { return !drops(); }
    bool readsOperand(unsigned) { return false; }
    ::llvm::SmallVector<::mlir::Value> buildGradients(
        ::mlir::OpBuilder &, ::mlir::Value gradient, ::mlir::ValueRange,
        ::llvm::ArrayRef<bool> wanted) {
      return {wanted.front() ? gradient : ::mlir::Value()};
    }
    ::koila::rules::Dropout getDropout();
    ::koila::TensorInfo getDrawn(const ::koila::TensorInfo &self,
                                 const ::koila::TensorInfo &);
    ::mlir::Value drawInto(::mlir::OpBuilder &builder, ::mlir::Value storage);
  }];
  let moreDefinitions = [{
    ::koila::rules::Dropout $cppClass::getDropout() {
      return {getP().convertToDouble(), }] # feature # ", " # alpha # [{};
    }
    ::koila::TensorInfo $cppClass::getDrawn(const ::koila::TensorInfo &self,
                                            const ::koila::TensorInfo &) {
      return getDropout().getNoise(self);
    }
    ::mlir::Value $cppClass::drawInto(::mlir::OpBuilder &builder,
                                      ::mlir::Value storage) {
      return getDropout().build(builder, *this, storage);
    }
  }];
  let shapeRule = [{
    // The checks, and the shape outside training.
    auto isLegal = ::koila::rules::inferDropout(rule, getP().convertToDouble());
    if (::mlir::failed(isLegal) || !drops())
      return isLegal;
    return getDropout().inferShapes(rule);
  }];
  let batchRule = [{
    if (drops())
      getDropout().inferBatch(rule);
    else
      rule.setResult(0, rule.fact(getInput()));
  }];
  let storageRule = [{
    if (drops())
      ::koila::rules::describeNewStorage(rule);
    else
      rule.setAlias(0, getInput());
  }];
  let differentiationRule = [{
    if (drops())
      getDropout().describeDifferentiation(rule);
  }];
}
def Koila_DropoutOp : Koila_DropoutFamilyOp<"dropout", "false", "false">;
def Koila_FeatureDropoutOp
    : Koila_DropoutFamilyOp<"feature_dropout", "true", "false">;
def Koila_AlphaDropoutOp
    : Koila_DropoutFamilyOp<"alpha_dropout", "false", "true">;
def Koila_FeatureAlphaDropoutOp
    : Koila_DropoutFamilyOp<"feature_alpha_dropout", "true", "true">;

def Koila_NativeDropoutOp : Koila_RuledOp<"native_dropout",
    "aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
    "", [], "true", Koila_Draws> {
  let description = [{
    `input` times a mask of bools, scaled, and the mask, which is drawn: the
    kernel that `dropout` is on a GPU. Both lie as `input` does, and are new
    storage. The batch stays where it is; tiles would draw another mask.
  }];
  let arguments = (ins AnyTensor:$input, F64Attr:$p,
                       OptionalAttr<BoolAttr>:$train);
  let results = (outs AnyTensor:$result, AnyTensor:$mask);
  let shapeRule = "return ::koila::rules::inferNativeDropout(rule);";
  let batchRule = [{
    rule.setResult(0, rule.fact(getInput()));
    rule.setResult(1, rule.fact(getInput()));
  }];
}

def Koila_RenormOp : Koila_RuledOp<"renorm",
  "aten::renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor",
  "aten::renorm_(Tensor(a!) self, Scalar p, int dim, Scalar maxnorm) -> Tensor(a!)"> {
  let description = [{
    Scales each slice at one place of `dim` down to the norm `maxnorm`. The
    batch stays if it is `dim`. New storage, or that of `self`.
  }];
  let arguments = (ins AnyTensor:$self, Koila_ScalarAttr:$p, I64Attr:$dim,
                       Koila_ScalarAttr:$maxnorm, UnitAttr:$tied);
  let shapeRule = "return ::koila::rules::inferRenorm(rule, getDim());";
  let batchRule = "::koila::rules::inferRenormBatch(rule, getDim());";
}

def Koila_WeightNormOp : Koila_RuledOp<"_weight_norm",
  "aten::_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor"> {
  let description = [{
    `v` scaled along `dim` to the norms `g`: weights, which carry no batch.
    New storage.
  }];
  let arguments = (ins AnyTensor:$v, AnyTensor:$g, I64Attr:$dim);
  let shapeRule = "return ::koila::rules::inferWeightNorm(rule, getDim());";
  let differentiationRule = "::koila::rules::describeNormDerivative(rule);";
}

def Koila_CosineSimilarityOp : Koila_RuledOp<"cosine_similarity",
  "aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor"> {
  let description = [{
    Of operands that broadcast, along `dim`, which is dropped. Refused are
    operands of which none is floating-point. New storage.
  }];
  let arguments = (ins AnyTensor:$x1, AnyTensor:$x2, I64Attr:$dim, F64Attr:$eps);
  let shapeRule = "return ::koila::rules::inferCosineSimilarity(rule, getDim());";
  let batchRule = "::koila::rules::inferDistanceBatch(rule, getDim(), false);";
  let differentiationRule = "::koila::rules::describeDistanceDerivative(rule);";
}

def Koila_PairwiseDistanceOp : Koila_RuledOp<"pairwise_distance",
  "aten::pairwise_distance(Tensor x1, Tensor x2, float p=2., float eps=1e-06, bool keepdim=False) -> Tensor"> {
  let description = [{
    The norm of the difference of operands that broadcast, over the last dim.
    New storage.
  }];
  let arguments = (ins AnyTensor:$x1, AnyTensor:$x2, F64Attr:$p, F64Attr:$eps,
                       BoolAttr:$keepdim);
  let shapeRule = "return ::koila::rules::inferPairwiseDistance(rule, getKeepdim());";
  let batchRule = "::koila::rules::inferDistanceBatch(rule, -1, getKeepdim());";
  let differentiationRule = "::koila::rules::describeDistanceDerivative(rule);";
}

class Koila_CdistFamilyOp<string mnemonic, string arguments_>
    : Koila_RuledOp<mnemonic, "aten::" # mnemonic # arguments_> {
  let description = [{
    The distance of each row of `x1` to each row of `x2`; leading dims
    broadcast. A batch of rows stays where only one operand has it. New
    storage.
  }];
  let arguments = (ins AnyTensor:$x1, AnyTensor:$x2, F64Attr:$p,
                       OptionalAttr<I64Attr>:$compute_mode);
  let shapeRule = "return ::koila::rules::inferCdist(rule, getP().convertToDouble());";
  let batchRule = "::koila::rules::inferCdistBatch(rule);";
  let differentiationRule = "::koila::rules::describeDistanceDerivative(rule);";
}
def Koila_CdistOp : Koila_CdistFamilyOp<"cdist",
  "(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor">;
def Koila_CdistForwardOp : Koila_CdistFamilyOp<"_cdist_forward",
  "(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor">;

def Koila_PdistOp : Koila_RuledOp<"pdist",
  "aten::pdist(Tensor self, float p=2.) -> Tensor"> {
  let description = "The distances of all pairs of rows; mixes samples.";
  let arguments = (ins AnyTensor:$self, F64Attr:$p);
  let shapeRule = "return ::koila::rules::inferPdist(rule, getP().convertToDouble());";
  let batchRule = "::koila::rules::mixAll(rule);";
  let differentiationRule = "::koila::rules::describeDistanceDerivative(rule);";
}

#endif // KOILA_DIALECT_KOILA_IR_NORMOPS_TD
