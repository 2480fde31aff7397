//===- AnalysisPass.h - Passes that analyse memory --------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_TRANSFORMS_ANALYSISPASS_H
#define KOILA_LIB_DIALECT_KOILA_TRANSFORMS_ANALYSISPASS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include <optional>
#include <string>

namespace koila {

/// What passes with the options of KoilaAnalysisPass (Passes.td) have in
/// common.
class AnalysisPass : public mlir::OperationPass<mlir::ModuleOp> {
public:
  static bool classof(const mlir::Pass *pass) {
    return pass->getTypeID() == getPeakMemoryID() ||
           pass->getTypeID() == getTileBatchID();
  }
  /// With `mode=train` its `loss=`, empty without one; none in other modes.
  virtual std::optional<std::string> getTrainingLoss() const = 0;

protected:
  using OperationPass::OperationPass;

private:
  // Each is in the file of its pass.
  static mlir::TypeID getPeakMemoryID();
  static mlir::TypeID getTileBatchID();
};

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_TRANSFORMS_ANALYSISPASS_H
