//===- WorkspaceRules.cpp - Operators without a workspace rule ------------===//

#include "WorkspaceRules.h"

using namespace koila;

void rules::describeUnknownWorkspace(WorkspaceRule &rule) {
  rule.setInexact("the bytes that '" + rule.getOp()->getName().getStringRef() +
                  "' holds inside itself have no rule yet");
}
