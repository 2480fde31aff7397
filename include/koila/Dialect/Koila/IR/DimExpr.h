//===- DimExpr.h - Integer expressions over symbols -------------*- C++ -*-===//
//
// The value class for extents: a polynomial over symbols and floordiv, mod,
// min and max of such polynomials, in one normal form. A CLIP head is `B*B`,
// which AffineExpr cannot say. Expressions are uniqued in the MLIRContext, so
// copies are pointers and `==` is equality of normal forms.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_DIMEXPR_H
#define KOILA_DIALECT_KOILA_IR_DIMEXPR_H

#include "mlir/IR/Attributes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace koila {

class DimExprAttr;

/// An answer that may be withheld.
enum class TriBool { No, Unknown, Yes };

/// Whose a symbol is, and what is known of the number that it stands for.
enum class SymbolKind : uint8_t {
  /// The user's: an extent that inputs name.
  Named,
  /// An extent of an argument, of which inputs say nothing.
  ArgumentExtent,
  /// An extent that no rule gives, or that differs by the path taken.
  Extent,
  /// How many elements a mask selects.
  Selected,
  /// An integer that no rule gives; it may be negative.
  Integer,
};

/// A symbol: a name and a kind. Symbols of one name and different kinds are
/// different ones, so that no name that a user chooses is that of a symbol
/// which an analysis made. Local symbols are facts of one analysis and are in
/// no IR: what is parsed is Named.
class DimSymbol : public mlir::Attribute {
public:
  using Attribute::Attribute;

  static DimSymbol get(mlir::MLIRContext *context, llvm::StringRef name,
                       SymbolKind kind = SymbolKind::Named);
  static DimSymbol getFromOpaquePointer(const void *pointer) {
    return DimSymbol(static_cast<const ImplType *>(pointer));
  }
  static bool classof(mlir::Attribute attr);

  llvm::StringRef getName() const;
  SymbolKind getKind() const;
  bool isNamed() const { return getKind() == SymbolKind::Named; }
  bool isNamed(llvm::StringRef name) const {
    return isNamed() && getName() == name;
  }
  /// Whether an analysis made it: nobody can give it a value.
  bool isLocal() const { return !isNamed(); }
  /// Whether it counts something, and is not negative.
  bool isExtent() const { return getKind() != SymbolKind::Integer; }
};

/// Looks a symbol's value up; none if it has no value.
using SymbolValues =
    llvm::function_ref<std::optional<int64_t>(DimSymbol symbol)>;
/// Numbers for symbols.
using SymbolMap = llvm::DenseMap<DimSymbol, int64_t>;

/// An integer expression. Default construction gives a null expression, on
/// which only the test for null is allowed.
class DimExpr {
public:
  DimExpr() = default;
  /*implicit*/ DimExpr(DimExprAttr attr);

  static DimExpr constant(mlir::MLIRContext *context, int64_t value);
  static DimExpr symbol(mlir::MLIRContext *context, llvm::StringRef name,
                        SymbolKind kind = SymbolKind::Named);
  static DimExpr symbol(DimSymbol symbol);

  explicit operator bool() const { return static_cast<bool>(attr); }
  DimExprAttr getAttr() const;
  mlir::MLIRContext *getContext() const { return attr.getContext(); }

  DimExpr operator+(DimExpr other) const;
  DimExpr operator-(DimExpr other) const;
  DimExpr operator*(DimExpr other) const;
  DimExpr operator+(int64_t value) const;
  DimExpr operator-(int64_t value) const;
  DimExpr operator*(int64_t value) const;
  /// Rounds towards minus infinity, as Python's `//`. A division by a
  /// constant that is exact term by term is carried out.
  DimExpr floorDiv(DimExpr other) const;
  DimExpr floorDiv(int64_t value) const;
  /// The remainder that belongs to floorDiv.
  DimExpr mod(DimExpr other) const;
  DimExpr min(DimExpr other) const;
  DimExpr max(DimExpr other) const;
  /// The extent of two dims broadcast against each other, both legal.
  DimExpr broadcast(DimExpr other) const;

  bool operator==(DimExpr other) const { return attr == other.attr; }
  bool operator!=(DimExpr other) const { return attr != other.attr; }

  /// The value if the expression has no symbol.
  std::optional<int64_t> getConstant() const;
  bool isConstant(int64_t value) const {
    auto constant = getConstant();
    return constant && *constant == value;
  }
  /// The value under `values`; none if a symbol has none, on a division by
  /// zero, or if the result does not fit in 64 bits.
  std::optional<int64_t> evaluate(SymbolValues values) const;
  /// Replaces symbols; a null replacement keeps the symbol.
  DimExpr substitute(llvm::function_ref<DimExpr(DimSymbol)> replacement) const;
  /// Calls `callback` for each symbol that occurs, atoms included.
  void forEachSymbol(llvm::function_ref<void(DimSymbol)> callback) const;
  bool dependsOn(DimSymbol symbol) const;
  /// Of the user's symbol of this name.
  bool dependsOn(llvm::StringRef name) const;
  /// Whether a symbol occurs that an analysis made.
  bool hasLocalSymbol() const;
  /// The symbol if the expression is just that; null otherwise.
  DimSymbol getSymbol() const;
  /// If the expression is `k * symbol` with a constant k > 0, that k.
  std::optional<int64_t> getMultipleOf(DimSymbol symbol) const;
  /// Of the user's symbol of this name.
  std::optional<int64_t> getMultipleOf(llvm::StringRef name) const;

  void print(llvm::raw_ostream &os) const;
  std::string str() const;

private:
  mlir::Attribute attr;
};

/// Whether the expressions are equal for all values of their symbols.
TriBool proveEqual(DimExpr lhs, DimExpr rhs);

/// The product; 1 for none.
DimExpr product(mlir::MLIRContext *context, llvm::ArrayRef<DimExpr> factors);

inline llvm::raw_ostream &operator<<(llvm::raw_ostream &os, DimExpr expr) {
  expr.print(os);
  return os;
}

} // namespace koila

#endif // KOILA_DIALECT_KOILA_IR_DIMEXPR_H
