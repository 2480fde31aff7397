//===- Derivatives.h - What autograd records of operators -------*- C++ -*-===//
//
// The differentiation rules of the families. By default that is what PyTorch's
// table of derivatives says; an operator that PyTorch composes of others says
// it itself.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_DERIVATIVES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_DERIVATIVES_H

#include "koila/Interfaces/Differentiation.h"

namespace koila::rules {

/// As PyTorch's table of derivatives says.
void describeDerivative(DifferentiationRule &rule);
/// As `describeDerivative`, of the operator with this schema name and the same
/// tensors first.
void describeDerivativeAs(DifferentiationRule &rule,
                          llvm::StringRef schemaName);

/// Nothing is read, and the gradient flows from `source` alone.
void passFrom(DifferentiationRule &rule, mlir::Value source);
/// The gradient of each factor reads the other.
void describeFactors(DifferentiationRule &rule, mlir::Value first,
                     mlir::Value second);
/// An expression of several operators: what it reads on the way follows from
/// any operand.
void describeExpressionDerivative(DifferentiationRule &rule);

void describeConvolutionDerivative(DifferentiationRule &rule);
void describeDistanceDerivative(DifferentiationRule &rule);
void describeEinsumDerivative(DifferentiationRule &rule);
void describeEmbeddingBagDerivative(DifferentiationRule &rule);
/// Functions of matrices that go by way of others.
void describeMatrixFunctionDerivative(DifferentiationRule &rule);
void describeLossDerivative(DifferentiationRule &rule);
void describeNormDerivative(DifferentiationRule &rule);
void describePoolDerivative(DifferentiationRule &rule);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_DERIVATIVES_H
