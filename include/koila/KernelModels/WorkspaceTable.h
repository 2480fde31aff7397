//===- WorkspaceTable.h - Where the workspace rules hold --------*- C++ -*-===//
//
// The rule of an operator says how many bytes it holds inside. On which
// machines that figure was seen to be right is data: a table in JSON, whose
// rows are keyed by operator, element type, memory format, instruction set,
// threads and version of PyTorch. docs/design/Workspaces.md has the schema;
// `koila-run --calibrate` writes such a table for the machine at hand.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_WORKSPACETABLE_H
#define KOILA_KERNELMODELS_WORKSPACETABLE_H

#include "koila/Interfaces/Trust.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace koila {

/// What a row is looked up by.
struct WorkspaceKey {
  /// Without overload: `aten::conv2d`; of other dialects the operation's name.
  llvm::StringRef op;
  /// torch's name of the element type of the first tensor operand; empty
  /// without one.
  llvm::StringRef dtype;
  /// `contiguous`, `channels_last` or `strided`, of the first tensor operand.
  llvm::StringRef memoryFormat;
  /// oneDNN's name, for example `avx512_core_bf16`.
  llvm::StringRef isa;
  int64_t threads = 1;
  /// PyTorch's version, for example `2.13.0`.
  llvm::StringRef torch;
};

/// A list of names with `*`, `?` and `[...]` as in the shell; empty: all names.
using NamePatterns = std::vector<std::string>;

struct WorkspaceRow {
  NamePatterns op, dtype, memoryFormat, isa, torch;
  /// Both included; none: without end.
  int64_t leastThreads = 1;
  std::optional<int64_t> mostThreads;
  /// `Exact`: unless the rule itself has a doubt.
  Trust trust = Trust::Exact;
  /// For the report; none of an exact row.
  std::string why;
  /// Where the row is from.
  std::string source;
  /// Calls that were compared with the rule; 0 if nobody counted.
  int64_t calls = 0;

  bool match(const WorkspaceKey &key) const;
  llvm::json::Value toJSON() const;
};

class WorkspaceTable {
public:
  /// The rows of a text; the error names line or row.
  static llvm::Expected<WorkspaceTable> parse(llvm::StringRef json);
  /// The rows of a file before those that koila ships, so that they win.
  static llvm::Expected<WorkspaceTable> load(llvm::StringRef path);
  /// For CPU, torch 2.13.
  static const WorkspaceTable &getShipped();
  /// Trusts every rule: for comparing them with measurements.
  static WorkspaceTable trustAll();

  /// The first row that matches; null if there is none.
  const WorkspaceRow *find(const WorkspaceKey &key) const;
  llvm::ArrayRef<WorkspaceRow> getRows() const { return rows; }
  void add(WorkspaceRow row) { rows.push_back(std::move(row)); }
  llvm::json::Value toJSON() const;

private:
  std::vector<WorkspaceRow> rows;
};

/// The version of PyTorch that koila was built and measured with.
inline constexpr llvm::StringLiteral kTorchVersion = "2.13.0";

} // namespace koila

#endif // KOILA_KERNELMODELS_WORKSPACETABLE_H
