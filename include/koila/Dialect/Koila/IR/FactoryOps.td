//===- FactoryOps.td - Tensors from sizes; random tensors --*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_FACTORYOPS_TD
#define KOILA_DIALECT_KOILA_IR_FACTORYOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"
include "koila/Interfaces/RandomOp.td"

//===----------------------------------------------------------------------===//
// Classes
//===----------------------------------------------------------------------===//

/// What a new tensor is made of.
defvar Koila_TensorOptions =
    "ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None";
defvar Koila_TensorOptionArgs =
    (ins OptionalAttr<I64Attr>:$dtype, OptionalAttr<I64Attr>:$layout,
         OptionalAttr<Koila_DeviceAttr>:$device,
         OptionalAttr<BoolAttr>:$pin_memory);
defvar Koila_LikeOptions = Koila_TensorOptions #
                           ", MemoryFormat? memory_format=None";
defvar Koila_LikeOptionArgs =
    !con(Koila_TensorOptionArgs, (ins OptionalAttr<I64Attr>:$memory_format));

/// A new tensor. Sparse layouts and pinned memory are left to the opaque
/// operator. `inner` says that the operator holds nothing besides its result.
class Koila_FactoryOp<string mnemonic, string schema, dag args,
                      list<Trait> effects = Koila_Ordered>
    : Koila_RuledOp<mnemonic, schema, "", [],
                    "::koila::rules::isPlain(getOperation())", effects> {
  let arguments = !con(args, (ins Variadic<AnyType>:$dynamic));
  let differentiationRule = "rule.setDetached();";
}

/// Of the extents in `size`; `self`, where there is one, gives the element
/// type.
class Koila_SizedOp<string mnemonic, string name, string parameters, dag args,
                    string self = "", string options = Koila_TensorOptions,
                    dag optionArgs = Koila_TensorOptionArgs,
                    list<Trait> effects = Koila_Ordered>
    : Koila_FactoryOp<mnemonic,
                      "aten::" # name # "(" # parameters # ", *, " # options #
                          ") -> Tensor",
                      !con(!if(!empty(self), (ins), (ins AnyTensor:$self)),
                           args, optionArgs), effects> {
  defvar like = !if(!empty(self), "::mlir::Value()", "getSelf()");
  let description = [{
    A tensor of the extents in `size`. Without `dtype` the element type is that
    of `self` or of the number it is filled with, else float32. An extent that
    is the number of samples carries the batch; a value that is, mixes.
    Refused: negative extents.
  }];
  let shapeRule = "return ::koila::rules::inferSized(rule, " # like # ");";
  let batchRule = "::koila::rules::inferSizedBatch(rule, " # like # ");";
}

/// Of the shape of `self`.
class Koila_LikeOp<string mnemonic, string name, string parameters, dag args,
                   list<Trait> effects = Koila_Ordered>
    : Koila_FactoryOp<mnemonic,
                      !strconcat("aten::", name, "(Tensor self, ", parameters,
                                 "*, ", Koila_LikeOptions, ") -> Tensor"),
                      !con((ins AnyTensor:$self), args, Koila_LikeOptionArgs),
                      effects> {
  let description = [{
    A tensor of the shape of `self`, and of its element type and strides unless
    `dtype` and `memory_format` say otherwise. The batch is where it is in
    `self`.
  }];
  let shapeRule = "return ::koila::rules::inferLike(rule, getSelf());";
  let batchRule = "::koila::rules::inferLikeBatch(rule, getSelf());";
}

/// Values that are computed from numbers alone.
class Koila_NumbersOp<string mnemonic, string name, string parameters, dag args,
                      string options = Koila_TensorOptions,
                      dag optionArgs = Koila_TensorOptionArgs>
    : Koila_FactoryOp<mnemonic,
                      "aten::" # name # "(" # parameters # ", *, " # options #
                          ") -> Tensor", !con(args, optionArgs)> {
  let description = [{
    A tensor of values that its numbers decide. If one of them is the number of
    samples the result mixes: a tile has another number.
  }];
  let batchRule = "::koila::rules::mixNumberOfSamples(rule);";
}

//===----------------------------------------------------------------------===//
// Of given extents
//===----------------------------------------------------------------------===//

defvar Koila_SizeArg = (ins DenseI64ArrayAttr:$size);
defvar Koila_SizeFillArgs = (ins DenseI64ArrayAttr:$size,
                                 Koila_ScalarAttr:$fill_value);

def Koila_ZerosOp : Koila_SizedOp<"zeros", "zeros", "SymInt[] size",
                                  Koila_SizeArg>;
def Koila_OnesOp : Koila_SizedOp<"ones", "ones", "SymInt[] size",
                                 Koila_SizeArg>;
def Koila_EmptyOp : Koila_SizedOp<"empty_memory_format", "empty.memory_format",
  "SymInt[] size", Koila_SizeArg, "", Koila_LikeOptions, Koila_LikeOptionArgs>;
def Koila_FullOp : Koila_SizedOp<"full", "full",
  "SymInt[] size, Scalar fill_value", Koila_SizeFillArgs>;
def Koila_NewZerosOp : Koila_SizedOp<"new_zeros", "new_zeros",
  "Tensor self, SymInt[] size", Koila_SizeArg, "self">;
def Koila_NewOnesOp : Koila_SizedOp<"new_ones", "new_ones",
  "Tensor self, SymInt[] size", Koila_SizeArg, "self">;
def Koila_NewEmptyOp : Koila_SizedOp<"new_empty", "new_empty",
  "Tensor self, SymInt[] size", Koila_SizeArg, "self">;
def Koila_NewFullOp : Koila_SizedOp<"new_full", "new_full",
  "Tensor self, SymInt[] size, Scalar fill_value", Koila_SizeFillArgs, "self">;

defvar Koila_SizeStrideArgs = (ins DenseI64ArrayAttr:$size,
                                   DenseI64ArrayAttr:$stride);
def Koila_EmptyStridedOp : Koila_SizedOp<"empty_strided", "empty_strided",
  "SymInt[] size, SymInt[] stride", Koila_SizeStrideArgs>;
def Koila_NewEmptyStridedOp : Koila_SizedOp<"new_empty_strided",
  "new_empty_strided", "Tensor self, SymInt[] size, SymInt[] stride",
  Koila_SizeStrideArgs, "self">;
def Koila_EmptyPermutedOp : Koila_SizedOp<"empty_permuted", "empty_permuted",
  "SymInt[] size, int[] physical_layout",
  (ins DenseI64ArrayAttr:$size, DenseI64ArrayAttr:$physical_layout)>;

def Koila_ZerosLikeOp : Koila_LikeOp<"zeros_like", "zeros_like", "", (ins)>;
def Koila_OnesLikeOp : Koila_LikeOp<"ones_like", "ones_like", "", (ins)>;
def Koila_EmptyLikeOp : Koila_LikeOp<"empty_like", "empty_like", "", (ins)>;
def Koila_FullLikeOp : Koila_LikeOp<"full_like", "full_like",
  "Scalar fill_value, ", (ins Koila_ScalarAttr:$fill_value)>;

//===----------------------------------------------------------------------===//
// Of given numbers
//===----------------------------------------------------------------------===//

/// Results of one dim, whose extent is the argument `extent`.
class Koila_SequenceOp<string mnemonic, string name, string parameters,
                       dag args, string extent>
    : Koila_NumbersOp<mnemonic, name, parameters, args> {
  let shapeRule = "return ::koila::rules::inferSequence(rule, \"" # extent #
                  "\");";
}

class Koila_ArangeOp<string mnemonic, string name, string parameters, dag args>
    : Koila_NumbersOp<mnemonic, name, parameters, args> {
  let shapeRule = "return ::koila::rules::inferArange(rule);";
  let batchRule = "::koila::rules::inferStepsBatch(rule);";
}
/// What is read as the places of rows or the beginnings of bags of equal size alone
/// counts within each tile.
def Koila_ArangeEndOp : Koila_ArangeOp<"arange", "arange", "Scalar end",
  (ins Koila_ScalarAttr:$end)>;
def Koila_ArangeStartOp : Koila_ArangeOp<"arange_start", "arange.start",
  "Scalar start, Scalar end",
  (ins Koila_ScalarAttr:$start, Koila_ScalarAttr:$end)>;
def Koila_ArangeStartStepOp : Koila_ArangeOp<"arange_start_step",
  "arange.start_step", "Scalar start, Scalar end, Scalar step=1",
  (ins Koila_ScalarAttr:$start, Koila_ScalarAttr:$end,
       Koila_ScalarAttr:$step)>;

def Koila_LinspaceOp : Koila_SequenceOp<"linspace", "linspace",
  "Scalar start, Scalar end, int steps",
  (ins Koila_ScalarAttr:$start, Koila_ScalarAttr:$end, I64Attr:$steps),
  "steps">;
def Koila_LogspaceOp : Koila_SequenceOp<"logspace", "logspace",
  "Scalar start, Scalar end, int steps, float base=10.",
  (ins Koila_ScalarAttr:$start, Koila_ScalarAttr:$end, I64Attr:$steps,
       F64Attr:$base), "steps">;

/// A window of a spectral transform.
class Koila_WindowOp<string mnemonic, string name, string parameters = "",
                     dag args = (ins)>
    : Koila_SequenceOp<mnemonic, name, "int window_length" # parameters,
                       !con((ins I64Attr:$window_length), args),
                       "window_length"> {
  let shapeRule = [{
    if (::mlir::failed(::koila::rules::checkReal(
            rule, ::koila::rules::getDtype(getOperation(), {}))))
      return ::mlir::failure();
    return ::koila::rules::inferSequence(rule, "window_length");
  }];
}
foreach kind = ["hann", "hamming", "blackman", "bartlett", "kaiser"] in {
  defvar cppName = !cast<string>(!cond(
      !eq(kind, "hann"): "Hann", !eq(kind, "hamming"): "Hamming",
      !eq(kind, "blackman"): "Blackman", !eq(kind, "bartlett"): "Bartlett",
      !eq(kind, "kaiser"): "Kaiser"));
  def Koila_ # cppName # WindowOp
      : Koila_WindowOp<kind # "_window", kind # "_window">;
  def Koila_ # cppName # WindowPeriodicOp
      : Koila_WindowOp<kind # "_window_periodic", kind # "_window.periodic",
                       ", bool periodic", (ins BoolAttr:$periodic)>;
}
def Koila_HammingWindowAlphaOp : Koila_WindowOp<"hamming_window_periodic_alpha",
  "hamming_window.periodic_alpha", ", bool periodic, float alpha",
  (ins BoolAttr:$periodic, F64Attr:$alpha)>;
def Koila_HammingWindowAlphaBetaOp : Koila_WindowOp<
  "hamming_window_periodic_alpha_beta", "hamming_window.periodic_alpha_beta",
  ", bool periodic, float alpha, float beta",
  (ins BoolAttr:$periodic, F64Attr:$alpha, F64Attr:$beta)>;
def Koila_KaiserWindowBetaOp : Koila_WindowOp<"kaiser_window_beta",
  "kaiser_window.beta", ", bool periodic, float beta",
  (ins BoolAttr:$periodic, F64Attr:$beta)>;

class Koila_EyeOp<string mnemonic, string name, string parameters, dag args>
    : Koila_NumbersOp<mnemonic, name, parameters, args> {
  let shapeRule = "return ::koila::rules::inferEye(rule);";
}
def Koila_EyeSquareOp : Koila_EyeOp<"eye", "eye", "SymInt n",
  (ins I64Attr:$n)>;
def Koila_EyeMOp : Koila_EyeOp<"eye_m", "eye.m", "SymInt n, SymInt m",
  (ins I64Attr:$n, I64Attr:$m)>;

class Koila_TriangleIndicesOp<string name, string lower>
    : Koila_NumbersOp<name, name, "int row, int col, int offset=0",
        (ins I64Attr:$row, I64Attr:$col, I64Attr:$offset),
        "ScalarType? dtype=4, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None"> {
  let shapeRule = "return ::koila::rules::inferTriangleIndices(rule, " # lower #
                  ");";
}
def Koila_TrilIndicesOp : Koila_TriangleIndicesOp<"tril_indices", "true">;
def Koila_TriuIndicesOp : Koila_TriangleIndicesOp<"triu_indices", "false">;

//===----------------------------------------------------------------------===//
// Numbers and lists as tensors
//===----------------------------------------------------------------------===//

def Koila_ScalarTensorOp : Koila_NumbersOp<"scalar_tensor", "scalar_tensor",
    "Scalar s", (ins Koila_ScalarAttr:$s)> {
  let shapeRule = [{
    // Source: scalar_tensor in native/TensorFactories.cpp; the number's type
    // does not count.
    return ::koila::rules::inferScalar(
        rule, ::mlir::Float32Type::get(rule.getContext()));
  }];
}

defvar Koila_DataOptionArgs = (ins OptionalAttr<I64Attr>:$dtype,
                                   OptionalAttr<Koila_DeviceAttr>:$device);

/// torch.tensor and torch.as_tensor of one number.
class Koila_NumberTensorOp<string mnemonic, string name, string kind, Attr attr,
                           dag args = (ins), string more = "">
    : Koila_NumbersOp<mnemonic, name, kind # " t", (ins attr:$t),
                      "ScalarType? dtype=None, Device? device=None" # more,
                      !con(Koila_DataOptionArgs, args)> {
  let shapeRule = [{
    return ::koila::rules::inferScalar(
        rule, ::koila::rules::getDefaultType(rule.numberType("t")));
  }];
}
foreach kind = ["int", "float", "bool"] in {
  defvar attr = !cond(!eq(kind, "int"): I64Attr, !eq(kind, "float"): F64Attr,
                      !eq(kind, "bool"): BoolAttr);
  defvar cppName = !cast<string>(!cond(
      !eq(kind, "int"): "Int", !eq(kind, "float"): "Float",
      !eq(kind, "bool"): "Bool"));
  def Koila_Tensor # cppName # Op
      : Koila_NumberTensorOp<"tensor_" # kind, "tensor." # kind, kind, attr,
                             (ins BoolAttr:$requires_grad),
                             ", bool requires_grad=False">;
  def Koila_AsTensor # cppName # Op
      : Koila_NumberTensorOp<"as_tensor_" # kind, "as_tensor." # kind, kind,
                             attr>;
}

/// torch.tensor and torch.as_tensor of a list of numbers.
class Koila_ListTensorOp<string mnemonic, string name, dag args = (ins),
                         string more = "">
    : Koila_NumbersOp<mnemonic, name, "t[] data",
        (ins AnyAttrOf<[DenseI64ArrayAttr, DenseF64ArrayAttr,
                        DenseBoolArrayAttr]>:$data),
        "ScalarType? dtype=None, Device? device=None" # more,
        !con(Koila_DataOptionArgs, args)> {
  let shapeRule = "return ::koila::rules::inferListTensor(rule);";
}
def Koila_TensorListOp : Koila_ListTensorOp<"tensor", "tensor",
  (ins BoolAttr:$requires_grad), ", bool requires_grad=False">;
def Koila_AsTensorListOp : Koila_ListTensorOp<"as_tensor_list",
                                              "as_tensor.list">;

//===----------------------------------------------------------------------===//
// Random tensors
//===----------------------------------------------------------------------===//

/// A random tensor of the extents in `size`.
class Koila_RandomSizedOp<string mnemonic, string name, string parameters,
                          dag args, string check,
                          string options = Koila_TensorOptions>
    : Koila_SizedOp<mnemonic, name, parameters, args, "", options,
                    Koila_TensorOptionArgs, Koila_Draws> {
  let shapeRule = check # [{
    return ::koila::rules::inferSized(rule, ::mlir::Value());
  }];
}
defvar Koila_CheckRealDtype = [{
    if (::mlir::failed(::koila::rules::checkReal(
            rule, ::koila::rules::getDtype(getOperation(), {}))))
      return ::mlir::failure();
}];
defvar Koila_CheckDrawRange = [{
    if (::mlir::failed(::koila::rules::checkDrawRange(
            rule, "low", "high",
            ::koila::rules::getDtype(getOperation(), {}))))
      return ::mlir::failure();
}];
defvar Koila_IntOptions =
    "ScalarType? dtype=4, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None";

def Koila_RandOp : Koila_RandomSizedOp<"rand", "rand", "SymInt[] size",
  Koila_SizeArg, Koila_CheckRealDtype>;
def Koila_RandnOp : Koila_RandomSizedOp<"randn", "randn", "SymInt[] size",
  Koila_SizeArg, Koila_CheckRealDtype>;
def Koila_RandintOp : Koila_RandomSizedOp<"randint", "randint",
  "SymInt high, SymInt[] size",
  (ins I64Attr:$high, DenseI64ArrayAttr:$size), Koila_CheckDrawRange,
  Koila_IntOptions>;
def Koila_RandintLowOp : Koila_RandomSizedOp<"randint_low", "randint.low",
  "SymInt low, SymInt high, SymInt[] size",
  (ins I64Attr:$low, I64Attr:$high, DenseI64ArrayAttr:$size),
  Koila_CheckDrawRange, Koila_IntOptions>;
def Koila_NormalFloatFloatOp : Koila_RandomSizedOp<"normal_float_float",
  "normal.float_float", "float mean, float std, SymInt[] size",
  (ins F64Attr:$mean, F64Attr:$std, DenseI64ArrayAttr:$size,
       OptionalAttr<UnitAttr>:$generator),
  Koila_CheckRealDtype # [{
    if (::mlir::failed(::koila::rules::checkDeviation(rule, getStd())))
      return ::mlir::failure();
  }], !strconcat("Generator? generator=None, ", Koila_TensorOptions)>;

def Koila_RandpermOp : Koila_FactoryOp<"randperm",
    !strconcat("aten::randperm(SymInt n, *, ", Koila_IntOptions, ") -> Tensor"),
    !con((ins I64Attr:$n), Koila_TensorOptionArgs), Koila_Draws> {
  let shapeRule = [{
    return ::koila::rules::inferSequence(
        rule, "n", ::mlir::IntegerType::get(rule.getContext(), 64));
  }];
  let batchRule = "::koila::rules::mixNumberOfSamples(rule);";
}

/// Draws whatever the values of the operand are; `draw` fills `storage`.
class Koila_RandomLikeOp<string mnemonic, string name, string parameters,
                         dag args, string check, string draw>
    : Koila_LikeOp<mnemonic, name, parameters, args,
                   Koila_Draws # [Koila_RandomOpInterface]> {
  let extraClassDeclaration = baseDeclaration # [{
    ::mlir::Value drawInto(::mlir::OpBuilder &builder, ::mlir::Value storage);
  }];
  let moreDefinitions = [{
    ::mlir::Value $cppClass::drawInto(::mlir::OpBuilder &builder,
                                      ::mlir::Value storage) {
      return ::koila::rules::}] # draw # [{(builder, *this, storage);
    }
  }];
  let shapeRule = check # [{
    return ::koila::rules::inferLike(rule, getSelf());
  }];
}
defvar Koila_CheckRealLike = [{
    if (::mlir::failed(::koila::rules::checkReal(
            rule, ::koila::rules::getDtype(
                      getOperation(), rule.tensor(getSelf()).elementType))))
      return ::mlir::failure();
}];
defvar Koila_CheckDrawRangeLike = [{
    if (::mlir::failed(::koila::rules::checkDrawRange(
            rule, "low", "high",
            ::koila::rules::getDtype(
                getOperation(), rule.tensor(getSelf()).elementType))))
      return ::mlir::failure();
}];
def Koila_RandLikeOp : Koila_RandomLikeOp<"rand_like", "rand_like", "", (ins),
  Koila_CheckRealLike, "drawUniform">;
def Koila_RandnLikeOp : Koila_RandomLikeOp<"randn_like", "randn_like", "",
  (ins), Koila_CheckRealLike, "drawNormal">;
def Koila_RandintLikeOp : Koila_RandomLikeOp<"randint_like", "randint_like",
  "SymInt high, ", (ins I64Attr:$high), Koila_CheckDrawRangeLike,
  "drawIntegers">;
def Koila_RandintLikeLowOp : Koila_RandomLikeOp<"randint_like_low_dtype",
  "randint_like.low_dtype", "SymInt low, SymInt high, ",
  (ins I64Attr:$low, I64Attr:$high), Koila_CheckDrawRangeLike,
  "drawIntegers">;

/// Draws of the shape and element type of `self`. Of the values of `self` only
/// bernoulli and poisson read any. In place, or with the layout `format`.
class Koila_DrawOp<string mnemonic, string schema, string inPlace = "",
                   dag args = (ins), string check = "",
                   string format = "Preserve", list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, inPlace, traits, "true", Koila_Draws> {
  let description = [{
    Random values in the shape and element type of `self`. The batch stays
    where it is; tiles would draw other numbers.
  }];
  let arguments = !con((ins AnyTensor:$self), args,
                       (ins OptionalAttr<UnitAttr>:$generator),
                       !if(!empty(inPlace), (ins), (ins UnitAttr:$tied)));
  let shapeRule = check # [{
    return ::koila::rules::inferCopyOf(
        rule, getSelf(), ::koila::rules::MemoryFormat::}] # format # [{);
  }];
  let batchRule = "rule.setResult(0, rule.fact(getSelf()));";
}

defvar Koila_CheckRealSelf = [{
    if (::mlir::failed(::koila::rules::checkReal(
            rule, rule.tensor(getSelf()).elementType)))
      return ::mlir::failure();
}];
class Koila_RefuseUnless<string condition, string message> {
  string text = Koila_CheckRealSelf # "if (!(" # condition #
                ")) return rule.emitError() << \"" # message # "\";";
}
defvar Koila_NormalArgs = (ins F64Attr:$mean, F64Attr:$std);

/// Draws that read no values of `self`.
class Koila_FillOp<string mnemonic, string schema, string inPlace, dag args,
                   string check, string format = "Preserve">
    : Koila_DrawOp<mnemonic, schema, inPlace, args, check, format,
                   [Koila_RandomOpInterface]> {
  let extraClassDeclaration = baseDeclaration # [{
    ::mlir::Value drawInto(::mlir::OpBuilder &builder, ::mlir::Value storage);
  }];
  let moreDefinitions = [{
    ::mlir::Value $cppClass::drawInto(::mlir::OpBuilder &builder,
                                      ::mlir::Value storage) {
      return ::koila::rules::drawSame(builder, *this, storage);
    }
  }];
}

def Koila_UniformOp : Koila_FillOp<"uniform",
  "aten::uniform(Tensor self, float from=0., float to=1., *, Generator? generator=None) -> Tensor",
  "aten::uniform_(Tensor(a!) self, float from=0., float to=1., *, Generator? generator=None) -> Tensor(a!)",
  (ins F64Attr:$from, F64Attr:$to),
  Koila_RefuseUnless<"getFrom() <= getTo()", "draws from an empty range">.text>;
def Koila_NormalOp : Koila_FillOp<"normal_functional",
  "aten::normal_functional(Tensor self, float mean=0., float std=1., *, Generator? generator=None) -> Tensor",
  "aten::normal_(Tensor(a!) self, float mean=0., float std=1., *, Generator? generator=None) -> Tensor(a!)",
  Koila_NormalArgs, Koila_CheckRealSelf # [{
    if (::mlir::failed(::koila::rules::checkDeviation(rule, getStd())))
      return ::mlir::failure();
  }]>;
def Koila_ExponentialOp : Koila_FillOp<"exponential",
  "aten::exponential(Tensor self, float lambd=1., *, Generator? generator=None) -> Tensor",
  "aten::exponential_(Tensor(a!) self, float lambd=1., *, Generator? generator=None) -> Tensor(a!)",
  (ins F64Attr:$lambd),
  Koila_RefuseUnless<"getLambd().convertToDouble() > 0",
                     "needs a rate above zero">.text>;
def Koila_CauchyOp : Koila_FillOp<"cauchy",
  "aten::cauchy(Tensor self, float median=0., float sigma=1., *, Generator? generator=None) -> Tensor",
  "aten::cauchy_(Tensor(a!) self, float median=0., float sigma=1., *, Generator? generator=None) -> Tensor(a!)",
  (ins F64Attr:$median, F64Attr:$sigma),
  Koila_RefuseUnless<"getSigma().convertToDouble() > 0",
                     "needs a scale above zero">.text>;
def Koila_LogNormalOp : Koila_FillOp<"log_normal",
  "aten::log_normal(Tensor self, float mean=1., float std=2., *, Generator? generator=None) -> Tensor",
  "aten::log_normal_(Tensor(a!) self, float mean=1., float std=2., *, Generator? generator=None) -> Tensor(a!)",
  Koila_NormalArgs,
  Koila_RefuseUnless<"getStd().convertToDouble() > 0",
                     "needs a standard deviation above zero">.text>;
def Koila_GeometricOp : Koila_FillOp<"geometric",
  "aten::geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor",
  "aten::geometric_(Tensor(a!) self, float p, *, Generator? generator=None) -> Tensor(a!)",
  (ins F64Attr:$p), [{
    if (double p = getP().convertToDouble(); !(p > 0 && p < 1))
      return rule.emitError() << "needs a probability between 0 and 1";
  }]>;

class Koila_DrawIntegersOp<string mnemonic, string overload, string parameters,
                           dag args>
    : Koila_FillOp<mnemonic,
        "aten::random" # overload # "(Tensor self, " # parameters #
            "*, Generator? generator=None) -> Tensor",
        "aten::random_" # overload # "(Tensor(a!) self, " # parameters #
            "*, Generator? generator=None) -> Tensor(a!)", args, [{
    if (::mlir::failed(::koila::rules::checkDrawRange(
            rule, "from", "to", rule.tensor(getSelf()).elementType)))
      return ::mlir::failure();
  }]>;
def Koila_RandomOp : Koila_DrawIntegersOp<"random", "", "", (ins)>;
def Koila_RandomToOp : Koila_DrawIntegersOp<"random_to", ".to", "int to, ",
  (ins I64Attr:$to)>;
def Koila_RandomFromOp : Koila_DrawIntegersOp<"random_from", ".from",
  "int from, int? to, ", (ins I64Attr:$from, OptionalAttr<I64Attr>:$to)>;

def Koila_BernoulliOp : Koila_DrawOp<"bernoulli",
  "aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor", "",
  (ins), "", "Contiguous">;
def Koila_BernoulliPOp : Koila_FillOp<"bernoulli_p",
  "aten::bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor",
  "aten::bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)",
  (ins F64Attr:$p), [{
    if (double p = getP().convertToDouble(); !(p >= 0 && p <= 1))
      return rule.emitError() << "needs a probability from 0 to 1";
  }], "Contiguous">;
def Koila_BernoulliTensorOp : Koila_DrawOp<"bernoulli_Tensor",
  "aten::bernoulli.Tensor(Tensor self, Tensor p, *, Generator? generator=None) -> Tensor",
  "aten::bernoulli_.Tensor(Tensor(a!) self, Tensor p, *, Generator? generator=None) -> Tensor(a!)",
  (ins AnyTensor:$p), [{
    // An empty tensor is returned before anything is checked.
    auto dims = rule.tensor(getSelf()).dims;
    bool isEmpty = dims && ::llvm::any_of(*dims, [](::koila::DimExpr dim) {
      return dim.isConstant(0);
    });
    if (!isEmpty &&
        ::mlir::failed(::koila::rules::checkExpands(rule, getP(), getSelf())))
      return ::mlir::failure();
  }]> {
  let batchRule =
      "::koila::rules::inferBroadcastBatch(rule, {getSelf(), getP()});";
}
def Koila_PoissonOp : Koila_DrawOp<"poisson",
  "aten::poisson(Tensor self, Generator? generator=None) -> Tensor", "",
  (ins), Koila_CheckRealSelf, "Contiguous">;

/// Normal draws whose mean or deviation is a tensor.
class Koila_NormalTensorOp<string mnemonic, string schema, dag args,
                           string check, string operands>
    : Koila_RuledOp<mnemonic, schema, "", [], "true", Koila_Draws> {
  let description = [{
    Random values of the shape that mean and deviation broadcast to, of the
    first one's element type. The batch stays where it is; tiles would draw
    other numbers.
  }];
  let arguments = !con(args, (ins OptionalAttr<UnitAttr>:$generator));
  let shapeRule = check # [{
    return ::koila::rules::inferNormal(rule, {}] # operands # [{});
  }];
  let batchRule = "::koila::rules::inferBroadcastBatch(rule, {" # operands #
                  "});";
}
def Koila_NormalTensorFloatOp : Koila_NormalTensorOp<"normal_Tensor_float",
  "aten::normal.Tensor_float(Tensor mean, float std=1., *, Generator? generator=None) -> Tensor",
  (ins AnyTensor:$mean, F64Attr:$std), [{
    if (::mlir::failed(::koila::rules::checkDeviation(rule, getStd())))
      return ::mlir::failure();
  }], "getMean()">;
def Koila_NormalFloatTensorOp : Koila_NormalTensorOp<"normal_float_Tensor",
  "aten::normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor",
  (ins F64Attr:$mean, AnyTensor:$std), "", "getStd()">;
def Koila_NormalTensorTensorOp : Koila_NormalTensorOp<"normal_Tensor_Tensor",
  "aten::normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor",
  (ins AnyTensor:$mean, AnyTensor:$std), "", "getMean(), getStd()">;

def Koila_MultinomialOp : Koila_RuledOp<"multinomial",
    "aten::multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor",
    "", [], "true", Koila_Draws> {
  let description = [{
    Per row of `self`, a vector or matrix of weights, `num_samples` indices.
    Refused: none, or without `replacement` more than a row has. Rows are drawn
    apart, so that the batch stays in dim 0 of a matrix.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$num_samples,
                       BoolAttr:$replacement,
                       OptionalAttr<UnitAttr>:$generator,
                       Variadic<AnyType>:$dynamic);
  let shapeRule = [{
    return ::koila::rules::inferMultinomial(rule, getSelf(), getReplacement());
  }];
  let batchRule = [{
    ::koila::rules::inferMultinomialBatch(rule, getSelf());
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_FACTORYOPS_TD
