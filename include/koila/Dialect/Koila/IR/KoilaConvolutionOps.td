//===- KoilaConvolutionOps.td - Convolutions ---------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILACONVOLUTIONOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILACONVOLUTIONOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// A convolution over the trailing dims of a batched or unbatched input.
class Koila_ConvolutionFamilyOp<string mnemonic, string schema, int rank,
                                dag extra = (ins)>
    : Koila_TorchOp<mnemonic, schema> {
  let summary = "convolution, as `" # schema # "`";
  let description = [{
    The result is `[N, C_out, ...]` with one extent
    `floordiv(in + 2*padding - dilation*(kernel - 1) - 1, stride) + 1` per
    spatial dim, and no `N` for an unbatched input. Refused: ranks that do not
    fit the weight, channels that do not fit `groups`. The batch stays in dim
    0. New storage; the workspace is that of oneDNN.
  }];
  let arguments = !con((ins AnyTensor:$input, AnyTensor:$weight,
                            Koila_OptionalTensor:$bias,
                            DenseI64ArrayAttr:$stride,
                            DenseI64ArrayAttr:$padding,
                            DenseI64ArrayAttr:$dilation), extra);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight (`,` $bias^)? attr-dict
    `:` functional-type(operands, results)
  }];
  int spatialRank = rank;
  code familyDeclaration = [{
    /// Everything that decides shape and workspace, whichever the schema.
    ::koila::rules::Convolution getConvolution();
  }];
  let extraClassDeclaration = baseDeclaration # familyDeclaration;
  code familyDefinition = [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferConvolution(rule, getConvolution());
    }
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      ::koila::rules::inferConvolutionBatch(rule, getConvolution());
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {}
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      ::koila::rules::describeConvolutionWorkspace(rule, getConvolution());
    }
  }];
  let extraClassDefinition = familyDefinition # [{
    ::koila::rules::Convolution $cppClass::getConvolution() {
      return {getInput(), getWeight(), getBias(), getStride(), getPadding(),
              getDilation(), static_cast<int64_t>(getGroups()), /*transposed=*/false,
              /*spatialRank=*/}] # spatialRank # [{};
    }
  }];
}

defvar groupsArg = (ins DefaultValuedAttr<I64Attr, "1">:$groups);

def Koila_Conv1dOp : Koila_ConvolutionFamilyOp<"conv1d",
  "aten::conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, SymInt[1] padding=0, SymInt[1] dilation=1, SymInt groups=1) -> Tensor",
  1, groupsArg>;
def Koila_Conv2dOp : Koila_ConvolutionFamilyOp<"conv2d",
  "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0, SymInt[2] dilation=1, SymInt groups=1) -> Tensor",
  2, groupsArg>;
def Koila_Conv3dOp : Koila_ConvolutionFamilyOp<"conv3d",
  "aten::conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] padding=0, SymInt[3] dilation=1, SymInt groups=1) -> Tensor",
  3, groupsArg>;

def Koila_ConvolutionOp : Koila_ConvolutionFamilyOp<"_convolution",
  "aten::_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool benchmark, bool deterministic, bool cudnn_enabled, bool allow_tf32) -> Tensor",
  0, (ins BoolAttr:$transposed, DenseI64ArrayAttr:$output_padding,
          I64Attr:$groups, BoolAttr:$benchmark, BoolAttr:$deterministic,
          BoolAttr:$cudnn_enabled, BoolAttr:$allow_tf32)> {
  let extraClassDefinition = familyDefinition # [{
    ::koila::rules::Convolution $cppClass::getConvolution() {
      return {getInput(), getWeight(), getBias(), getStride(), getPadding(),
              getDilation(), static_cast<int64_t>(getGroups()), getTransposed(),
              /*spatialRank=*/static_cast<int64_t>(getStride().size()),
              /*allowsUnbatched=*/false};
    }
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_KOILACONVOLUTIONOPS_TD
