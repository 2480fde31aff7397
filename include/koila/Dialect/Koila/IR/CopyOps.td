//===- CopyOps.td - Casts, copies and fills ----------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_COPYOPS_TD
#define KOILA_DIALECT_KOILA_IR_COPYOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

//===----------------------------------------------------------------------===//
// Casts
//===----------------------------------------------------------------------===//

/// The first operand itself, or a copy of another element type or layout. The
/// arguments `dtype`, `copy` and `memory_format`, and the element type of a
/// second operand, say what is wanted; the rules look for them by name. A
/// computed device is that of a tensor or an argument, and koila's programs know
/// one device.
class Koila_CastOp<string mnemonic, string name, string parameters, dag args,
                   string returns = "Tensor(a)">
    : Koila_RuledOp<mnemonic,
                    "aten::" # name # "(" # parameters # ") -> " # returns, "",
                    [], "::koila::rules::isPlain(getOperation())"> {
  let description = [{
    The operand itself where it has the wanted element type and layout and no
    copy is asked for; else a copy, which keeps the strides if they are dense
    and no format is given. The batch stays where it is.
  }];
  let arguments = args;
  let shapeRule = "return ::koila::rules::inferCast(rule);";
  let batchRule = "::koila::rules::keepBatch(rule);";
  let storageRule = "::koila::rules::describeCastStorage(rule);";
  let differentiationRule = "::koila::rules::passFrom(rule, getOperation()->getOperand(0));";
}

// `(a|b)` is what LibTorch spells `(b|a)`: the order of a set.
defvar Koila_CopyFlagArgs = (ins BoolAttr:$non_blocking, BoolAttr:$copy);
defvar Koila_Computed = (ins Variadic<AnyType>:$dynamic);
defvar Koila_CopyFlags = "bool non_blocking=False, bool copy=False";
defvar Koila_ToArgs = !con(Koila_CopyFlagArgs,
                           (ins OptionalAttr<I64Attr>:$memory_format));
defvar Koila_ToParameters = Koila_CopyFlags #
                            ", MemoryFormat? memory_format=None";

def Koila_ToDtypeOp : Koila_CastOp<"to_dtype", "to.dtype",
  !strconcat("Tensor(a) self, ScalarType dtype, ", Koila_ToParameters),
  !con((ins AnyTensor:$self, I64Attr:$dtype), Koila_ToArgs, Koila_Computed)>;
def Koila_ToDeviceOp : Koila_CastOp<"to_device", "to.device",
  !strconcat("Tensor(a) self, Device device, ScalarType dtype, ", Koila_ToParameters),
  !con((ins AnyTensor:$self, Koila_DeviceAttr:$device, I64Attr:$dtype),
       Koila_ToArgs, Koila_Computed)>;
def Koila_ToOtherOp : Koila_CastOp<"to_other", "to.other",
  !strconcat("Tensor(a) self, Tensor other, ", Koila_ToParameters),
  !con((ins AnyTensor:$self, AnyTensor:$other), Koila_ToArgs)>;
def Koila_ToDtypeLayoutOp : Koila_CastOp<"to_dtype_layout", "to.dtype_layout",
  !strconcat("Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, "
  "Device? device=None, bool? pin_memory=None, ", Koila_ToParameters),
  !con((ins AnyTensor:$self, OptionalAttr<I64Attr>:$dtype,
            OptionalAttr<I64Attr>:$layout, OptionalAttr<Koila_DeviceAttr>:$device,
            OptionalAttr<BoolAttr>:$pin_memory), Koila_ToArgs, Koila_Computed)>;
def Koila_ToPrimDeviceOp : Koila_CastOp<"to_prim_Device", "to.prim_Device",
  !strconcat("Tensor(a) self, Device? device, int? dtype=None, ", Koila_CopyFlags),
  !con((ins AnyTensor:$self, OptionalAttr<Koila_DeviceAttr>:$device,
            OptionalAttr<I64Attr>:$dtype), Koila_CopyFlagArgs, Koila_Computed),
  "Tensor(a|b)">;
def Koila_ToPrimDtypeOp : Koila_CastOp<"to_prim_dtype", "to.prim_dtype",
  !strconcat("Tensor(a) self, int? dtype=None, ", Koila_CopyFlags),
  !con((ins AnyTensor:$self, OptionalAttr<I64Attr>:$dtype),
       Koila_CopyFlagArgs, Koila_Computed), "Tensor(a|b)">;
def Koila_ToPrimOtherOp : Koila_CastOp<"to_prim_other", "to.prim_other",
  !strconcat("Tensor(a) self, ", Koila_CopyFlags),
  !con((ins AnyTensor:$self), Koila_CopyFlagArgs), "Tensor(a|b)">;
def Koila_TypeAsOp : Koila_CastOp<"type_as", "type_as",
  "Tensor self, Tensor other", (ins AnyTensor:$self, AnyTensor:$other),
  "Tensor">;
def Koila_AsTensorOp : Koila_CastOp<"as_tensor", "as_tensor",
  "Tensor(a) data, *, ScalarType? dtype=None, Device? device=None",
  (ins AnyTensor:$data, OptionalAttr<I64Attr>:$dtype,
       OptionalAttr<Koila_DeviceAttr>:$device, Variadic<AnyType>:$dynamic),
  "Tensor(a|b)">;
def Koila_CpuOp : Koila_CastOp<"cpu", "cpu", "Tensor(a) self",
  (ins AnyTensor:$self), "Tensor(a|b)">;
def Koila_LiftFreshOp : Koila_CastOp<"lift_fresh", "lift_fresh",
  "Tensor(a) self", (ins AnyTensor:$self)>;

def Koila_ContiguousOp : Koila_CastOp<"contiguous", "contiguous",
    "Tensor(a) self, *, MemoryFormat memory_format=0",
    (ins AnyTensor:$self, I64Attr:$memory_format)> {
  let description = [{
    The operand itself where it is dense in the order of `memory_format`; else
    a copy that is. The batch stays where it is.
  }];
  let shapeRule = [{
    return ::koila::rules::inferContiguous(rule, getSelf(), getMemoryFormat());
  }];
  let storageRule = [{
    ::koila::rules::describeContiguousStorage(rule, getSelf(),
                                              getMemoryFormat());
  }];
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// As a cast, but always a copy.
class Koila_CloneOp<string mnemonic, string name, string parameters, dag args>
    : Koila_CastOp<mnemonic, name, parameters, args, "Tensor"> {
  let description = [{
    A copy, which keeps the strides if they are dense and no format is given.
    The batch stays where it is.
  }];
  let shapeRule = "return ::koila::rules::inferCast(rule, /*copies=*/true);";
  let storageRule = "::koila::rules::describeNewStorage(rule);";
  let differentiationRule = "";
}
def Koila_CloneTensorOp : Koila_CloneOp<"clone", "clone",
  "Tensor self, *, MemoryFormat? memory_format=None",
  (ins AnyTensor:$self, OptionalAttr<I64Attr>:$memory_format)>;
def Koila_ToCopyOp : Koila_CloneOp<"_to_copy", "_to_copy",
  "Tensor self, *, ScalarType? dtype=None, Layout? layout=None, "
  "Device? device=None, bool? pin_memory=None, bool non_blocking=False, "
  "MemoryFormat? memory_format=None",
  (ins AnyTensor:$self, OptionalAttr<I64Attr>:$dtype,
       OptionalAttr<I64Attr>:$layout, OptionalAttr<Koila_DeviceAttr>:$device,
       OptionalAttr<BoolAttr>:$pin_memory, BoolAttr:$non_blocking,
       OptionalAttr<I64Attr>:$memory_format)>;
def Koila_LiftFreshCopyOp : Koila_CloneOp<"lift_fresh_copy", "lift_fresh_copy",
    "Tensor self", (ins AnyTensor:$self)> {
  let shapeRule = [{
    return ::koila::rules::inferCopyOf(
        rule, getSelf(), ::koila::rules::MemoryFormat::Contiguous);
  }];
}

/// Writes all of `self`, in place if the tie is resolved.
class Koila_OverwriteOp<string mnemonic, string name, string parameters,
                        dag args, dag dynamic, string shape, string batch>
    : Koila_RuledOp<mnemonic,
        "aten::" # !subst(":", "", name) # "(Tensor self" # parameters #
            ") -> Tensor",
        "aten::" # !subst(":", "_", name) # "(Tensor(a!) self" # parameters #
            ") -> Tensor(a!)"> {
  let description = [{
    A tensor of the shape, element type and strides of `self` with other
    values. Refused: what does not broadcast to `self`. The batch is that of
    `self` and of the values, which must agree.
  }];
  let arguments = !con((ins AnyTensor:$self), args, (ins UnitAttr:$tied),
                       dynamic);
  let assemblyFormat = [{
    (`tied` $tied^)? operands attr-dict `:` functional-type(operands, results)
  }];
  let shapeRule = shape;
  let batchRule = batch;
  // Nothing besides the result, which is written element by element.
  let differentiationRule = "";
}
defvar Koila_InferLikeSelf = [{
    return ::koila::rules::inferCopyOf(rule, getSelf(),
                                       ::koila::rules::MemoryFormat::Preserve);
}];
def Koila_CopyOp : Koila_OverwriteOp<"copy", "copy:",
  ", Tensor src, bool non_blocking=False",
  (ins AnyTensor:$src, BoolAttr:$non_blocking), (ins),
  "return ::koila::rules::inferOverwrite(rule, getSelf(), getSrc());",
  "::koila::rules::inferBroadcastBatch(rule, {getSelf(), getSrc()});"> {
}
def Koila_FillScalarOp : Koila_OverwriteOp<"fill_Scalar", "fill:.Scalar",
  ", Scalar value", (ins Koila_ScalarAttr:$value),
  (ins Variadic<AnyType>:$dynamic), Koila_InferLikeSelf,
  "::koila::rules::inferFillBatch(rule, getSelf());">;
def Koila_FillTensorOp : Koila_OverwriteOp<"fill_Tensor", "fill:.Tensor",
  ", Tensor value", (ins AnyTensor:$value), (ins), !strconcat([{
    if (auto value = rule.tensor(getValue());
        value.hasRank() && value.getRank() != 0)
      return rule.emitError() << "fills with a tensor of " << value.getRank()
                              << " dims; it must have none";
  }], Koila_InferLikeSelf),
  "::koila::rules::inferBroadcastBatch(rule, {getSelf(), getValue()});">;
def Koila_ZeroOp : Koila_OverwriteOp<"zero", "zero:", "", (ins), (ins),
  Koila_InferLikeSelf, "::koila::rules::keepBatch(rule);">;

//===----------------------------------------------------------------------===//
// Complex conjugates
//===----------------------------------------------------------------------===//

/// Of real tensors the operand itself. Which complex ones PyTorch conjugates
/// lazily, with a bit on a view, is not followed.
class Koila_ConjugateOp<string mnemonic, string schema, string complexIsView,
                        string inPlace = "">
    : Koila_RuledOp<mnemonic, schema, inPlace> {
  let description = [{
    The operand itself if it is real. The batch stays where it is.
  }];
  let arguments = !con((ins AnyTensor:$self),
                       !if(!empty(inPlace), (ins), (ins UnitAttr:$tied)));
  let assemblyFormat = !if(!empty(inPlace), "", "(`tied` $tied^)? ") #
      "operands attr-dict `:` functional-type(operands, results)";
  let shapeRule = [{
    return ::koila::rules::inferConjugate(rule, getSelf(), ::koila::TriBool::}] #
      complexIsView # ");";
  let batchRule = "::koila::rules::keepBatch(rule);";
  let storageRule = [{
    ::koila::rules::describeConjugateStorage(rule, getSelf(),
                                             ::koila::TriBool::}] #
      complexIsView # ");";
  let differentiationRule = "";
}
def Koila_ConjOp : Koila_ConjugateOp<"conj",
  "aten::conj(Tensor(a) self) -> Tensor(a)", "Yes">;
def Koila_ConjPhysicalOp : Koila_ConjugateOp<"conj_physical",
  "aten::conj_physical(Tensor self) -> Tensor", "No",
  "aten::conj_physical_(Tensor(a!) self) -> Tensor(a!)"> {
}
def Koila_ResolveConjOp : Koila_ConjugateOp<"resolve_conj",
  "aten::resolve_conj(Tensor(a) self) -> Tensor(a)", "Unknown">;
def Koila_ResolveNegOp : Koila_ConjugateOp<"resolve_neg",
  "aten::resolve_neg(Tensor(a) self) -> Tensor(a)", "Unknown">;

//===----------------------------------------------------------------------===//
// Numbers and flags of a tensor
//===----------------------------------------------------------------------===//

/// What the element type alone decides. `condition` is over `type`.
class Koila_TypeFlagOp<string name, string condition>
    : Koila_RuledOp<name, "aten::" # name # "(Tensor self) -> bool"> {
  let description = [{
    A flag that the element type decides, the same in every tile.
  }];
  let arguments = (ins AnyTensor:$self);
  let results = (outs I1:$result);
  let shapeRule = [{
    if (::mlir::Type type = rule.tensor(getSelf()).elementType) {
      ::koila::ValueInfo info;
      info.literal = ::mlir::BoolAttr::get(type.getContext(), }] #
                     condition # [{);
      rule.setInfo(0, info);
    }
    return ::mlir::success();
  }];
  let batchRule = [{
    (void)rule.fact(getSelf());
    rule.setResult(0, ::koila::BatchFact::free());
  }];
  let storageRule = "rule.setKeeps(0);";
}
def Koila_IsFloatingPointOp : Koila_TypeFlagOp<"is_floating_point",
  "::mlir::isa<::mlir::FloatType>(type)">;
def Koila_IsComplexOp : Koila_TypeFlagOp<"is_complex",
  "::mlir::isa<::mlir::ComplexType>(type)">;
def Koila_IsSignedOp : Koila_TypeFlagOp<"is_signed",
  "!type.isInteger(1) && !type.isUnsignedInteger()">;

/// A number that data decides.
class Koila_ReadNumberOp<string mnemonic, string schema, dag args, dag outs_,
                         string shape>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    A number that data decides: nothing is known of its value. Refused:
    tensors that have not one element. Mixes, because one number cannot
    be that of each sample.
  }];
  let arguments = args;
  let results = outs_;
  let shapeRule = shape;
  let batchRule = [{
    for (::mlir::Value operand : getOperation()->getOperands())
      (void)rule.fact(operand);
    rule.mix("one number is read for all samples");
  }];
  let storageRule = "rule.setKeeps(0);";
}
defvar Koila_OneElement =
    "return ::koila::rules::checkOneElement(rule, getOperand());";
defvar Koila_NoDims =
    "return ::koila::rules::checkNoDims(rule, getOperand());";
defvar Koila_NumberOfA = (ins AnyTensor:$a);

def Koila_IntTensorOp : Koila_ReadNumberOp<"Int_Tensor",
  "aten::Int.Tensor(Tensor a) -> int", Koila_NumberOfA, (outs I64:$result),
  !strconcat([{
    // A write may be what an ordered read sees.
    if (::mlir::isMemoryEffectFree(getOperation()))
      rule.setInteger(0, rule.integer(getA()));
  }], Koila_OneElement)> {
  let hasFolder = 1;
}
def Koila_FloatTensorOp : Koila_ReadNumberOp<"Float_Tensor",
  "aten::Float.Tensor(Tensor a) -> float", Koila_NumberOfA, (outs F64:$result),
  Koila_OneElement>;
def Koila_BoolTensorOp : Koila_ReadNumberOp<"Bool_Tensor",
  "aten::Bool.Tensor(Tensor a) -> bool", Koila_NumberOfA, (outs I1:$result),
  Koila_OneElement>;
def Koila_IsNonzeroOp : Koila_ReadNumberOp<"is_nonzero",
  "aten::is_nonzero(Tensor self) -> bool", (ins AnyTensor:$self),
  (outs I1:$result), Koila_OneElement>;
def Koila_ItemOp : Koila_ReadNumberOp<"item",
  "aten::item(Tensor self) -> Scalar", (ins AnyTensor:$self),
  (outs AnyType:$result), Koila_OneElement>;
def Koila_ScalarImplicitOp : Koila_ReadNumberOp<"ScalarImplicit",
  "aten::ScalarImplicit(Tensor a) -> Scalar", Koila_NumberOfA,
  (outs AnyType:$result), Koila_NoDims>;
def Koila_FloatImplicitOp : Koila_ReadNumberOp<"FloatImplicit",
  "aten::FloatImplicit(Tensor a) -> float", Koila_NumberOfA,
  (outs F64:$result), Koila_NoDims>;
def Koila_IntImplicitOp : Koila_ReadNumberOp<"IntImplicit",
  "aten::IntImplicit(Tensor a) -> int", Koila_NumberOfA, (outs I64:$result),
  !strconcat([{
    if (::mlir::Type type = rule.tensor(getA()).elementType;
        type && (!::mlir::isa<::mlir::IntegerType>(type) || type.isInteger(1)))
      return rule.emitError() << "takes a tensor of " << type
                              << " as an integer";
  }], Koila_NoDims)>;
def Koila_EqualOp : Koila_ReadNumberOp<"equal",
    "aten::equal(Tensor self, Tensor other) -> bool",
    (ins AnyTensor:$self, AnyTensor:$other), (outs I1:$result),
    "return ::mlir::success();"> {
  let description = [{
    Whether two tensors have the same shape and values; for all samples at
    once, so that it mixes.
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_COPYOPS_TD
