//===- InputSpec.h - What a program is called with --------------*- C++ -*-===//
//
// The `--input` language: dims, element types and literal values of a
// function's arguments, as a user writes them on a command line.
//
//     SPEC := [NAME '='] ( DTYPE '[' [DIM {',' DIM}] ']' [ '{' LO ':' HI '}' ]
//                          [ '@channels_last' ] [ '@grad' ]
//                        | INT | FLOAT | 'true' | 'false' | 'none' | STRING
//                        | '[' SPECs ']' | '(' SPECs ')'
//                        | '{' KEY ':' SPEC, ... '}' )
//     DIM  := INT | [INT '*'] SYMBOL ['=' INT]
//
// Tools apply specs to the IR before any pass runs; passes read only IR.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INPUTSPEC_INPUTSPEC_H
#define KOILA_INPUTSPEC_INPUTSPEC_H

#include "koila/Support/ByteSize.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace koila {

/// An extent or the end of a range: `factor` times `symbol`, or just `factor`
/// if there is no symbol. In `4*B=16` the symbol B is pinned to 16.
struct InputDim {
  int64_t factor = 1;
  std::string symbol;
  std::optional<int64_t> pinned;

  bool isConstant() const { return symbol.empty(); }
};

/// Half-open range of values.
struct InputRange {
  InputDim from, to;
};

/// One `--input`, or a part of one.
struct InputSpec {
  enum class Kind { Tensor, Int, Float, Bool, None, String, List, Tuple, Dict };

  /// Empty: given by position.
  std::string name;
  Kind kind = Kind::None;

  /// Tensors. `dtype` is torch's long name, for example `float32`.
  std::string dtype;
  llvm::SmallVector<InputDim, 4> dims;
  std::optional<InputRange> range;
  bool channelsLast = false;
  bool requiresGrad = false;

  /// Literals.
  int64_t intValue = 0;
  double floatValue = 0.0;
  bool boolValue = false;
  std::string stringValue;

  /// Elements of a list or tuple, values of a dict.
  std::vector<InputSpec> elements;
  /// Keys of a dict, in the order of `elements`: Int or String.
  std::vector<InputSpec> keys;

  /// The spec as a user would write it, without the name.
  std::string str() const;
};

/// A symbol and its value, as in `--batch B=64`.
using SymbolValue = std::pair<std::string, int64_t>;

/// Reads `text` into `spec`. On failure returns false, and `error` names the
/// place: "expected ']' after dim 2 in 'float32[B,64'".
bool parseInputSpec(llvm::StringRef text, InputSpec &spec, std::string &error);

/// The arguments whose specs say `@grad`: names, and numbers of those that are
/// given by position, with commas between.
std::string getGradientArguments(llvm::ArrayRef<InputSpec> specs);

/// Reads `B=64`.
std::optional<SymbolValue> parseBatchValue(llvm::StringRef text,
                                           std::string &error);

/// Writes `specs` and symbol values into `module`: types of the arguments of
/// `function` (empty: the only public one) and their attributes `koila.name`,
/// `koila.dims`, `koila.range`, `koila.requires_grad`, `koila.memory_format`
/// and `koila.value` (a literal; unit is None; a tensor inside a container is
/// a dictionary with `type` and `dims`), and `koila.symbols` on the module.
///
/// Specs match arguments by position and by name as in Python; missing
/// trailing ones take `koila.default`. Arguments which say their dims already
/// (a `.mlir` file) need no spec; one that is given must agree or refine. If
/// nothing is given and nothing is known, shapes recorded at tracing
/// (`koila.example`) are taken and `notes` says so.
///
/// Errors are diagnostics at the function, and leave the module unchanged.
llvm::LogicalResult applyInputSpecs(mlir::ModuleOp module,
                                    llvm::StringRef function,
                                    llvm::ArrayRef<InputSpec> specs,
                                    llvm::ArrayRef<SymbolValue> batchValues,
                                    llvm::StringRef batchSymbol,
                                    llvm::raw_ostream &notes);

/// What a user says of a call, by --input, --batch and --batch-symbol.
struct CallSpec {
  std::vector<InputSpec> inputs;
  std::vector<SymbolValue> batch;
  /// Empty: `B`, else the only symbol.
  std::string batchSymbol;

  /// Read one further text; on failure return false, and `error` names the
  /// place.
  bool addInput(llvm::StringRef text, std::string &error) {
    return parseInputSpec(text, inputs.emplace_back(), error);
  }
  bool addBatch(llvm::StringRef text, std::string &error);

  /// Whether nothing was said.
  bool isEmpty() const {
    return inputs.empty() && batch.empty() && batchSymbol.empty();
  }

  /// As applyInputSpecs.
  llvm::LogicalResult apply(mlir::ModuleOp module, llvm::StringRef function,
                            llvm::raw_ostream &notes) const {
    return applyInputSpecs(module, function, inputs, batch, batchSymbol, notes);
  }
};

} // namespace koila

#endif // KOILA_INPUTSPEC_INPUTSPEC_H
