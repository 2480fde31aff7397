//===- ExternalModels.h - koila's rules for upstream ops --------*- C++ -*-===//

#ifndef KOILA_EXTERNALMODELS_EXTERNALMODELS_H
#define KOILA_EXTERNALMODELS_EXTERNALMODELS_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace koila {
/// Attaches shape and memory rules to arith and tensor operations.
void registerExternalModels(mlir::DialectRegistry &registry);
} // namespace koila

#endif // KOILA_EXTERNALMODELS_EXTERNALMODELS_H
