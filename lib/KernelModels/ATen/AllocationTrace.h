//===- AllocationTrace.h - What an operator allocates -----------*- C++ -*-===//
//
// Private to lib/KernelModels: what the workspace rules share. Where a rule
// says that a temporary is a copy or a cast, the sizes are those of the
// tensors; the few constants are sizes of numbers.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_ALLOCATIONTRACE_H
#define KOILA_KERNELMODELS_ATEN_ALLOCATIONTRACE_H

#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Interfaces/Rules.h"
#include <algorithm>

namespace koila::kernels {

/// The bytes that an operator holds, told in the order in which it allocates
/// and frees them. What is left at the end are its results.
class AllocationTrace {
public:
  void allocate(int64_t bytes) {
    live += bytes;
    peak = std::max(peak, live);
  }
  void free(int64_t bytes) { live -= bytes; }
  /// Something that is gone before the next step.
  void allocateTemporary(int64_t bytes) {
    allocate(bytes);
    free(bytes);
  }
  /// Tensor::contiguous(), which stays.
  void makeContiguous(const ConcreteTensor &tensor);
  /// The most there was.
  int64_t getPeak() const { return narrow(peak); }
  /// The most there was beyond what is left.
  int64_t getTransient() const { return narrow(peak - live); }

private:
  static int64_t narrow(__int128 bytes) {
    constexpr __int128 kMost = std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(std::min(bytes, kMost));
  }
  /// Wide: a sum of sizes that each fit may not.
  __int128 live = 0, peak = 0;
};

/// Where `value` lives, as far as its operation says without knowing shapes;
/// none for an argument, and where no memory rule tells.
std::optional<StorageFact> getStorageFact(mlir::Value value);

/// float32, float64 and integers: what PyTorch computes in its own type.
bool isPlain(mlir::Type type);

/// The bytes of `tensor` with elements of `type`.
int64_t countBytes(const ConcreteTensor &tensor, mlir::Type type);
/// A copy in `type`; nothing if that is the type.
int64_t getCastBytes(const ConcreteTensor &tensor, mlir::Type type);
/// Tensor::contiguous().
int64_t getCopyBytes(const ConcreteTensor &tensor);
/// The block through which a transposed matrix is copied into rows.
int64_t getBlockBytes(const ConcreteTensor &tensor);
/// Tensor::contiguous(tensor.suggest_memory_format()).
int64_t getSuggestedCopyBytes(const ConcreteTensor &tensor);
/// Tensor::contiguous(ChannelsLast), of four dims.
int64_t getChannelsLastCopyBytes(const ConcreteTensor &tensor);
/// Tensor::reshape({-1}).
int64_t getFlatCopyBytes(const ConcreteTensor &tensor);

/// Whether the elements fill a block of memory in some order of the dims.
/// Source: is_non_overlapping_and_dense in c10/core/TensorImpl.cpp.
bool isDense(const ConcreteTensor &tensor);
/// Whether Tensor::suggest_memory_format() is ChannelsLast or ChannelsLast3d.
bool suggestsChannelsLast(const ConcreteTensor &tensor);
/// Whether the strides are those of a new channels-last tensor of four or five
/// dims.
bool isChannelsLast(const ConcreteTensor &tensor);
/// A dim of extent one before `dim`, as Tensor::unsqueeze.
ConcreteTensor unsqueeze(ConcreteTensor tensor, int64_t dim);

/// A Python int on its way into an operator of tensors of type `computed`: a
/// 0-dim tensor, and its cast.
int64_t getIntegerBytes(mlir::Type computed);
/// A Python float.
int64_t getFloatBytes(mlir::Type computed);

/// The windows of the result of Tensor::repeat, over which the operand is
/// repeated, are found with four numbers for each dim (measured).
int64_t getRepeatBytes(int64_t rank);
/// A reduction to one element over threads keeps a partial result for each.
/// Source: two_pass_reduction in native/TensorIteratorReduce.cpp.
int64_t getPartialBytes(const WorkspaceRule &rule, const ConcreteTensor &input,
                        const ConcreteTensor &result);
/// What Tensor::mean() holds beyond `result`: a sum, divided by a number.
int64_t getMeanBytes(const WorkspaceRule &rule, const ConcreteTensor &input,
                     const ConcreteTensor &result);

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_ALLOCATIONTRACE_H
