//===- WorkRules.h - Work of kernels ----------------------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_WORKRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_WORKRULES_H

#include "koila/Interfaces/KernelWork.h"

namespace koila::rules {

/// `sampled` is the tensor of which each element meets a filter: the result, or
/// the input of a transposed convolution.
KernelWork describeConvolutionWork(GetShape getShape, mlir::Value sampled,
                                   mlir::Value weight);
/// Of an equation of einsum.
KernelWork describeProductWork(GetShape getShape,
                               llvm::ArrayRef<mlir::Value> factors,
                               llvm::StringRef equation);
/// Of which the last dim of `lhs` is summed over.
KernelWork describeMatrixWork(GetShape getShape, mlir::Value lhs,
                              mlir::Value result);
KernelWork describePoolWork(GetShape getShape, mlir::Value result,
                            llvm::ArrayRef<int64_t> window);
KernelWork describeAttentionWork(GetShape getShape, mlir::Value query,
                                 mlir::Value key, mlir::Value value);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_WORKRULES_H
