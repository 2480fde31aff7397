//===- SortShapes.cpp - Rules of unique, histc, searchsorted, bucketize ---===//

#include "../Rules/ReductionRules.h"
#include "koila/Dialect/Koila/IR/SortOps.h"

using namespace mlir;
using namespace koila;

void rules::mixAll(BatchRule &rule) {
  // Every operand is asked: this holds wherever the batch is.
  for (Value operand : rule.getOp()->getOperands())
    (void)rule.fact(operand);
  rule.mix(getOperatorName(rule.getOp()) + " of all elements mixes samples");
}

/// A row whose length data decides.
static TensorInfo getRowOfData(MLIRContext *context, Type type) {
  TensorInfo info;
  info.dims.emplace(1);
  info.strides.emplace({DimExpr::constant(context, 1)});
  info.elementType = type;
  return info;
}

LogicalResult rules::inferUnique(ShapeRule &rule, std::optional<int64_t> dim,
                                 bool inverse, bool counts) {
  MLIRContext *context = rule.getContext();
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  Type index = IntegerType::get(context, 64);
  TensorInfo none = TensorInfo::contiguous({rule.constant(0)}, index);
  TensorInfo unknown;
  unknown.elementType = index;
  if (!dim) {
    TensorInfo places = unknown;
    if (self.hasRank())
      places = TensorInfo::contiguous(*self.dims, index);
    rule.setResult(0, getRowOfData(context, self.elementType));
    rule.setResult(1, inverse ? places : none);
    rule.setResult(2, counts ? getRowOfData(context, index) : none);
    return success();
  }
  // unique_dim gives places and counts whether asked for or not.
  rule.setResult(2, getRowOfData(context, index));
  TensorInfo values;
  values.elementType = self.elementType;
  rule.setResult(0, values);
  rule.setResult(1, unknown);
  if (!self.hasRank())
    return success();
  auto along = normalizeDim(*dim, self.getRank());
  if (!along || self.getRank() == 0)
    return rule.emitError()
           << "dim " << *dim << " is out of range for rank " << self.getRank();
  for (auto [index, extent] : llvm::enumerate(*self.dims))
    if (extent.isConstant(0) && static_cast<int64_t>(index) != *along)
      return rule.emitError()
             << "the slices along dim " << *along << " have no elements";
  // Computed with that dim first, then moved back
  // (aten/src/ATen/native/Unique.cpp).
  SmallVector<DimExpr> rest(*self.dims);
  rest[*along] = rule.constant(1);
  values = TensorInfo::contiguous(rest, self.elementType);
  (*values.strides)[*along] = product(context, rest);
  (*values.dims)[*along] = DimExpr();
  rule.setResult(0, values);
  rule.setResult(1, TensorInfo::contiguous({self.dim(*along)}, index));
  return success();
}

LogicalResult rules::inferHistogram(ShapeRule &rule, int64_t bins) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  if (bins <= 0)
    return rule.emitError() << "has " << bins << " bins";
  auto getNumber = [&](StringRef name) -> std::optional<double> {
    Attribute attr = rule.getOp()->getAttr(name);
    if (auto number = dyn_cast<FloatAttr>(attr))
      return number.getValueAsDouble();
    if (auto number = dyn_cast<IntegerAttr>(attr))
      return number.getInt();
    return std::nullopt;
  };
  auto low = getNumber("min"), high = getNumber("max");
  if (low && high && *low > *high)
    return rule.emitError() << "max is less than min";
  rule.setResult(
      0, TensorInfo::contiguous({rule.constant(bins)}, self.elementType));
  return success();
}

//===----------------------------------------------------------------------===//
// Searching; aten/src/ATen/native/BucketizationUtils.h
//===----------------------------------------------------------------------===//

LogicalResult rules::inferSearch(ShapeRule &rule, Value boundaries,
                                 Value values, Value sorter, bool manyRows) {
  Operation *op = rule.getOp();
  TensorInfo rows = rule.tensor(boundaries), found = rule.tensor(values);
  if (auto side = op->getAttrOfType<StringAttr>("side")) {
    bool right = op->getAttrOfType<BoolAttr>("right").getValue();
    if (side != "left" && side != "right")
      return rule.emitError() << "side is '" << side.getValue() << "'";
    if (right && side == "left")
      return rule.emitError() << "side is 'left', and right is true";
  }
  if (!values)
    found = TensorInfo::contiguous({}, {});
  if (rows.hasRank()) {
    if (rows.getRank() == 0)
      return rule.emitError() << "the boundaries have no dim";
    if (rows.getRank() > 1 && (!manyRows || !values))
      return rule.emitError() << "the boundaries have rank " << rows.getRank();
    bool fits = !found.hasRank() || rows.getRank() == 1 ||
                rows.getRank() == found.getRank();
    for (int64_t dim = 0; fits && found.hasRank() && dim + 1 < rows.getRank();
         ++dim)
      fits = proveEqual(rows.dim(dim), found.dim(dim)) != TriBool::No;
    if (!fits)
      return rule.emitError()
             << "the boundaries must be one row, or have the leading extents "
                "of the values";
  }
  if (TensorInfo order = rule.tensor(sorter); sorter) {
    if (order.elementType && !order.elementType.isInteger(64))
      return rule.emitError() << "the sorter is of " << order.elementType;
    bool fits = !order.hasRank() || !rows.hasRank() ||
                order.getRank() == rows.getRank();
    for (int64_t dim = 0;
         fits && order.hasRank() && rows.hasRank() && dim < rows.getRank();
         ++dim)
      fits = proveEqual(rows.dim(dim), order.dim(dim)) != TriBool::No;
    if (!fits)
      return rule.emitError() << "the sorter must have the boundaries' shape";
  }
  bool narrow = op->getAttrOfType<BoolAttr>("out_int32").getValue();
  Type type = IntegerType::get(rule.getContext(), narrow ? 32 : 64);
  TensorInfo result;
  result.elementType = type;
  if (found.hasRank())
    result = TensorInfo::contiguous(*found.dims, type);
  rule.setResult(0, result);
  return success();
}

void rules::inferSearchBatch(BatchRule &rule, Value boundaries, Value values,
                             Value sorter) {
  BatchFact rows = rule.fact(boundaries), found = rule.fact(values);
  if (sorter && !(rule.fact(sorter) == rows))
    return rule.mix("the sorter does not carry the batch as its boundaries do");
  TensorInfo info = rule.tensor(boundaries);
  if (!info.hasRank())
    return rule.mix("the rank of the boundaries is unknown");
  if (rows.isFree()) {
    // One row serves all values; rows of their own fix the leading dims.
    if (info.getRank() > 1 && found.dim < info.getRank() - 1)
      return rule.mix("the boundaries do not carry the batch");
    return rule.setAll(found);
  }
  if (!rows.isAt() || rows.dim == info.getRank() - 1)
    return rule.mix("the boundaries are samples; a search over the batch dim "
                    "mixes samples");
  if (!(rows == found))
    return rule.mix("the boundaries carry the batch where the values do not");
  rule.setAll(found);
}
