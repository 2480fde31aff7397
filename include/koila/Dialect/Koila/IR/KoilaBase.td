//===- KoilaBase.td - Base classes of the operators --------*- tablegen -*-===//
//
// A family class holds what its members share: traits, format and the three
// rules. A member is its schema and its arguments.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILABASE_TD
#define KOILA_DIALECT_KOILA_IR_KOILABASE_TD

include "koila/Dialect/Koila/IR/KoilaAttributes.td"
include "koila/Dialect/Koila/IR/KoilaTypes.td"
include "koila/Interfaces/KoilaOpInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Koila_Op<string mnemonic, list<Trait> traits = []>
    : Op<Koila_Dialect, mnemonic, traits>;

/// A Python number: an int, a float or a bool attribute, or the mark of an
/// operand in the group `dynamic`.
def Koila_ScalarAttr : AnyAttrOf<[I64Attr, F64Attr, BoolAttr,
                                  Koila_DynamicAttr],
                                 "int, float, bool or computed">;
/// A device by its name, or the mark of an operand in the group `dynamic`.
def Koila_DeviceAttr : AnyAttrOf<[DictionaryAttr, Koila_DynamicAttr],
                                 "a device or computed">;
def Koila_OptionalTensor : Optional<AnyTensor>;

/// Effects only by the marks `koila.reads` and `koila.writes`; see
/// Interfaces/MutableStorage.h.
def Koila_MutableStorageEffects : NativeOpTrait<"MutableStorageEffects"> {
  let cppNamespace = "::koila";
}
defvar Koila_Ordered = [MemoryEffectsOpInterface, ConditionallySpeculatable,
                        Koila_MutableStorageEffects];
/// The same, and the operands of the member `getUpdated()` are written.
def Koila_OperandUpdateEffects : NativeOpTrait<"OperandUpdateEffects"> {
  let cppNamespace = "::koila";
}
defvar Koila_Updates = [MemoryEffectsOpInterface, ConditionallySpeculatable,
                        Koila_OperandUpdateEffects];
/// The effects of an operator that draws random numbers: draws are neither
/// merged nor moved, dropped or tiled.
def Koila_RNGEffects : NativeOpTrait<"RNGEffects"> {
  let cppNamespace = "::koila";
}
defvar Koila_Draws = [MemoryEffectsOpInterface, ConditionallySpeculatable,
                      Koila_RNGEffects];

/// The operators that C++ creates one by one, argument by argument. Builders of
/// all operators would be nearly half of what is generated.
defvar Koila_CreatedInCpp = [
  "Int_Tensor", "add_Scalar", "add_Tensor", "addcmul", "clone", "copy",
  "detach", "div_Scalar", "div_Tensor", "eq_Scalar", "fill_Scalar",
  "ge_Tensor", "isnan", "le_Tensor", "logaddexp", "logical_and",
  "logical_or", "masked_fill_Scalar", "maximum", "mean_dim", "minimum",
  "mul_Scalar", "ne_Scalar", "num_to_tensor", "permute", "size_int", "sqrt",
  "sub_Tensor", "sum", "sum_dim_IntList", "take", "to_dtype",
  "var_correction", "where_self"];

/// An operation that is an operator of PyTorch, in any dialect. `schema` is its
/// exact schema; the names of operands and attributes are those of its arguments.
/// With `inPlaceSchema` the operation has a `tied` attribute. `faithful` is the C++
/// condition under which the operation describes the operator; `effects` says what
/// it does besides computing its results.
class Koila_OperatorOp<Dialect dialect, string mnemonic, string schema,
                       string inPlaceSchema = "", list<Trait> traits = [],
                       string faithful = "true",
                       list<Trait> effects = Koila_Ordered>
    : Op<dialect, mnemonic, traits # effects # [Koila_TorchOperatorInterface,
                                                Koila_ShapeRuleInterface,
                                                Koila_BatchRuleInterface,
                                                Koila_MemoryRuleInterface,
                                                Koila_DifferentiationInterface]> {
  defvar tiedGet = !if(!empty(inPlaceSchema), "return false;",
                       "return getTied();");
  defvar tiedSet = !if(!empty(inPlaceSchema), "(void)tied;",
                       "setTiedAttr(tied ? ::mlir::UnitAttr::get(getContext()) "
                       ": ::mlir::UnitAttr());");
  /// What autograd records; empty: nothing is read.
  code differentiationRule = "rule.setUnknown(\"it has no differentiation rule\");";
  code baseDeclaration = [{
    static ::llvm::StringRef getTorchSchema() { return "}] # schema # [{"; }
    static ::llvm::StringRef getInPlaceSchema() { return "}] # inPlaceSchema # [{"; }
    bool isFaithful();
    bool isTied() { }] # tiedGet # [{ }
    void permitTie(bool tied) { }] # tiedSet # [{ }
    ::llvm::LogicalResult inferShapes(::koila::ShapeRule &rule);
    void inferBatch(::koila::BatchRule &rule);
    void describeStorage(::koila::StorageRule &rule);
    void describeDifferentiation(::koila::DifferentiationRule &rule);
    ::llvm::LogicalResult verify() {
      return ::koila::detail::verifyShapeRule(*this);
    }
  }];
  let extraClassDeclaration = baseDeclaration;
  /// Bodies of rules stand in the generated source alone.
  code baseDefinition = [{
    bool $cppClass::isFaithful() { return }] # faithful # [{; }
    void $cppClass::describeDifferentiation(
        ::koila::DifferentiationRule &rule) {
      (void)rule;
      }] # differentiationRule # [{
    }
  }];
  let extraClassDefinition = baseDefinition;
}

/// An operator of ATen that koila has rules for.
class Koila_TorchOp<string mnemonic, string schema, string inPlaceSchema = "",
                    list<Trait> traits = [], string faithful = "true",
                    list<Trait> effects = Koila_Ordered>
    : Koila_OperatorOp<Koila_Dialect, mnemonic, schema, inPlaceSchema, traits,
                       faithful, effects> {
  /// As PyTorch's derivatives say; an operator that PyTorch composes of others
  /// needs a rule.
  let differentiationRule = "::koila::rules::describeDerivative(rule);";

  let skipDefaultBuilders = !empty(!filter(
      created, Koila_CreatedInCpp, !eq(created, mnemonic)));
  /// Those that have no others are created of types, operands and attributes.
  let builders = !if(skipDefaultBuilders, [OpBuilder<
      (ins "::mlir::TypeRange":$results, "::mlir::ValueRange":$operands,
       CArg<"::llvm::ArrayRef<::mlir::NamedAttribute>", "{}">:$attributes), [{
        $_state.addTypes(results);
        $_state.addOperands(operands);
        $_state.addAttributes(attributes);
      }]>], []<OpBuilder>);
}

/// An operator whose three rules are short enough to stand in its family class,
/// as C++ that reads the generated accessors. An argument may be computed if
/// the last of `arguments` is `Variadic<AnyType>:$dynamic`; see
/// OperatorArguments in Interfaces/Rules.h. By default the results are new
/// storage (or tied). What its kernels allocate is in the libraries of
/// lib/KernelModels.
class Koila_RuledOp<string mnemonic, string schema, string inPlaceSchema = "",
                    list<Trait> traits = [], string faithful = "true",
                    list<Trait> effects = Koila_Ordered>
    : Koila_TorchOp<mnemonic, schema, inPlaceSchema, traits, faithful,
                    effects> {
  let summary = "as `" # schema # "`";
  code shapeRule = "return ::mlir::success();";
  code batchRule = "";
  code storageRule = "::koila::rules::describeNewStorage(rule);";
  /// Of what a family declares beyond `baseDeclaration`.
  code moreDefinitions = "";
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let extraClassDefinition = baseDefinition # [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      (void)rule;
      }] # shapeRule # [{
    }
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      (void)rule;
      }] # batchRule # [{
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {
      (void)rule;
      }] # storageRule # [{
    }
  }] # moreDefinitions;
}

#endif // KOILA_DIALECT_KOILA_IR_KOILABASE_TD
