//===- ExecutionTrace.h - What one call runs, in order ----------*- C++ -*-===//
//
// Branches that are decided, loops of a known number of turns and lists whose
// contents are known are gone from a trace: what is left is one list of
// operations, on which lifetimes are intervals and shapes are those of each
// turn. Where PyTorch keeps a tensor for longer than the trace reads it, a
// `koila.keep_alive` says so: values from outside of a branch or loop until it
// ends, what is in a container until the last variable that holds it goes
// (torch/csrc/jit/runtime/interpreter/preprocess_graph.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_TRACE_EXECUTIONTRACE_H
#define KOILA_ANALYSIS_TRACE_EXECUTIONTRACE_H

#include "CallSetting.h"
#include "koila/Analysis/DimAnalysis.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace koila {

/// On an operation of a trace that writes what it computes into a tensor that
/// is there. If true, its result is none of its own; else it may be, for a
/// while.
inline constexpr llvm::StringLiteral kIntoAttr = "koila.into";

struct ExecutionTrace {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::FunctionOpInterface function;
  /// Branches and loops that are left, and operators that a number which is not
  /// known keeps from being known: data decide them, or symbols.
  unsigned undecided = 0;
  unsigned operations = 0;
  /// Whether a branch or loop is left.
  bool forks = false;
  /// In the program: the first branch or loop where data decided for this way
  /// of several; null if there is none.
  mlir::Operation *forked = nullptr;
  /// In the program: the first operation by which a tensor goes that an
  /// attribute, list or dict held before the call; null if there is none.
  mlir::Operation *replaced = nullptr;
  /// In the program: an assignment of an attribute that no two calls leave the
  /// same, so that the trace is of the first; null if there is none.
  mlir::Operation *unsteady = nullptr;
  /// One of an attribute in which the second call does not find yet what later
  /// ones do, of which the trace is.
  mlir::Operation *late = nullptr;
  /// Whether the program may turn on that gradients are recorded.
  bool turnsRecordingOn = false;
  /// Whether data decide if gradients are recorded.
  bool unknownRecording = false;
};

/// Whether `op` is a function with anything that a trace would be without.
bool isWorthTracing(mlir::Operation *op);

/// The trace of a call on arguments of which `dims` knows the sizes. None if
/// something changes a list, an object or the module in a way that only a call
/// would show, or if it gets too long.
std::optional<ExecutionTrace> traceExecution(mlir::FunctionOpInterface function,
                                             const DimAnalysis &dims,
                                             CallSetting setting);

/// A trace for each way that data may make a call go, without those that end
/// with an exception. Empty if there are too many or one cannot be followed.
std::vector<ExecutionTrace> traceWays(mlir::FunctionOpInterface function,
                                      const DimAnalysis &dims,
                                      CallSetting setting);

} // namespace koila

#endif // KOILA_ANALYSIS_TRACE_EXECUTIONTRACE_H
