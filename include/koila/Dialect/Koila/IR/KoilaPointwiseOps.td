//===- KoilaPointwiseOps.td - Elementwise operators --------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAPOINTWISEOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAPOINTWISEOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// One tensor in, one of the same shape and element type out.
class Koila_UnaryOp<string mnemonic, string schema, string inPlace = "",
                    dag extra = (ins)>
    : Koila_TorchOp<mnemonic, schema, inPlace> {
  let summary = "elementwise, as `" # schema # "`";
  let description = [{
    The result has the shape, element type and, if dense, the strides of
    `self`. The batch stays where it is. New storage, or that of `self` where
    the tie is resolved.
  }];
  let arguments = !con((ins AnyTensor:$self), extra,
                       !if(!empty(inPlace), (ins), (ins UnitAttr:$tied)));
  let results = (outs AnyTensor:$result);
  let assemblyFormat = !if(!empty(inPlace), "", "(`tied` $tied^)? ") #
      "$self attr-dict `:` functional-type($self, $result)";
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferUnary(rule, getSelf());
    }
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      rule.setResult(0, rule.fact(getSelf()));
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {
      if (isTied())
        rule.setTied(0, getSelf());
    }
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      ::koila::rules::describeUnaryWorkspace(rule, getSelf());
    }
  }];
}

/// Floating-point functions: an integer input is computed as float32.
class Koila_UnaryFloatOp<string mnemonic, string schema, string inPlace = "",
                         dag extra = (ins)>
    : Koila_UnaryOp<mnemonic, schema, inPlace, extra> {
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferUnaryFloat(rule, getSelf());
    }
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      rule.setResult(0, rule.fact(getSelf()));
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {
      if (isTied())
        rule.setTied(0, getSelf());
    }
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      ::koila::rules::describeUnaryWorkspace(rule, getSelf());
    }
  }];
}

def Koila_ReluOp : Koila_UnaryOp<"relu",
  "aten::relu(Tensor self) -> Tensor", "aten::relu_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_Relu6Op : Koila_UnaryOp<"relu6",
  "aten::relu6(Tensor self) -> Tensor", "aten::relu6_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_HardtanhOp : Koila_UnaryOp<"hardtanh",
  "aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
  "aten::hardtanh_(Tensor(a!) self, Scalar min_val=-1, Scalar max_val=1) -> Tensor(a!)",
  (ins Koila_ScalarAttr:$min_val,
       Koila_ScalarAttr:$max_val)>;
def Koila_LeakyReluOp : Koila_UnaryOp<"leaky_relu",
  "aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
  "aten::leaky_relu_(Tensor(a!) self, Scalar negative_slope=0.01) -> Tensor(a!)",
  (ins Koila_ScalarAttr:$negative_slope)>;
def Koila_EluOp : Koila_UnaryOp<"elu",
  "aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
  "aten::elu_(Tensor(a!) self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor(a!)",
  (ins Koila_ScalarAttr:$alpha, Koila_ScalarAttr:$scale, Koila_ScalarAttr:$input_scale)>;
def Koila_SiluOp : Koila_UnaryOp<"silu",
  "aten::silu(Tensor self) -> Tensor", "aten::silu_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_HardswishOp : Koila_UnaryOp<"hardswish",
  "aten::hardswish(Tensor self) -> Tensor", "aten::hardswish_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_HardsigmoidOp : Koila_UnaryOp<"hardsigmoid",
  "aten::hardsigmoid(Tensor self) -> Tensor", "aten::hardsigmoid_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_GeluOp : Koila_UnaryOp<"gelu",
  "aten::gelu(Tensor self, *, str approximate='none') -> Tensor",
  "aten::gelu_(Tensor(a!) self, *, str approximate='none') -> Tensor(a!)",
  (ins DefaultValuedAttr<StrAttr, "\"none\"">:$approximate)>;
def Koila_NegOp : Koila_UnaryOp<"neg",
  "aten::neg(Tensor self) -> Tensor", "aten::neg_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_AbsOp : Koila_UnaryOp<"abs",
  "aten::abs(Tensor self) -> Tensor", "aten::abs_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_SigmoidOp : Koila_UnaryFloatOp<"sigmoid",
  "aten::sigmoid(Tensor self) -> Tensor", "aten::sigmoid_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_TanhOp : Koila_UnaryFloatOp<"tanh",
  "aten::tanh(Tensor self) -> Tensor", "aten::tanh_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_ExpOp : Koila_UnaryFloatOp<"exp",
  "aten::exp(Tensor self) -> Tensor", "aten::exp_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_SqrtOp : Koila_UnaryFloatOp<"sqrt",
  "aten::sqrt(Tensor self) -> Tensor", "aten::sqrt_(Tensor(a!) self) -> Tensor(a!)">;

def Koila_RsqrtOp : Koila_UnaryFloatOp<"rsqrt",
  "aten::rsqrt(Tensor self) -> Tensor", "aten::rsqrt_(Tensor(a!) self) -> Tensor(a!)">;

/// Two tensors with broadcasting and type promotion.
class Koila_BinaryOp<string mnemonic, string schema, string inPlace = "",
                     dag extra = (ins)>
    : Koila_TorchOp<mnemonic, schema, inPlace> {
  let summary = "elementwise with broadcasting, as `" # schema # "`";
  let description = [{
    Shapes broadcast as in PyTorch: dims are aligned at the end, and an extent
    of one repeats. Element types are promoted. Refused: extents that are known
    to differ and are not one. New storage, or that of `self` where the tie is
    resolved.
  }];
  let arguments = !con((ins AnyTensor:$self, AnyTensor:$other), extra,
                       !if(!empty(inPlace), (ins), (ins UnitAttr:$tied)));
  let results = (outs AnyTensor:$result);
  let assemblyFormat = !if(!empty(inPlace), "", "(`tied` $tied^)? ") #
      "$self `,` $other attr-dict `:` functional-type(operands, results)";
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferBinary(rule, getSelf(), getOther());
    }
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      ::koila::rules::inferBroadcastBatch(rule, {getSelf(), getOther()});
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {
      if (isTied())
        rule.setTied(0, getSelf());
    }
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      ::koila::rules::describeBinaryWorkspace(rule, getSelf(), getOther());
    }
  }];
}

defvar alphaArg = (ins Koila_ScalarAttr:$alpha);

def Koila_AddTensorOp : Koila_BinaryOp<"add_Tensor",
  "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
  "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", alphaArg>;
def Koila_SubTensorOp : Koila_BinaryOp<"sub_Tensor",
  "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
  "aten::sub_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", alphaArg>;
def Koila_MulTensorOp : Koila_BinaryOp<"mul_Tensor",
  "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor",
  "aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)">;
def Koila_DivTensorOp : Koila_BinaryOp<"div_Tensor",
  "aten::div.Tensor(Tensor self, Tensor other) -> Tensor",
  "aten::div_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)"> {
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferTrueDivision(rule, getSelf(), getOther());
    }
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      ::koila::rules::inferBroadcastBatch(rule, {getSelf(), getOther()});
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {
      if (isTied())
        rule.setTied(0, getSelf());
    }
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      ::koila::rules::describeBinaryWorkspace(rule, getSelf(), getOther());
    }
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_KOILAPOINTWISEOPS_TD
