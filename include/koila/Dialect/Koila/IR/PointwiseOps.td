//===- PointwiseOps.td - Elementwise, one tensor -----------*- tablegen -*-===//
//
// Which element types an operator refuses and what it makes of the others is
// as measured with PyTorch 2.13 on the CPU, whole categories only: a missing
// kernel of one type is no fact of the operator.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_POINTWISEOPS_TD
#define KOILA_DIALECT_KOILA_IR_POINTWISEOPS_TD

include "koila/Dialect/Koila/IR/Elementwise.td"

/// One tensor in, one of the same shape and element type out.
class Koila_UnaryOp<string mnemonic, string schema, string inPlace = "",
                    dag numbers = (ins), string refused = "",
                    string result = "Common", dag literals = (ins)>
    : Koila_ElementwiseOp<mnemonic, schema, inPlace, (ins AnyTensor:$self),
                          numbers, literals, result, refused>;

/// Floating-point functions: an integer input is computed as float32.
class Koila_UnaryFloatOp<string mnemonic, string schema, string inPlace = "",
                         dag numbers = (ins), string refused = "",
                         dag literals = (ins)>
    : Koila_UnaryOp<mnemonic, schema, inPlace, numbers, refused, "Float",
                    literals>;

/// No arguments but the tensor; with an in-place twin.
class Koila_PlainOp<string name, string refused = "", string result = "Common">
    : Koila_UnaryOp<name, "aten::" # name # "(Tensor self) -> Tensor",
                    "aten::" # name # "_(Tensor(a!) self) -> Tensor(a!)",
                    (ins), refused, result>;
class Koila_PlainFloatOp<string name, string refused = "">
    : Koila_PlainOp<name, refused, "Float">;
/// Without a twin.
class Koila_QueryOp<string name, string refused = "", string result = "Bool">
    : Koila_UnaryOp<name, "aten::" # name # "(Tensor self) -> Tensor", "",
                    (ins), refused, result>;

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

def Koila_ReluOp : Koila_PlainOp<"relu", "bc">;
def Koila_Relu6Op : Koila_PlainOp<"relu6", "bc"> {
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"hardtanh\");";
}
def Koila_SiluOp : Koila_PlainOp<"silu", "bi">;
def Koila_MishOp : Koila_PlainOp<"mish", "bic">;
def Koila_SeluOp : Koila_PlainOp<"selu", "bic"> {
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"elu\");";
}
def Koila_HardswishOp : Koila_PlainOp<"hardswish", "bic">;
def Koila_HardsigmoidOp : Koila_PlainOp<"hardsigmoid", "bic">;
def Koila_SigmoidOp : Koila_PlainFloatOp<"sigmoid">;
def Koila_TanhOp : Koila_PlainFloatOp<"tanh">;
def Koila_HardtanhOp : Koila_UnaryOp<"hardtanh",
  "aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
  "aten::hardtanh_(Tensor(a!) self, Scalar min_val=-1, Scalar max_val=1) -> Tensor(a!)",
  (ins Koila_ScalarAttr:$min_val, Koila_ScalarAttr:$max_val), "bc"> {
  // aten/src/ATen/native/Activation.cpp
  let check = [{
    ::mlir::Type element = rule.tensor(getSelf()).elementType;
    for (::llvm::StringRef name : {"min_val", "max_val"})
      if (auto limit = ::koila::rules::getLiteralNumber(*this, name);
          limit && *limit < 0 && element && element.isUnsignedInteger())
        return rule.emitError() << "takes no negative limit for elements of "
                                << "type " << element;
  }];
}
def Koila_LeakyReluOp : Koila_UnaryOp<"leaky_relu",
  "aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
  "aten::leaky_relu_(Tensor(a!) self, Scalar negative_slope=0.01) -> Tensor(a!)",
  (ins Koila_ScalarAttr:$negative_slope), "bic">;
def Koila_EluOp : Koila_UnaryOp<"elu",
  "aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
  "aten::elu_(Tensor(a!) self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor(a!)",
  (ins Koila_ScalarAttr:$alpha, Koila_ScalarAttr:$scale,
       Koila_ScalarAttr:$input_scale), "bic">;
def Koila_CeluOp : Koila_UnaryOp<"celu",
  "aten::celu(Tensor self, Scalar alpha=1.) -> Tensor",
  "aten::celu_(Tensor(a!) self, Scalar alpha=1.) -> Tensor(a!)",
  (ins Koila_ScalarAttr:$alpha), "bic"> {
  let check = [{
    if (::koila::rules::getLiteralNumber(*this, "alpha") == 0.0)
      return rule.emitError() << "divides by alpha, which is 0";
  }];
}
def Koila_GeluOp : Koila_UnaryOp<"gelu",
  "aten::gelu(Tensor self, *, str approximate='none') -> Tensor",
  "aten::gelu_(Tensor(a!) self, *, str approximate='none') -> Tensor(a!)",
  (ins), "bic", "Common",
  (ins DefaultValuedAttr<StrAttr, "\"none\"">:$approximate)> {
  let check = [{
    if (getApproximate() != "none" && getApproximate() != "tanh")
      return rule.emitError() << "approximates by 'none' or 'tanh', not '"
                              << getApproximate() << "'";
  }];
}
def Koila_SoftplusOp : Koila_UnaryOp<"softplus",
  "aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
  "", (ins Koila_ScalarAttr:$beta, Koila_ScalarAttr:$threshold), "bic">;
def Koila_HardshrinkOp : Koila_UnaryOp<"hardshrink",
  "aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", "",
  (ins Koila_ScalarAttr:$lambd), "bic">;
def Koila_SoftshrinkOp : Koila_UnaryOp<"softshrink",
  "aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", "",
  (ins Koila_ScalarAttr:$lambd), "bic"> {
  let check = [{
    if (auto lambd = ::koila::rules::getLiteralNumber(*this, "lambd");
        lambd && *lambd < 0)
      return rule.emitError() << "takes no negative lambda";
  }];
}
def Koila_ThresholdOp : Koila_UnaryOp<"threshold",
  "aten::threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor",
  "aten::threshold_(Tensor(a!) self, Scalar threshold, Scalar value) -> Tensor(a!)",
  (ins Koila_ScalarAttr:$threshold, Koila_ScalarAttr:$value), "bc">;
def Koila_LogSigmoidOp : Koila_QueryOp<"log_sigmoid", "bic", "Common"> {
  // log_sigmoid_forward_out_cpu: in rows.
  let kind = "::koila::rules::Elementwise{.refused = \"bic\", "
             ".rowMajor = true}";
  // log_sigmoid_forward, whose buffer is kept.
  let differentiationRule = [{
    rule.save(getSelf());
    rule.saveInner();
  }];
}
def Koila_RreluOp : Koila_ElementwiseOp<"rrelu",
  "aten::rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, Generator? generator=None) -> Tensor",
  "aten::rrelu_(Tensor(a!) self, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, Generator? generator=None) -> Tensor(a!)",
  (ins AnyTensor:$self),
  (ins Koila_ScalarAttr:$lower, Koila_ScalarAttr:$upper),
  (ins BoolAttr:$training, OptionalAttr<UnitAttr>:$generator),
  "Common", "bic", "", ", .rowMajor = true", [], "!getTraining()"> {
  let check = [{
    auto lower = ::koila::rules::getLiteralNumber(*this, "lower");
    auto upper = ::koila::rules::getLiteralNumber(*this, "upper");
    if (lower && upper && *lower > *upper)
      return rule.emitError() << "takes a lower bound of at most the upper one";
  }];
  // rrelu_with_noise, whose noise is not read but kept.
  let differentiationRule = [{
    rule.save(getTied() ? getResult() : getSelf());
    rule.saveInner();
  }];
}
def Koila_GluOp : Koila_RuledOp<"glu",
  "aten::glu(Tensor self, int dim=-1) -> Tensor"> {
  let description = [{
    The first half along `dim` times the sigmoid of the second. Refused: an odd
    extent. A batch in that dim is mixed.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$dim);
  let shapeRule = "return ::koila::rules::inferGlu(rule, getSelf(), getDim());";
  let batchRule = "::koila::rules::inferGluBatch(rule, getSelf(), getDim());";
}
def Koila_PreluOp : Koila_RuledOp<"prelu",
  "aten::prelu(Tensor self, Tensor weight) -> Tensor"> {
  let description = [{
    One slope, or one for each channel. Refused: another count of weights, and
    weights of another element type.
  }];
  let arguments = (ins AnyTensor:$self, AnyTensor:$weight);
  let shapeRule = "return ::koila::rules::inferPrelu(rule, getSelf(), getWeight());";
  let batchRule = "::koila::rules::inferPreluBatch(rule, getSelf(), getWeight());";
  let differentiationRule = [{
    rule.save(getSelf());
    rule.save(getWeight());
  }];
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

def Koila_ExpOp : Koila_PlainFloatOp<"exp">;
def Koila_Exp2Op : Koila_PlainFloatOp<"exp2">;
def Koila_Expm1Op : Koila_PlainFloatOp<"expm1">;
def Koila_LogOp : Koila_PlainFloatOp<"log">;
def Koila_Log2Op : Koila_PlainFloatOp<"log2">;
def Koila_Log10Op : Koila_PlainFloatOp<"log10">;
def Koila_Log1pOp : Koila_PlainFloatOp<"log1p">;
def Koila_SqrtOp : Koila_PlainFloatOp<"sqrt">;
def Koila_RsqrtOp : Koila_UnaryFloatOp<"rsqrt",
  "aten::rsqrt(Tensor self) -> Tensor", "aten::rsqrt_(Tensor(a!) self) -> Tensor(a!)">;
def Koila_SinOp : Koila_PlainFloatOp<"sin">;
def Koila_CosOp : Koila_PlainFloatOp<"cos">;
def Koila_TanOp : Koila_PlainFloatOp<"tan">;
def Koila_AsinOp : Koila_PlainFloatOp<"asin">;
def Koila_AcosOp : Koila_PlainFloatOp<"acos">;
def Koila_AtanOp : Koila_PlainFloatOp<"atan">;
def Koila_SinhOp : Koila_PlainFloatOp<"sinh">;
def Koila_CoshOp : Koila_PlainFloatOp<"cosh">;
def Koila_AsinhOp : Koila_PlainFloatOp<"asinh">;
def Koila_AcoshOp : Koila_PlainFloatOp<"acosh">;
def Koila_AtanhOp : Koila_PlainFloatOp<"atanh">;
def Koila_SincOp : Koila_PlainFloatOp<"sinc">;
def Koila_ErfOp : Koila_PlainFloatOp<"erf", "c">;
def Koila_ErfcOp : Koila_PlainFloatOp<"erfc", "c">;
def Koila_ErfinvOp : Koila_PlainFloatOp<"erfinv", "c">;
def Koila_LgammaOp : Koila_PlainFloatOp<"lgamma", "c">;
def Koila_DigammaOp : Koila_PlainFloatOp<"digamma", "c">;
// -self * log(self).
def Koila_SpecialEntrOp : Koila_QueryOp<"special_entr", "c", "Float">;
def Koila_ReciprocalOp : Koila_PlainFloatOp<"reciprocal">;
def Koila_Deg2radOp : Koila_PlainFloatOp<"deg2rad", "c"> {
}
def Koila_Rad2degOp : Koila_PlainFloatOp<"rad2deg", "c"> {
}
def Koila_LogitOp : Koila_UnaryFloatOp<"logit",
  "aten::logit(Tensor self, float? eps=None) -> Tensor",
  "aten::logit_(Tensor(a!) self, float? eps=None) -> Tensor(a!)", (ins), "c",
  (ins OptionalAttr<F64Attr>:$eps)>;
// pow with the number 2.
def Koila_SquareOp : Koila_PlainOp<"square", "", "Integer"> {
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"pow.Tensor_Scalar\");";
}
def Koila_NegOp : Koila_PlainOp<"neg", "b">;
def Koila_AbsOp : Koila_PlainOp<"abs", "b", "Real">;
def Koila_AngleOp : Koila_QueryOp<"angle", "", "RealFloat">;
def Koila_SignOp : Koila_PlainOp<"sign", "c">;
def Koila_SgnOp : Koila_PlainOp<"sgn">;
def Koila_FloorOp : Koila_PlainOp<"floor", "bc">;
def Koila_CeilOp : Koila_PlainOp<"ceil", "bc">;
def Koila_TruncOp : Koila_PlainOp<"trunc", "bc">;
def Koila_FracOp : Koila_PlainOp<"frac", "bic">;
def Koila_RoundOp : Koila_PlainOp<"round", "bc">;
def Koila_RoundDecimalsOp : Koila_UnaryOp<"round_decimals",
  "aten::round.decimals(Tensor self, *, int decimals) -> Tensor",
  "aten::round_.decimals(Tensor(a!) self, *, int decimals) -> Tensor(a!)",
  (ins), "bic", "Common", (ins I64Attr:$decimals)>;
def Koila_NanToNumOp : Koila_UnaryOp<"nan_to_num",
  "aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
  "aten::nan_to_num_(Tensor(a!) self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor(a!)",
  (ins), "", "Common",
  (ins OptionalAttr<F64Attr>:$nan, OptionalAttr<F64Attr>:$posinf,
       OptionalAttr<F64Attr>:$neginf)>;
def Koila_BitwiseNotOp : Koila_PlainOp<"bitwise_not", "fc">;
def Koila_LogicalNotOp : Koila_PlainOp<"logical_not", "", "Bool">;
def Koila_SignbitOp : Koila_QueryOp<"signbit", "c">;
def Koila_IsnanOp : Koila_QueryOp<"isnan">;
def Koila_IsinfOp : Koila_QueryOp<"isinf"> {
}
def Koila_IsfiniteOp : Koila_QueryOp<"isfinite"> {
}

//===----------------------------------------------------------------------===//
// Limits
//===----------------------------------------------------------------------===//

/// Limits that are numbers with a say in the common type.
class Koila_LimitOp<string name, string arguments, dag numbers,
                    string promoting>
    : Koila_ElementwiseOp<name,
        "aten::" # name # "(Tensor self, " # arguments # ") -> Tensor",
        "aten::" # name # "_(Tensor(a!) self, " # arguments # ") -> Tensor(a!)",
        (ins AnyTensor:$self), numbers, (ins), "Common", "c", promoting> {
  let wraps = "false";
}
class Koila_ClampFamilyOp<string name>
    : Koila_LimitOp<name, "Scalar? min=None, Scalar? max=None",
                    (ins OptionalAttr<Koila_ScalarAttr>:$min,
                         OptionalAttr<Koila_ScalarAttr>:$max),
                    "\"min\", \"max\""> {
  let check = [{
    if (!rule.hasArgument("min") && !rule.hasArgument("max"))
      return rule.emitError() << "takes a minimum, a maximum or both";
  }];
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"clamp\");";
}
def Koila_ClampOp : Koila_ClampFamilyOp<"clamp">;
def Koila_ClipOp : Koila_ClampFamilyOp<"clip">;
def Koila_ClampMinOp : Koila_LimitOp<"clamp_min", "Scalar min",
  (ins Koila_ScalarAttr:$min), "\"min\"">;
def Koila_ClampMaxOp : Koila_LimitOp<"clamp_max", "Scalar max",
  (ins Koila_ScalarAttr:$max), "\"max\"">;

class Koila_TensorLimitOp<string name, string arguments, dag tensors,
                          list<Trait> traits = []>
    : Koila_ElementwiseOp<name # "_Tensor",
        "aten::" # name # ".Tensor(Tensor self, " # arguments # ") -> Tensor",
        "aten::" # name # "_.Tensor(Tensor(a!) self, " # arguments # ") -> Tensor(a!)",
        !con((ins AnyTensor:$self), tensors), (ins), (ins), "Common", "c", "",
        "", traits>;
class Koila_ClampTensorFamilyOp<string name>
    : Koila_TensorLimitOp<name, "Tensor? min=None, Tensor? max=None",
                          (ins Koila_OptionalTensor:$min,
                               Koila_OptionalTensor:$max),
                          [AttrSizedOperandSegments]> {
  let check = [{
    if (!getMin() && !getMax())
      return rule.emitError() << "takes a minimum, a maximum or both";
  }];
}
def Koila_ClampTensorOp : Koila_ClampTensorFamilyOp<"clamp">;
def Koila_ClipTensorOp : Koila_ClampTensorFamilyOp<"clip">;
def Koila_ClampMinTensorOp : Koila_TensorLimitOp<"clamp_min", "Tensor min",
                                                 (ins AnyTensor:$min)>;
def Koila_ClampMaxTensorOp : Koila_TensorLimitOp<"clamp_max", "Tensor max",
                                                 (ins AnyTensor:$max)>;

#endif // KOILA_DIALECT_KOILA_IR_POINTWISEOPS_TD
