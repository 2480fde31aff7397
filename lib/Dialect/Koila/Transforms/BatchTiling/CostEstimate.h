//===- CostEstimate.h - What plans go by ------------------------*- C++ -*-===//
//
// Bytes and times of a program before it is rewritten. They rank ways to write
// it, and promise nothing: what is promised is analysed once it is written.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_COSTESTIMATE_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_COSTESTIMATE_H

#include "koila/Analysis/DimAnalysis.h"
#include "koila/KernelModels/CostTable.h"

namespace koila {

class CostEstimate {
public:
  /// Of a program whose batch, `symbol`, is `batch` samples; `table` outlives
  /// this.
  CostEstimate(const DimAnalysis &dims, llvm::StringRef symbol, int64_t batch,
               const CostTable &table)
      : dims(dims), symbol(symbol), batch(batch), table(table) {}

  /// Of a tensor; 0 for one of unknown rank.
  int64_t getBytes(mlir::Value value) const;
  /// In picoseconds.
  double getTime(mlir::Operation *op) const;
  /// The same of a byte that is read or written, and of an operator by itself.
  double getByteTime() const { return table.byte; }
  double getCallTime() const { return table.call; }

private:
  /// None of unknown rank.
  llvm::SmallVector<double> getShape(mlir::Value value) const;

  const DimAnalysis &dims;
  llvm::StringRef symbol;
  int64_t batch;
  const CostTable &table;
  mutable llvm::DenseMap<mlir::Value, int64_t> bytesOf;
  mutable llvm::DenseMap<mlir::Operation *, double> timeOf;
};

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_COSTESTIMATE_H
