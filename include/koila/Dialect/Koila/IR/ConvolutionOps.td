//===- ConvolutionOps.td - Convolutions --------------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_CONVOLUTIONOPS_TD
#define KOILA_DIALECT_KOILA_IR_CONVOLUTIONOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"
include "koila/Interfaces/BackwardOperator.td"
include "koila/Interfaces/KernelWork.td"

/// A convolution over the trailing `rank` dims; 0: as many as the weight has.
class Koila_ConvolutionFamilyOp<string mnemonic, string schema, int rank,
                                dag args, string transposed = "false">
    : Koila_RuledOp<mnemonic, schema, "",
                    [Koila_BackwardOperatorInterface,
                     Koila_KernelWorkInterface]> {
  let description = [{
    The result is `[N, C_out, ...]` with one extent
    `floordiv(in + 2*padding - dilation*(kernel - 1) - 1, stride) + 1` per
    spatial dim, or transposed `(in - 1)*stride - 2*padding +
    dilation*(kernel - 1) + output_padding + 1`, and no `N` for an unbatched
    input. Padding `same` keeps the extents. Refused: ranks that do not fit the
    weight, channels that do not fit `groups`. The batch stays in dim 0. New
    storage; the workspace is that of oneDNN.
  }];
  let arguments = !con((ins AnyTensor:$input, AnyTensor:$weight,
                            Koila_OptionalTensor:$bias,
                            DenseI64ArrayAttr:$stride), args);
  defvar kind = "{" # rank # ", " # transposed # "}";
  let shapeRule = "return ::koila::rules::inferConvolution(rule, " # kind # ");";
  let batchRule = "::koila::rules::inferConvolutionBatch(rule, " # kind # ");";
  let differentiationRule = "::koila::rules::describeConvolutionDerivative(rule);";
  let extraClassDeclaration = baseDeclaration # [{
    bool hasBackwardOperator(::koila::ShapeRule::Lookup lookup);
    ::llvm::SmallVector<::mlir::Value> buildGradients(
        ::mlir::OpBuilder &builder, ::mlir::Value gradient,
        ::mlir::ValueRange operands, ::llvm::ArrayRef<bool> wanted);
    ::koila::KernelWork describeWork(::koila::GetShape getShape);
  }];
  let moreDefinitions = [{
    bool $cppClass::hasBackwardOperator(::koila::ShapeRule::Lookup) {
      return ::koila::rules::hasConvolutionGradients(*this);
    }
    ::llvm::SmallVector<::mlir::Value> $cppClass::buildGradients(
        ::mlir::OpBuilder &builder, ::mlir::Value gradient,
        ::mlir::ValueRange operands, ::llvm::ArrayRef<bool> wanted) {
      return ::koila::rules::buildConvolutionGradients(
          *this, }] # kind # [{, builder, gradient, operands, wanted);
    }
    ::koila::KernelWork $cppClass::describeWork(::koila::GetShape getShape) {
      return ::koila::rules::describeConvolutionWork(
          getShape, }] # transposed # [{ ? getInput() : getResult(),
          getWeight());
    }
  }];
}

class Koila_ConvOp<string mnemonic, string schema, int rank>
    : Koila_ConvolutionFamilyOp<mnemonic, schema, rank,
          (ins DenseI64ArrayAttr:$padding, DenseI64ArrayAttr:$dilation,
               DefaultValuedAttr<I64Attr, "1">:$groups)>;
def Koila_Conv1dOp : Koila_ConvOp<"conv1d",
  "aten::conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, SymInt[1] padding=0, SymInt[1] dilation=1, SymInt groups=1) -> Tensor", 1>;
def Koila_Conv2dOp : Koila_ConvOp<"conv2d",
  "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0, SymInt[2] dilation=1, SymInt groups=1) -> Tensor", 2>;
def Koila_Conv3dOp : Koila_ConvOp<"conv3d",
  "aten::conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] padding=0, SymInt[3] dilation=1, SymInt groups=1) -> Tensor", 3>;

/// Padding by name: `same` or `valid`.
class Koila_ConvPaddingOp<string mnemonic, string schema, int rank>
    : Koila_ConvolutionFamilyOp<mnemonic, schema, rank,
          (ins StrAttr:$padding, DenseI64ArrayAttr:$dilation,
               DefaultValuedAttr<I64Attr, "1">:$groups)>;
def Koila_Conv1dPaddingOp : Koila_ConvPaddingOp<"conv1d_padding",
  "aten::conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, str padding='valid', SymInt[1] dilation=1, SymInt groups=1) -> Tensor", 1>;
def Koila_Conv2dPaddingOp : Koila_ConvPaddingOp<"conv2d_padding",
  "aten::conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, str padding='valid', SymInt[2] dilation=1, SymInt groups=1) -> Tensor", 2>;
def Koila_Conv3dPaddingOp : Koila_ConvPaddingOp<"conv3d_padding",
  "aten::conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, str padding='valid', SymInt[3] dilation=1, SymInt groups=1) -> Tensor", 3>;

def Koila_ConvolutionModeOp : Koila_ConvPaddingOp<"_convolution_mode",
  "aten::_convolution_mode(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, str padding, SymInt[] dilation, SymInt groups) -> Tensor", 0>;

class Koila_ConvTransposeOp<string mnemonic, string schema, int rank>
    : Koila_ConvolutionFamilyOp<mnemonic, schema, rank,
          (ins DenseI64ArrayAttr:$padding, DenseI64ArrayAttr:$output_padding,
               DefaultValuedAttr<I64Attr, "1">:$groups,
               DenseI64ArrayAttr:$dilation), "true">;
def Koila_ConvTranspose1dOp : Koila_ConvTransposeOp<"conv_transpose1d",
  "aten::conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, SymInt[1] padding=0, SymInt[1] output_padding=0, SymInt groups=1, SymInt[1] dilation=1) -> Tensor", 1>;
def Koila_ConvTranspose2dOp : Koila_ConvTransposeOp<"conv_transpose2d_input",
  "aten::conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0, SymInt[2] output_padding=0, SymInt groups=1, SymInt[2] dilation=1) -> Tensor", 2>;
def Koila_ConvTranspose3dOp : Koila_ConvTransposeOp<"conv_transpose3d_input",
  "aten::conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] padding=0, SymInt[3] output_padding=0, SymInt groups=1, SymInt[3] dilation=1) -> Tensor", 3>;

/// What the others call, over as many dims as the weight says.
class Koila_AnyConvolutionOp<string mnemonic, string schema, dag flags>
    : Koila_ConvolutionFamilyOp<mnemonic, schema, 0,
          !con((ins DenseI64ArrayAttr:$padding, DenseI64ArrayAttr:$dilation,
                    BoolAttr:$transposed, DenseI64ArrayAttr:$output_padding,
                    I64Attr:$groups), flags)>;
def Koila_ConvolutionOp : Koila_AnyConvolutionOp<"_convolution",
  "aten::_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool benchmark, bool deterministic, bool cudnn_enabled, bool allow_tf32) -> Tensor",
  (ins BoolAttr:$benchmark, BoolAttr:$deterministic, BoolAttr:$cudnn_enabled,
       BoolAttr:$allow_tf32)>;
def Koila_ConvolutionDeprecatedOp : Koila_AnyConvolutionOp<"_convolution_deprecated",
  "aten::_convolution.deprecated(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, int[] output_padding, SymInt groups, bool benchmark, bool deterministic, bool cudnn_enabled) -> Tensor",
  (ins BoolAttr:$benchmark, BoolAttr:$deterministic, BoolAttr:$cudnn_enabled)>;
def Koila_PlainConvolutionOp : Koila_AnyConvolutionOp<"convolution",
  "aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
  (ins)>;

def Koila_ConvolutionBackwardOp : Koila_RuledOp<"convolution_backward",
  "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"> {
  let description = [{
    The gradients of a convolution's input, weight and bias, of which
    `output_mask` names those that are computed; the others are no tensors.
    Refused: a `grad_output` that is not shaped as the convolution's result. The
    batch stays in dim 0 of the input's; those of weight and bias are sums over
    it. New storage, in the layout that input or weight suggest.
  }];
  let arguments = (ins AnyTensor:$grad_output, AnyTensor:$input,
    AnyTensor:$weight, OptionalAttr<DenseI64ArrayAttr>:$bias_sizes,
    DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$padding,
    DenseI64ArrayAttr:$dilation, BoolAttr:$transposed,
    DenseI64ArrayAttr:$output_padding, I64Attr:$groups,
    DenseBoolArrayAttr:$output_mask);
  let results = (outs AnyTensor:$grad_input, AnyTensor:$grad_weight,
                      AnyTensor:$grad_bias);
  let shapeRule = "return ::koila::rules::inferConvolutionBackward(rule);";
  let batchRule = "::koila::rules::inferConvolutionBackwardBatch(rule);";
  let storageRule = "::koila::rules::describeMaskedStorage(rule, getOutputMask());";
}

def Koila_ConvTbcOp : Koila_RuledOp<"conv_tbc",
  "aten::conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor"> {
  let description = [{
    A convolution over time of `[T, N, C]` with a weight `[kernel, C, C_out]`:
    `[T + 2*pad - kernel + 1, N, C_out]`. The batch stays in dim 1. New storage.
  }];
  let arguments = (ins AnyTensor:$self, AnyTensor:$weight, AnyTensor:$bias,
                       DefaultValuedAttr<I64Attr, "0">:$pad,
                       Variadic<AnyType>:$dynamic);
  let shapeRule = "return ::koila::rules::inferConvolutionOverTime(rule);";
  let batchRule = "::koila::rules::inferConvolutionOverTimeBatch(rule);";
}

#endif // KOILA_DIALECT_KOILA_IR_CONVOLUTIONOPS_TD
