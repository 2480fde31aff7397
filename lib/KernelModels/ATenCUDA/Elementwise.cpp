//===- Elementwise.cpp - Elementwise operators on a GPU -------------------===//
//
// Source: native/cuda/CUDALoops.cuh: kernels cast what they read and write, and
// take numbers as arguments, so that nothing but results is allocated.
//
//===----------------------------------------------------------------------===//

#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/ElementwiseOp.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/PointwiseOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace koila;

/// Of complex numbers some functions compute a complex result first.
static void describeElementwise(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto isComplex = [](Type type) {
    return isa<ComplexType>(getElementTypeOrSelf(type));
  };
  if (llvm::any_of(op->getOperandTypes(), isComplex))
    rule.setInexact("an elementwise operator of complex numbers on CUDA");
}

/// Operators whose formulas call kernels that differ on a GPU.
static bool isOfCPU(StringRef name) {
  return llvm::is_contained({"rrelu", "cumsum", "cummax", "cummin", "topk",
                             "sort", "kthvalue", "copy", "fill", "zero",
                             "logit", "special_entr"},
                            name);
}

void cuda::addElementwiseModels(KernelLibrary &library, MLIRContext &context) {
  kernels::addSelectModels(library);
  // The buffer of log_sigmoid is empty:
  // native/cuda/ActivationLogSigmoidKernel.cu.
  library.add<LogSigmoidOp, MaskedFillScalarOp, MaskedFillTensorOp>(
      {.forward = kernels::allocateNothing});
  for (RegisteredOperationName name : context.getRegisteredOperationsByDialect(
           KoilaDialect::getDialectNamespace()))
    if (name.hasInterface<ElementwiseOpInterface>() &&
        !library.find(name.getTypeID()).forward)
      library.insert(name.getTypeID(), name.getStringRef(),
                     {describeElementwise, nullptr, nullptr});
  kernels::addBackwardFormulas(library, context,
                               [](StringRef name) { return !isOfCPU(name); });
}
