//===- AttributeState.h - What attributes hold between calls ----*- C++ -*-===//

#ifndef KOILA_ANALYSIS_ATTRIBUTESTATE_H
#define KOILA_ANALYSIS_ATTRIBUTESTATE_H

#include "llvm/ADT/StringRef.h"

namespace koila {

/// On a read of an attribute that the program assigns: what the archive has
/// there, if that is None, a bool, an integer or a text; of a contiguous tensor
/// without gradient its type.
inline constexpr llvm::StringLiteral kInitialAttr = "koila.initial";

/// On an argument of a trace: a tensor that the last call left in an attribute.
inline constexpr llvm::StringLiteral kLeftAttr = "koila.left";

} // namespace koila

#endif // KOILA_ANALYSIS_ATTRIBUTESTATE_H
