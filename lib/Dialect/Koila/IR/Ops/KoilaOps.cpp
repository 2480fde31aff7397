//===- KoilaOps.cpp - Operations that are no ATen operators ---------------===//

#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/KoilaOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

LogicalResult ParamOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !type.hasStaticShape() || isa<AnyType>(type.getElementType()))
    return emitOpError() << "needs a static tensor type, got " << getType();
  if (getDTypeName(type.getElementType()).empty() || type.getEncoding())
    return emitOpError() << "has type " << type
                         << ", whose bytes koila does not know";
  if (static_cast<int64_t>(getStrides().size()) != type.getRank())
    return emitOpError() << "has " << getStrides().size()
                         << " strides for rank " << type.getRank();
  for (int64_t stride : getStrides())
    if (stride < 0)
      return emitOpError() << "has the negative stride " << stride;
  llvm::SmallDenseSet<Attribute> keys;
  for (Attribute key : getKeys())
    if (!keys.insert(key).second)
      return emitOpError() << "has the key " << key << " twice";
  return success();
}

LogicalResult ParamGetOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto param = symbols.lookupNearestSymbolFrom<ParamOp>(*this, getParamAttr());
  if (!param)
    return emitOpError() << "'" << getParam()
                         << "' names no koila.param of this module";
  if (param.getType() != getResult().getType())
    return emitOpError() << "has type " << getResult().getType() << ", but '"
                         << getParam() << "' is " << param.getType();
  return success();
}

/// What a type says; extents that it leaves open are those of no other value.
static TensorInfo getStated(Type type) {
  return getTensorInfoFromType(type, [](unsigned) { return DimExpr(); });
}

LogicalResult ParamGetOp::inferShapes(ShapeRule &rule) {
  TensorInfo info = getStated(getType());
  auto param = dyn_cast_or_null<ParamOp>(rule.lookupSymbol(getParamAttr()));
  if (param && info.hasRank()) {
    info.strides.emplace();
    for (int64_t stride : param.getStrides())
      info.strides->push_back(rule.constant(stride));
  }
  rule.setResult(0, info);
  return success();
}

void ParamGetOp::inferBatch(BatchRule &rule) {
  rule.setResult(0, BatchFact::free());
}

void ParamGetOp::describeStorage(StorageRule &rule) { rule.setKeeps(0); }

//===----------------------------------------------------------------------===//
// Refinement
//===----------------------------------------------------------------------===//

LogicalResult RefineOp::verify() {
  auto source = dyn_cast<TensorType>(getSource().getType());
  auto target = dyn_cast<TensorType>(getResult().getType());
  auto known = [](Type type) { return !isa<AnyType>(type); };
  if (known(source.getElementType()) && known(target.getElementType()) &&
      source.getElementType() != target.getElementType())
    return emitOpError() << "cannot turn element type "
                         << source.getElementType() << " into "
                         << target.getElementType();
  if (source.hasRank() && target.hasRank() &&
      failed(verifyCompatibleShape(source.getShape(), target.getShape())))
    return emitOpError() << "cannot turn " << source << " into " << target;
  return success();
}

OpFoldResult RefineOp::fold(FoldAdaptor) {
  if (getSource().getType() == getResult().getType())
    return getSource();
  if (auto before = getSource().getDefiningOp<RefineOp>()) {
    if (before.getSource().getType() == getResult().getType())
      return before.getSource();
  }
  return {};
}

LogicalResult RefineOp::inferShapes(ShapeRule &rule) {
  TensorInfo info = rule.tensor(getSource());
  TensorInfo stated = getStated(getType());
  if (!info.hasRank() && stated.hasRank())
    info.dims = stated.dims;
  else if (info.hasRank() && stated.hasRank() &&
           info.getRank() != stated.getRank())
    return rule.emitError() << "states rank " << stated.getRank()
                            << " for a tensor of rank " << info.getRank();
  else if (info.hasRank() && stated.hasRank())
    // A static extent in the type says more than a symbol.
    for (auto [dim, known] : llvm::zip_equal(*info.dims, *stated.dims)) {
      auto lhs = dim ? dim.getConstant() : std::nullopt,
           rhs = known ? known.getConstant() : std::nullopt;
      if (lhs && rhs && *lhs != *rhs)
        return rule.emitError()
               << "cannot turn extent " << *lhs << " into " << *rhs;
      if (rhs && !lhs)
        dim = known;
    }
  if (!info.elementType)
    info.elementType = stated.elementType;
  else if (stated.elementType && stated.elementType != info.elementType)
    return rule.emitError() << "states element type " << stated.elementType
                            << " for a tensor of " << info.elementType;
  rule.setResult(0, info);
  return success();
}

void RefineOp::inferBatch(BatchRule &rule) {
  rule.setResult(0, rule.fact(getSource()));
}

void RefineOp::describeStorage(StorageRule &rule) {
  rule.setAlias(0, getSource());
}

//===----------------------------------------------------------------------===//
// Assumptions
//===----------------------------------------------------------------------===//

/// What can be compared with a literal at entry. An array is a tuple; a dict
/// has its keys and its values, a list of texts those, and a member of an enum
/// its name.
static bool isLiteral(Attribute attr) {
  if (auto dict = dyn_cast<DictionaryAttr>(attr)) {
    if (auto texts = dict.getAs<ArrayAttr>("texts"))
      return dict.size() == 1 && llvm::all_of(texts, llvm::IsaPred<StringAttr>);
    if (dict.size() == 1 && dict.getAs<StringAttr>("member"))
      return true;
    auto keys = dict.getAs<ArrayAttr>("keys");
    auto values = dict.getAs<ArrayAttr>("values");
    llvm::SmallDenseSet<Attribute> known;
    return keys && values && keys.size() == values.size() && isLiteral(keys) &&
           isLiteral(values) && llvm::all_of(keys, [&](Attribute key) {
             return known.insert(key).second;
           });
  }
  if (auto tuple = dyn_cast<ArrayAttr>(attr))
    return llvm::all_of(tuple, isLiteral);
  return isa<UnitAttr, BoolAttr, IntegerAttr, FloatAttr, StringAttr,
             DenseI64ArrayAttr, DenseF64ArrayAttr, DenseBoolArrayAttr>(attr);
}

/// What is said of a tensor is what some tensor of its type is.
static LogicalResult verifyTensorFact(AssumeOp op) {
  auto type =
      op.getValue() ? dyn_cast<TensorType>(op.getValue().getType()) : nullptr;
  auto refuse = [&]() {
    return op.emitOpError()
           << "'" << stringifyFact(op.getFact()) << "' cannot be "
           << op.getExpected() << " of " << type;
  };
  if (auto rank = dyn_cast<IntegerAttr>(op.getExpected());
      rank && op.getFact() == Fact::Rank &&
      (rank.getValue().isNegative() ||
       (type.hasRank() && rank.getValue() != type.getRank())))
    return refuse();
  if (auto element = dyn_cast<TypeAttr>(op.getExpected());
      element && op.getFact() == Fact::DType &&
      (isa<AnyType>(type.getElementType())
           ? getDTypeName(element.getValue()).empty()
           : element.getValue() != type.getElementType()))
    return refuse();
  if (op.getFact() != Fact::Extent)
    return success();
  int64_t dim = *op.getDim();
  if (dim < 0 || (type.hasRank() && dim >= type.getRank()))
    return op.emitOpError() << "speaks of dim " << dim << " of " << type;
  auto extent = DimExpr(cast<DimExprAttr>(op.getExpected())).getConstant();
  if (extent && (*extent < 0 || (type.hasRank() && !type.isDynamicDim(dim) &&
                                 *extent != type.getDimSize(dim))))
    return refuse();
  return success();
}

LogicalResult AssumeOp::verify() {
  bool speaksOfAttribute = getFact() == Fact::Attribute;
  bool speaksOfValue = getFact() != Fact::Training && !speaksOfAttribute;
  if (speaksOfValue != static_cast<bool>(getValue()))
    return emitOpError() << "'" << stringifyFact(getFact())
                         << (speaksOfValue ? "' needs a value"
                                           : "' takes no value");
  bool speaksOfTensor = speaksOfValue && getFact() != Fact::Value;
  if (speaksOfTensor && !isa<TensorType>(getValue().getType()))
    return emitOpError() << "'" << stringifyFact(getFact())
                         << "' needs a tensor";
  if (speaksOfAttribute != getPath().has_value())
    return emitOpError() << "a path belongs to 'attribute', and only to it";
  if ((getFact() == Fact::Extent) != getDim().has_value())
    return emitOpError() << "a dim belongs to 'extent', and only to it";
  Attribute expected = getExpected();
  bool fits = false;
  switch (getFact()) {
  case Fact::DType:
    fits = isa<TypeAttr>(expected);
    break;
  case Fact::Rank:
    fits = isa<IntegerAttr>(expected);
    break;
  case Fact::Extent:
    fits = isa<DimExprAttr>(expected);
    break;
  case Fact::Contiguous:
  case Fact::Training:
    fits = isa<BoolAttr>(expected);
    break;
  case Fact::Device:
    fits = isa<StringAttr>(expected);
    break;
  case Fact::Attribute:
  case Fact::Value:
    fits = isLiteral(expected);
    break;
  }
  if (!fits)
    return emitOpError() << "'" << stringifyFact(getFact()) << "' cannot be "
                         << expected;
  return verifyTensorFact(*this);
}

//===----------------------------------------------------------------------===//
// The opaque operator
//===----------------------------------------------------------------------===//

static LogicalResult verifyArguments(Operation *op, ArrayAttr arguments) {
  for (Attribute argument : arguments) {
    if (auto nested = dyn_cast<ArrayAttr>(argument)) {
      if (failed(verifyArguments(op, nested)))
        return failure();
      continue;
    }
    auto operand = dyn_cast<OperandAttr>(argument);
    if (operand &&
        (operand.getIndex() < 0 || operand.getIndex() >= op->getNumOperands()))
      return op->emitOpError() << "argument " << operand << " of "
                               << op->getNumOperands() << " operands";
  }
  return success();
}

static LogicalResult verifyCallee(Operation *op, StringRef callee) {
  if (callee.contains("::"))
    return success();
  return op->emitOpError() << "'" << callee
                           << "' is no qualified operator name";
}

LogicalResult CustomOp::verify() {
  if (failed(verifyCallee(*this, getCallee())))
    return failure();
  return verifyArguments(*this, getArguments());
}

LogicalResult TorchOpaqueOp::verify() {
  if (failed(verifyCallee(*this, getCallee())))
    return failure();
  if (getAliases() && getAliases()->size() != getNumResults())
    return emitOpError() << "has " << getAliases()->size()
                         << " alias entries for " << getNumResults()
                         << " results";
  if (ArrayAttr aliases = getAliasesAttr())
    for (Attribute entry : aliases) {
      auto operands = dyn_cast<ArrayAttr>(entry);
      bool valid =
          operands && llvm::all_of(operands, [&](Attribute operand) {
            auto index = dyn_cast<IntegerAttr>(operand);
            return index && index.getValue().getSignificantBits() <= 64 &&
                   index.getInt() >= 0 && index.getInt() < getNumOperands();
          });
      if (!valid)
        return emitOpError() << "has an alias entry " << entry
                             << " that is no list of operand indices";
    }
  return verifyArguments(*this, getArguments());
}

void TorchOpaqueOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  koila::detail::addOrderedEffects(*this, effects);
  auto addReadWrite = [&](SideEffects::Resource *resource) {
    effects.emplace_back(MemoryEffects::Read::get(), resource);
    effects.emplace_back(MemoryEffects::Write::get(), resource);
  };
  switch (getEffects()) {
  case Effects::None:
    return;
  case Effects::Rng:
    return addReadWrite(RandomResource::get());
  case Effects::Write:
    addReadWrite(OpaqueResource::get());
    return addReadWrite(SideEffects::DefaultResource::get());
  case Effects::Unknown:
    return koila::detail::addUnknownEffects(effects);
  }
}
