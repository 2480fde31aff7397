//===- OpaqueShapes.h - Shapes of operators without a rule ------*- C++ -*-===//
//
// An operator that the dialect has no operation for may still have a kernel
// that computes shapes only. Whoever can run it, the TorchScript library for
// one, adds an OpaqueShapeSource to the dialect; shape inference then asks at
// a few values of each symbol and keeps an extent as an expression if further
// values confirm it.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_OPAQUESHAPES_H
#define KOILA_ANALYSIS_OPAQUESHAPES_H

#include "koila/Interfaces/Rules.h"
#include "mlir/IR/DialectInterface.h"

namespace koila {
class TorchOpaqueOp;

/// Runs operators on shapes.
class OpaqueShapeSource
    : public mlir::DialectInterface::Base<OpaqueShapeSource> {
public:
  explicit OpaqueShapeSource(mlir::Dialect *dialect) : Base(dialect) {}

  /// `request` is a JSON object: `callee`, for example `aten::special_i0e`, and
  /// `arguments`, each `{"tensor": {"dims", "dtype"}}` with PyTorch's code of
  /// the element type, `{"list": [...]}`, `{"device": "cpu"}`, or
  /// `{"value": literal}`. The answer is an array with, per result,
  /// `{"dims", "dtype", "contiguous"}`, `{"value": literal, "structural": bool}`
  /// (true if the sizes in the arguments do not matter), or null for what is
  /// neither; none if there is no such kernel or it refuses the arguments.
  virtual std::optional<std::string> run(llvm::StringRef request) const = 0;
};

/// Sets the results of `op` that a source knows; the others stay unknown.
void inferOpaqueShapes(TorchOpaqueOp op, ShapeRule &rule);

} // namespace koila

#endif // KOILA_ANALYSIS_OPAQUESHAPES_H
