//===- PoolOps.td - Pooling operators ----------------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_POOLOPS_TD
#define KOILA_DIALECT_KOILA_IR_POOLOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"
include "koila/Interfaces/KernelWork.td"

/// Pools over the trailing `rank` dims. `layout` is a rules::PoolLayout.
class Koila_PoolOp<string mnemonic, string schema, int rank, string layout,
                   dag args, list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, "", traits> {
  let arguments = !con((ins AnyTensor:$self), args,
                       (ins Variadic<AnyType>:$dynamic));
  string pool = "{" # rank # ", ::koila::rules::PoolLayout::" # layout # "}";
  let batchRule = "::koila::rules::inferPoolBatch(rule, " # rank # ");";
  let differentiationRule = "::koila::rules::describePoolDerivative(rule);";
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

/// A window with stride and padding.
class Koila_WindowPoolOp<string mnemonic, string schema, int rank,
                         string layout, dag args>
    : Koila_PoolOp<mnemonic, schema, rank, layout,
          !con((ins DenseI64ArrayAttr:$kernel_size, DenseI64ArrayAttr:$stride,
                    DenseI64ArrayAttr:$padding), args),
          [Koila_KernelWorkInterface]> {
  let description = [{
    Extents as in PyTorch, with `ceil_mode` rounding up and the last window
    starting inside the input or its left padding. An empty `stride` means
    `kernel_size`. Refused: padding above half the kernel, results below one.
    The batch stays in any dim that is not pooled. New storage. Max pooling
    also makes int64 indices inside, grad mode or not.
  }];
  let shapeRule = "return ::koila::rules::inferWindowPool(rule, " # pool # ");";
  let extraClassDeclaration = baseDeclaration # [{
    ::koila::KernelWork describeWork(::koila::GetShape getShape);
  }];
  let moreDefinitions = [{
    ::koila::KernelWork $cppClass::describeWork(::koila::GetShape getShape) {
      return ::koila::rules::describePoolWork(
          getShape, getOperation()->getResult(0), getKernelSize());
    }
  }];
}

defvar maxPoolArgs = (ins DenseI64ArrayAttr:$dilation,
                          DefaultValuedAttr<BoolAttr, "false">:$ceil_mode);
defvar averagePoolArgs = (ins
    DefaultValuedAttr<BoolAttr, "false">:$ceil_mode,
    DefaultValuedAttr<BoolAttr, "true">:$count_include_pad);
defvar averagePoolDivisorArgs = !con(averagePoolArgs,
    (ins OptionalAttr<I64Attr>:$divisor_override));

def Koila_MaxPool1dOp : Koila_WindowPoolOp<"max_pool1d",
  "aten::max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> Tensor",
  1, "RowMajor", maxPoolArgs>;
def Koila_MaxPool2dOp : Koila_WindowPoolOp<"max_pool2d",
  "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor",
  2, "AsInput", maxPoolArgs>;
def Koila_MaxPool3dOp : Koila_WindowPoolOp<"max_pool3d",
  "aten::max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> Tensor",
  3, "AsInput", maxPoolArgs>;

let results = (outs AnyTensor:$result, AnyTensor:$indices) in {
def Koila_MaxPool1dWithIndicesOp : Koila_WindowPoolOp<"max_pool1d_with_indices",
  "aten::max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
  1, "AsImage", maxPoolArgs>;
def Koila_MaxPool2dWithIndicesOp : Koila_WindowPoolOp<"max_pool2d_with_indices",
  "aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
  2, "AsInput", maxPoolArgs>;
def Koila_MaxPool3dWithIndicesOp : Koila_WindowPoolOp<"max_pool3d_with_indices",
  "aten::max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
  3, "AsInput", maxPoolArgs>;
}

def Koila_AvgPool1dOp : Koila_WindowPoolOp<"avg_pool1d",
  "aten::avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True) -> Tensor",
  1, "AsImage", averagePoolArgs>;
def Koila_AvgPool2dOp : Koila_WindowPoolOp<"avg_pool2d",
  "aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
  2, "AsInput", averagePoolDivisorArgs>;
def Koila_AvgPool3dOp : Koila_WindowPoolOp<"avg_pool3d",
  "aten::avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
  3, "RowMajor", averagePoolDivisorArgs>;

//===----------------------------------------------------------------------===//
// Results of a given size
//===----------------------------------------------------------------------===//

class Koila_AdaptivePoolOp<string mnemonic, string schema, int rank,
                           string layout, string average>
    : Koila_PoolOp<mnemonic, schema, rank, layout,
                   (ins DenseI64ArrayAttr:$output_size)> {
  let description = [{
    The trailing extents become `output_size`. The batch stays in any dim that
    is not pooled. New storage.
  }];
  let shapeRule = "return ::koila::rules::inferAdaptivePool(rule, " # pool #
                  ", ::koila::rules::AdaptivePool::" # average # ");";
}

def Koila_AdaptiveAvgPool1dOp : Koila_AdaptivePoolOp<"adaptive_avg_pool1d",
  "aten::adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor",
  1, "AsImage", "AverageOrMean">;
def Koila_AdaptiveAvgPool2dOp : Koila_AdaptivePoolOp<"adaptive_avg_pool2d",
  "aten::adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
  2, "AsInput", "AverageOrMean">;
def Koila_AdaptiveAvgPool3dOp : Koila_AdaptivePoolOp<"adaptive_avg_pool3d",
  "aten::adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor",
  3, "RowMajor", "AverageOrMean">;
def Koila_PlainAdaptiveAvgPool2dOp : Koila_AdaptivePoolOp<"_adaptive_avg_pool2d",
  "aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
  2, "AsInput", "Average">;
def Koila_PlainAdaptiveAvgPool3dOp : Koila_AdaptivePoolOp<"_adaptive_avg_pool3d",
  "aten::_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor",
  3, "RowMajor", "Average">;

let results = (outs AnyTensor:$result, AnyTensor:$indices) in {
def Koila_AdaptiveMaxPool1dOp : Koila_AdaptivePoolOp<"adaptive_max_pool1d",
  "aten::adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)",
  1, "AsImage", "Max">;
def Koila_AdaptiveMaxPool2dOp : Koila_AdaptivePoolOp<"adaptive_max_pool2d",
  "aten::adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)",
  2, "AsInput", "Max">;
def Koila_AdaptiveMaxPool3dOp : Koila_AdaptivePoolOp<"adaptive_max_pool3d",
  "aten::adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)",
  3, "RowMajor", "Max">;
}

//===----------------------------------------------------------------------===//
// The way back
//===----------------------------------------------------------------------===//

class Koila_MaxUnpoolOp<string mnemonic, string schema, int rank, dag args>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    Zeros of extents `output_size` with the elements of `self` at `indices`,
    which are of the same shape and int64. The batch stays where both have it,
    in a dim that is not pooled. New storage.
  }];
  let arguments = !con((ins AnyTensor:$self, AnyTensor:$indices,
                            DenseI64ArrayAttr:$output_size), args,
                       (ins Variadic<AnyType>:$dynamic));
  let shapeRule = "return ::koila::rules::inferMaxUnpool(rule, " # rank # ");";
  let batchRule = "::koila::rules::inferPoolBatch(rule, " # rank # ");";
}

def Koila_MaxUnpool2dOp : Koila_MaxUnpoolOp<"max_unpool2d",
  "aten::max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor",
  2, (ins)>;
def Koila_MaxUnpool3dOp : Koila_MaxUnpoolOp<"max_unpool3d",
  "aten::max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor",
  3, (ins DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$padding)>;

#endif // KOILA_DIALECT_KOILA_IR_POOLOPS_TD
