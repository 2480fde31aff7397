//===- ExtensionOp.td - Operators of extensions ------------*- tablegen -*-===//
//
// What the ODS of an extension includes; docs/user/Extensions.md has an example.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_EXTENSION_EXTENSIONOP_TD
#define KOILA_EXTENSION_EXTENSIONOP_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// An operator of a library of PyTorch operators, in a dialect of its own. Each
/// argument of `schema` is an operand (tensors) or an attribute of the same name.
/// An argument that is no tensor may be computed by the program if the last of
/// `arguments` is `Variadic<AnyType>:$dynamic`. The rules are C++ that reads the
/// generated accessors; they get `rule`, as koila/Interfaces says. What a rule does
/// not say is unknown: the operator is then not tiled, or figures are not exact,
/// and reports name it.
class Koila_ExtensionOp<Dialect dialect, string mnemonic, string schema,
                        string inPlaceSchema = "", list<Trait> traits = [],
                        string faithful = "true",
                        list<Trait> effects = Koila_Ordered>
    : Koila_OperatorOp<dialect, mnemonic, schema, inPlaceSchema,
                       traits # [DeclareOpInterfaceMethods<
                           Koila_AllocationInterface,
                           ["describeWorkspace", "describeSaved",
                            "describeBackward"]>],
                       faithful, effects> {
  let summary = "as `" # schema # "`";
  /// Dims, element types and strides of the results (ShapeRule).
  code shapeRule = "return ::mlir::success();";
  /// Where the batch is in the results (BatchRule).
  code batchRule = "";
  /// Which results are views of operands (StorageRule): by default none.
  code storageRule = [{
    if (isTied())
      rule.setTied(0, (*this)->getOperand(0));
  }];
  /// The bytes held inside beyond the results (WorkspaceRule).
  code workspaceRule = [{
    rule.setInexact("the bytes that '" + (*this)->getName().getStringRef() +
                    "' holds inside itself have no rule");
  }];
  /// The bytes that autograd keeps (SavedRule): by default those of the tensors
  /// that `differentiationRule` names.
  code savedRule = "::koila::detail::describeSaved(rule);";
  /// What its backward pass allocates (BackwardRule).
  code backwardRule = "::koila::detail::describeUnknownBackward(rule);";
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
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {
      (void)rule;
      }] # workspaceRule # [{
    }
    void $cppClass::describeSaved(::koila::SavedRule &rule) {
      (void)rule;
      }] # savedRule # [{
    }
    void $cppClass::describeBackward(::koila::BackwardRule &rule) {
      (void)rule;
      }] # backwardRule # [{
    }
  }];
}

#endif // KOILA_EXTENSION_EXTENSIONOP_TD
