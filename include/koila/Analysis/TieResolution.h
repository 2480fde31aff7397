//===- TieResolution.h - May this operation write in place? -----*- C++ -*-===//
//
// The question emission asks, without the rest of the storage analysis.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_TIERESOLUTION_H
#define KOILA_ANALYSIS_TIERESOLUTION_H

#include "koila/Analysis/Storage.h"

namespace koila {

class TieResolution {
public:
  explicit TieResolution(mlir::Operation *function)
      : dims(function), storage(function, dims) {}

  /// True if the tied operation `op` may write into its operand's storage.
  bool mayReuse(mlir::Operation *op) const { return storage.mayReuse(op); }

private:
  DimAnalysis dims;
  StorageAnalysis storage;
};

} // namespace koila

#endif // KOILA_ANALYSIS_TIERESOLUTION_H
