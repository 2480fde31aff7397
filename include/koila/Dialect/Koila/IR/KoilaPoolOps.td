//===- KoilaPoolOps.td - Pooling operators -----------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAPOOLOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAPOOLOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// Pools over the trailing two dims.
class Koila_PoolOp<string mnemonic, string schema, dag args>
    : Koila_TorchOp<mnemonic, schema> {
  let summary = "pooling, as `" # schema # "`";
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "$self attr-dict `:` functional-type($self, $result)";
  let arguments = !con((ins AnyTensor:$self), args);
  code batchDefinition = [{
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      ::koila::rules::inferTrailingBatch(rule, getSelf(), 3);
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {}
  }];
}

/// A window with stride and padding.
class Koila_WindowPoolOp<string mnemonic, string schema, dag args>
    : Koila_PoolOp<mnemonic, schema, args> {
  let description = [{
    Extents as in PyTorch, with `ceil_mode` rounding up and the last window
    starting inside the input or its left padding. An empty `stride` means
    `kernel_size`. Refused: padding above half the kernel, results below one.
    New storage. Max pooling also makes int64 indices inside, grad mode or not.
  }];
}

def Koila_MaxPool2dOp : Koila_WindowPoolOp<"max_pool2d",
  "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor",
  (ins DenseI64ArrayAttr:$kernel_size, DenseI64ArrayAttr:$stride,
       DenseI64ArrayAttr:$padding, DenseI64ArrayAttr:$dilation,
       DefaultValuedAttr<BoolAttr, "false">:$ceil_mode)> {
  let extraClassDefinition = batchDefinition # [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferWindowPool(rule, getSelf(), getKernelSize(),
          getStride(), getPadding(), getDilation(), getCeilMode());
    }
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      ::koila::rules::describeMaxPoolWorkspace(rule, getSelf(), getResult());
    }
  }];
}

def Koila_AvgPool2dOp : Koila_WindowPoolOp<"avg_pool2d",
  "aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
  (ins DenseI64ArrayAttr:$kernel_size, DenseI64ArrayAttr:$stride,
       DenseI64ArrayAttr:$padding,
       DefaultValuedAttr<BoolAttr, "false">:$ceil_mode,
       DefaultValuedAttr<BoolAttr, "true">:$count_include_pad,
       OptionalAttr<I64Attr>:$divisor_override)> {
  let extraClassDefinition = batchDefinition # [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferWindowPool(rule, getSelf(), getKernelSize(),
          getStride(), getPadding(), {1, 1}, getCeilMode());
    }
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      ::koila::rules::describePoolWorkspace(rule, getSelf());
    }
  }];
}

def Koila_AdaptiveAvgPool2dOp : Koila_PoolOp<"adaptive_avg_pool2d",
  "aten::adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
  (ins DenseI64ArrayAttr:$output_size)> {
  let description = [{
    The trailing two extents become `output_size`. New storage.
  }];
  let extraClassDefinition = batchDefinition # [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferAdaptivePool(rule, getSelf(),
                                               getOutputSize());
    }
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      ::koila::rules::describeAdaptivePoolWorkspace(rule, getSelf(),
                                                    getOutputSize());
    }
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_KOILAPOOLOPS_TD
