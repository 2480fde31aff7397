//===- RulesLossMemory.cpp - ----------------------------------------------===//

#include "koila/Dialect/Koila/IR/OperatorRules.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"

using namespace mlir;
using namespace koila;

void rules::describeLossWorkspace(WorkspaceRule &rule) {
  describeUnknownWorkspace(rule);
}
