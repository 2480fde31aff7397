//===- RulesViewDims.cpp - Views that go through the dims one by one ------===//

#include "koila/Dialect/Koila/IR/KoilaViewOps.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Shared
//===----------------------------------------------------------------------===//

void rules::describeViews(StorageRule &rule, Value self) {
  for (unsigned index = 0; index < rule.getOp()->getNumResults(); ++index)
    rule.setAlias(index, self);
}

LogicalResult rules::emitDimOutOfRange(const ShapeRule &rule, int64_t dim,
                                       int64_t rank) {
  return rule.emitError() << "dim " << dim << " is out of range for rank "
                          << rank;
}

void rules::setUnknownRank(ShapeRule &rule, const TensorInfo &info) {
  TensorInfo result;
  result.elementType = info.elementType;
  for (unsigned index = 0; index < rule.getOp()->getNumResults(); ++index)
    rule.setResult(index, result);
}

/// Symbols of integers that nothing is known of are `_<number>`; those of
/// extents have a name or end in `d<dim>`.
static bool isExtentSymbol(StringRef name) {
  return !name.consume_front("_") || name.contains('d') || name.empty();
}

static bool isNonNegativeAtom(Attribute atom) {
  if (auto symbol = dyn_cast<StringAttr>(atom))
    return isExtentSymbol(symbol.getValue());
  auto call = cast<DimAtomAttr>(atom);
  bool lhs = rules::isNonNegative(call.getLhs());
  bool rhs = rules::isNonNegative(call.getRhs());
  return call.getFunction().getValue() == "max" ? lhs || rhs : lhs && rhs;
}

bool rules::isNonNegative(DimExpr expr) {
  if (auto constant = expr.getConstant())
    return *constant >= 0;
  for (auto [coefficient, monomial] :
       llvm::zip_equal(expr.getAttr().getCoefficients(),
                       expr.getAttr().getMonomials())) {
    if (coefficient > 0) {
      if (!llvm::all_of(monomial, isNonNegativeAtom))
        return false;
      continue;
    }
    if (monomial.size() != 1)
      continue; // Only another term can make up for it.
    auto call = dyn_cast<DimAtomAttr>(monomial[0]);
    if (!call)
      continue;
    DimExpr atom = DimExprAttr::get(expr.getContext(), 1, monomial);
    DimExpr rest = expr + atom * -coefficient;
    DimExpr lhs = call.getLhs(), rhs = call.getRhs();
    StringRef function = call.getFunction().getValue();
    // A minimum is at most each of its sides, a quotient at most the ratio.
    if (function == "min")
      return isNonNegative(rest + lhs * coefficient) ||
             isNonNegative(rest + rhs * coefficient);
    auto divisor = rhs.getConstant();
    if (function == "floordiv" && divisor && *divisor > 0)
      return isNonNegative(rest * *divisor + lhs * coefficient);
    return false;
  }
  return llvm::all_of(expr.getAttr().getCoefficients(),
                      [](int64_t coefficient) { return coefficient >= 0; });
}

//===----------------------------------------------------------------------===//
// Another order of the dims
//===----------------------------------------------------------------------===//

static std::string outOfRange(int64_t dim, int64_t rank) {
  return ("dim " + Twine(dim) + " is out of range for rank " + Twine(rank))
      .str();
}

rules::DimOrder rules::orderPermute(int64_t rank, ArrayRef<int64_t> dims) {
  DimOrder order;
  if (static_cast<int64_t>(dims.size()) != rank)
    order.error = ("has " + Twine(dims.size()) + " dims for an operand of " +
                   "rank " + Twine(rank))
                      .str();
  for (int64_t dim : dims) {
    auto normal = normalizeDim(dim, rank);
    if (!normal)
      order.error = outOfRange(dim, rank);
    else if (llvm::is_contained(order.dims, *normal))
      order.error = ("dim " + Twine(dim) + " is named twice").str();
    if (!order.error.empty())
      return order;
    order.dims.push_back(*normal);
  }
  return order;
}

LogicalResult rules::inferPermuted(ShapeRule &rule, Value self,
                                   GetDimOrder getOrder) {
  TensorInfo info = rule.tensor(self), result;
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  DimOrder order = getOrder(info.getRank());
  if (!order.error.empty())
    return rule.emitError() << order.error;
  result.elementType = info.elementType;
  result.dims.emplace();
  if (info.strides)
    result.strides.emplace();
  for (int64_t dim : order.dims) {
    result.dims->push_back(info.dim(dim));
    if (info.strides)
      result.strides->push_back((*info.strides)[dim]);
  }
  rule.setResult(0, result);
  return success();
}

void rules::inferPermutedBatch(BatchRule &rule, Value self,
                               GetDimOrder getOrder) {
  BatchFact fact = rule.fact(self);
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  DimOrder order = getOrder(info.getRank());
  auto *found = llvm::find(order.dims, fact.dim);
  if (!fact.isAt() || !order.error.empty() || found == order.dims.end())
    return;
  fact.dim = found - order.dims.begin();
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// A part of a dim
//===----------------------------------------------------------------------===//

static DimExpr smaller(DimExpr lhs, DimExpr rhs) {
  if (rules::isNonNegative(rhs - lhs))
    return lhs;
  return rules::isNonNegative(lhs - rhs) ? rhs : lhs.min(rhs);
}

/// No less than zero.
static DimExpr clampToZero(DimExpr expr) {
  if (rules::isNonNegative(expr))
    return expr;
  DimExpr zero = DimExpr::constant(expr.getContext(), 0);
  return rules::isNonNegative(zero - expr) ? zero : expr.max(zero);
}

/// From the end if all values are.
static bool isNegative(DimExpr position) {
  return rules::isNonNegative(position * -1 - 1);
}

/// Where a slice of a dim of `extent` begins or ends; null if unknown.
static DimExpr getPosition(DimExpr position, DimExpr extent) {
  if (!position)
    return {};
  if (position.isConstant(std::numeric_limits<int64_t>::max()))
    return extent;
  if (rules::isNonNegative(position))
    return smaller(position, extent);
  return isNegative(position) ? clampToZero(extent + position) : DimExpr();
}

/// The number of positions from `start` to `end`, as Python slices them; null
/// if unknown. Source: slice in aten/src/ATen/native/TensorShape.cpp.
static DimExpr getSliceLength(DimExpr start, DimExpr end, DimExpr extent) {
  DimExpr from = getPosition(start, extent), to = getPosition(end, extent);
  if (!from || !to)
    return {};
  if (to == extent)
    return to - from;
  // Of a position from the start and one from the end, one clamp is enough:
  // x[1:-1] has max(S - 2, 0).
  if (!isNegative(start) && isNegative(end))
    return clampToZero(extent + end - start);
  return clampToZero(to - from);
}

LogicalResult rules::inferSlice(ShapeRule &rule, Value self, int64_t dim) {
  TensorInfo info = rule.tensor(self);
  DimExpr step = rule.integerArgument("step");
  if (auto constant = step ? step.getConstant() : std::nullopt;
      constant && *constant <= 0)
    return rule.emitError() << "step " << *constant << " is not positive";
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  auto normal = normalizeDim(dim, info.getRank());
  if (!normal)
    return emitDimOutOfRange(rule, dim, info.getRank());
  if (info.getRank() == 0)
    return rule.emitError() << "a tensor without dims has no slices";
  DimExpr start = rule.hasArgument("start") ? rule.integerArgument("start")
                                            : rule.constant(0);
  DimExpr end = rule.hasArgument("end")
                    ? rule.integerArgument("end")
                    : rule.constant(std::numeric_limits<int64_t>::max());
  DimExpr length = getSliceLength(start, end, info.dim(*normal));
  if (!step || !step.getConstant())
    length = {};
  else if (length && !step.isConstant(1))
    length = (length + step - 1).floorDiv(step);
  (*info.dims)[*normal] = length;
  if (!step)
    info.strides.reset();
  else if (info.strides)
    (*info.strides)[*normal] = (*info.strides)[*normal] * step;
  rule.setResult(0, info);
  return success();
}

void rules::inferSliceBatch(BatchRule &rule, Value self) {
  BatchFact fact = rule.fact(self);
  bool computed = false;
  for (Value argument : OperatorArguments(rule.getOp()).getDynamic())
    computed |= !rule.fact(argument).isFree();
  TensorInfo from = rule.tensor(self);
  TensorInfo to = rule.tensor(rule.getOp()->getResult(0));
  if (!from.hasRank() || !to.hasRank())
    return rule.mix("the rank of the operand is unknown");
  // What has the extent of the operand is the whole of the dim.
  bool whole = fact.isAt() &&
               proveEqual(from.dim(fact.dim), to.dim(fact.dim)) == Proof::Yes;
  for (auto [before, after] : llvm::zip_equal(*from.dims, *to.dims))
    whole &= !computed || before == after;
  if (whole)
    return rule.setResult(0, fact);
  rule.mix(fact.isAt() && !computed
               ? "a slice of the batch dim takes some samples and leaves others"
               : "a slice whose bounds are computed from the number of samples");
}

//===----------------------------------------------------------------------===//
// Repetition without a copy
//===----------------------------------------------------------------------===//

/// Whether only one value of a symbol that the user named makes them equal.
static bool holdsForOneValue(DimExpr extent, DimExpr size) {
  if (!size.getConstant() || extent.getConstant())
    return false;
  bool named = true;
  extent.forEachSymbol(
      [&](StringRef name) { named &= !name.starts_with("_"); });
  return named;
}

LogicalResult rules::inferExpand(ShapeRule &rule, Value self,
                                 const Sizes &sizes) {
  TensorInfo info = rule.tensor(self), result;
  if (!sizes || !info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  int64_t rank = sizes->size(), offset = rank - info.getRank();
  if (offset < 0)
    return rule.emitError() << "has " << rank << " sizes for an operand of "
                            << "rank " << info.getRank();
  result.elementType = info.elementType;
  result.dims.emplace();
  result.strides.emplace();
  DimExpr one = rule.constant(1), zero = rule.constant(0);
  for (int64_t dim = 0; dim < rank; ++dim) {
    DimExpr size = (*sizes)[dim];
    DimExpr extent = dim < offset ? one : info.dim(dim - offset);
    DimExpr stride = dim < offset ? zero
                     : info.strides ? (*info.strides)[dim - offset]
                                    : DimExpr();
    if (size && size.isConstant(-1)) {
      if (dim < offset)
        return rule.emitError()
               << "size -1 in dim " << dim << ", which the operand has not";
      size = extent;
    }
    auto wanted = size ? size.getConstant() : std::nullopt;
    auto given = extent.getConstant();
    if (wanted && *wanted < 0)
      return rule.emitError() << "size " << *wanted << " is negative";
    if (given && *given != 1) {
      if (wanted && *wanted != *given)
        return rule.emitError() << "cannot expand extent " << *given << " to "
                                << *wanted << " in dim " << dim;
      size = extent;
    } else if (size && !given && proveEqual(size, extent) != Proof::Yes &&
               holdsForOneValue(extent, size)) {
      return rule.emitError()
             << "cannot expand extent " << extent.str() << " to " << *wanted
             << " in dim " << dim << ", but for one size";
    }
    // A symbol is an extent of two or more, so the elements are there.
    if (given && *given == 1 && !(size && size.isConstant(1)))
      stride = zero;
    result.dims->push_back(size);
    if (stride && result.strides)
      result.strides->push_back(stride);
    else
      result.strides.reset();
  }
  rule.setResult(0, result);
  return success();
}

/// The symbol that is the number of samples; empty if there is none.
static StringRef getBatchSymbol(Operation *op) {
  auto module = op->getParentOfType<ModuleOp>();
  auto symbols = module ? module->getAttrOfType<ArrayAttr>(
                              KoilaDialect::kSymbolsAttr)
                        : ArrayAttr();
  if (symbols)
    for (auto symbol : symbols.getAsRange<SymbolAttr>())
      if (symbol.getBatch())
        return symbol.getName();
  return {};
}

void rules::inferExpandBatch(BatchRule &rule, Value self, Value other) {
  BatchFact fact = rule.fact(self);
  (void)rule.fact(other);
  for (Value argument : OperatorArguments(rule.getOp()).getDynamic())
    (void)rule.fact(argument);
  TensorInfo from = rule.tensor(self);
  TensorInfo to = rule.tensor(rule.getOp()->getResult(0));
  StringRef symbol = getBatchSymbol(rule.getOp());
  if (!from.hasRank() || !to.hasRank() || symbol.empty())
    return rule.mix("the rank of an operand is unknown");
  int64_t offset = to.getRank() - from.getRank();
  std::optional<BatchFact> found;
  for (auto [index, extent] : llvm::enumerate(*to.dims)) {
    if (!extent.dependsOn(symbol))
      continue;
    auto factor = extent.getMultipleOf(symbol);
    if (!factor || found)
      return rule.mix("expands to extent " + extent.str() +
                      ", so that samples meet");
    found = BatchFact::at(index, *factor);
  }
  if (!found)
    return rule.mix("expands to sizes that do not follow the batch; a literal "
                    "batch size was perhaps baked in by tracing");
  // A dim of extent one is repeated for every sample.
  if (fact.isAt() && !(found->dim == fact.dim + offset &&
                       found->factor == fact.factor))
    return rule.mix("expands the batch into another dim");
  rule.setResult(0, *found);
}
