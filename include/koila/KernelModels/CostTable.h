//===- CostTable.h - How long kernels take ----------------------*- C++ -*-===//
//
// Times by which plans choose what to run again. They promise nothing: a plan
// by other times is as right, and takes the bytes that its analysis says.
// `koila bench --calibrate` measures them on the machine at hand.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_COSTTABLE_H
#define KOILA_KERNELMODELS_COSTTABLE_H

#include "koila/Interfaces/KernelWork.h"
#include "llvm/Support/Error.h"
#include <string>

namespace koila {

/// All times are picoseconds.
struct CostTable {
  /// Of one operation in kernels of `family`.
  double getOperation(KernelFamily family) const;

  double product, convolution, depthwise, pooling;
  /// Of a byte that is read or written.
  double byte;
  /// Of an operator, however small.
  double call;
  /// The machine that they are of, for reports; empty: those that koila comes
  /// with.
  std::string machine;

  /// Reads what `koila bench --calibrate` has written.
  static llvm::Expected<CostTable> load(llvm::StringRef path);
  static llvm::Expected<CostTable> parse(llvm::StringRef json);
  static const CostTable &getShipped();
};

} // namespace koila

#endif // KOILA_KERNELMODELS_COSTTABLE_H
