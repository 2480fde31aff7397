//===- Windows.h - What operators over images share -------------*- C++ -*-===//
//
// Private to lib/Dialect/Koila/IR: layouts of images and the `int[n]`
// arguments with one entry per spatial dim.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_UTILS_WINDOWS_H
#define KOILA_DIALECT_KOILA_IR_UTILS_WINDOWS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/Layout.h"

namespace koila::spatial {

/// Whether Tensor::suggest_memory_format() answers ChannelsLast (4-D) or
/// ChannelsLast3d (5-D).
TriBool suggestsChannelsLast(const TensorInfo &info);

/// A tensor of these extents, channels-last or dense row-major. Strides are
/// unknown if that is, unless both layouts are one.
TensorInfo makeImage(llvm::ArrayRef<DimExpr> dims, mlir::Type type,
                     TriBool channelsLast);

/// A new dim of extent one before `dim`, as Tensor::unsqueeze.
TensorInfo unsqueeze(TensorInfo info, int64_t dim);
/// Without `dim`, which has extent one.
TensorInfo squeeze(TensorInfo info, int64_t dim);

/// No entry is larger than an int counts, nor are two such entries' products
/// larger than an int64.
inline constexpr int64_t MostEntry = INT32_MAX;

/// The entries of an `int[n]` argument, one per spatial dim: a list of one
/// stands for all. Null entries are unknown. An empty list is `ifEmpty`; if
/// that is empty too, it is refused, as are entries below `least`.
llvm::FailureOr<llvm::SmallVector<DimExpr>>
readEntries(ShapeRule &rule, llvm::StringRef name, int64_t rank, int64_t least,
            llvm::ArrayRef<DimExpr> ifEmpty = {});

/// The entries of a size; neither one for all nor empty.
llvm::FailureOr<llvm::SmallVector<DimExpr>>
readSizes(ShapeRule &rule, llvm::StringRef name, int64_t rank, int64_t least);

/// Refuses a tensor whose rank is known and not `least` to `most`.
llvm::LogicalResult checkRank(ShapeRule &rule, const TensorInfo &info,
                              int64_t least, int64_t most);

/// The bytes of `count` elements; none if int64 does not count them.
std::optional<int64_t> countBytes(int64_t count, int64_t size);

/// Whether a computed argument depends on the batch.
bool argumentsFollowBatch(const BatchRule &rule);

} // namespace koila::spatial

#endif // KOILA_DIALECT_KOILA_IR_UTILS_WINDOWS_H
