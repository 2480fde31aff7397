//===- MaskedResults.h - Results that a mask leaves out ---------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_UTILS_MASKEDRESULTS_H
#define KOILA_LIB_DIALECT_KOILA_IR_UTILS_MASKEDRESULTS_H

#include "koila/Interfaces/Rules.h"

namespace koila {

/// The results that `mask` names are `infos`; the others are None, as in
/// Python.
inline void setMaskedResults(ShapeRule &rule, llvm::ArrayRef<bool> mask,
                             llvm::ArrayRef<TensorInfo> infos) {
  ValueInfo none;
  none.literal = mlir::UnitAttr::get(rule.getContext());
  for (auto [index, info] : llvm::enumerate(infos))
    if (mask[index])
      rule.setResult(index, info);
    else
      rule.setInfo(index, none);
}

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_IR_UTILS_MASKEDRESULTS_H
