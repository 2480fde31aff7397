//===- SavedTensors.cpp - What autograd keeps, by the derivatives ---------===//
//
// The table is PyTorch's own: see tools/support/saved_tensors.py. Operators
// that PyTorch composes of others are not in it; their rules stand in ODS and
// in Derivatives.cpp.
//
//===----------------------------------------------------------------------===//

#include "Rules/Derivatives.h"
#include "SavedTable.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace koila;

void saved::Entry::forEach(llvm::function_ref<bool(unsigned)> wants,
                           llvm::function_ref<void(unsigned)> argument,
                           llvm::function_ref<void(unsigned)> result) const {
  for (StringRef item : llvm::split(what, ' ')) {
    unsigned index = 0, wanted = 0;
    if (item.consume_front("r")) {
      if (!item.getAsInteger(10, index))
        result(index);
      continue;
    }
    auto [place, reason] = item.split('<');
    if (place.getAsInteger(10, index))
      continue;
    if (reason.empty() || reason.getAsInteger(10, wanted) || wants(wanted))
      argument(index);
  }
}

const saved::Entry *saved::lookUp(StringRef schemaName) {
  static const llvm::StringMap<Entry> table = {
#define SAVED(name, arguments, what) {name, Entry{arguments, what}},
#include "SavedTensors.inc"
#undef SAVED
  };
  auto found = table.find(schemaName);
  return found == table.end() ? nullptr : &found->second;
}

/// The operands that are tensor argument `index` of `count`. An operator has
/// several lists or optional tensors only with segments.
static ValueRange getArgument(Operation *op, unsigned index, unsigned count) {
  OperandRange operands = op->getOperands();
  auto segments = op->getAttrOfType<DenseI32ArrayAttr>("operandSegmentSizes");
  if (!segments) {
    if (index >= operands.size())
      return {};
    return index + 1 == count ? operands.drop_front(index)
                              : operands.slice(index, 1);
  }
  if (index >= segments.size())
    return {};
  unsigned first = 0;
  for (unsigned before = 0; before < index; ++before)
    first += segments[before];
  return operands.slice(first, segments[index]);
}

static void describeEntry(DifferentiationRule &rule, StringRef schemaName,
                          bool writesSelf) {
  Operation *op = rule.getOp();
  const saved::Entry *entry = saved::lookUp(schemaName);
  if (!entry)
    return rule.setUnknown("what autograd keeps of it is not known");
  if (entry->isDetached())
    return rule.setDetached();
  auto wants = [&](unsigned index) {
    return llvm::any_of(getArgument(op, index, entry->arguments),
                        [&](Value value) { return rule.wantsGradient(value); });
  };
  auto saveArgument = [&](unsigned index) {
    if (writesSelf && index == 0)
      return rule.saveOverwritten(op->getOperand(0));
    for (Value value : getArgument(op, index, entry->arguments))
      rule.save(value);
  };
  auto saveResult = [&](unsigned index) {
    if (index < op->getNumResults())
      rule.save(op->getResult(index));
  };
  entry->forEach(wants, saveArgument, saveResult);
}

void rules::describeDerivative(DifferentiationRule &rule) {
  auto torchOp = cast<TorchOperatorInterface>(rule.getOp());
  StringRef schema =
      torchOp.isTied() ? torchOp.getInPlaceSchema() : torchOp.getTorchSchema();
  schema.consume_front("aten::");
  describeEntry(rule, schema.take_until([](char c) { return c == '('; }),
                torchOp.isTied());
}

void rules::describeDerivativeAs(DifferentiationRule &rule,
                                 StringRef schemaName) {
  if (!cast<TorchOperatorInterface>(rule.getOp()).isTied())
    return describeEntry(rule, schemaName, /*writesSelf=*/false);
  auto [name, overload] = schemaName.split('.');
  std::string twin =
      (name + "_" + (overload.empty() ? "" : ".") + overload).str();
  describeEntry(rule, twin, /*writesSelf=*/true);
}
