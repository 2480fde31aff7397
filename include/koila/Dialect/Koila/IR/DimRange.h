//===- DimRange.h - What expressions can be at most -------------*- C++ -*-===//
//
// Interval arithmetic: the numbers that an expression can be where its symbols
// are known up to a range only. The range holds for every expression, whether
// or not it grows with its symbols; it may be wider than needed where a symbol
// occurs more than once.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_DIMRANGE_H
#define KOILA_DIALECT_KOILA_IR_DIMRANGE_H

#include "koila/Dialect/Koila/IR/DimExpr.h"

namespace koila {

struct DimRange {
  int64_t least, most;
};

/// Looks up what a symbol can be; none if that is not known.
using SymbolRanges =
    llvm::function_ref<std::optional<DimRange>(DimSymbol symbol)>;

/// What `expr` can be; none if a symbol has no range or a number does not fit
/// in 64 bits. What is divided by is taken for a number of one or more where it
/// can be one: PyTorch refuses to divide an extent by none.
std::optional<DimRange> evaluateRange(DimExpr expr, SymbolRanges ranges);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_IR_DIMRANGE_H
