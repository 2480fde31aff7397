//===- GemmOperandCopies.h - What a product copies first --------*- C++ -*-===//
//
// Private to lib/KernelModels: the copies that products with matrices make
// because BLAS cannot read the strides, and what oneDNN holds for those of half
// types, as the operators over them need it.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATENCPU_GEMMOPERANDCOPIES_H
#define KOILA_KERNELMODELS_ATENCPU_GEMMOPERANDCOPIES_H

#include "koila/Interfaces/Rules.h"
#include "llvm/ADT/STLExtras.h"

namespace koila {
class BackwardRule;
} // namespace koila

namespace koila::blas {

/// A tensor of which only what decides about copies counts.
struct Factor {
  llvm::SmallVector<int64_t> dims, strides;
  mlir::Type type;
  /// Whether it is, or is a transposition of, a weight that can be trained, or
  /// where autograd records, whether a gradient flows to it.
  bool isTrained = false;

  int64_t getRank() const { return dims.size(); }
  /// The product of all dims but the last.
  int64_t numRows() const {
    return llvm::product_of(llvm::ArrayRef(dims).drop_back());
  }
  int64_t numBytes() const;
};

/// Whether the tensor requires a gradient, which kernels ask also where none is
/// recorded: products are then folded even if that copies, for the sake of a
/// backward pass, and a mask keeps attention from the flash kernel. Sources:
/// should_fold and check_attn_mask_shape.
bool requiresGradient(const WorkspaceRule &rule, mlir::Value value);
/// None if the extents or strides are unknown.
std::optional<Factor> getFactor(const WorkspaceRule &rule, mlir::Value value);
/// The last two dims exchanged.
Factor transpose(Factor factor);

/// Whether a dim of these extents and strides is a view of them all.
bool isOneDim(llvm::ArrayRef<int64_t> extents, llvm::ArrayRef<int64_t> strides);

/// Whether torch.matmul multiplies `lhs`, of three dims or more, by the matrix
/// `rhs` as one matrix, not as a batch of them.
bool isMatrixProduct(const Factor &lhs, const Factor &rhs);
/// All but the last dim as one, by reshape: where that is no view, a copy,
/// whose bytes are added.
Factor foldRows(const Factor &factor, int64_t &bytes);
/// The leading dims that both factors of a batched product are repeated to.
llvm::SmallVector<int64_t> getLeadingDims(const Factor &lhs, const Factor &rhs);
/// The leading dims of `factor` repeated to `leading`, all but the last two in
/// one: a view where the strides allow it, else a copy, whose bytes are added.
Factor flattenLeading(const Factor &factor, llvm::ArrayRef<int64_t> leading,
                      int64_t &bytes);

/// The number that multiplies a product: `alpha` of addmm.
enum class Scale { Zero, One, Other };
Scale getScale(mlir::Attribute number);

// What a product holds beside its result, in `trace`; nothing of it is left.
// Each says so where a kernel of oneDNN has buffers that are not known.

/// Two matrices.
void allocateMm(AllocationTrace &trace, WorkspaceRule &rule, const Factor &lhs,
                const Factor &rhs, Scale scale = Scale::One);
/// Whether a product over these extents goes to oneDNN, which may hold memory
/// of its own.
bool takesOneDnn(const WorkspaceRule &rule, mlir::Type type,
                 llvm::ArrayRef<int64_t> extents);
/// Two tensors of as many matrices.
void allocateBmm(AllocationTrace &trace, WorkspaceRule &rule, const Factor &lhs,
                 const Factor &rhs, Scale scale = Scale::One);
/// A matrix and a vector.
void allocateMv(AllocationTrace &trace, WorkspaceRule &rule,
                const Factor &matrix, const Factor &vector,
                Scale scale = Scale::One);
/// Two vectors.
void allocateDot(AllocationTrace &trace, WorkspaceRule &rule, const Factor &lhs,
                 const Factor &rhs);

// The same at the worst moment.

int64_t getMmBytes(WorkspaceRule &rule, const Factor &lhs, const Factor &rhs,
                   Scale scale = Scale::One);

/// What torch.matmul copies and holds.
struct MatmulCopies {
  /// At the worst moment, beyond the result.
  int64_t bytes = 0;
  /// Of these, what is multiplied in the place of a factor.
  int64_t left = 0, right = 0;
  /// The blocks of both and of the result, where a trace has them.
  AllocationTrace::Block leftBlock = {}, rightBlock = {}, result = {};
};
/// Tensors of any ranks; `trace` is left with the result, and with the copies
/// that are kept.
MatmulCopies allocateMatmul(AllocationTrace &trace, WorkspaceRule &rule,
                            const Factor &lhs, const Factor &rhs,
                            bool keepsLeft = false, bool keepsRight = false);
MatmulCopies getMatmulCopies(WorkspaceRule &rule, const Factor &lhs,
                             const Factor &rhs);

/// Says why the figure is not exact where the factors are not known.
bool checkFactors(WorkspaceRule &rule, const std::optional<Factor> &lhs,
                  const std::optional<Factor> &rhs);

/// Autograd keeps these blocks of `trace`, which is that of the rule.
void keepBlocks(SavedRule &rule, const AllocationTrace &trace,
                llvm::ArrayRef<AllocationTrace::Block> blocks);

/// `steps`, which will be the trace of the rule, frees `block`, one of those
/// that `forward` has kept for it.
void freeKept(BackwardRule &rule, AllocationTrace &steps,
              const AllocationTrace &forward,
              llvm::ArrayRef<AllocationTrace::Block> kept,
              AllocationTrace::Block block);

/// Autograd keeps the factors that the differentiation rule names, or what was
/// multiplied in their place.
void saveFactors(SavedRule &rule, mlir::Value first,
                 const MatmulCopies &copies);

} // namespace koila::blas

#endif // KOILA_KERNELMODELS_ATENCPU_GEMMOPERANDCOPIES_H
