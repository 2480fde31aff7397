//===- Layout.h - Strides over symbols --------------------------*- C++ -*-===//
//
// Whether a view is possible and which strides a result has are decided by
// PyTorch from numbers; here the same algorithms run on dim expressions. What
// needs a comparison that cannot be proved is unknown. Symbols stand for
// extents of two or more: at an extent of one strides do not matter.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INTERFACES_LAYOUT_H
#define KOILA_INTERFACES_LAYOUT_H

#include "koila/Interfaces/Rules.h"

namespace koila {

/// Whether `lhs <= rhs` for all values of at least one of their symbols.
TriBool proveAtMost(DimExpr lhs, DimExpr rhs);

/// Strides of `info` seen with other extents of as many elements.
/// Source: computeStride in aten/src/ATen/TensorUtils.cpp.
struct ViewStrides {
  /// No: only a copy can have these extents.
  TriBool possible = TriBool::Unknown;
  /// In elements; set where `possible` is Yes.
  llvm::SmallVector<DimExpr> strides;
};
ViewStrides computeViewStrides(const TensorInfo &info,
                               llvm::ArrayRef<DimExpr> dims);

/// Whether the elements fill a block of memory, in some order of the dims.
TriBool isNonOverlappingAndDense(const TensorInfo &info);

/// The strides of the result of an elementwise operator whose operands
/// broadcast to `dims`; none if not known.
/// Source: aten/src/ATen/TensorIterator.cpp.
std::optional<llvm::SmallVector<DimExpr>>
computeElementwiseStrides(llvm::ArrayRef<TensorInfo> operands,
                          llvm::ArrayRef<DimExpr> dims);

/// The strides of a copy with torch.preserve_format.
/// Source: empty_like in aten/src/ATen/native/TensorFactories.cpp.
std::optional<llvm::SmallVector<DimExpr>>
computePreservedStrides(const TensorInfo &info);

} // namespace koila

#endif // KOILA_INTERFACES_LAYOUT_H
