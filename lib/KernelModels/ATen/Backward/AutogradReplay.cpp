//===- AutogradReplay.cpp - Operators that call others, recorded ----------===//

#include "AutogradReplay.h"
#include "../../../Dialect/Koila/IR/SavedTable.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

static SmallVector<ConcreteTensor> getTensors(AutogradReplay::Terms terms) {
  return SmallVector<ConcreteTensor>(terms.begin(), terms.end());
}

//===----------------------------------------------------------------------===//
// Storages
//===----------------------------------------------------------------------===//

Term AutogradReplay::add(MadeTensor made, Value operand) {
  storages.push_back(
      {made.numBytes(), made.block, operand, rule.wantsGradient(operand)});
  return Term{std::move(made), storages.size() - 1};
}

Term AutogradReplay::read(Value value) {
  return add({*rule.tensor(value), Block()}, value);
}

Term AutogradReplay::view(Term term, ArrayRef<int64_t> dims) {
  // Strides are those of the shape that it had.
  if (ArrayRef(term.dims) != dims)
    term.strides.reset();
  term.dims.assign(dims.begin(), dims.end());
  return term;
}

Term AutogradReplay::allocate(ConcreteTensor tensor) {
  return add(OpReplay::allocate(std::move(tensor)));
}

void AutogradReplay::free(Terms terms) {
  for (const Term &term : terms) {
    const Storage &storage = storages[term.storage];
    if (!storage.operand && !storage.isSaved)
      AllocationTrace::free(storage.block);
  }
}

//===----------------------------------------------------------------------===//
// Records
//===----------------------------------------------------------------------===//

void AutogradReplay::follow(Terms operands, const Term &result) {
  if (!isa<FloatType>(result.elementType))
    return;
  for (const Term &operand : operands)
    storages[result.storage].wants |= wants(operand);
}

void AutogradReplay::record(StringRef name, Terms operands, const Term &result,
                            std::optional<int64_t> dim) {
  // A result that is written counts as an operand.
  if (llvm::none_of(operands, [&](const Term &term) { return wants(term); }) ||
      !isa<FloatType>(result.elementType))
    return;
  const saved::Entry *entry = saved::lookUp(name);
  if (!entry)
    return rule.setInexact("what autograd keeps of " + name);
  if (entry->isDetached())
    return;
  Node node{name, SmallVector<Term, 3>(operands), {}, result, dim, {}};
  for (const Term &operand : operands)
    node.wanted.push_back(wants(operand));
  auto keep = [&](const Term &term) {
    save(term);
    if (!llvm::is_contained(node.saved, term.storage))
      node.saved.push_back(term.storage);
  };
  entry->forEach(
      [&](unsigned index) {
        return index < operands.size() && wants(operands[index]);
      },
      [&](unsigned index) {
        if (index < operands.size())
          keep(operands[index]);
      },
      [&](unsigned) { keep(result); });
  if (backward)
    nodes.push_back(std::move(node));
  follow(operands, result);
}

Term AutogradReplay::compute(StringRef name, Terms operands, Result kind,
                             Number number) {
  Term result = add(OpReplay::compute(getTensors(operands), kind, number));
  record(name, operands, result);
  return result;
}

void AutogradReplay::write(StringRef name, Terms operands, Number number) {
  // What is overwritten and saved is copied before.
  Term before = operands.front();
  const saved::Entry *entry = saved::lookUp(name);
  bool isRecorded =
      llvm::any_of(operands, [&](const Term &term) { return wants(term); });
  bool isCopied = false;
  if (entry && isRecorded)
    entry->forEach([&](unsigned index) { return wants(operands[index]); },
                   [&](unsigned index) { isCopied |= index == 0; },
                   [](unsigned) {});
  if (isCopied) {
    bool wanted = wants(before);
    before = allocate(before);
    storages[before.storage].wants = wanted;
  }
  OpReplay::write(getTensors(operands), number);
  SmallVector<Term> read(operands);
  read.front() = before;
  size_t count = nodes.size();
  record(name, read, operands.front());
  // The gradient is that of the tensor that was written.
  if (nodes.size() > count)
    nodes.back().operands.front().storage = operands.front().storage;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Term AutogradReplay::subtractFromNumber(const Term &term) {
  Term result = allocate(term);
  write("sub_.Tensor", {result, term});
  return result;
}

Term AutogradReplay::select(const Term &mask, const Term &lhs,
                            const Term &rhs) {
  Term result = add(OpReplay::select(mask, lhs, rhs));
  record("where.self", {mask, lhs, rhs}, result);
  return result;
}

Term AutogradReplay::contiguous(const Term &term) {
  if (term.contiguous)
    return term;
  Term rows = allocate(term);
  allocateTemporary(getBlockBytes(rule, term));
  follow(term, rows);
  return rows;
}

Term AutogradReplay::sum(const Term &term, std::optional<int64_t> dim,
                         bool keepdim) {
  Term result = add(OpReplay::sum(term, dim, keepdim));
  record("sum", term, result, dim);
  return result;
}

Term AutogradReplay::reduce(const Term &term, int64_t reduction) {
  if (reduction == 0)
    return term;
  if (reduction == 2)
    return sum(term);
  Term result = add(OpReplay::mean(term));
  record("mean", term, result);
  return result;
}

Term AutogradReplay::computeDistance(const Term &lhs, const Term &rhs,
                                     bool keepdim) {
  Term difference = compute("sub.Tensor", {lhs, rhs});
  Term shifted =
      compute("add.Scalar", difference, Result::Common, Number::Float);
  Term norm = allocate(dropDim(shifted, -1, keepdim));
  record("norm.ScalarOpt_dim", shifted, norm, -1);
  free({shifted, difference});
  return norm;
}

void AutogradReplay::finish(Terms results) {
  int64_t left = 0;
  for (const Term &result : results)
    left += result.numBytes();
  for (size_t index = storages.size(); index-- > 0;) {
    const Storage &storage = storages[index];
    bool isResult = llvm::any_of(
        results, [&](const Term &result) { return result.storage == index; });
    if (!isResult && !storage.isSaved && !storage.block.isEmpty() &&
        isLeft(storage.block))
      AllocationTrace::free(storage.block);
  }
  if (backward)
    return describeExpressionBackward(*backward, *this, results);
  OpReplay::finish(left);
  if (!saved)
    return;
  for (auto [index, result] : llvm::enumerate(results)) {
    Storage &storage = storages[result.storage];
    if (storage.isSaved && !storage.operand)
      storage.operand = rule.getOp()->getResult(index);
  }
  for (size_t index : savedOrder) {
    const Storage &storage = storages[index];
    if (storage.operand)
      saved->save(storage.operand);
    else
      saved->keep(storage.block);
  }
}

std::optional<SmallVector<Term>> kernels::readReals(AutogradReplay &steps,
                                                    WorkspaceRule &rule,
                                                    ValueRange values,
                                                    bool needsStrides) {
  if (!getRealTensors(rule, values, needsStrides))
    return std::nullopt;
  SmallVector<Term> terms;
  for (Value value : values)
    terms.push_back(steps.read(value));
  return terms;
}
