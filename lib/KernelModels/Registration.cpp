//===- Registration.cpp - Kernel models of a registry's contexts ----------===//

#include "koila/KernelModels/Registration.h"
#include "ATenCPU/CPULeafKernels.h"
#include "Models.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

/// What runs no kernel, or the same ones on every device.
static void addATen(KernelLibrary &library) { kernels::addViewModels(library); }

static void addCPU(KernelLibrary &library, MLIRContext &context) {
  kernels::addAttentionModels(library);
  kernels::addBinaryModels(library);
  kernels::addConvolutionModels(library);
  kernels::addCopyModels(library);
  kernels::addFactoryModels(library);
  kernels::addIndexModels(library);
  kernels::addLossModels(library);
  kernels::addMatmulModels(library);
  kernels::addNormModels(library);
  kernels::addPointwiseModels(library);
  kernels::addPoolModels(library);
  kernels::addReductionModels(library);
  kernels::addResampleModels(library);
  kernels::addSortModels(library);
  kernels::addSpectralModels(library);
  kernels::addElementwiseModels(library, context);
  kernels::addBackwardFormulas(library, context);
  library.setLeaves(kernels::makeCPULeafKernels());
}

void koila::registerCPUKernelModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, KoilaDialect *dialect) {
    auto &libraries = KernelLibraries::getOrAdd(*dialect);
    if (KernelLibrary *aten = libraries.add("aten"))
      addATen(*aten);
    if (KernelLibrary *cpu = libraries.add("cpu", libraries.lookup("aten")))
      addCPU(*cpu, *context);
  });
}
