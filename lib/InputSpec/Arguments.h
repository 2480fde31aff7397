//===- Arguments.h - Arguments on the way to their specs --------*- C++ -*-===//
//
// What applyInputSpecs knows of a function while it matches specs, and the
// symbols it finds. Private to this folder.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INPUTSPEC_ARGUMENTS_H
#define KOILA_INPUTSPEC_ARGUMENTS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/InputSpec/InputSpec.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include <map>

namespace koila::detail {

/// Names used by the importer and here only.
inline constexpr llvm::StringLiteral kDefaultAttr = "koila.default";
inline constexpr llvm::StringLiteral kExampleAttr = "koila.example";

struct Argument {
  unsigned index = 0;
  /// The schema's name; empty if the program does not say.
  llvm::StringRef name;
  mlir::Type type;
  /// What the program says already; null if nothing.
  DimsAttr dims;
  mlir::Attribute defaultValue, value;
  /// The type seen at tracing; null if none was recorded.
  mlir::RankedTensorType example;
  /// The spec that was matched; null if none.
  const InputSpec *spec = nullptr;
  /// Has to be known.
  bool required = true;

  bool isTensor() const { return llvm::isa<mlir::TensorType>(type); }
  /// Nothing more needs to be said about it.
  bool isComplete() const;
  bool isMissing() const { return required && !spec && !isComplete(); }
  /// For messages: "'x'", or "#0" without a name.
  std::string label() const;
  /// For messages: "Tensor", "int", "Optional[Tensor]".
  std::string kind() const;
};

llvm::SmallVector<Argument> getArguments(mlir::func::FuncOp function);
/// The type in Python's words.
std::string describeType(mlir::Type type);
/// For messages: "x: Tensor, scale: float = default".
std::string listArguments(llvm::ArrayRef<Argument> arguments);

/// Finds the spec of each argument. An error names the argument.
llvm::LogicalResult matchSpecs(mlir::Location location,
                               llvm::ArrayRef<InputSpec> specs,
                               llvm::MutableArrayRef<Argument> arguments);

/// Makes specs from the shapes recorded at tracing, one per tensor argument
/// in `specs`; says so in `notes`. Fails with an error that prints the
/// `--input` lines to add.
llvm::LogicalResult makeRecordedSpecs(mlir::Location location,
                                      llvm::ArrayRef<Argument> arguments,
                                      std::vector<InputSpec> &specs,
                                      llvm::raw_ostream &notes);

/// The `--input` lines that would describe the arguments without one, each
/// on a line of its own; a guess where nothing was recorded.
std::string suggestInputs(llvm::ArrayRef<Argument> arguments);

/// The symbols of the module, old and new, in order of appearance.
class SymbolTableBuilder {
public:
  struct Symbol {
    std::optional<int64_t> value;
    int64_t lower = 0;
    int64_t upper = -1;
    bool batch = false;
    /// Static: the extent is in the type.
    bool isPinned() const {
      return value && lower == *value && upper == *value;
    }
  };

  SymbolTableBuilder(mlir::ModuleOp module, mlir::Location location);

  void declare(llvm::StringRef name) { symbols[name.str()]; }
  /// Gives a symbol its only value. An error if it has another.
  llvm::LogicalResult pin(llvm::StringRef name, int64_t value,
                          llvm::StringRef where);
  /// Gives a symbol the value of `--batch`.
  llvm::LogicalResult setValue(llvm::StringRef name, int64_t value);
  /// Marks the batch: `requested`, else an earlier mark, else B, else the only
  /// symbol.
  llvm::LogicalResult chooseBatch(llvm::StringRef requested);

  /// The extent of `expr` if it is static, pinned symbols included.
  std::optional<int64_t> getStatic(DimExpr expr) const;
  /// A tensor type with the static extents.
  mlir::RankedTensorType makeType(llvm::ArrayRef<DimExpr> dims,
                                  mlir::Type elementType) const;
  bool empty() const { return symbols.empty(); }
  std::string list() const;
  mlir::ArrayAttr build(mlir::MLIRContext *context) const;

private:
  mlir::Location location;
  llvm::MapVector<std::string, Symbol, std::map<std::string, unsigned>> symbols;
};

DimExpr makeExpr(mlir::MLIRContext *context, const InputDim &dim);

/// The literal as an attribute; null if it is of another kind than `type`.
mlir::Attribute convertLiteral(mlir::Type type, const InputSpec &spec,
                               const SymbolTableBuilder &symbols);

} // namespace koila::detail

#endif // KOILA_INPUTSPEC_ARGUMENTS_H
