//===- DataExtents.cpp - Extents that data decide, in a run ---------------===//
//
// What data decide counts as the most that it can be. Sizes follow from that
// by intervals, so that each is at least what a call allocates, and the figure
// is an upper bound. What operators hold inside need not grow with an extent:
// that is looked at for smaller ones, too.
//
//===----------------------------------------------------------------------===//

#include "koila/Interfaces/DataExtents.h"
#include "PeakMemoryImpl.h"
#include "koila/Dialect/Koila/IR/DimRange.h"
#include <algorithm>

using namespace mlir;
using namespace koila;

std::optional<int64_t> PeakMemoryAnalysis::Impl::evaluateMost(DimExpr expr,
                                                              Run &run) const {
  if (auto value = evaluate(expr, run); value || !expr || run.most.empty())
    return value;
  auto range =
      evaluateRange(expr, [&](DimSymbol symbol) -> std::optional<DimRange> {
        if (auto known = run.symbols.find(symbol); known != run.symbols.end())
          return DimRange{known->second, known->second};
        if (auto most = run.most.find(symbol); most != run.most.end())
          return DimRange{0, most->second};
        return std::nullopt;
      });
  return range ? std::optional(range->most) : std::nullopt;
}

void PeakMemoryAnalysis::Impl::boundExtents(Operation &op, Run &run) const {
  auto source = dyn_cast<DataExtentInterface>(op);
  if (!source)
    return;
  auto facts = [&](Value value) { return dims.lookup(value); };
  for (OpResult result : op.getResults()) {
    const std::optional<TensorInfo> &info = dims.lookup(result).tensor;
    if (!info || !info->hasRank())
      continue;
    for (auto [dim, extent] : llvm::enumerate(*info->dims)) {
      DimSymbol symbol = extent ? extent.getSymbol() : DimSymbol();
      if (!symbol || symbol.isNamed())
        continue;
      auto bound = source.getExtentBound(result.getResultNumber(), dim, facts);
      if (!bound)
        continue;
      if (auto most = evaluateMost(bound->most, run)) {
        run.most[symbol] = std::max<int64_t>(*most, 0);
        markInexact(op,
                    bound->counted +
                        " is decided by data; the most there can be is counted",
                    run, /*isBound=*/true);
      } else if (!bound->most) {
        run.unbounded[symbol] = bound->counted;
      }
    }
  }
}

std::string PeakMemoryAnalysis::Impl::getWhyUnbounded(Value value,
                                                      Run &run) const {
  const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
  if (!info || !info->hasRank())
    return "no upper bound: not even its rank is known";
  std::string why;
  auto look = [&](DimSymbol symbol) {
    if (!why.empty() || run.symbols.contains(symbol) ||
        run.most.contains(symbol))
      return;
    auto found = run.unbounded.find(symbol);
    if (found != run.unbounded.end())
      why = (found->second + " is decided by data").str();
    else if (!symbol.isExtent())
      why = "a number that koila does not know decides it";
    else
      why = "an extent that koila does not know decides it";
  };
  for (DimExpr dim : *info->dims)
    if (dim && !evaluateMost(dim, run))
      dim.forEachSymbol(look);
  return why.empty() ? why : "no upper bound: " + why;
}

SmallVector<DimSymbol, 2> PeakMemoryAnalysis::Impl::getDecided(Operation &op,
                                                               Run &run) const {
  SmallVector<DimSymbol, 2> decided;
  if (run.most.empty())
    return decided;
  auto add = [&](Value value) {
    auto found = sizes.find(value);
    if (found == sizes.end())
      return;
    for (DimExpr dim : found->second.dims)
      if (dim)
        dim.forEachSymbol([&](DimSymbol symbol) {
          if (run.most.contains(symbol) && !llvm::is_contained(decided, symbol))
            decided.push_back(symbol);
        });
  };
  llvm::for_each(op.getOperands(), add);
  llvm::for_each(op.getResults(), add);
  return decided;
}

/// Up to here all extents are looked at.
static constexpr int64_t kMostLooked = 1024;

/// What extents below `most` are looked at: those around which kernels change
/// their ways.
static SmallVector<int64_t> getSamples(int64_t most) {
  constexpr int64_t kFew = 17;
  SmallVector<int64_t> samples;
  for (int64_t value = 0; value < std::min(most, kFew); ++value)
    samples.push_back(value);
  if (most <= kFew)
    return samples;
  for (int64_t power = 32; power / 2 < most; power *= 2)
    for (int64_t value : {power - 1, power, power + 1, power + power / 2})
      if (value < most)
        samples.push_back(value);
  samples.push_back(most - 1);
  llvm::sort(samples);
  return samples;
}

int64_t PeakMemoryAnalysis::Impl::getTransientBelow(Operation &op,
                                                    ArrayRef<DimSymbol> decided,
                                                    const SavedRule &rule,
                                                    Run &run) const {
  if (!isa<MemoryRuleInterface>(op))
    return 0;
  SmallVector<int64_t, 2> full;
  for (DimSymbol symbol : decided)
    full.push_back(run.most.lookup(symbol));
  auto lookup = [&](Value value) { return getConcrete(value, run); };
  auto wants = [&](Value value) { return wantsNow(value, run); };
  // With the results: what is held may be there before they are.
  auto count = [&](const SavedRule &rule) {
    __int128 bytes = rule.getTransient();
    if (auto born = births.find(&op); born != births.end())
      for (Value value : llvm::make_second_range(born->second)) {
        auto tensor = getConcrete(value, run);
        bytes += rule.getStorageBytes(value).value_or(
            tensor ? tensor->numBytes() : 0);
      }
    return saturate(bytes);
  };
  bool isRecorded = isRecordedNow(op, run), keepsMost = true;
  const int64_t whole = count(rule), results = whole - rule.getTransient();
  int64_t largest = whole;
  // With `only`, at the most of all others.
  auto look = [&](int64_t extent, std::optional<size_t> only) {
    for (auto [index, symbol] : llvm::enumerate(decided))
      run.most[symbol] =
          only && *only != index ? full[index] : std::min(extent, full[index]);
    SavedRule below(&op, target, lookup,
                    records() ? WorkspaceRule::Wants(wants)
                              : WorkspaceRule::Wants());
    models->describeForward(below);
    if (isRecorded)
      models->describeSaved(below);
    if (!below.isBounded())
      addDoubts(op, below, run);
    keepsMost &= below.getKept() <= rule.getKept();
    int64_t bytes = count(below);
    largest = std::max(largest, bytes);
    return bytes;
  };
  // Between samples nothing is hidden where what is held with the results lies
  // on or below a line that does not fall: through what one element and the
  // most of them take, since operators may hold what no extent decides.
  bool isEven = true;
  auto lookAlong = [&](int64_t most, std::optional<size_t> only) {
    __int128 last = whole, first = last;
    if (most > 1)
      first = look(1, only);
    isEven &= first <= last;
    for (int64_t extent : getSamples(most)) {
      __int128 held = look(extent, only);
      isEven &= extent == 0 ? held <= first
                            : (held - first) * (most - 1) <=
                                  (last - first) * (extent - 1);
    }
  };
  int64_t most = *llvm::max_element(full);
  lookAlong(most, std::nullopt);
  if (decided.size() > 1)
    for (auto [index, extent] : llvm::enumerate(full))
      lookAlong(extent, index);
  bool isProved = isEven;
  if (!isProved && decided.size() == 1 && most <= kMostLooked) {
    for (int64_t extent = 0; extent < most; ++extent)
      look(extent, std::nullopt);
    isProved = true;
  }
  if (!isProved || !keepsMost)
    markInexact(op,
                "no upper bound: what it holds inside does not grow with an "
                "extent that data decide",
                run);
  for (auto [symbol, most] : llvm::zip_equal(decided, full))
    run.most[symbol] = most;
  return largest - results;
}

void PeakMemoryAnalysis::Impl::checkStorageBelow(Operation &op,
                                                 ArrayRef<DimSymbol> decided,
                                                 Run &run) const {
  auto rule = dyn_cast<MemoryRuleInterface>(op);
  if (!rule || !run.detailed)
    return;
  auto facts = [&](Value value) { return dims.lookup(value); };
  StorageRule general(&op, facts);
  rule.describeStorage(general);
  // Nothing of what lives on whatever happens, as arguments do.
  auto bytesOf = [&](Value value) -> int64_t {
    const Storage *entry = value ? storage.lookup(value) : nullptr;
    return entry ? run.live.lookup(entry) : 0;
  };
  for (int64_t few : {0, 1}) {
    auto fixed = [&](Value value) {
      ValueInfo info = dims.lookup(value);
      auto fix = [&](SmallVector<DimExpr> &exprs) {
        for (DimExpr &expr : exprs)
          if (expr)
            expr = expr.substitute([&](DimSymbol symbol) {
              return llvm::is_contained(decided, symbol)
                         ? DimExpr::constant(op.getContext(), few)
                         : DimExpr();
            });
      };
      if (info.tensor && info.tensor->dims)
        fix(*info.tensor->dims);
      if (info.tensor && info.tensor->strides)
        fix(*info.tensor->strides);
      return info;
    };
    StorageRule here(&op, fixed);
    rule.describeStorage(here);
    for (auto [result, most, least] : llvm::zip_equal(
             op.getResults(), general.getResults(), here.getResults())) {
      if (most.kind == least.kind)
        continue;
      // A view keeps no more alive than the copy that is counted.
      bool isView = most.kind == StorageFact::Kind::New &&
                    least.kind == StorageFact::Kind::Alias;
      if (isView && bytesOf(least.operand) <= bytesOf(result))
        continue;
      markInexact(op,
                  "no upper bound: data decide whether PyTorch takes a view or "
                  "a copy",
                  run);
    }
  }
}
