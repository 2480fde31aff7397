//===- CallSetting.h - What a program asks of its surroundings --*- C++ -*-===//

#ifndef KOILA_ANALYSIS_TRACE_CALLSETTING_H
#define KOILA_ANALYSIS_TRACE_CALLSETTING_H

#include "koila/Interfaces/Rules.h"
#include "mlir/IR/Attributes.h"
#include "mlir/IR/Operation.h"

namespace koila {

/// What the call that is analysed is like: figures are those without autocast.
struct CallSetting {
  /// None once nobody knows.
  std::optional<bool> recordsGradients = false;
  /// The type of the device that all tensors are on.
  llvm::StringRef device = "cpu";
};

/// Whether `op` turns recording on or off.
bool setsRecording(mlir::Operation *op);

/// Whether `op` enters or leaves `with torch.no_grad()`.
bool delimitsNoGrad(mlir::Operation *op);

/// What `op`, which asks on which device a tensor is or how the program is
/// called, answers in such a call; null for any other operation. `lookup` knows
/// of its operands.
mlir::Attribute
getSettingAnswer(mlir::Operation *op, const CallSetting &setting,
                 llvm::function_ref<ValueInfo(mlir::Value)> lookup);

} // namespace koila

#endif // KOILA_ANALYSIS_TRACE_CALLSETTING_H
