//===- TensorBytes.h - Bytes of tensors, copies and casts -------*- C++ -*-===//
//
// Private to lib/KernelModels: what the models share. Where one says that a
// temporary is a copy or a cast, the sizes are those of the tensors; the few
// constants are sizes of numbers.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_TENSORBYTES_H
#define KOILA_KERNELMODELS_ATEN_TENSORBYTES_H

#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Interfaces/Rules.h"
#include <algorithm>

namespace koila::kernels {

/// The events of `steps` come next in `trace`, with blocks of their own.
void append(AllocationTrace &trace, const AllocationTrace &steps);

/// Where `value` lives, as far as its operation says without knowing shapes;
/// none for an argument, and where no memory rule tells.
std::optional<StorageFact> getStorageFact(mlir::Value value);

/// float32, float64 and integers: what PyTorch computes in its own type.
bool isPlain(mlir::Type type);

/// The bytes of `tensor` with elements of `type`.
int64_t countBytes(const ConcreteTensor &tensor, mlir::Type type);
/// The first operand and the first result of a call.
struct InputAndResult {
  ConcreteTensor input, result;
};
/// None, and the rule says so, if a shape is unknown.
std::optional<InputAndResult> readInputAndResult(WorkspaceRule &rule);
/// A copy in `type`; nothing if that is the type.
int64_t getCastBytes(const ConcreteTensor &tensor, mlir::Type type);
/// Tensor::contiguous().
int64_t getCopyBytes(const ConcreteTensor &tensor);
/// Of indices of another type as int64, which kernels read; of others none.
int64_t getCastIndexBytes(const ConcreteTensor &indices);
/// Of a half type as float32, by way of which kernels add; of others none.
int64_t getWideBytes(const ConcreteTensor &tensor);
/// Tensor::contiguous() in `trace`; what it makes stays.
AllocationTrace::Block allocateContiguous(AllocationTrace &trace,
                                          const ConcreteTensor &tensor);
/// The same on the target of `rule`.
AllocationTrace::Block allocateContiguous(const WorkspaceRule &rule,
                                          AllocationTrace &trace,
                                          const ConcreteTensor &tensor);
int64_t getBlockBytes(const WorkspaceRule &rule, const ConcreteTensor &tensor);
/// On the CPU the block through which a transposed matrix is copied into rows.
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

/// Whether elementwise kernels of the target read operands of any type, so that
/// neither casts nor numbers are tensors.
bool readsAnyType(const WorkspaceRule &rule);
/// A Python number of `type` as a 0-dim tensor; null: of which type is unknown.
ConcreteTensor getNumber(mlir::Type type);
AllocationTrace::Block allocateNumber(AllocationTrace &trace, mlir::Type type);
/// A Python int on its way into an operator of tensors of type `computed`: a
/// 0-dim tensor, and its cast.
int64_t getIntegerBytes(mlir::Type computed);
/// A Python float.
int64_t getFloatBytes(mlir::Type computed);

/// The same for a moment, as of an in-place operator.
void allocateInteger(AllocationTrace &trace, mlir::Type computed);
void allocateFloat(AllocationTrace &trace, mlir::Type computed);

/// One run of TensorIterator: operands that are not of the type in which it
/// computes are cast, then the result is allocated. Source: build(),
/// compute_types() and cast_outputs() in TensorIterator.cpp.
struct TensorIteration {
  /// In the order of the iterator.
  llvm::SmallVector<ConcreteTensor, 3> operands;
  mlir::Type computed;
  /// Of a new result.
  int64_t resultBytes = 0;
  /// Of what an in-place form computes before it is cast.
  int64_t writtenBytes = 0;

  /// What begin() has allocated.
  AllocationTrace::Block result = {};
  llvm::SmallVector<AllocationTrace::Block, 3> casts = {};

  /// `last` is the last operand where only the iterator holds it.
  void begin(AllocationTrace &trace, AllocationTrace::Block last = {});
  /// The iterator is gone.
  void end(AllocationTrace &trace) const;
  void replay(AllocationTrace &trace, AllocationTrace::Block last = {}) {
    begin(trace, last);
    end(trace);
  }
};

/// The numbers with which Tensor::repeat finds the windows of its result.
void allocateRepeat(AllocationTrace &trace, int64_t rank);
/// A reduction to one element over threads keeps a partial result for each.
/// Source: two_pass_reduction in native/TensorIteratorReduce.cpp.
int64_t getPartialBytes(const WorkspaceRule &rule, const ConcreteTensor &input,
                        const ConcreteTensor &result);
/// What Tensor::mean() holds beyond `result`.
void allocateMean(WorkspaceRule &rule, AllocationTrace &trace,
                  const ConcreteTensor &input, const ConcreteTensor &result);

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_TENSORBYTES_H
