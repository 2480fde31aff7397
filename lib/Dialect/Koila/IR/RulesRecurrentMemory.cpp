//===- RulesRecurrentMemory.cpp - What recurrent cells hold inside --------===//
//
// Source: native/RNN.cpp. A layer of float32 LSTM goes to oneDNN.
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"
#include "koila/Dialect/Koila/IR/KoilaAttentionOps.h"
#include "koila/Dialect/Koila/IR/OperatorRules.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;

/// The bytes of one state, if the cell reads plain matrices.
static std::optional<int64_t> getStateBytes(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto state = rule.tensor(op->getResult(0));
  if (!state)
    return std::nullopt;
  for (Value value : op->getOperands()) {
    auto operand = rule.tensor(value);
    if (!operand || !operand->contiguous ||
        !(operand->elementType.isF32() || operand->elementType.isF64()))
      return std::nullopt;
  }
  return state->numBytes();
}

void rules::describeRecurrentWorkspace(WorkspaceRule &rule) {
  // The gates of the input and those of the state are alive together; what a
  // cell makes of them is less, but for the reset state of a GRU.
  int64_t states = llvm::TypeSwitch<Operation *, int64_t>(rule.getOp())
                       .Case<LstmCellOp>([](auto) { return 2 * 4 - 2; })
                       .Case<GruCellOp>([](auto) { return 2 * 3 + 1; })
                       .Case<RnnTanhCellOp, RnnReluCellOp>(
                           [](auto) { return 2; })
                       .Default([](Operation *) { return 0; });
  if (states == 0)
    return describeUnknownWorkspace(rule);
  auto bytes = getStateBytes(rule);
  if (!bytes)
    return rule.setInexact("a cell of strided operands or of a half type");
  rule.setTransient(states * *bytes);
}
