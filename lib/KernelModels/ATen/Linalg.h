//===- Linalg.h - What functions of matrices share --------------*- C++ -*-===//
//
// Private to lib/KernelModels: sizes that forward and backward passes have in
// common.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_LINALG_H
#define KOILA_KERNELMODELS_ATEN_LINALG_H

#include "koila/Interfaces/Rules.h"

namespace koila::linalg {

/// Matrices in the last two dims. Pivots and infos are int32.
struct Matrices {
  ConcreteTensor tensor;
  int64_t count, rows, bytes;

  int64_t getRows() const { return count * rows; }
  int64_t getPivotBytes() const { return 4 * getRows(); }
  int64_t getInfoBytes() const { return 4 * count; }
  /// Whether all pivots are those of rows: compared with two numbers.
  int64_t getCheckBytes() const { return getRows() + 8 + 4; }
};

/// None where the shape is unknown or there are too many, and then the rule
/// says so.
std::optional<Matrices> getMatrices(WorkspaceRule &rule, mlir::Value value);
/// Whether all infos are zero.
void checkInfos(AllocationTrace &trace, const Matrices &matrices);
/// Whether triangles are taken out of a copy: of matrices, with known strides,
/// that are not one after the other.
bool copiesForTriangle(const ConcreteTensor &tensor);
/// Of singular vectors that are no results, which autograd keeps.
llvm::SmallVector<int64_t, 2> getInnerVectorBytes(const WorkspaceRule &rule);
/// What the exponential of matrices of float32 or float64 holds inside; of a
/// single or tiny one the most.
int64_t getExponentialBytes(WorkspaceRule &rule, const Matrices &matrices);

/// Autograd keeps what the differentiation rule names, and nothing else.
void saveOperands(SavedRule &rule);
/// It also keeps what `replay` tells: factors and their pivots, or vectors that
/// are no results. Where that is not known, the bytes may be.
void saveInner(SavedRule &rule, void (*replay)(WorkspaceRule &, SavedRule *),
               int64_t (*getKeptBytes)(WorkspaceRule &));
/// Of factors and their pivots.
int64_t getFactorBytes(WorkspaceRule &rule);

} // namespace koila::linalg

#endif // KOILA_KERNELMODELS_ATEN_LINALG_H
