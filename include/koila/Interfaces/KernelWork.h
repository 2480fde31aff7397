//===- KernelWork.h - Work of kernels ---------------------------*- C++ -*-===//

#ifndef KOILA_INTERFACES_KERNELWORK_H
#define KOILA_INTERFACES_KERNELWORK_H

#include "mlir/IR/OpDefinition.h"

namespace koila {

/// Kernels that take about the same time for an operation.
enum class KernelFamily {
  /// Of matrices: linear layers, products, attention.
  Product,
  Convolution,
  /// A convolution whose filters read one channel each.
  DepthwiseConvolution,
  Pooling
};

struct KernelWork {
  KernelFamily family = KernelFamily::Product;
  /// Multiplications, or the elements of all windows of a pooling.
  double operations = 0;
};

using GetShape = llvm::function_ref<llvm::SmallVector<double>(mlir::Value)>;

} // namespace koila

#include "koila/Interfaces/KernelWork.h.inc"

#endif // KOILA_INTERFACES_KERNELWORK_H
