//===- MatmulOps.h - Products with matrices ---------------------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_MATMULOPS_H
#define KOILA_DIALECT_KOILA_IR_MATMULOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/BackwardOperator.h"
#include "koila/Interfaces/KernelWork.h"

namespace koila::rules {

/// Which dims of tensors are the same: a label for each dim of each factor
/// and of the result. Labels that the result lacks are summed over.
struct Labels {
  /// Labels from here on broadcast; dims of a lower one have one extent.
  static constexpr int kBroadcast = 256;
  llvm::SmallVector<llvm::SmallVector<int>> factors;
  llvm::SmallVector<int> result;
};

/// Reads an equation of einsum for factors of these ranks; on failure `error`
/// says why. The dims of an ellipsis broadcast, letters do not.
std::optional<Labels> parseEquation(llvm::StringRef equation,
                                    llvm::ArrayRef<int64_t> ranks,
                                    std::string &error);

} // namespace koila::rules

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/MatmulOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_MATMULOPS_H
