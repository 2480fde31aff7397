//===- Models.h - The rows of the libraries ---------------------*- C++ -*-===//
//
// Private to lib/KernelModels: each family adds the models of its operations to
// a library.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_MODELS_H
#define KOILA_LIB_KERNELMODELS_MODELS_H

#include "koila/KernelModels/KernelModel.h"
#include "mlir/IR/MLIRContext.h"

namespace koila::kernels {

/// Nothing but the results.
inline void allocateNothing(WorkspaceRule &) {}

void addAttentionModels(KernelLibrary &library);
void addBinaryModels(KernelLibrary &library);
void addConvolutionModels(KernelLibrary &library);
void addCopyModels(KernelLibrary &library);
void addFactoryModels(KernelLibrary &library);
void addIndexModels(KernelLibrary &library);
void addLossModels(KernelLibrary &library);
void addMatmulModels(KernelLibrary &library);
void addNormModels(KernelLibrary &library);
void addPointwiseModels(KernelLibrary &library);
void addPoolModels(KernelLibrary &library);
void addReductionModels(KernelLibrary &library);
void addResampleModels(KernelLibrary &library);
void addSortModels(KernelLibrary &library);
void addSpectralModels(KernelLibrary &library);
void addViewModels(KernelLibrary &library);

/// Of all elementwise operators that have no other model.
void addElementwiseModels(KernelLibrary &library, mlir::MLIRContext &context);
/// The backward passes that formulas give, of all operators that have no other.
void addBackwardFormulas(KernelLibrary &library, mlir::MLIRContext &context);

} // namespace koila::kernels

#endif // KOILA_LIB_KERNELMODELS_MODELS_H
