//===- Registration.cpp - Kernel models of a registry's contexts ----------===//

#include "koila/KernelModels/Registration.h"
#include "ATenCPU/CPULeafKernels.h"
#include "ATenCUDA/CUDALeafKernels.h"
#include "ATenCUDA/CUDAModels.h"
#include "CuDNN/CuDNNModels.h"
#include "Models.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

/// What runs no kernel, or the same ones on every device.
static void addATen(KernelLibrary &library) {
  kernels::addViewModels(library);
  kernels::addViewGradients(library);
}

static void addCPU(KernelLibrary &library, MLIRContext &context) {
  kernels::addAttentionModels(library);
  kernels::addBatchNormModels(library);
  kernels::addBlockModels(library);
  kernels::addClassLossModels(library);
  kernels::addComposedElementwiseModels(library);
  kernels::addComposedLossModels(library);
  kernels::addConvolutionModels(library);
  kernels::addCopyModels(library);
  kernels::addCovarianceModels(library);
  kernels::addCrossEntropyModels(library);
  kernels::addDeterminantModels(library);
  kernels::addDistanceModels(library);
  kernels::addDropoutModels(library);
  kernels::addFactoryModels(library);
  kernels::addIndexModels(library);
  kernels::addJoinModels(library);
  kernels::addLossModels(library);
  kernels::addMatrixDecompositionModels(library);
  kernels::addMatrixFunctionModels(library);
  kernels::addNormModels(library);
  kernels::addPermuteRepeatModels(library);
  kernels::addPoolModels(library);
  kernels::addProductModels(library);
  kernels::addQuantileModels(library);
  kernels::addRecurrentModels(library);
  kernels::addReductionModels(library);
  kernels::addResampleModels(library);
  kernels::addSoftmaxModels(library);
  kernels::addSortModels(library);
  kernels::addSpectralModels(library);
  kernels::addStftModels(library);
  kernels::addCopyGradients(library);
  kernels::addCumulativeGradients(library);
  kernels::addIndexGradients(library);
  kernels::addJoinGradients(library);
  kernels::addMatrixFunctionGradients(library);
  kernels::addMoveGradients(library);
  kernels::addProductGradients(library);
  kernels::addReductionGradients(library);
  kernels::addSpectralGradients(library);
  kernels::addElementwiseModels(library, context);
  kernels::addBackwardFormulas(library, context);
  library.setLeaves(kernels::makeCPULeafKernels());
}

static void addCUDA(KernelLibrary &library, MLIRContext &context) {
  cuda::addAttentionModels(library);
  cuda::addBatchNormModels(library);
  cuda::addDropoutModels(library);
  cuda::addIndexModels(library);
  cuda::addLossModels(library);
  cuda::addNormModels(library);
  cuda::addPoolModels(library);
  cuda::addReductionModels(library);
  cuda::addSoftmaxModels(library);
  cuda::addCopyModels(library);
  cuda::addMoveModels(library);
  cuda::addResampleModels(library);
  cudnn::addConvolutionModels(library);
  cudnn::addRecurrentModels(library);
  kernels::addProductModels(library);
  kernels::addProductGradients(library);
  cuda::addElementwiseModels(library, context);
  library.setLeaves(cuda::makeLeafKernels());
}

void koila::registerCPUKernelModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, KoilaDialect *dialect) {
    auto &libraries = KernelLibraries::getOrAdd(*dialect);
    if (KernelLibrary *aten = libraries.addBase("aten"))
      addATen(*aten);
    if (KernelLibrary *cpu = libraries.add("cpu", libraries.lookup("aten")))
      addCPU(*cpu, *context);
  });
}

/// The card with the rules of PyTorch 2.3 to 2.6. What was measured on it was
/// measured with a later one.
static void addPastRelease(KernelLibraries &libraries,
                           const KernelLibrary &cuda,
                           const DeviceProfile &profile) {
  std::string name = (profile.getDevice() + "@torch-2.6").str();
  KernelLibrary *card = libraries.add(name, &cuda);
  if (!card)
    return;
  DeviceProperties properties = profile.getProperties();
  properties.pytorch = {2, 6};
  auto past = std::make_unique<DeviceProfile>(name);
  past->setProperties(properties);
  card->setProfile(std::move(past));
}

void koila::registerCUDAKernelModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, KoilaDialect *dialect) {
    auto &libraries = KernelLibraries::getOrAdd(*dialect);
    if (KernelLibrary *aten = libraries.addBase("aten"))
      addATen(*aten);
    KernelLibrary *cuda = libraries.add("cuda", libraries.lookup("aten"));
    if (!cuda)
      return;
    addCUDA(*cuda, *context);
    for (const DeviceProfile &profile : DeviceProfile::getShipped()) {
      if (KernelLibrary *card = libraries.add(profile.getDevice(), cuda))
        card->setProfile(std::make_unique<DeviceProfile>(profile));
      addPastRelease(libraries, *cuda, profile);
    }
  });
}
