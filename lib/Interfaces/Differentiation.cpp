//===- Differentiation.cpp - What autograd records, and its bytes ---------===//

#include "koila/Interfaces/Differentiation.h"
#include "koila/Interfaces/BackwardRule.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"

using namespace mlir;
using namespace koila;

DifferentiationFacts
koila::getDifferentiation(Operation *op, DifferentiationRule::Wants wants,
                          DifferentiationRule::ElementTypes types) {
  DifferentiationRule rule(op, wants, types);
  if (auto interface = dyn_cast<DifferentiationInterface>(op))
    interface.describeDifferentiation(rule);
  else
    rule.setUnknown("what autograd keeps of it is not known");
  return rule.getFacts();
}

DifferentiationFacts
koila::saveDifferentiated(SavedRule &rule,
                          llvm::function_ref<int64_t(Value)> copyBytes) {
  auto types = [&](Value value) {
    auto tensor = rule.tensor(value);
    return tensor ? tensor->elementType : Type();
  };
  DifferentiationFacts facts = getDifferentiation(
      rule.getOp(), [&](Value value) { return rule.wantsGradient(value); },
      types);
  if (!facts.isKnown())
    rule.setInexact(facts.unknown);
  if (facts.isDetached)
    rule.setDetached();
  for (Value value : facts.saved) {
    int64_t bytes = copyBytes ? copyBytes(value) : 0;
    if (bytes > 0)
      rule.keep(bytes);
    else
      rule.save(value);
  }
  for (Value value : facts.overwritten) {
    // It is copied before.
    auto tensor = rule.tensor(value);
    if (!tensor) {
      rule.setInexact("the size of what is overwritten is unknown");
      continue;
    }
    rule.setTransient(rule.getTransient() + tensor->numBytes());
    rule.keep(tensor->numBytes());
  }
  return facts;
}

void koila::detail::describeUnknownBackward(BackwardRule &rule) {
  rule.setInexact("what its backward pass allocates is not known");
}

void koila::detail::describeSaved(SavedRule &rule) {
  if (saveDifferentiated(rule).savesInner)
    rule.setInexact("what autograd keeps of it is not known");
}
