//===- MetaKernelShapes.h - Shapes of operators without a rule --*- C++ -*-===//
//
// An operator that the dialect has no operation for may still have a kernel
// that computes shapes only. Whoever can run it, the TorchScript library for
// one, adds an MetaKernelShapeSource to the dialect; shape inference then asks
// at a few values of each symbol and keeps an extent as an expression if
// further values confirm it.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_METAKERNELSHAPES_H
#define KOILA_ANALYSIS_METAKERNELSHAPES_H

#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "koila/Interfaces/RequestSource.h"
#include "koila/Interfaces/Rules.h"
#include "mlir/IR/DialectInterface.h"

namespace koila {
class TorchOpaqueOp;

/// Runs operators on shapes.
///
/// A request is a JSON object: `callee`, for example `aten::special_i0e`, and
/// `arguments`, each `{"tensor": {"dims", "dtype", "strides"}}` with PyTorch's
/// code of the element type and strides in elements, without them those of
/// rows, or a literal (encodeLiteral). The answer is an array with, per result,
/// `{"dims", "dtype", "strides", "contiguous"}`, `{"value": literal,
/// "structural": bool}` (true if the sizes in the arguments do not matter),
/// `{"list": [...]}` of such, or null for what is none of these; none if there
/// is no such kernel or it refuses the arguments.
///
/// Without `arguments` the answer says what an operator that is declared for
/// lists or dicts of anything does with what is in them (ElementFlow):
/// `arguments` and `results` with a role each, and `writes` and `grows`. With
/// `"moves": true` numbers among `arguments` stand for elements, and the
/// answer has `results` and, as they are afterwards, `arguments`
/// (GenericListInference.h).
class MetaKernelShapeSource
    : public mlir::DialectInterface::Base<MetaKernelShapeSource>,
      public RequestSource {
public:
  explicit MetaKernelShapeSource(mlir::Dialect *dialect) : Base(dialect) {}
};

/// An operator on lists or dicts of anything cannot look at what is in them:
/// what comes out of it was among what went in.
struct ElementFlow {
  /// Other: elements inside of something else, a tuple for one.
  enum class Role { None, Element, List, Dict, Other };
  llvm::SmallVector<Role> arguments, results;
  /// It changes an argument.
  bool writes = false;
  /// All that it changes is that the list in its first argument gets one
  /// element more.
  bool grows = false;
};

/// None if `op` is no such operator, or nobody knows.
std::optional<ElementFlow> getElementFlow(TorchOpaqueOp op);

/// What is known of a list whose elements are not known one by one.
struct ListFact {
  /// What all elements agree on.
  ValueInfo element;
  /// How many there are; null if unknown.
  DimExpr length;
};
using ListLookup = llvm::function_ref<std::optional<ListFact>(mlir::Value)>;

/// Sets the results of `op` that a source knows; the others stay unknown.
/// `lists` knows of lists that change.
void inferMetaKernelShapes(CarriedOperatorInterface op, ShapeRule &rule,
                           ListLookup lists);

} // namespace koila

#endif // KOILA_ANALYSIS_METAKERNELSHAPES_H
