//===- BinaryOps.td - Operators on operands that broadcast -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_BINARYOPS_TD
#define KOILA_DIALECT_KOILA_IR_BINARYOPS_TD

include "koila/Dialect/Koila/IR/Elementwise.td"
include "koila/Interfaces/BackwardOperator.td"

//===----------------------------------------------------------------------===//
// Classes
//===----------------------------------------------------------------------===//

defvar otherTensor = (ins AnyTensor:$self, AnyTensor:$other);
defvar otherNumber = (ins Koila_ScalarAttr:$other);
defvar alphaArg = (ins Koila_ScalarAttr:$alpha);

/// Two tensors with broadcasting and type promotion.
class Koila_BinaryOp<string mnemonic, string schema, string inPlace = "",
                     dag numbers = (ins), string refused = "",
                     string result = "Common", string more = "",
                     dag literals = (ins), list<Trait> traits = []>
    : Koila_ElementwiseOp<mnemonic, schema, inPlace, otherTensor, numbers,
                          literals, result, refused, "", more, traits>;

/// `other` is a number; `tail` and what follows it are further arguments.
class Koila_BinaryNumberOp<string mnemonic, string schema, string inPlace = "",
                           dag numbers = otherNumber, string refused = "",
                           string result = "Common", string more = "",
                           dag literals = (ins)>
    : Koila_ElementwiseOp<mnemonic, schema, inPlace, (ins AnyTensor:$self),
                          numbers, literals, result, refused, "\"other\"",
                          more>;

/// One overload, with two tensors and an in-place twin.
class Koila_PlainBinaryOp<string name, string refused = "",
                          string result = "Common">
    : Koila_BinaryOp<name,
        "aten::" # name # "(Tensor self, Tensor other) -> Tensor",
        "aten::" # name # "_(Tensor(a!) self, Tensor other) -> Tensor(a!)",
        (ins), refused, result>;

/// The overload `suffix` with two tensors and no twin.
class Koila_PlainPairOp<string name, string overload = "", string refused = "",
                        string result = "Common">
    : Koila_BinaryOp<name # !subst(".", "_", overload),
        "aten::" # name # overload # "(Tensor self, Tensor other) -> Tensor",
        "", (ins), refused, result>;

/// A tensor or a number as `other`. `twin` is the name of the in-place form.
multiclass Koila_TensorAndNumber<string name, string twin, string refused = "",
                                 string result = "Common", string more = ""> {
  def TensorOp : Koila_BinaryOp<name # "_Tensor",
    "aten::" # name # ".Tensor(Tensor self, Tensor other) -> Tensor",
    "aten::" # twin # ".Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
    (ins), refused, result, more>;
  def ScalarOp : Koila_BinaryNumberOp<name # "_Scalar",
    "aten::" # name # ".Scalar(Tensor self, Scalar other) -> Tensor",
    "aten::" # twin # ".Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)",
    otherNumber, refused, result>;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// Operators that scale the second operand by `alpha`.
multiclass Koila_Scaled<string name, string more, list<Trait> traits = []> {
  def TensorOp : Koila_BinaryOp<name # "_Tensor",
    "aten::" # name # ".Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "aten::" # name # "_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
    alphaArg, "", "Common", more # ", .takesConstants = true", (ins), traits>;
  def ScalarOp : Koila_BinaryNumberOp<name # "_Scalar",
    "aten::" # name # ".Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    "aten::" # name # "_.Scalar(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)",
    !con(otherNumber, alphaArg), "", "Common", more>;
}

defm Koila_Add
    : Koila_Scaled<"add", ", .hasAlpha = true",
                   [DeclareOpInterfaceMethods<Koila_BackwardOperatorInterface,
                                              ["readsOperand"]>]>;
defm Koila_Sub : Koila_Scaled<"sub", ", .refusesBool = true, .hasAlpha = true">;
// The operands exchanged, and sub.
def Koila_RsubTensorOp : Koila_BinaryOp<"rsub_Tensor",
  "aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
  "", alphaArg, "", "Common",
  ", .refusesBool = true, .hasAlpha = true, .reversed = true">;
def Koila_RsubScalarOp : Koila_BinaryNumberOp<"rsub_Scalar",
  "aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
  "", !con(otherNumber, alphaArg), "", "Common",
  ", .refusesBool = true, .hasAlpha = true">;

//===----------------------------------------------------------------------===//
// Products and quotients
//===----------------------------------------------------------------------===//

defm Koila_Mul : Koila_TensorAndNumber<"mul", "mul_", "", "Common",
                                       ", .takesConstants = true">;
defm Koila_Div : Koila_TensorAndNumber<"div", "div_", "", "Float",
                                       ", .takesConstants = true">;
let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"div.Tensor\");" in
  defm Koila_TrueDivide
      : Koila_TensorAndNumber<"true_divide", "true_divide_", "", "Float">;
defm Koila_Remainder
    : Koila_TensorAndNumber<"remainder", "remainder_", "bc", "Common",
                            ", .held = ::koila::rules::Elementwise::Remainder">;
defm Koila_Fmod : Koila_TensorAndNumber<"fmod", "fmod_", "bc">;

/// Whether it rounds decides which element types it takes and returns.
class Koila_DivModeOp<string overload, string other, dag tensors, dag numbers,
                      string promoting>
    : Koila_ElementwiseOp<"div_" # overload,
        "aten::div." # overload # "(Tensor self, " # other # " other, *, str? rounding_mode) -> Tensor",
        "aten::div_." # overload # "(Tensor(a!) self, " # other # " other, *, str? rounding_mode) -> Tensor(a!)",
        tensors, numbers, (ins OptionalAttr<StrAttr>:$rounding_mode)> {
  let kind = [{::koila::rules::Elementwise{
        .result = getRoundingMode() ? ::koila::rules::Elementwise::Common
                                    : ::koila::rules::Elementwise::Float,
        .refused = getRoundingMode() ? "bc" : "",
        .numbers = {}] # promoting # "}}";
  let check = [{
    if (auto mode = getRoundingMode();
        mode && *mode != "trunc" && *mode != "floor")
      return rule.emitError() << "rounds by 'trunc', 'floor' or not, but not "
                              << "by '" << *mode << "'";
  }];
}
def Koila_DivTensorModeOp : Koila_DivModeOp<"Tensor_mode", "Tensor",
                                            otherTensor, (ins), "">;
def Koila_DivScalarModeOp : Koila_DivModeOp<"Scalar_mode", "Scalar",
                                            (ins AnyTensor:$self), otherNumber,
                                            "\"other\"">;
def Koila_FloorDivideOp : Koila_BinaryOp<"floor_divide",
  "aten::floor_divide(Tensor self, Tensor other) -> Tensor",
  "aten::floor_divide_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
  (ins), "bc", "Common", ", .held = ::koila::rules::Elementwise::Quotient">;
def Koila_FloorDivideScalarOp : Koila_BinaryNumberOp<"floor_divide_Scalar",
  "aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor",
  "aten::floor_divide_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)",
  otherNumber, "bc">;

//===----------------------------------------------------------------------===//
// Powers and functions of two operands
//===----------------------------------------------------------------------===//

def Koila_PowTensorTensorOp : Koila_ElementwiseOp<"pow_Tensor_Tensor",
  "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
  "aten::pow_.Tensor(Tensor(a!) self, Tensor exponent) -> Tensor(a!)",
  (ins AnyTensor:$self, AnyTensor:$exponent)>;
def Koila_PowTensorScalarOp : Koila_ElementwiseOp<"pow_Tensor_Scalar",
  "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
  "aten::pow_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)",
  (ins AnyTensor:$self), (ins Koila_ScalarAttr:$exponent), (ins), "Common", "",
  "\"exponent\""> {
  let shapeRule = "return ::koila::rules::inferPowTensorScalar(rule);";
  let wraps = "false";
}
// Its result is laid out before the operands are looked at (Pow.cpp).
def Koila_PowScalarOp : Koila_ElementwiseOp<"pow_Scalar",
  "aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor", "",
  (ins AnyTensor:$exponent), (ins Koila_ScalarAttr:$self), (ins), "Common", "",
  "\"self\"", ", .rowMajor = true">;

def Koila_Atan2Op : Koila_PlainBinaryOp<"atan2", "c", "Float">;
def Koila_HypotOp : Koila_PlainBinaryOp<"hypot", "bic">;
def Koila_LogaddexpOp : Koila_PlainPairOp<"logaddexp", "", "bi">;
def Koila_Logaddexp2Op : Koila_PlainPairOp<"logaddexp2", "", "bic">;
defm Koila_Copysign
    : Koila_TensorAndNumber<"copysign", "copysign_", "c", "Float">;
def Koila_XlogyTensorOp : Koila_BinaryOp<"xlogy_Tensor",
  "aten::xlogy.Tensor(Tensor self, Tensor other) -> Tensor",
  "aten::xlogy_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
  (ins), "c", "Float">;
def Koila_XlogyScalarOtherOp : Koila_BinaryNumberOp<"xlogy_Scalar_Other",
  "aten::xlogy.Scalar_Other(Tensor self, Scalar other) -> Tensor",
  "aten::xlogy_.Scalar_Other(Tensor(a!) self, Scalar other) -> Tensor(a!)",
  otherNumber, "c", "Float">;
def Koila_XlogyScalarSelfOp : Koila_ElementwiseOp<"xlogy_Scalar_Self",
  "aten::xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor", "",
  (ins AnyTensor:$other), (ins Koila_ScalarAttr:$self), (ins), "Float", "c",
  "\"self\"">;
def Koila_HeavisideOp : Koila_ElementwiseOp<"heaviside",
  "aten::heaviside(Tensor self, Tensor values) -> Tensor",
  "aten::heaviside_(Tensor(a!) self, Tensor values) -> Tensor(a!)",
  (ins AnyTensor:$self, AnyTensor:$values), (ins), (ins), "Common", "c", "",
  ", .sameTypes = true">;
/// A complex number of two real ones (ComplexFunctions.cpp).
class Koila_PartsOp<string name, string first, string second, dag parts>
    : Koila_ElementwiseOp<name,
        "aten::" # name # "(Tensor " # first # ", Tensor " # second # ") -> Tensor",
        "", parts, (ins), (ins), "Complex", "bic", "", ", .sameTypes = true"> {
  let check = [{
    ::mlir::Type element = rule.tensor(getOperand(0)).elementType;
    if (element && element.isBF16())
      return rule.emitError() << "is not defined for elements of type bf16";
  }];
}
def Koila_ComplexOp : Koila_PartsOp<"complex", "real", "imag",
                                    (ins AnyTensor:$real, AnyTensor:$imag)>;
def Koila_PolarOp : Koila_PartsOp<"polar", "abs", "angle",
                                  (ins AnyTensor:$abs, AnyTensor:$angle)>;

//===----------------------------------------------------------------------===//
// Extrema, comparisons, logic
//===----------------------------------------------------------------------===//

def Koila_MaximumOp : Koila_PlainPairOp<"maximum", "", "c">;
def Koila_MinimumOp : Koila_PlainPairOp<"minimum", "", "c">;
def Koila_FmaxOp : Koila_PlainPairOp<"fmax", "", "c">;
def Koila_FminOp : Koila_PlainPairOp<"fmin", "", "c">;
def Koila_MaxOtherOp : Koila_PlainPairOp<"max", ".other", "c"> {
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"maximum\");";
}
def Koila_MinOtherOp : Koila_PlainPairOp<"min", ".other", "c"> {
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"minimum\");";
}

defm Koila_Eq : Koila_TensorAndNumber<"eq", "eq_", "", "Bool">;
defm Koila_Ne : Koila_TensorAndNumber<"ne", "ne_", "", "Bool">;
defm Koila_Lt : Koila_TensorAndNumber<"lt", "lt_", "c", "Bool">;
defm Koila_Le : Koila_TensorAndNumber<"le", "le_", "c", "Bool">;
defm Koila_Gt : Koila_TensorAndNumber<"gt", "gt_", "c", "Bool">;
defm Koila_Ge : Koila_TensorAndNumber<"ge", "ge_", "c", "Bool">;
def Koila_IscloseOp : Koila_ElementwiseOp<"isclose",
  "aten::isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
  "", otherTensor, (ins),
  (ins F64Attr:$rtol, F64Attr:$atol, BoolAttr:$equal_nan), "Bool", "", "",
  ", .sameTypes = true"> {
  let check = [{
    if (getRtol().convertToDouble() < 0 || getAtol().convertToDouble() < 0)
      return rule.emitError() << "takes no negative tolerance";
  }];
}

def Koila_LogicalAndOp : Koila_PlainBinaryOp<"logical_and", "", "Bool">;
def Koila_LogicalOrOp : Koila_PlainBinaryOp<"logical_or", "", "Bool">;
def Koila_LogicalXorOp : Koila_PlainBinaryOp<"logical_xor", "", "Bool">;
defm Koila_BitwiseAnd
    : Koila_TensorAndNumber<"bitwise_and", "bitwise_and_", "fc">;
defm Koila_BitwiseOr
    : Koila_TensorAndNumber<"bitwise_or", "bitwise_or_", "fc">;
defm Koila_BitwiseXor
    : Koila_TensorAndNumber<"bitwise_xor", "bitwise_xor_", "fc">;
defm Koila_And : Koila_TensorAndNumber<"__and__", "__iand__", "fc">;
defm Koila_Or : Koila_TensorAndNumber<"__or__", "__ior__", "fc">;
defm Koila_Xor : Koila_TensorAndNumber<"__xor__", "__ixor__", "fc">;
defm Koila_LeftShift : Koila_TensorAndNumber<"__lshift__", "__ilshift__", "bfc">;
defm Koila_RightShift : Koila_TensorAndNumber<"__rshift__", "__irshift__", "bfc">;

//===----------------------------------------------------------------------===//
// Three operands
//===----------------------------------------------------------------------===//

def Koila_LerpScalarOp : Koila_ElementwiseOp<"lerp_Scalar",
  "aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor",
  "aten::lerp_.Scalar(Tensor(a!) self, Tensor end, Scalar weight) -> Tensor(a!)",
  (ins AnyTensor:$self, AnyTensor:$end), (ins Koila_ScalarAttr:$weight), (ins),
  "Common", "bi", "", ", .sameTypes = true">;
def Koila_LerpTensorOp : Koila_ElementwiseOp<"lerp_Tensor",
  "aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
  "aten::lerp_.Tensor(Tensor(a!) self, Tensor end, Tensor weight) -> Tensor(a!)",
  (ins AnyTensor:$self, AnyTensor:$end, AnyTensor:$weight), (ins), (ins),
  "Common", "bi", "", ", .weights = 1, .sameTypes = true">;

class Koila_ProductSumOp<string name>
    : Koila_ElementwiseOp<name,
        "aten::" # name # "(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
        "aten::" # name # "_(Tensor(a!) self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor(a!)",
        (ins AnyTensor:$self, AnyTensor:$tensor1, AnyTensor:$tensor2),
        (ins Koila_ScalarAttr:$value)>;
def Koila_AddcmulOp : Koila_ProductSumOp<"addcmul">;
def Koila_AddcdivOp : Koila_ProductSumOp<"addcdiv"> {
  let shapeRule = "return ::koila::rules::inferAddcdiv(rule);";
}

/// A bool tensor chooses between two operands.
class Koila_WhereOp<string overload, string operands, dag tensors, dag numbers,
                    string promoting>
    : Koila_ElementwiseOp<"where_" # overload,
        "aten::where." # overload # "(Tensor condition, " # operands # ") -> Tensor",
        "", !con((ins AnyTensor:$condition), tensors), numbers, (ins),
        "Common", "", promoting, ", .conditions = 1">;
def Koila_WhereSelfOp : Koila_WhereOp<"self", "Tensor self, Tensor other",
                                      otherTensor, (ins), "">;
// The numbers become tensors of the common type.
def Koila_WhereScalarOtherOp : Koila_WhereOp<"ScalarOther",
  "Tensor self, Scalar other", (ins AnyTensor:$self), otherNumber,
  "\"other\""> {
  let differentiationRule = "rule.save(getCondition());";
}
def Koila_WhereScalarSelfOp : Koila_WhereOp<"ScalarSelf",
  "Scalar self, Tensor other", (ins AnyTensor:$other),
  (ins Koila_ScalarAttr:$self), "\"self\""> {
  let differentiationRule = "rule.save(getCondition());";
}
def Koila_WhereScalarOp : Koila_WhereOp<"Scalar", "Scalar self, Scalar other",
  (ins), (ins Koila_ScalarAttr:$self, Koila_ScalarAttr:$other),
  "\"self\", \"other\""> {
}

/// Fills where a bool tensor says; a copy in rows, without other temporaries
/// (measured).
class Koila_MaskedFillOp<string overload, string type, dag tensors, dag numbers,
                         string value>
    : Koila_ElementwiseOp<"masked_fill_" # overload,
        "aten::masked_fill." # overload # "(Tensor self, Tensor mask, " # type # " value) -> Tensor",
        "aten::masked_fill_." # overload # "(Tensor(a!) self, Tensor mask, " # type # " value) -> Tensor(a!)",
        !con((ins AnyTensor:$self, AnyTensor:$mask), tensors), numbers> {
  let shapeRule = "return ::koila::rules::inferMaskedFill(rule, getSelf(), "
                  "getMask(), " # value # ");";
}
def Koila_MaskedFillScalarOp : Koila_MaskedFillOp<"Scalar", "Scalar", (ins),
  (ins Koila_ScalarAttr:$value), "{}">;
def Koila_MaskedFillTensorOp : Koila_MaskedFillOp<"Tensor", "Tensor",
  (ins AnyTensor:$value), (ins), "getValue()">;

#endif // KOILA_DIALECT_KOILA_IR_BINARYOPS_TD
