//===- Elementwise.h - What elementwise operators do ------------*- C++ -*-===//
//
// One description says what an elementwise operator makes of element types;
// rules of shapes and batches and kernel models follow from it and from the
// operands. The tensors of such an operation are its operands but for those of
// the group `dynamic`, and they broadcast against each other.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_ELEMENTWISE_H
#define KOILA_DIALECT_KOILA_IR_ELEMENTWISE_H

#include "koila/Dialect/Koila/IR/TypePromotion.h"

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

/// The type in which operands of the type `common` are computed.
mlir::Type getComputedType(Elementwise::Result result, mlir::Type common);

/// The layout in which an operand takes part in what is computed in this type:
/// one of another type is copied first (TensorIteratorBase::compute_types).
TensorInfo getCastLayout(TensorInfo info, mlir::Type computed);

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

} // namespace koila::rules

#endif // KOILA_DIALECT_KOILA_IR_ELEMENTWISE_H
