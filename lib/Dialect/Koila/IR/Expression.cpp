//===- Expression.cpp - Operators that call others, recorded --------------===//

#include "Expression.h"
#include "SavedTable.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;

static SmallVector<ConcreteTensor> getTensors(Expression::Terms terms) {
  return SmallVector<ConcreteTensor>(terms.begin(), terms.end());
}

//===----------------------------------------------------------------------===//
// Storages
//===----------------------------------------------------------------------===//

Term Expression::add(ConcreteTensor tensor, Value operand) {
  storages.push_back({tensor.numBytes(), operand, rule.wantsGradient(operand)});
  return Term{std::move(tensor), storages.size() - 1};
}

Term Expression::read(Value value) { return add(*rule.tensor(value), value); }

Term Expression::view(Term term, ArrayRef<int64_t> dims) {
  term.dims.assign(dims.begin(), dims.end());
  return term;
}

Term Expression::allocate(ConcreteTensor tensor) {
  return add(Composition::allocate(std::move(tensor)));
}

void Expression::free(Terms terms) {
  for (const Term &term : terms) {
    const Storage &storage = storages[term.storage];
    if (!storage.operand && !storage.isSaved)
      Footprint::free(storage.bytes);
  }
}

//===----------------------------------------------------------------------===//
// Records
//===----------------------------------------------------------------------===//

void Expression::follow(Terms operands, const Term &result) {
  if (!isa<FloatType>(result.elementType))
    return;
  for (const Term &operand : operands)
    storages[result.storage].wants |= wants(operand);
}

void Expression::record(StringRef name, Terms operands, const Term &result) {
  // A result that is written counts as an operand.
  if (llvm::none_of(operands, [&](const Term &term) { return wants(term); }) ||
      !isa<FloatType>(result.elementType))
    return;
  const saved::Entry *entry = saved::lookUp(name);
  if (!entry)
    return rule.setInexact("what autograd keeps of " + name);
  if (entry->isDetached())
    return;
  entry->forEach(
      [&](unsigned index) {
        return index < operands.size() && wants(operands[index]);
      },
      [&](unsigned index) {
        if (index < operands.size())
          save(operands[index]);
      },
      [&](unsigned) { save(result); });
  follow(operands, result);
}

Term Expression::compute(StringRef name, Terms operands, Result kind,
                         Number number) {
  Term result = add(Composition::compute(getTensors(operands), kind, number));
  record(name, operands, result);
  return result;
}

void Expression::write(StringRef name, Terms operands, Number number) {
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
  Composition::write(getTensors(operands), number);
  SmallVector<Term> read(operands);
  read.front() = before;
  record(name, read, operands.front());
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Term Expression::subtractFromNumber(const Term &term) {
  Term result = allocate(term);
  write("sub_.Tensor", {result, term});
  return result;
}

Term Expression::select(const Term &mask, const Term &lhs, const Term &rhs) {
  Term result = add(Composition::select(mask, lhs, rhs));
  record("where.self", {mask, lhs, rhs}, result);
  return result;
}

Term Expression::makeRows(const Term &term) {
  if (term.contiguous)
    return term;
  Term rows = allocate(term);
  pass(getBlockBytes(term));
  follow(term, rows);
  return rows;
}

Term Expression::sum(const Term &term, std::optional<int64_t> dim,
                     bool keepdim) {
  Term result = add(Composition::sum(term, dim, keepdim));
  record("sum", term, result);
  return result;
}

Term Expression::reduce(const Term &term, int64_t reduction) {
  if (reduction == 0)
    return term;
  if (reduction == 2)
    return sum(term);
  Term result = add(mean(term));
  record("mean", term, result);
  return result;
}

Term Expression::computeDistance(const Term &lhs, const Term &rhs,
                                 bool keepdim) {
  Term difference = compute("sub.Tensor", {lhs, rhs});
  Term shifted =
      compute("add.Scalar", difference, Result::Common, Number::Float);
  Term norm = allocate(dropDim(shifted, -1, keepdim));
  record("norm.ScalarOpt_dim", shifted, norm);
  free({difference, shifted});
  return norm;
}

void Expression::finish(Terms results) {
  int64_t left = 0;
  for (const Term &result : results)
    left += result.numBytes();
  Composition::finish(left);
  if (!saved)
    return;
  for (auto [index, result] : llvm::enumerate(results)) {
    Storage &storage = storages[result.storage];
    if (storage.isSaved && !storage.operand)
      storage.operand = rule.getOp()->getResult(index);
  }
  for (const Storage &storage : storages) {
    if (!storage.isSaved)
      continue;
    if (storage.operand)
      saved->save(storage.operand);
    else
      saved->keep(storage.bytes);
  }
}

std::optional<SmallVector<Term>> footprint::readReals(Expression &steps,
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
