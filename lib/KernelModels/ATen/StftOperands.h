//===- StftOperands.h - Tensors on their way through transforms -*- C++ -*-===//
//
// Private to lib/KernelModels: the steps of which Fourier transforms are
// composed, with what each allocates and the strides that it leaves.
// Sources: native/SpectralOps.cpp, native/mkl/SpectralOps.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_STFTOPERANDS_H
#define KOILA_KERNELMODELS_ATEN_STFTOPERANDS_H

#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"

namespace koila::spectral {

/// A tensor whose strides are known.
using Signal = ConcreteTensor;

rules::Fourier getKind(mlir::Operation *op);
/// The last of the sizes to which the `dims` of a real operand are cut or
/// filled up, which half a spectrum of `half` elements does not tell. None if
/// it is computed of something else than the sizes of tensors.
std::optional<int64_t> getLastSize(const WorkspaceRule &rule,
                                   llvm::ArrayRef<int64_t> dims,
                                   llvm::ArrayRef<int64_t> before,
                                   int64_t half);

/// None if the strides are unknown.
std::optional<Signal> getSignal(const WorkspaceRule &rule, mlir::Value value);

/// Dims from the slowest in memory to the fastest.
Signal makeDense(llvm::ArrayRef<int64_t> dims, mlir::Type type,
                 llvm::ArrayRef<int64_t> order);
Signal makeContiguous(llvm::ArrayRef<int64_t> dims, mlir::Type type);
/// Tensor::to(type).
Signal convert(const Signal &signal, mlir::Type type);
/// Tensor::clone(); none if the order of the dims is ambiguous.
std::optional<Signal> clone(const Signal &signal);

/// Cuts and fills up `dims` to `sizes`; whether that allocates a new tensor.
bool resize(Signal &signal, llvm::ArrayRef<int64_t> dims,
            llvm::ArrayRef<int64_t> sizes);

/// The float type of real or complex numbers; float32 for integers.
mlir::Type getRealType(mlir::Type type);

/// A signal that a transform has made, and its block.
struct Transformed : Signal {
  AllocationTrace::Block block;
};

// Transforms of at least one dim. The results are left in `trace`.

Transformed transformComplex(AllocationTrace &trace, const Signal &signal,
                             llvm::ArrayRef<int64_t> dims);
/// The last of `dims` has `extent` elements after it.
Transformed transformToReal(AllocationTrace &trace, const Signal &signal,
                            llvm::ArrayRef<int64_t> dims, int64_t extent);
Transformed transformReal(AllocationTrace &trace, const Signal &signal,
                          llvm::ArrayRef<int64_t> dims, bool onesided);

} // namespace koila::spectral

#endif // KOILA_KERNELMODELS_ATEN_STFTOPERANDS_H
