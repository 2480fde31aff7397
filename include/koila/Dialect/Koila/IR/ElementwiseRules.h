//===- ElementwiseRules.h - Rules of elementwise operators ------*- C++ -*-===//
//
// One description says what an elementwise operator makes of element types;
// the shape, batch and workspace rules follow from it and from the operands.
// The tensors of such an operation are its operands but for those of the group
// `dynamic`, and they broadcast against each other.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_ELEMENTWISERULES_H
#define KOILA_DIALECT_KOILA_IR_ELEMENTWISERULES_H

#include "koila/Dialect/Koila/IR/OperatorRules.h"

namespace koila::rules {

/// What an elementwise operator does beyond broadcasting its tensors.
struct Elementwise {
  enum Result {
    Common,    ///< The common type of the operands.
    Float,     ///< As Common, but bool and integers become float32.
    Integer,   ///< As Common, but bool becomes int64.
    Bool,      ///< bool, whatever the operands are.
    Real,      ///< As Common, and of a complex number its part.
    RealFloat, ///< As Float, and of a complex number its part.
    Complex    ///< The complex type of two real parts.
  };
  Result result = Common;
  /// Categories of the common type that PyTorch has no code for, of "bifc":
  /// bool, integer, floating point, complex.
  llvm::StringRef refused = "";
  /// The number arguments that take part in the common type.
  llvm::SmallVector<llvm::StringRef, 2> numbers = {};
  /// Tensors before and after those that have a say in the common type: the
  /// condition of where, the weight of lerp.
  unsigned conditions = 0, weights = 0;
  /// The tensors that have a say must be of one type.
  bool sameTypes = false;
  /// No operand may be bool, whatever the common type is.
  bool refusesBool = false;
  /// The argument `alpha` scales the second operand.
  bool hasAlpha = false;
  /// The result is laid out in rows whatever the operands are.
  bool rowMajor = false;
  /// The operator calls another one with its operands exchanged, so that the
  /// last decides the layout.
  bool reversed = false;
  /// LibTorch's executor calls the overload for numbers if the second operand
  /// is a 0-dim constant of the program (measured; not the in-place form).
  bool takesConstants = false;
  /// What the operator makes of two integers that 0-dim tensors hold: their
  /// quotient, rounded down, or the remainder.
  enum Held { NotHeld, Quotient, Remainder };
  Held held = NotHeld;
};

/// bool, integer, floating point, complex: 0 to 3.
int getCategory(mlir::Type type);
/// Whether a tensor of PyTorch can have this element type.
bool isTorchType(mlir::Type type);
/// The type in which operands meet; null if it is not known. `numbers` are
/// types of Python numbers, null where unknown.
mlir::Type getCommonType(llvm::ArrayRef<TensorInfo> operands,
                         llvm::ArrayRef<mlir::Type> numbers);
/// The type in which operands of the type `common` are computed.
mlir::Type getComputedType(Elementwise::Result result, mlir::Type common);

/// Whether the operand `index` of `op` is a number to LibTorch's executor.
bool isNumber(mlir::Operation *op, const Elementwise &kind, unsigned index);

/// The tensors of an operation: all operands but computed arguments.
mlir::OperandRange getTensors(mlir::Operation *op);
/// The value of a literal number; none for others.
std::optional<double> getLiteralNumber(mlir::Operation *op,
                                       llvm::StringRef name);
/// Whether the operation stands for the in-place form, whose result has the
/// type and shape of its first operand.
bool isInPlace(mlir::Operation *op);

/// The extents of operands that broadcast; none if a rank is unknown.
llvm::FailureOr<std::optional<llvm::SmallVector<DimExpr>>>
broadcastDims(ShapeRule &rule, llvm::ArrayRef<TensorInfo> operands);
/// Refuses what does not fit the tensor that an in-place form writes.
llvm::LogicalResult
checkWrittenDims(ShapeRule &rule, const TensorInfo &written,
                 const std::optional<llvm::SmallVector<DimExpr>> &dims);
/// Refuses element types of the categories in `refused`; null is accepted.
llvm::LogicalResult checkCategory(ShapeRule &rule, mlir::Type type,
                                  llvm::StringRef refused);

// Shape rules.
llvm::LogicalResult inferElementwise(ShapeRule &rule, const Elementwise &kind);
llvm::LogicalResult inferElementwise(ShapeRule &rule,
                                     llvm::ArrayRef<mlir::Value> tensors,
                                     const Elementwise &kind);
llvm::LogicalResult inferGlu(ShapeRule &rule, mlir::Value self, int64_t dim);
llvm::LogicalResult inferPrelu(ShapeRule &rule, mlir::Value self,
                               mlir::Value weight);
/// `value` is null for a number.
llvm::LogicalResult inferMaskedFill(ShapeRule &rule, mlir::Value self,
                                    mlir::Value mask, mlir::Value value);
llvm::LogicalResult inferAddcdiv(ShapeRule &rule);
llvm::LogicalResult inferPowTensorScalar(ShapeRule &rule);

// Batch rules.
/// The batch in tensors that broadcast; a number that depends on the number
/// of samples is another one in a tile.
void inferElementwiseBatch(BatchRule &rule);
void inferGluBatch(BatchRule &rule, mlir::Value self, int64_t dim);
void inferPreluBatch(BatchRule &rule, mlir::Value self, mlir::Value weight);

// Workspace rules.
/// `wraps`: the numbers become 0-dim tensors on the way.
void describeElementwiseWorkspace(WorkspaceRule &rule, const Elementwise &kind,
                                  bool wraps);

} // namespace koila::rules

#endif // KOILA_DIALECT_KOILA_IR_ELEMENTWISERULES_H
