//===- Rules.cpp - What the three rules of an operator read and set -------===//

#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// TensorInfo
//===----------------------------------------------------------------------===//

TensorInfo TensorInfo::contiguous(ArrayRef<DimExpr> dims, Type type) {
  TensorInfo info;
  info.dims.emplace(dims.begin(), dims.end());
  info.elementType = type;
  info.strides.emplace(dims.size());
  if (dims.empty())
    return info;
  DimExpr stride = DimExpr::constant(dims.front().getContext(), 1);
  for (int64_t dim = static_cast<int64_t>(dims.size()) - 1; dim >= 0; --dim) {
    (*info.strides)[dim] = stride;
    if (dim > 0)
      stride = stride * dims[dim];
  }
  return info;
}

TensorInfo TensorInfo::channelsLast(ArrayRef<DimExpr> dims, Type type) {
  TensorInfo info = contiguous(dims, type);
  if (dims.size() != 4)
    return info;
  DimExpr one = DimExpr::constant(dims.front().getContext(), 1);
  DimExpr channels = dims[1], width = dims[3], height = dims[2];
  info.strides = SmallVector<DimExpr>{height * width * channels, one,
                                      width * channels, channels};
  return info;
}

/// Compares with `wanted`; dims of extent one may have any stride.
static TriBool compareStrides(const TensorInfo &info,
                              ArrayRef<DimExpr> wanted) {
  if (!info.hasRank() || !info.strides)
    return TriBool::Unknown;
  TriBool all = TriBool::Yes;
  for (auto [dim, stride, expected] :
       llvm::zip_equal(*info.dims, *info.strides, wanted)) {
    if (dim.isConstant(1))
      continue;
    TriBool equal = proveEqual(stride, expected);
    if (equal == TriBool::No)
      return TriBool::No;
    if (equal == TriBool::Unknown)
      all = TriBool::Unknown;
  }
  return all;
}

TriBool TensorInfo::isContiguous() const {
  if (!hasRank())
    return TriBool::Unknown;
  // Of no elements whatever its strides. Source: compute_contiguous in
  // c10/core/Contiguity.h.
  if (llvm::any_of(*dims, [](DimExpr dim) { return dim.isConstant(0); }))
    return TriBool::Yes;
  return compareStrides(*this, *contiguous(*dims, elementType).strides);
}

TriBool TensorInfo::isChannelsLast() const {
  if (!hasRank() || !strides)
    return TriBool::Unknown;
  if (getRank() != 4)
    return TriBool::No;
  // PyTorch looks at every stride here, those of extent one included.
  TensorInfo wanted = channelsLast(*dims, elementType);
  for (auto [stride, expected] : llvm::zip_equal(*strides, *wanted.strides)) {
    TriBool equal = proveEqual(stride, expected);
    if (equal != TriBool::Yes)
      return equal;
  }
  // Where both layouts have the same strides PyTorch takes the first.
  TensorInfo rows = contiguous(*dims, elementType);
  return *strides == *rows.strides ? TriBool::No : TriBool::Yes;
}

std::optional<SmallVector<int64_t>> TensorInfo::getDenseOrder() const {
  if (!hasRank() || !strides)
    return std::nullopt;
  SmallVector<int64_t> left =
      llvm::to_vector(llvm::reverse(llvm::seq<int64_t>(0, getRank())));
  SmallVector<int64_t> order;
  // From the innermost: the dim that steps over all that are inside of it. The
  // stride of a dim of one does not matter.
  DimExpr step;
  while (!left.empty()) {
    auto *next = llvm::find_if(left, [&](int64_t index) {
      DimExpr stride = (*strides)[index];
      return dim(index).isConstant(1) ||
             (step ? stride && proveEqual(stride, step) == TriBool::Yes
                   : stride && stride.isConstant(1));
    });
    if (next == left.end())
      return std::nullopt;
    DimExpr extent = dim(*next);
    step = step ? step * extent : extent;
    order.push_back(*next);
    left.erase(next);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

/// Whether a polynomial over the user's symbols is above zero where each of
/// them is two or more, as rules take them.
static bool isPositive(DimExpr expr) {
  bool isNamed = true;
  expr.forEachSymbol([&](DimSymbol symbol) { isNamed &= symbol.isNamed(); });
  if (!isNamed)
    return false;
  DimExpr shifted = expr.substitute(
      [](DimSymbol symbol) { return DimExpr::symbol(symbol) + 2; });
  int64_t constant = 0;
  for (auto [coefficient, monomial] :
       llvm::zip_equal(shifted.getAttr().getCoefficients(),
                       shifted.getAttr().getMonomials())) {
    if (coefficient < 0 || llvm::any_of(monomial, llvm::IsaPred<DimAtomAttr>))
      return false;
    if (monomial.empty())
      constant = coefficient;
  }
  return constant > 0;
}

TriBool TensorInfo::isDense() const {
  if (getDenseOrder())
    return TriBool::Yes;
  if (!hasRank() || !strides || dims->empty())
    return TriBool::Unknown;
  // The elements of a dense tensor are as many as the places up to the last.
  DimExpr one = DimExpr::constant(dims->front().getContext(), 1);
  DimExpr elements = one, places = one;
  for (auto [extent, stride] : llvm::zip_equal(*dims, *strides)) {
    if (!extent || !stride)
      return TriBool::Unknown;
    elements = elements * extent;
    places = places + (extent - one) * stride;
  }
  return isPositive(places - elements) || isPositive(elements - places)
             ? TriBool::No
             : TriBool::Unknown;
}

TensorInfo koila::getTensorInfoFromType(
    Type type, llvm::function_ref<DimExpr(unsigned dim)> getExtent) {
  TensorInfo info;
  auto tensor = dyn_cast<TensorType>(type);
  if (!tensor)
    return info;
  if (!isa<AnyType>(tensor.getElementType()))
    info.elementType = tensor.getElementType();
  if (!tensor.hasRank())
    return info;
  info.dims.emplace();
  for (auto [index, extent] : llvm::enumerate(tensor.getShape()))
    info.dims->push_back(ShapedType::isDynamic(extent)
                             ? getExtent(index)
                             : DimExpr::constant(type.getContext(), extent));
  return info;
}

TensorInfo koila::getTensorInfoFromType(Type type, StringRef prefix,
                                        SymbolKind kind) {
  return getTensorInfoFromType(type, [&](unsigned dim) {
    return DimExpr::symbol(type.getContext(), (prefix + "d" + Twine(dim)).str(),
                           kind);
  });
}

Type koila::getTensorType(const TensorInfo &info, MLIRContext *context) {
  Type element = info.elementType ? info.elementType : AnyType::get(context);
  if (!info.hasRank())
    return UnrankedTensorType::get(element);
  SmallVector<int64_t> shape;
  for (DimExpr dim : *info.dims) {
    auto extent = dim ? dim.getConstant() : std::nullopt;
    shape.push_back(extent && *extent >= 0 ? *extent : ShapedType::kDynamic);
  }
  return RankedTensorType::get(shape, element);
}

//===----------------------------------------------------------------------===//
// Carriers of the rules
//===----------------------------------------------------------------------===//

bool OperatorArguments::has(StringRef name) const {
  return static_cast<bool>(op->getAttr(name));
}

/// How many operands of the group `attr` marks.
static unsigned countMarkers(Attribute attr) {
  if (auto integer = dyn_cast_or_null<IntegerAttr>(attr))
    return integer.getType().isInteger(64) &&
           ShapedType::isDynamic(integer.getInt());
  if (auto list = dyn_cast_or_null<DenseI64ArrayAttr>(attr))
    return llvm::count_if(list.asArrayRef(), ShapedType::isDynamic);
  return isa_and_nonnull<DynamicAttr>(attr);
}

/// The arguments in the order of the schema, which computed ones follow; the
/// registered attribute names are sorted by spelling.
static SmallVector<StringRef> getArgumentNames(Operation *op) {
  SmallVector<StringRef> names;
  auto torch = dyn_cast<TorchOperatorInterface>(op);
  if (!torch)
    return names;
  StringRef rest = torch.getTorchSchema().split('(').second;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i < rest.size() && depth >= 0; ++i) {
    depth += rest[i] == '(' || rest[i] == '[';
    depth -= rest[i] == ')' || rest[i] == ']';
    if (depth > 0 || (depth == 0 && rest[i] != ','))
      continue;
    StringRef argument = rest.slice(start, i).split('=').first;
    names.push_back(argument.substr(argument.rfind(' ') + 1));
    start = i + 1;
  }
  return names;
}

OperandRange OperatorArguments::getDynamic() const {
  unsigned count = 0;
  for (StringAttr name : op->getRegisteredInfo()->getAttributeNames())
    count += countMarkers(op->getAttr(name));
  return op->getOperands().take_back(std::min(count, op->getNumOperands()));
}

Value OperatorArguments::getDynamic(StringRef name, unsigned index) const {
  Attribute attr = op->getAttr(name);
  unsigned own = countMarkers(attr);
  if (index >= own)
    return {};
  OperandRange group = getDynamic();
  unsigned position = index;
  if (group.size() != own)
    for (StringRef other : getArgumentNames(op)) {
      if (other == name)
        break;
      position += countMarkers(op->getAttr(other));
    }
  return position < group.size() ? group[position] : Value();
}

ShapeRule::ShapeRule(Operation *op, Lookup lookup,
                     SymbolTableCollection *symbols)
    : op(op), lookup(lookup), symbols(symbols), results(op->getNumResults()) {}

Operation *ShapeRule::lookupSymbol(SymbolRefAttr name) const {
  return symbols ? symbols->lookupNearestSymbolFrom(op, name)
                 : SymbolTable::lookupNearestSymbolFrom(op, name);
}

TensorInfo ShapeRule::tensor(Value value) const {
  if (!value)
    return {};
  return lookup(value).tensor.value_or(TensorInfo());
}

InFlightDiagnostic ShapeRule::emitError() const {
  InFlightDiagnostic error = op->emitOpError();
  auto function = op->getParentOfType<FunctionOpInterface>();
  auto module = op->getParentOfType<ModuleOp>();
  if (!function || !module || !module->hasAttr(KoilaDialect::kArchiveAttr))
    return error;
  // In a file the operation stands in a library; what the user gave is the
  // shapes of the arguments.
  Diagnostic &note = error.attachNote(function.getLoc());
  note << "for the arguments of '" << function.getName() << "', which --input "
       << "describes:";
  for (unsigned index = 0; index < function.getNumArguments(); ++index) {
    auto name =
        function.getArgAttrOfType<StringAttr>(index, KoilaDialect::kNameAttr);
    note << (index ? ", '" : " '") << (name ? name.getValue() : "?") << "' is "
         << function.getArgumentTypes()[index];
  }
  return error;
}

DimExpr ShapeRule::integer(Value value) const { return lookup(value).integer; }

DimExpr ShapeRule::integerArgument(StringRef name) const {
  if (Value dynamic = OperatorArguments(op).getDynamic(name))
    return integer(dynamic);
  auto attr = dyn_cast_or_null<IntegerAttr>(op->getAttr(name));
  return attr && !countMarkers(attr) ? constant(attr.getValue().getSExtValue())
                                     : DimExpr();
}

std::optional<SmallVector<DimExpr>>
ShapeRule::integerList(StringRef name) const {
  auto attr = dyn_cast_or_null<DenseI64ArrayAttr>(op->getAttr(name));
  if (!attr)
    return std::nullopt;
  OperatorArguments arguments(op);
  SmallVector<DimExpr> elements;
  unsigned marked = 0;
  for (int64_t element : attr.asArrayRef()) {
    if (!ShapedType::isDynamic(element)) {
      elements.push_back(constant(element));
      continue;
    }
    Value value = arguments.getDynamic(name, marked++);
    if (!value)
      return std::nullopt;
    if (!isa<ListType>(value.getType())) {
      elements.push_back(integer(value));
      continue;
    }
    auto list = lookup(value).list;
    if (!list)
      return std::nullopt;
    elements.append(*list);
  }
  return elements;
}

Type ShapeRule::numberType(StringRef name) const {
  Type type;
  if (Value dynamic = OperatorArguments(op).getDynamic(name))
    type = dynamic.getType();
  else if (auto attr = dyn_cast_or_null<TypedAttr>(op->getAttr(name)))
    type = attr.getType();
  return type && (type.isInteger(64) || type.isF64() || type.isInteger(1))
             ? type
             : Type();
}

BatchRule::BatchRule(Operation *op, llvm::function_ref<BatchFact(Value)> facts,
                     ShapeRule::Lookup shapes)
    : op(op), facts(facts), shapes(shapes), results(op->getNumResults()) {
  // What upstream operations compute are numbers.
  if (isa_and_nonnull<arith::ArithDialect>(op->getDialect()))
    mix("the number of samples is computed with; a tile has another one");
  else
    mix("'" + op->getName().getStringRef() +
        "' has no batch rule for this case");
}

BatchFact BatchRule::fact(Value value) const {
  BatchFact fact = value ? facts(value) : BatchFact::free();
  return fact.isInner() ? BatchFact::at(fact.dim, 1) : fact;
}

BatchFact BatchRule::rows(Value value) {
  knowsRows = true;
  return value ? facts(value) : BatchFact::free();
}

TensorInfo BatchRule::tensor(Value value) const {
  if (!value)
    return {};
  return shapes(value).tensor.value_or(TensorInfo());
}

void BatchRule::setAll(const BatchFact &fact) {
  for (BatchFact &result : results)
    result = fact;
}

void BatchRule::mix(const Twine &reason, Combine combine) {
  BatchFact fact = BatchFact::mixed(reason.str(), op);
  fact.combine = combine;
  setAll(fact);
}

/// The order of rows that all operands share; none if no operand is Inner.
std::optional<BatchFact> BatchRule::getCommonRows(bool &agrees) const {
  std::optional<BatchFact> common;
  SmallVector<BatchFact> found;
  for (Value operand : op->getOperands())
    if (BatchFact fact = facts(operand); !fact.isFree())
      found.push_back(fact);
  for (const BatchFact &fact : found)
    if (fact.isInner())
      common = fact;
  agrees = llvm::all_of(found, [&](const BatchFact &fact) {
    return common && fact.isInner() && fact.factor == common->factor &&
           fact.outer == common->outer && fact.mask == common->mask;
  });
  return common;
}

/// What the rule says of result `index` with every row taken for a sample.
BatchFact BatchRule::orderRows(const BatchFact &rows, unsigned index) const {
  BatchFact fact = results[index];
  if (!fact.isAt())
    return fact;
  Type type = op->getResult(index).getType();
  if (rows.isSelected()) {
    if (!isa<TensorType>(type) || fact.factor != 1)
      return BatchFact::mixed("how many rows a mask selects is decided by data",
                              op);
    return BatchFact::selected(fact.dim, rows.mask);
  }
  // A number of rows counts those of all samples.
  if (type.isInteger(64)) {
    auto outer = rows.outer.getConstant();
    if (!outer)
      return BatchFact::mixed("the number of rows of a sample is unknown", op);
    return BatchFact::at(fact.dim, fact.factor * rows.factor * *outer);
  }
  if (!isa<TensorType>(type))
    return BatchFact::mixed("the rows of a sample are interleaved", op);
  if (fact.factor != 1)
    return BatchFact::mixed("makes several rows of each, whose samples lie "
                            "apart",
                            op);
  return BatchFact::inner(fact.dim, rows.factor, rows.outer);
}

SmallVector<BatchFact, 1> BatchRule::takeResults() {
  bool agrees = true;
  std::optional<BatchFact> rows = getCommonRows(agrees);
  if (!rows || (knowsRows && !rows->isSelected()))
    return results;
  if (rows->isSelected()) {
    if (knowsRows || !takesAnyRows)
      mix("'" + op->getName().getStringRef() +
          "' of what a mask selects: how many rows that are is decided by "
          "data");
    // Others weigh tiles by their samples, or need a row in each.
    for (BatchFact &fact : results)
      if (fact.combine != Combine::Sum && fact.combine != Combine::GradientSum)
        fact.combine = Combine::None;
  }
  if (!agrees)
    mix("the rows of the operands belong to samples in different orders");
  SmallVector<BatchFact, 1> facts;
  for (unsigned index = 0; index < results.size(); ++index)
    facts.push_back(orderRows(*rows, index));
  return facts;
}

StorageRule::StorageRule(Operation *op, ShapeRule::Lookup shapes)
    : op(op), shapes(shapes), results(op->getNumResults()) {}

TensorInfo StorageRule::tensor(Value value) const {
  if (!value)
    return {};
  return shapes(value).tensor.value_or(TensorInfo());
}

int64_t koila::getElementBytes(Type type) {
  if (!type || isa<AnyType>(type))
    return 0;
  if (auto complex = dyn_cast<ComplexType>(type))
    return 2 * getElementBytes(complex.getElementType());
  if (type.isInteger(1))
    return 1; // torch.bool takes a byte.
  if (type.isIntOrFloat())
    return llvm::divideCeil(type.getIntOrFloatBitWidth(), 8);
  if (type.isIndex())
    return 8;
  return 0;
}

int64_t ConcreteTensor::numElements() const {
  int64_t count = 1;
  for (int64_t dim : dims)
    if (llvm::MulOverflow(count, dim, count))
      return std::numeric_limits<int64_t>::max();
  return count;
}

int64_t ConcreteTensor::numBytes() const {
  int64_t bytes;
  if (llvm::MulOverflow(numElements(), getElementBytes(elementType), bytes))
    return std::numeric_limits<int64_t>::max();
  return bytes;
}

std::optional<SmallVector<int64_t>> ConcreteTensor::getStrides() const {
  if (strides || !contiguous)
    return strides;
  SmallVector<int64_t> rowMajor(dims.size());
  int64_t stride = 1;
  for (size_t dim = dims.size(); dim-- > 0;) {
    rowMajor[dim] = stride;
    if (llvm::MulOverflow(stride, std::max<int64_t>(dims[dim], 1), stride))
      return std::nullopt;
  }
  return rowMajor;
}

std::optional<ConcreteTensor> WorkspaceRule::tensor(Value value) const {
  if (!value)
    return std::nullopt;
  return lookup(value);
}

std::optional<int64_t> WorkspaceRule::getStorageBytes(Value result) const {
  for (auto [value, bytes] : storageBytes)
    if (value == result)
      return bytes;
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

/// Of PyTorch's types those that getDTypeName() names.
static bool isKnownElement(Type type) {
  if (auto complex = dyn_cast<ComplexType>(type))
    return complex.getElementType().isF32() || complex.getElementType().isF64();
  if (type.isSignlessInteger())
    return llvm::is_contained({1u, 8u, 16u, 32u, 64u},
                              type.getIntOrFloatBitWidth());
  return type.isF32() || type.isF64() || type.isF16() || type.isBF16() ||
         type.isUnsignedInteger(8);
}

/// Tensors have elements of PyTorch's types that koila knows, and no encoding.
static LogicalResult verifyTensorTypes(Operation *op) {
  for (TypeRange types :
       {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
    for (Type type : types) {
      auto tensor = dyn_cast<TensorType>(type);
      if (!tensor)
        continue;
      if (!isa<AnyType>(tensor.getElementType()) &&
          !isKnownElement(tensor.getElementType()))
        return op->emitOpError() << "takes or makes " << tensor
                                 << ", of whose elements koila knows nothing";
      if (auto ranked = dyn_cast<RankedTensorType>(tensor);
          ranked && ranked.getEncoding())
        return op->emitOpError() << "takes or makes " << tensor
                                 << ", and PyTorch's tensors have no encoding";
    }
  return success();
}

/// No tensor is taken for a computed element of a list of integers.
static LogicalResult verifyComputedElements(Operation *op) {
  for (NamedAttribute attr : op->getAttrs()) {
    auto list = dyn_cast<DenseI64ArrayAttr>(attr.getValue());
    if (!list)
      continue;
    for (unsigned index = 0, e = countMarkers(list); index < e; ++index) {
      Value value = OperatorArguments(op).getDynamic(attr.getName(), index);
      if (value && isa<TensorType>(value.getType()))
        return op->emitOpError()
               << "has no operand for a computed element of " << attr.getName();
    }
  }
  return success();
}

LogicalResult koila::detail::verifyShapeRule(Operation *op) {
  if (failed(verifyTensorTypes(op)) || failed(verifyComputedElements(op)))
    return failure();
  auto lookup = [&](Value value) -> ValueInfo {
    ValueInfo info;
    APInt constant;
    if (matchPattern(value, m_ConstantInt(&constant))) {
      info.integer =
          DimExpr::constant(op->getContext(), constant.getSExtValue());
      return info;
    }
    unsigned index = llvm::find(op->getOperands(), value) - op->operand_begin();
    if (isa<TensorType>(value.getType()))
      info.tensor =
          getTensorInfoFromType(value.getType(), ("_" + Twine(index)).str());
    return info;
  };
  ShapeRule rule(op, lookup);
  if (failed(cast<ShapeRuleInterface>(op).inferShapes(rule)))
    return failure();
  for (auto [result, inferred] :
       llvm::zip_equal(op->getResults(), rule.getResults())) {
    auto type = dyn_cast<TensorType>(result.getType());
    if (!type || !inferred.tensor)
      continue;
    if (inferred.tensor->elementType && !isa<AnyType>(type.getElementType()) &&
        type.getElementType() != inferred.tensor->elementType)
      return op->emitOpError()
             << "has result element type " << type.getElementType()
             << ", the operands give " << inferred.tensor->elementType;
    if (!type.hasRank() || !inferred.tensor->hasRank())
      continue;
    if (type.getRank() != inferred.tensor->getRank())
      return op->emitOpError()
             << "has a result of rank " << type.getRank()
             << ", the operands give rank " << inferred.tensor->getRank();
    for (auto [index, dim] : llvm::enumerate(*inferred.tensor->dims)) {
      if (!dim)
        continue; // Data decides.
      auto extent = dim.getConstant();
      if (extent && !type.isDynamicDim(index) &&
          type.getDimSize(index) != *extent)
        return op->emitOpError()
               << "has result extent " << type.getDimSize(index) << " in dim "
               << index << ", the operands give " << *extent;
    }
  }
  return success();
}
