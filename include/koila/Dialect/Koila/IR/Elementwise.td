//===- Elementwise.td - Classes of elementwise operators ---*- tablegen -*-===//
//
// The rules of every elementwise operator follow from its operands and from
// what it makes of element types (rules::Elementwise in ElementwiseRules.h).
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_ELEMENTWISE_TD
#define KOILA_DIALECT_KOILA_IR_ELEMENTWISE_TD

include "koila/Dialect/Koila/IR/ElementwiseOp.td"
include "koila/Dialect/Koila/IR/KoilaBase.td"

/// Tensors that broadcast against each other. `numbers` are arguments that may
/// be computed, `literals` others that may not. `result`, `refused` and
/// `promoting` (the numbers with a say in the common type) are fields of
/// rules::Elementwise; `more` holds others of it.
class Koila_ElementwiseOp<string mnemonic, string schema, string inPlace,
                          dag tensors, dag numbers = (ins),
                          dag literals = (ins), string result = "Common",
                          string refused = "", string promoting = "",
                          string more = "", list<Trait> traits = [],
                          string faithful = "true">
    : Koila_RuledOp<mnemonic, schema, inPlace,
                    traits # [DeclareOpInterfaceMethods<
                        Koila_ElementwiseOpInterface>], faithful> {
  let summary = "elementwise, as `" # schema # "`";
  let description = [{
    Shapes broadcast as in PyTorch: dims are aligned at the end, and an extent
    of one repeats. Element types are promoted. Refused: extents that are known
    to differ and are not one, and element types that PyTorch refuses. The
    layout is that of dense operands. The batch stays where it is. New storage,
    or that of `self` where the tie is resolved.
  }];
  let arguments = !con(tensors, numbers, literals,
                       !if(!empty(inPlace), (ins), (ins UnitAttr:$tied)),
                       !if(!empty(numbers), (ins),
                           (ins Variadic<AnyType>:$dynamic)));
  let assemblyFormat = !if(!empty(inPlace), "", "(`tied` $tied^)? ") #
      "operands attr-dict `:` functional-type(operands, results)";
  code kind = "::koila::rules::Elementwise{.result = "
              "::koila::rules::Elementwise::" # result #
              ", .refused = \"" # refused # "\", .numbers = {" # promoting #
              "}" # more # "}";
  /// Whether the numbers become 0-dim tensors on the way.
  string wraps = "true";
  /// Refuses literal arguments.
  code check = "";
  let shapeRule = check #
      "return ::koila::rules::inferElementwise(rule, " # kind # ");";
  let batchRule = "::koila::rules::inferElementwiseBatch(rule);";
  let moreDefinitions = [{
    ::koila::rules::Elementwise $cppClass::getElementwise() {
      return }] # kind # [{;
    }
    bool $cppClass::wrapsNumbers() { return }] # wraps # [{; }
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_ELEMENTWISE_TD
