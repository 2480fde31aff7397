//===- ExternalModels.h - koila's rules for upstream ops --------*- C++ -*-===//

#ifndef KOILA_EXTERNALMODELS_EXTERNALMODELS_H
#define KOILA_EXTERNALMODELS_EXTERNALMODELS_H

namespace mlir {
class MLIRContext;
} // namespace mlir

namespace koila {
/// Attaches shape and memory rules to arith and tensor operations. The koila
/// dialect does so when it is loaded: without them every analysis would be
/// silently weaker, so no tool may forget it.
void attachExternalModels(mlir::MLIRContext *context);
} // namespace koila

#endif // KOILA_EXTERNALMODELS_EXTERNALMODELS_H
