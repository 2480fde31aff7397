//===- ViewReshapeShapes.cpp - Other extents over the same elements -------===//

#include "../Rules/ViewRules.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

/// `count` elements on one side and `open` ones on the other can only be equal
/// at one value of the symbols in `open`: an error that says which. That of
/// the batch is a number that tracing wrote into the program.
static LogicalResult emitHoldsForOneValue(ShapeRule &rule, DimExpr sizes,
                                          DimExpr operand, int64_t count,
                                          DimExpr open) {
  std::string name;
  open.forEachSymbol([&](DimSymbol symbol) { name = symbol.getName().str(); });
  auto factor = open.getMultipleOf(name);
  // An expression such as min(1, B) may be the number for more than one value.
  if (!factor)
    return success();
  InFlightDiagnostic error = rule.emitError();
  error << "sizes hold " << sizes.str() << " elements, the operand "
        << (count % *factor ? "has " : "") << operand.str();
  if (count % *factor)
    return error;
  std::string value = std::to_string(count / *factor);
  bool isBatch = rules::getBatchName(rule.getOp()) == name;
  return error << ": " << (isBatch ? "a batch" : "an extent '" + name + "'")
               << " of " << value << " was baked in by tracing; re-trace with "
               << "a dynamic " << (isBatch ? "batch" : "extent")
               << ", or analyse at " << name << "=" << value
               << " only (--input with " << name << "=" << value << ")";
}

/// Whether as many elements as `sizes` hold are those of the operand.
static LogicalResult checkCount(ShapeRule &rule, DimExpr sizes,
                                DimExpr operand) {
  DimExpr held = rules::substituteFixed(rule.getOp(), sizes);
  DimExpr there = rules::substituteFixed(rule.getOp(), operand);
  if (proveEqual(held, there) == TriBool::No)
    return rule.emitError() << "sizes hold " << held.str()
                            << " elements, the operand has " << there.str();
  auto heldCount = held.getConstant(), thereCount = there.getConstant();
  // Open on both sides: B*12 is never B*6. Symbols are one or more.
  if (!heldCount && !thereCount && !(held - there).hasLocalSymbol() &&
      (proveAtMost(held + 1, there) == TriBool::Yes ||
       proveAtMost(there + 1, held) == TriBool::Yes))
    return rule.emitError() << "sizes hold " << held.str()
                            << " elements, the operand has " << there.str();
  if (heldCount.has_value() == thereCount.has_value())
    return success();
  DimExpr open = heldCount ? there : held;
  if (open.hasLocalSymbol())
    return success();
  return emitHoldsForOneValue(rule, sizes, operand,
                              heldCount ? *heldCount : *thereCount, open);
}

/// Puts in what is left for a size of -1, and compares the products. An
/// unknown `total` or size leaves unknown extents. Source: infer_size_impl in
/// aten/src/ATen/InferSize.h.
static FailureOr<SmallVector<DimExpr>>
resolveSizes(ShapeRule &rule, DimExpr total, ArrayRef<DimExpr> sizes) {
  SmallVector<DimExpr> dims(sizes);
  std::optional<size_t> inferred, unknown;
  DimExpr known = rule.constant(1);
  for (auto [index, size] : llvm::enumerate(sizes)) {
    if (!size) {
      unknown = index;
      continue;
    }
    auto constant = size.getConstant();
    if (constant && *constant == -1) {
      if (inferred)
        return rule.emitError() << "only one size can be -1";
      inferred = index;
      dims[index] = {};
      continue;
    }
    if (constant && *constant < 0)
      return rule.emitError() << "size " << *constant << " is negative";
    known = known * size;
  }
  if (unknown || !total)
    return dims;
  if (!inferred) {
    if (failed(checkCount(rule, known, total)))
      return failure();
    return dims;
  }
  auto totalCount = total.getConstant(), knownCount = known.getConstant();
  if (knownCount && *knownCount == 0)
    return rule.emitError() << "a size of -1 beside one of 0 can be anything";
  if (totalCount && knownCount && *totalCount % *knownCount != 0)
    return rule.emitError() << "cannot split " << *totalCount
                            << " elements into groups of " << *knownCount;
  dims[*inferred] = total.floorDiv(known);
  return dims;
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

/// A polynomial over symbols that the user named. Two of these that differ are
/// not the same extent; other expressions may be.
static bool isPlain(DimExpr expr) {
  return expr &&
         llvm::all_of(expr.getAttr().getMonomials(), [](ArrayAttr monomial) {
           return llvm::all_of(monomial, [](Attribute atom) {
             auto symbol = dyn_cast<DimSymbol>(atom);
             return symbol && symbol.isNamed();
           });
         });
}

static TensorInfo substitute(TensorInfo info,
                             llvm::function_ref<DimExpr(DimSymbol)> by) {
  for (auto *list : {&info.dims, &info.strides})
    if (*list)
      for (DimExpr &expr : **list)
        if (expr)
          expr = expr.substitute(by);
  return info;
}

/// The same with symbols that are two or more: at an extent of one the strides
/// do not matter, and what is a copy elsewhere may be a view.
static TensorInfo raiseSymbols(TensorInfo info) {
  return substitute(std::move(info), [](DimSymbol symbol) {
    return symbol.isLocal() ? DimExpr() : DimExpr::symbol(symbol) + 1;
  });
}

/// As computeViewStrides; a symbol with only one value may be met as a number.
static ViewStrides getViewStrides(Operation *op, const TensorInfo &info,
                                  const TensorInfo &result) {
  ViewStrides view = computeViewStrides(info, *result.dims);
  if (view.possible == TriBool::Yes)
    return view;
  TensorInfo from = rules::substituteFixed(op, info);
  TensorInfo to = rules::substituteFixed(op, result);
  view = computeViewStrides(from, *to.dims);
  if (view.possible == TriBool::Unknown &&
      computeViewStrides(raiseSymbols(from), *raiseSymbols(to).dims).possible ==
          TriBool::No)
    view.possible = TriBool::No;
  if (view.possible == TriBool::No && !(llvm::all_of(*info.dims, isPlain) &&
                                        llvm::all_of(*result.dims, isPlain)))
    view.possible = TriBool::Unknown;
  return view;
}

/// The only symbol in the extents and strides, if an analysis made it and each
/// expression is a polynomial in it; else null.
static DimSymbol findOnlyLocal(ArrayRef<const TensorInfo *> of) {
  llvm::SmallSetVector<DimSymbol, 2> symbols;
  bool isPolynomial = true;
  for (const TensorInfo *info : of)
    for (auto *list : {&info->dims, &info->strides})
      for (DimExpr expr : *list ? ArrayRef(**list) : ArrayRef<DimExpr>())
        for (ArrayAttr monomial : expr.getAttr().getMonomials())
          for (Attribute atom : monomial) {
            auto symbol = dyn_cast<DimSymbol>(atom);
            isPolynomial &= bool(symbol);
            if (symbol)
              symbols.insert(symbol);
          }
  if (!isPolynomial || symbols.size() != 1 || symbols.front().isNamed())
    return {};
  return symbols.front();
}

/// Whether a reshape of `info` is a view. The size of a tile may be one, where
/// strides do not matter: a copy is one for more and for one. (Where it is none
/// there is nothing to copy.)
static TriBool isReshapeView(Operation *op, const TensorInfo &info,
                             const TensorInfo &result) {
  TriBool possible = getViewStrides(op, info, result).possible;
  auto isKnown = [](const auto &list) {
    return list && llvm::all_of(*list, [](DimExpr expr) { return bool(expr); });
  };
  if (possible != TriBool::Unknown || !isKnown(info.dims) ||
      !isKnown(info.strides) || !isKnown(result.dims))
    return possible;
  TensorInfo to;
  to.dims = result.dims;
  DimSymbol local = findOnlyLocal({&info, &to});
  if (!local)
    return possible;
  for (DimExpr value :
       {DimExpr::constant(op->getContext(), 1), DimExpr::symbol(local) + 1}) {
    auto by = [&](DimSymbol symbol) {
      return symbol == local ? value : DimExpr();
    };
    if (computeViewStrides(substitute(info, by), *substitute(to, by).dims)
            .possible != TriBool::No)
      return possible;
  }
  return TriBool::No;
}

/// Sets the result: `self` with these extents.
static LogicalResult setReshaped(ShapeRule &rule, const TensorInfo &info,
                                 ArrayRef<DimExpr> dims,
                                 rules::ReshapeLayout layout) {
  TensorInfo result;
  result.dims.emplace(dims.begin(), dims.end());
  result.elementType = info.elementType;
  bool complete = llvm::all_of(dims, [](DimExpr dim) { return bool(dim); });
  ViewStrides view = getViewStrides(rule.getOp(), info, result);
  bool isView = layout == rules::ReshapeLayout::View;
  if (isView && view.possible == TriBool::No)
    return rule.emitError() << "the strides of the operand do not allow a view "
                            << "of these sizes; a reshape would copy";
  if (complete &&
      (layout == rules::ReshapeLayout::Contiguous ||
       info.isContiguous() == TriBool::Yes ||
       (!isView && isReshapeView(rule.getOp(), info, result) == TriBool::No)))
    result = TensorInfo::contiguous(dims, info.elementType);
  else if (view.possible == TriBool::Yes)
    result.strides = view.strides;
  rule.setResult(0, result);
  return success();
}

LogicalResult rules::inferReshape(ShapeRule &rule, Value self,
                                  const Sizes &sizes, ReshapeLayout layout) {
  TensorInfo info = rule.tensor(self);
  if (!sizes) {
    setUnknownRank(rule, info);
    return success();
  }
  DimExpr total =
      info.hasRank() ? product(rule.getContext(), *info.dims) : DimExpr();
  FailureOr<SmallVector<DimExpr>> dims = resolveSizes(rule, total, *sizes);
  if (failed(dims))
    return failure();
  return setReshaped(rule, info, *dims, layout);
}

LogicalResult rules::inferReshape(ShapeRule &rule, Value self, StringRef sizes,
                                  ReshapeLayout layout) {
  // Import builds the marks and the operands together; a text may not. Of too
  // few operands the verifier speaks.
  auto list = rule.getOp()->getAttrOfType<DenseI64ArrayAttr>(sizes);
  size_t marked = llvm::count_if(list.asArrayRef(), ShapedType::isDynamic);
  size_t given = rule.getOp()->getNumOperands() - 1;
  if (marked < given)
    return rule.emitError() << "has more dynamic sizes than its list says";
  return inferReshape(rule, self, rule.integerList(sizes), layout);
}

LogicalResult rules::inferFlatten(ShapeRule &rule, Value self, int64_t start,
                                  int64_t end) {
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  int64_t rank = info.getRank();
  auto first = normalizeDim(start, rank), last = normalizeDim(end, rank);
  if (!first || !last)
    return emitDimOutOfRange(rule, first ? end : start, rank);
  if (*first > *last)
    return rule.emitError()
           << "start_dim " << start << " comes after end_dim " << end;
  if (rank == 0)
    return setReshaped(rule, info, rule.constant(1), ReshapeLayout::ViewOrCopy);
  if (*first == *last) {
    rule.setResult(0, info);
    return success();
  }
  ArrayRef<DimExpr> from = *info.dims;
  SmallVector<DimExpr> dims(from.take_front(*first));
  dims.push_back(
      product(rule.getContext(), from.slice(*first, *last - *first + 1)));
  dims.append(from.begin() + *last + 1, from.end());
  return setReshaped(rule, info, dims, ReshapeLayout::ViewOrCopy);
}

LogicalResult rules::inferUnflatten(ShapeRule &rule, Value self, int64_t dim) {
  TensorInfo info = rule.tensor(self);
  Sizes sizes = rule.integerList("sizes");
  if (sizes && sizes->empty())
    return rule.emitError() << "has no sizes";
  if (!info.hasRank() || !sizes) {
    setUnknownRank(rule, info);
    return success();
  }
  auto normal = normalizeDim(dim, info.getRank());
  if (!normal || info.getRank() == 0)
    return emitDimOutOfRange(rule, dim, info.getRank());
  FailureOr<SmallVector<DimExpr>> parts =
      resolveSizes(rule, info.dim(*normal), *sizes);
  if (failed(parts))
    return failure();
  ArrayRef<DimExpr> from = *info.dims;
  SmallVector<DimExpr> dims(from.take_front(*normal));
  dims.append(*parts);
  dims.append(from.begin() + *normal + 1, from.end());
  return setReshaped(rule, info, dims, ReshapeLayout::View);
}

//===----------------------------------------------------------------------===//
// Batch
//===----------------------------------------------------------------------===//

/// `number` is `divisor` times this; null if that is not known.
static DimExpr divide(DimExpr number, DimExpr divisor) {
  if (proveEqual(number, divisor) == TriBool::Yes)
    return DimExpr::constant(number.getContext(), 1);
  if (divisor.isConstant(1))
    return number;
  auto size = number.getConstant(), part = divisor.getConstant();
  if (!size || !part || *part <= 0 || *size % *part != 0)
    return {};
  return DimExpr::constant(number.getContext(), *size / *part);
}

/// Dim `index` of extent `dim`, if all samples follow each other `outer` times
/// in it; none if samples would share a row.
static std::optional<BatchFact> placeBatch(unsigned index, DimExpr dim,
                                           DimExpr outer, StringRef symbol) {
  auto factor = dim.getMultipleOf(symbol);
  if (auto count = outer.getConstant()) {
    if (!factor || *factor % *count != 0)
      return std::nullopt;
    return BatchFact::inner(index, *factor / *count, outer);
  }
  DimExpr samples = DimExpr::symbol(dim.getContext(), symbol);
  if (proveEqual(dim, outer * samples) != TriBool::Yes)
    return std::nullopt;
  return BatchFact::inner(index, 1, outer);
}

/// Row by row, `before` elements lie before the batch: the result keeps it
/// where a dim is a multiple of the batch and has as many elements before it,
/// or holds what is left of them itself.
void rules::inferReshapeBatch(BatchRule &rule, Value self, Value other) {
  BatchFact fact = rule.rows(self);
  (void)rule.rows(other);
  bool computed = hasBatchArgument(rule);
  TensorInfo from = rule.tensor(self);
  TensorInfo to = rule.tensor(rule.getOp()->getResult(0));
  if (!from.hasRank() || !to.hasRank())
    return rule.mix("a shape is unknown");
  if (!fact.isAt() && !fact.isInner())
    return rule.mix("sizes that follow the batch for a tensor that does not");
  StringRef symbol = getBatchName(rule.getOp());
  MLIRContext *context = rule.getOp()->getContext();
  DimExpr outer = fact.isInner() ? fact.outer : DimExpr::constant(context, 1);
  if (!placeBatch(0, from.dim(fact.dim), outer, symbol))
    return rule.mix("the extent of the batch dim is no multiple of the batch");
  DimExpr before =
      product(context, ArrayRef(*from.dims).take_front(fact.dim)) * outer;
  DimExpr passed = DimExpr::constant(context, 1);
  std::optional<BatchFact> found;
  DimExpr merged;
  unsigned dependent = 0;
  for (auto [index, dim] : llvm::enumerate(*to.dims)) {
    if (dim.dependsOn(symbol)) {
      ++dependent;
      merged = dim;
      DimExpr left = divide(before, passed);
      if (left && !found)
        found = placeBatch(index, dim, left, symbol);
    }
    passed = passed * dim;
  }
  if (found && dependent == 1)
    return rule.setResult(0, *found);
  if (isa<FlattenOp>(rule.getOp()))
    return rule.mix(proveEqual(before, DimExpr::constant(context, 1)) ==
                            TriBool::Yes
                        ? "flatten merges the batch with a dim of unknown "
                          "extent: " +
                              merged.str()
                        : "flatten merges the batch into the dim before it");
  rule.mix("the sizes do not keep the samples apart" +
           Twine(computed ? ""
                          : "; a literal batch size was perhaps baked in "
                            "by tracing"));
}

//===----------------------------------------------------------------------===//
// Storage
//===----------------------------------------------------------------------===//

void rules::describeReshapeStorage(StorageRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  TensorInfo result = rule.tensor(rule.getOp()->getResult(0));
  if (info.isContiguous() == TriBool::Yes)
    return rule.setAlias(0, self);
  // flatten of one dim returns its operand.
  TriBool isView = result.hasRank() ? isReshapeView(rule.getOp(), info, result)
                                    : TriBool::Unknown;
  if (info.hasRank() && result.hasRank() && *info.dims == *result.dims)
    isView = TriBool::Yes;
  if (isView == TriBool::No)
    return rule.setNew(0);
  rule.setAlias(0, self);
  if (isView == TriBool::Unknown)
    rule.setInexact(0);
}

void rules::describeRavelStorage(StorageRule &rule, Value self) {
  TriBool contiguous = rule.tensor(self).isContiguous();
  if (contiguous == TriBool::No)
    return rule.setNew(0);
  rule.setAlias(0, self);
  if (contiguous == TriBool::Unknown)
    rule.setInexact(0);
}
