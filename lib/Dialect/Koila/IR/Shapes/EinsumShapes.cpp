//===- EinsumShapes.cpp - Equations of einsum, and its rules --------------===//

#include "../Rules/MatmulRules.h"
#include "koila/Interfaces/Layout.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace koila;
using rules::Labels;

//===----------------------------------------------------------------------===//
// Equations
//===----------------------------------------------------------------------===//

/// Letters of one operand; `ellipsis` is how many stand before it, if any.
static std::optional<SmallVector<int>>
parseSubscripts(StringRef text, std::optional<size_t> &ellipsis) {
  SmallVector<int> letters;
  while (!text.empty()) {
    if (text.consume_front(" "))
      continue;
    if (text.consume_front("...")) {
      if (ellipsis)
        return std::nullopt;
      ellipsis = letters.size();
      continue;
    }
    if (!llvm::isAlpha(text.front()))
      return std::nullopt;
    letters.push_back(text.front());
    text = text.drop_front();
  }
  return letters;
}

std::optional<Labels> rules::parseEquation(StringRef equation,
                                           ArrayRef<int64_t> ranks,
                                           std::string &error) {
  auto fail = [&](const Twine &text) {
    error = text.str();
    return std::nullopt;
  };
  size_t arrow = equation.find("->");
  SmallVector<StringRef> parts;
  equation.take_front(arrow).split(parts, ',');
  if (parts.size() != ranks.size())
    return fail("the equation '" + equation + "' is for " +
                Twine(parts.size()) + " operands, got " + Twine(ranks.size()));
  Labels labels;
  SmallVector<int> seen;
  int most = 0;
  bool anyEllipsis = false;
  for (auto [part, rank] : llvm::zip_equal(parts, ranks)) {
    std::optional<size_t> ellipsis;
    auto letters = parseSubscripts(part, ellipsis);
    if (!letters)
      return fail("cannot read the equation '" + equation + "'");
    int64_t covered = rank - static_cast<int64_t>(letters->size());
    if (covered < 0 || (covered > 0 && !ellipsis))
      return fail("expects an operand of rank " + Twine(letters->size()) +
                  (ellipsis ? " or more" : "") + ", got " + Twine(rank));
    llvm::append_range(seen, *letters);
    // Dims of an ellipsis are counted from its end.
    SmallVector<int> dims;
    for (int64_t left = covered; left > 0; --left)
      dims.push_back(Labels::kBroadcast + left - 1);
    if (ellipsis)
      letters->insert(letters->begin() + *ellipsis, dims.begin(), dims.end());
    anyEllipsis |= ellipsis.has_value();
    most = std::max<int>(most, covered);
    labels.factors.push_back(*letters);
  }
  SmallVector<int> all;
  for (int left = most; left > 0; --left)
    all.push_back(Labels::kBroadcast + left - 1);
  if (arrow == StringRef::npos) {
    labels.result = all;
    for (int letter = 'A'; letter <= 'z'; ++letter)
      if (llvm::count(seen, letter) == 1)
        labels.result.push_back(letter);
    return labels;
  }
  std::optional<size_t> ellipsis;
  auto letters = parseSubscripts(equation.drop_front(arrow + 2), ellipsis);
  if (!letters)
    return fail("cannot read the equation '" + equation + "'");
  for (int letter : *letters)
    if (llvm::count(*letters, letter) > 1 || !llvm::is_contained(seen, letter))
      return fail("the result of '" + equation + "' has the letter '" +
                  Twine(static_cast<char>(letter)) +
                  (llvm::is_contained(seen, letter) ? "' twice"
                                                    : "', the operands not"));
  if (ellipsis)
    letters->insert(letters->begin() + *ellipsis, all.begin(), all.end());
  labels.result = *letters;
  return labels;
}

//===----------------------------------------------------------------------===//
// What einsum does step by step
//===----------------------------------------------------------------------===//

namespace {
/// An operand with a dim for every label, those of the result first.
struct Step {
  SmallVector<DimExpr> dims;
  std::optional<SmallVector<DimExpr>> strides;
  Type type;
};

/// Contracts as einsum of aten/src/ATen/native/Linear.cpp does, which decides
/// the strides and the type of the result.
class Contraction {
public:
  Contraction(ShapeRule &rule, const Labels &labels);
  LogicalResult addOperand(const TensorInfo &info, ArrayRef<int> own);
  LogicalResult run(std::optional<ArrayRef<int64_t>> path);

private:
  LogicalResult multiply(Step a, Step b, ArrayRef<int64_t> summed,
                         Step &result);
  /// The step without the dims, which are kept with one element.
  void sum(Step &step, ArrayRef<int64_t> summed);

  ShapeRule &rule;
  const Labels &labels;
  DimExpr one;
  /// Labels in the order of the dims of a step.
  SmallVector<int> order;
  SmallVector<DimExpr> extents;
  /// How many operands are left of which a dim is not one.
  SmallVector<int64_t> counts;
  SmallVector<Step> steps;
  size_t numOperands = 0;
};
} // namespace

Contraction::Contraction(ShapeRule &rule, const Labels &labels)
    : rule(rule), labels(labels), one(rule.constant(1)),
      order(labels.result.begin(), labels.result.end()) {
  for (ArrayRef<int> own : labels.factors)
    for (int label : own)
      if (!llvm::is_contained(order, label))
        order.push_back(label);
  extents.assign(order.size(), one);
  counts.assign(order.size(), 0);
}

LogicalResult Contraction::addOperand(const TensorInfo &info,
                                      ArrayRef<int> own) {
  ++numOperands;
  Step step{SmallVector<DimExpr>(order.size(), one), std::nullopt,
            info.elementType};
  if (info.strides)
    step.strides.emplace(order.size(), rule.constant(0));
  SmallVector<bool> taken(order.size(), false);
  for (auto [index, label] : llvm::enumerate(own)) {
    size_t place = llvm::find(order, label) - order.begin();
    DimExpr dim = info.dim(index);
    if (taken[place]) {
      if (proveEqual(step.dims[place], dim) == TriBool::No)
        return rule.emitError()
               << "takes the diagonal of extents " << step.dims[place].str()
               << " and " << dim.str();
      if (step.strides)
        (*step.strides)[place] =
            (*step.strides)[place] + (*info.strides)[index];
      continue;
    }
    taken[place] = true;
    step.dims[place] = dim;
    if (step.strides)
      (*step.strides)[place] = (*info.strides)[index];
    if (dim.isConstant(1))
      continue;
    ++counts[place];
    if (!extents[place].isConstant(1) &&
        proveEqual(extents[place], dim) == TriBool::No)
      return rule.emitError() << "has extents " << extents[place].str()
                              << " and " << dim.str() << " in one dim";
    if (!extents[place].getConstant() || extents[place].isConstant(1))
      extents[place] = dim;
  }
  steps.push_back(std::move(step));
  return success();
}

void Contraction::sum(Step &step, ArrayRef<int64_t> summed) {
  if (summed.empty())
    return;
  for (int64_t dim : summed)
    step.dims[dim] = one;
  step.strides.reset();
  if (step.type && isa<IntegerType>(step.type))
    step.type = IntegerType::get(rule.getContext(), 64);
}

LogicalResult Contraction::multiply(Step a, Step b, ArrayRef<int64_t> summed,
                                    Step &result) {
  int64_t rank = static_cast<int64_t>(order.size());
  SmallVector<int64_t> both, left, right;
  result.dims.clear();
  for (int64_t dim = 0; dim < rank; ++dim) {
    bool inLeft = !a.dims[dim].isConstant(1);
    bool inRight = !b.dims[dim].isConstant(1);
    DimExpr extent = inLeft && (!inRight || a.dims[dim].getConstant())
                         ? a.dims[dim]
                         : b.dims[dim];
    if (llvm::is_contained(summed, dim)) {
      result.dims.push_back(one);
      continue;
    }
    result.dims.push_back(extent);
    (inLeft && inRight ? both : inLeft ? left : right).push_back(dim);
  }
  if (summed.empty()) {
    bool dimmed = rank != 0;
    result.type = a.type && b.type
                      ? rules::promoteTypes(a.type, dimmed, b.type, dimmed)
                      : Type();
    auto info = [](const Step &step) {
      TensorInfo info;
      info.dims = step.dims;
      info.strides = step.strides;
      return info;
    };
    result.strides = computeElementwiseStrides({info(a), info(b)}, result.dims);
    return success();
  }
  if (failed(
          rules::checkOneElementType(rule, a.type, b.type, "another operand")))
    return failure();
  result.type = a.type ? a.type : b.type;
  // Where all extents that are summed are one it is an elementwise product,
  // which has to have the same strides.
  std::optional<SmallVector<DimExpr>> elementwise;
  bool mayBeElementwise = llvm::none_of(summed, [&](int64_t dim) {
    return a.dims[dim].getConstant() || b.dims[dim].getConstant();
  });
  if (mayBeElementwise) {
    auto info = [&](const Step &step) {
      TensorInfo info;
      info.dims = step.dims;
      info.strides = step.strides;
      for (int64_t dim : summed)
        (*info.dims)[dim] = one;
      return info;
    };
    elementwise = computeElementwiseStrides({info(a), info(b)}, result.dims);
    if (!elementwise) {
      result.strides.reset();
      return success();
    }
  }
  // A bmm whose result is dense in the order of these dims. The operands are
  // exchanged where all dims of the right one alone come first (measured). A
  // symbol that is one counts among the latter.
  auto exchanges = [&](bool one) -> std::optional<bool> {
    SmallVector<int64_t> mine, others(right);
    for (int64_t dim : left)
      (one && !a.dims[dim].getConstant() ? others : mine).push_back(dim);
    for (int64_t dim : both)
      if (one && !result.dims[dim].getConstant())
        others.push_back(dim);
    if (mine.empty() || others.empty())
      return std::nullopt;
    return *llvm::max_element(others) < mine.front();
  };
  auto exchanged = exchanges(false), atOne = exchanges(true);
  if (exchanged && atOne && *exchanged != *atOne) {
    result.strides.reset();
    return success();
  }
  if (exchanged.value_or(false))
    std::swap(left, right);
  SmallVector<int64_t> memory;
  for (ArrayRef<int64_t> group :
       {ArrayRef(both), ArrayRef(left), summed, ArrayRef(right)})
    llvm::append_range(memory, group);
  result.strides.emplace(rank);
  DimExpr stride = one;
  for (int64_t dim : llvm::reverse(memory)) {
    (*result.strides)[dim] = stride;
    stride = stride * result.dims[dim];
  }
  for (int64_t dim = 0; mayBeElementwise && dim < rank; ++dim)
    if (!result.dims[dim].isConstant(1) &&
        (*elementwise)[dim] != (*result.strides)[dim]) {
      result.strides.reset();
      break;
    }
  return success();
}

LogicalResult Contraction::run(std::optional<ArrayRef<int64_t>> path) {
  int64_t outRank = static_cast<int64_t>(labels.result.size());
  int64_t rank = static_cast<int64_t>(order.size());
  ArrayRef<int64_t> pairs = path.value_or(ArrayRef<int64_t>());
  // The path of a single operand is one number.
  if (path && pairs.size() != std::max<size_t>(2 * (numOperands - 1), 1))
    return rule.emitError() << "the path has " << pairs.size()
                            << " entries for " << numOperands << " operands";
  while (steps.size() > 1) {
    int64_t i = 0, j = 1;
    if (path) {
      i = std::min(pairs[0], pairs[1]);
      j = std::max(pairs[0], pairs[1]);
      pairs = pairs.drop_front(2);
      if (i < 0 || i == j || j >= static_cast<int64_t>(steps.size()))
        return rule.emitError() << "the path contracts " << i << " with " << j
                                << " of " << steps.size() << " operands";
    }
    Step a = steps[i], b = steps[j], result;
    steps.erase(steps.begin() + j);
    steps.erase(steps.begin() + i);
    SmallVector<int64_t> summed, leftOnly, rightOnly;
    for (int64_t dim = outRank; dim < rank; ++dim) {
      bool inLeft = !a.dims[dim].isConstant(1);
      bool inRight = !b.dims[dim].isConstant(1);
      if (inLeft && inRight) {
        if (--counts[dim] == 1) {
          summed.push_back(dim);
          counts[dim] = 0;
        }
      } else if (counts[dim] == 1 && (inLeft || inRight)) {
        (inLeft ? leftOnly : rightOnly).push_back(dim);
        counts[dim] = 0;
      }
    }
    sum(a, leftOnly);
    sum(b, rightOnly);
    if (failed(multiply(a, b, summed, result)))
      return failure();
    steps.insert(path ? steps.end() : steps.begin(), result);
  }
  Step &last = steps.front();
  if (numOperands == 1 && rank > outRank) {
    sum(last, llvm::to_vector(llvm::seq<int64_t>(outRank, rank)));
    // A new tensor, in rows.
    last.strides = TensorInfo::contiguous(last.dims, last.type).strides;
  }
  TensorInfo info;
  info.elementType = last.type;
  info.dims.emplace(ArrayRef(extents).take_front(outRank));
  if (last.strides)
    info.strides.emplace(ArrayRef(*last.strides).take_front(outRank));
  rule.setResult(0, info);
  return success();
}

//===----------------------------------------------------------------------===//
// einsum
//===----------------------------------------------------------------------===//

LogicalResult rules::inferEinsum(ShapeRule &rule, StringRef equation,
                                 ValueRange tensors,
                                 std::optional<ArrayRef<int64_t>> path) {
  if (tensors.empty())
    return rule.emitError() << "needs an operand";
  auto ranks = getRanks(rule, SmallVector<Value>(tensors));
  if (!ranks)
    return inferTypeOnly(rule, tensors.front());
  std::string error;
  auto labels = parseEquation(equation, *ranks, error);
  if (!labels)
    return rule.emitError() << error;
  Contraction contraction(rule, *labels);
  for (auto [tensor, own] : llvm::zip_equal(tensors, labels->factors))
    if (failed(contraction.addOperand(rule.tensor(tensor), own)))
      return failure();
  return contraction.run(path);
}

void rules::inferEinsumBatch(BatchRule &rule, StringRef equation,
                             ValueRange tensors) {
  SmallVector<Value> factors(tensors);
  auto ranks = getRanks(rule, factors);
  std::string error;
  auto labels = ranks ? parseEquation(equation, *ranks, error) : std::nullopt;
  if (!labels)
    return rule.mix("the rank of an operand is unknown");
  inferProductBatch(rule, *labels, factors);
}

void rules::describeEinsumStorage(StorageRule &rule, StringRef equation,
                                  ValueRange tensors) {
  if (tensors.size() != 1)
    return rule.setNew(0);
  auto ranks = getRanks(rule, SmallVector<Value>(tensors));
  std::string error;
  auto labels = ranks ? parseEquation(equation, *ranks, error) : std::nullopt;
  if (!labels) {
    rule.setAlias(0, tensors.front());
    return rule.setInexact(0);
  }
  if (llvm::all_of(labels->factors.front(), [&](int label) {
        return llvm::is_contained(labels->result, label);
      }))
    rule.setAlias(0, tensors.front());
}
