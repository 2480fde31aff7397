//===- FactoryShapes.cpp - Rules of tensors from extents ------------------===//
//
// Source: aten/src/ATen/native/TensorFactories.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Rules/FactoryRules.h"
#include "../Rules/NewTensors.h"

using namespace mlir;
using namespace koila;
using rules::MemoryFormat;

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

bool rules::isPlain(Operation *op) {
  auto layout = op->getAttrOfType<IntegerAttr>("layout");
  auto pinned = op->getAttrOfType<BoolAttr>("pin_memory");
  return !(layout && layout.getInt() != 0) && !(pinned && pinned.getValue());
}

Type rules::getDtype(Operation *op, Type otherwise) {
  auto code = op->getAttrOfType<IntegerAttr>("dtype");
  return code ? getTypeForScalarTypeCode(op->getContext(), code.getInt())
              : otherwise;
}

Type rules::getDtype(const ShapeRule &rule, Type otherwise) {
  Operation *op = rule.getOp();
  if (!OperatorArguments(op).getDynamic("dtype"))
    return getDtype(op, otherwise);
  DimExpr code = rule.integerArgument("dtype");
  auto number = code ? code.getConstant() : std::nullopt;
  return number ? getTypeForScalarTypeCode(op->getContext(), *number) : Type();
}

Type rules::getDefaultType(Type number) {
  return number && number.isF64() ? Float32Type::get(number.getContext())
                                  : number;
}

LogicalResult rules::checkExtents(const ShapeRule &rule,
                                  ArrayRef<DimExpr> dims) {
  for (auto [index, dim] : llvm::enumerate(dims)) {
    auto extent = dim ? dim.getConstant() : std::nullopt;
    if (extent && *extent < 0)
      return rule.emitError()
             << "extent " << *extent << " of dim " << index << " is negative";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Of given extents
//===----------------------------------------------------------------------===//

/// The strides that `stride` gives.
static LogicalResult setGivenStrides(const ShapeRule &rule, TensorInfo &info) {
  info.strides = rule.integerList("stride");
  if (!info.strides)
    return success();
  if (info.strides->size() != info.dims->size())
    return rule.emitError() << info.dims->size() << " extents with "
                            << info.strides->size() << " strides";
  for (DimExpr stride : *info.strides) {
    auto constant = stride ? stride.getConstant() : std::nullopt;
    if (constant && *constant < 0)
      return rule.emitError() << "stride " << *constant << " is negative";
  }
  if (llvm::any_of(*info.strides, [](DimExpr stride) { return !stride; }))
    info.strides.reset();
  return success();
}

/// The strides of dims that lie in memory in the order `physical_layout`.
static LogicalResult setPermutedStrides(const ShapeRule &rule,
                                        ArrayRef<int64_t> order,
                                        TensorInfo &info) {
  int64_t rank = info.getRank();
  if (static_cast<int64_t>(order.size()) != rank)
    return rule.emitError() << rank << " extents with a physical layout of "
                            << order.size() << " dims";
  SmallVector<DimExpr> strides(rank);
  DimExpr next = rule.constant(1);
  for (int64_t dim : llvm::reverse(order)) {
    if (dim < 0 || dim >= rank)
      return rule.emitError()
             << "dim " << dim << " is out of range for rank " << rank;
    if (strides[dim])
      return rule.emitError() << "dim " << dim << " is given twice";
    if (!next)
      return success();
    strides[dim] = next;
    next = info.dim(dim) ? next * info.dim(dim) : DimExpr();
  }
  info.strides = strides;
  return success();
}

LogicalResult rules::inferSized(ShapeRule &rule, Value self) {
  Operation *op = rule.getOp();
  TensorInfo info;
  Type otherwise = Float32Type::get(rule.getContext());
  if (self)
    otherwise = rule.tensor(self).elementType;
  else if (rule.hasArgument("fill_value"))
    otherwise = getDefaultType(rule.numberType("fill_value"));
  info.elementType = getDtype(rule, otherwise);
  info.dims = rule.integerList("size");
  if (!info.hasRank()) {
    rule.setResult(0, info);
    return success();
  }
  if (failed(checkExtents(rule, *info.dims)))
    return failure();
  if (rule.hasArgument("stride")) {
    if (failed(setGivenStrides(rule, info)))
      return failure();
  } else if (auto order =
                 op->getAttrOfType<DenseI64ArrayAttr>("physical_layout")) {
    if (failed(setPermutedStrides(rule, order.asArrayRef(), info)))
      return failure();
  } else {
    // Without an operand there is nothing to preserve.
    MemoryFormat format = rule.hasArgument("memory_format")
                              ? getMemoryFormat(op)
                              : MemoryFormat::Contiguous;
    if (format == MemoryFormat::Preserve)
      return rule.emitError() << "a new tensor has no format to preserve";
    if (failed(setStrides(rule, info, format)))
      return failure();
  }
  rule.setResult(0, info);
  return success();
}

void rules::mixNumberOfSamples(BatchRule &rule) {
  for (Value operand : rule.getOp()->getOperands())
    (void)rule.fact(operand);
  rule.mix("the number of samples becomes values of the tensor; a tile has "
           "another number");
}

void rules::inferSizedBatch(BatchRule &rule, Value self) {
  // Of `self` only the element type counts.
  (void)rule.fact(self);
  for (StringRef name : {"fill_value", "low", "high"})
    if (!rule.argumentFact(name).isFree())
      return mixNumberOfSamples(rule);
  auto count = [&](StringRef name) {
    auto list = rule.getOp()->getAttrOfType<DenseI64ArrayAttr>(name);
    return list ? list.size() : 0;
  };
  for (int64_t index = 0; index < count("stride"); ++index)
    if (!rule.argumentFact("stride", index).isFree())
      return rule.mix("the strides follow the number of samples");
  BatchFact found = BatchFact::free();
  auto sizes = rule.getOp()->getAttrOfType<DenseI64ArrayAttr>("size");
  unsigned marked = 0;
  for (auto [index, size] : llvm::enumerate(sizes.asArrayRef())) {
    if (!ShapedType::isDynamic(size))
      continue;
    BatchFact fact = rule.argumentFact("size", marked);
    Value value = OperatorArguments(rule.getOp()).getDynamic("size", marked++);
    if (fact.isFree())
      continue;
    // Of a list, the dim says which element is the number of samples.
    bool isList = !value.getType().isInteger();
    if (!fact.isAt() || isList != (fact.dim >= 0))
      return rule.mix("an extent follows the number of samples in a way that "
                      "a tile does not");
    if (!found.isFree())
      return rule.mix("two extents are the number of samples");
    found = BatchFact::at(isList ? fact.dim : index, fact.factor);
  }
  rule.setAll(found);
}

LogicalResult rules::inferLike(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  info.elementType = getDtype(rule, info.elementType);
  if (failed(setStrides(rule, info, getMemoryFormat(rule.getOp()))))
    return failure();
  rule.setResult(0, info);
  return success();
}

void rules::inferLikeBatch(BatchRule &rule, Value self) {
  BatchFact fact = rule.fact(self);
  for (StringRef name : {"fill_value", "low", "high"})
    if (!rule.argumentFact(name).isFree())
      return mixNumberOfSamples(rule);
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// Of given numbers
//===----------------------------------------------------------------------===//

LogicalResult rules::inferSequence(ShapeRule &rule, StringRef extent,
                                   Type otherwise) {
  if (!otherwise)
    otherwise = Float32Type::get(rule.getContext());
  TensorInfo info;
  info.elementType = getDtype(rule, otherwise);
  info.dims.emplace({rule.integerArgument(extent)});
  if (failed(checkExtents(rule, *info.dims)))
    return failure();
  info.strides.emplace({rule.constant(1)});
  rule.setResult(0, info);
  return success();
}

LogicalResult rules::inferEye(ShapeRule &rule) {
  TensorInfo info;
  info.elementType = getDtype(rule, Float32Type::get(rule.getContext()));
  DimExpr rows = rule.integerArgument("n");
  info.dims.emplace(
      {rows, rule.hasArgument("m") ? rule.integerArgument("m") : rows});
  if (failed(checkExtents(rule, *info.dims)) ||
      failed(setStrides(rule, info, MemoryFormat::Contiguous)))
    return failure();
  rule.setResult(0, info);
  return success();
}

/// The elements of a matrix on and below the diagonal `offset`.
/// Source: get_tril_size in native/TensorFactories.h.
static int64_t countLowerElements(int64_t rows, int64_t columns,
                                  int64_t offset) {
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row)
    count += std::clamp<int64_t>(row + offset + 1, 0, columns);
  return count;
}

LogicalResult rules::inferTriangleIndices(ShapeRule &rule, bool lower) {
  DimExpr rows = rule.integerArgument("row");
  DimExpr columns = rule.integerArgument("col");
  DimExpr offset = rule.integerArgument("offset");
  TensorInfo info;
  info.elementType = getDtype(rule, IntegerType::get(rule.getContext(), 64));
  if (failed(checkExtents(rule, {rows, columns})))
    return failure();
  auto get = [](DimExpr expr) {
    return expr ? expr.getConstant() : std::nullopt;
  };
  auto m = get(rows), n = get(columns), k = get(offset);
  DimExpr count;
  constexpr int64_t kLarge = int64_t(1) << 24;
  if (m && n && k && *m < kLarge && *n < kLarge && std::abs(*k) < kLarge)
    count = rule.constant(lower ? countLowerElements(*m, *n, *k)
                                : *m * *n - countLowerElements(*m, *n, *k - 1));
  else if (rows && rows == columns && k && (*k == 0 || *k == (lower ? -1 : 1)))
    // A triangle of a square matrix, with or without the diagonal.
    count = (rows * (*k == 0 ? rows + 1 : rows - 1)).floorDiv(2);
  info.dims.emplace({rule.constant(2), count});
  if (failed(setStrides(rule, info, MemoryFormat::Contiguous)))
    return failure();
  rule.setResult(0, info);
  return success();
}

LogicalResult rules::inferScalar(ShapeRule &rule, Type otherwise) {
  rule.setResult(0, TensorInfo::contiguous({}, getDtype(rule, otherwise)));
  return success();
}

LogicalResult rules::inferListTensor(ShapeRule &rule) {
  Attribute data = rule.getOp()->getAttr("data");
  Builder builder(rule.getContext());
  TensorInfo info;
  DimExpr count;
  if (auto floats = dyn_cast<DenseF64ArrayAttr>(data)) {
    info.elementType = builder.getF32Type();
    count = rule.constant(floats.size());
  } else if (auto flags = dyn_cast<DenseBoolArrayAttr>(data)) {
    info.elementType = builder.getI1Type();
    count = rule.constant(flags.size());
  } else {
    info.elementType = builder.getI64Type();
    if (auto elements = rule.integerList("data"))
      count = rule.constant(elements->size());
  }
  info.elementType = getDtype(rule, info.elementType);
  info.dims.emplace({count});
  info.strides.emplace({rule.constant(1)});
  rule.setResult(0, info);
  return success();
}
