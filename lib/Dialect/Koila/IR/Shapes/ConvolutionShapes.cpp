//===- ConvolutionShapes.cpp - Rules of convolutions ----------------------===//

#include "../Rules/ConvolutionRules.h"
#include "../Utils/MaskedResults.h"
#include "../Utils/Windows.h"

using namespace mlir;
using namespace koila;
using namespace koila::spatial;

namespace {
/// The arguments of whichever schema, with one entry per spatial dim.
struct Arguments {
  TensorInfo input, weight, bias;
  /// The input is lifted: it has a batch.
  bool unbatched = false;
  bool transposed, same;
  int64_t rank, groups;
  SmallVector<DimExpr> stride, padding, dilation, outputPadding;

  /// Nothing is computed for an input without samples or channels, and little
  /// is refused.
  bool isEmpty() const {
    return input.dim(0).isConstant(0) || input.dim(1).isConstant(0);
  }
};
} // namespace

static Value getInput(Operation *op) { return op->getOperand(0); }
static Value getWeight(Operation *op) { return op->getOperand(1); }
static Value getBias(Operation *op) {
  return op->getNumOperands() > 2 ? op->getOperand(2) : Value();
}

static int64_t getGroups(Operation *op) {
  auto attr = op->getAttrOfType<IntegerAttr>("groups");
  return attr ? attr.getInt() : 1;
}

static bool isTransposed(Operation *op, rules::ConvolutionKind kind) {
  auto attr = op->getAttrOfType<BoolAttr>("transposed");
  return attr ? attr.getValue() : kind.transposed;
}

/// Whether padding `same` was asked for; none for another word.
static std::optional<bool> isSame(Operation *op) {
  auto mode = op->getAttrOfType<StringAttr>("padding");
  if (mode && mode.getValue() != "same" && mode.getValue() != "valid")
    return std::nullopt;
  return mode && mode.getValue() == "same";
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

static LogicalResult readLists(ShapeRule &rule, Arguments &arguments) {
  int64_t rank = arguments.rank;
  auto read = [&](StringRef name, int64_t least, SmallVector<DimExpr> &list) {
    auto entries = readEntries(rule, name, rank, least);
    if (succeeded(entries))
      list = *entries;
    return entries;
  };
  if (failed(read("stride", 1, arguments.stride)) ||
      failed(read("dilation", 1, arguments.dilation)))
    return failure();
  arguments.padding.assign(rank, rule.constant(0));
  arguments.outputPadding = arguments.padding;
  auto same = isSame(rule.getOp());
  if (!same)
    return rule.emitError() << "padding is neither 'same' nor 'valid'";
  arguments.same = *same;
  if (*same && llvm::any_of(arguments.stride, [](DimExpr stride) {
        return !stride.isConstant(1);
      }))
    return rule.emitError() << "padding 'same' needs a stride of 1";
  if (isa_and_nonnull<DenseI64ArrayAttr>(rule.getOp()->getAttr("padding"))) {
    if (failed(read("padding", 0, arguments.padding)))
      return failure();
  }
  if (rule.hasArgument("output_padding"))
    return read("output_padding", 0, arguments.outputPadding);
  return success();
}

static LogicalResult checkTypes(ShapeRule &rule, const Arguments &arguments) {
  Type type = arguments.input.elementType;
  for (auto [other, name] : {std::pair(arguments.weight.elementType, "weight"),
                             std::pair(arguments.bias.elementType, "bias")})
    if (type && other && type != other)
      return rule.emitError()
             << "input is " << type << ", the " << name << " is " << other;
  return success();
}

/// Ranks and channels. Source: check_shape_forward in
/// aten/src/ATen/native/Convolution.cpp.
static LogicalResult checkChannels(ShapeRule &rule,
                                   const Arguments &arguments) {
  const TensorInfo &weight = arguments.weight;
  int64_t groups = arguments.groups;
  // Transposed, the weight is [in, out / groups, ...].
  if (auto rows = weight.dim(0).getConstant()) {
    if (*rows < groups)
      return rule.emitError() << "the weight has " << *rows
                              << " filters, fewer than " << groups << " groups";
    if (*rows % groups != 0)
      return rule.emitError() << *rows << " output channels do not divide into "
                              << groups << " groups";
  }
  DimExpr scaled = weight.dim(1) * groups;
  DimExpr takes = arguments.transposed ? weight.dim(0) : scaled;
  DimExpr makes = arguments.transposed ? scaled : weight.dim(0);
  DimExpr channels = arguments.input.dim(1);
  if (proveEqual(channels, takes) == TriBool::No)
    return rule.emitError() << "the weight takes " << takes.str()
                            << " channels, the input has " << channels.str();
  const TensorInfo &bias = arguments.bias;
  if (bias.hasRank() &&
      (bias.getRank() != 1 || proveEqual(bias.dim(0), makes) == TriBool::No))
    return rule.emitError() << "the bias does not have one element for each "
                            << "of " << makes.str() << " output channels";
  if (arguments.isEmpty() && !arguments.input.dim(0).isConstant(0))
    return success();
  for (DimExpr dim : *weight.dims)
    if (dim.isConstant(0))
      return rule.emitError() << "the weight is empty";
  if (!arguments.isEmpty())
    for (DimExpr dim : ArrayRef(*arguments.input.dims).drop_front(2))
      if (dim.isConstant(0))
        return rule.emitError() << "a spatial dim of the input is empty";
  return success();
}

//===----------------------------------------------------------------------===//
// Extents and layout
//===----------------------------------------------------------------------===//

static FailureOr<DimExpr> getExtent(ShapeRule &rule, const Arguments &arguments,
                                    int64_t index) {
  DimExpr in = arguments.input.dim(index + 2);
  if (arguments.same)
    return in;
  DimExpr stride = arguments.stride[index], padding = arguments.padding[index];
  DimExpr reach =
      (arguments.weight.dim(index + 2) - 1) * arguments.dilation[index];
  if (!arguments.transposed) {
    DimExpr span = in + padding * 2 - reach - 1;
    if (auto extent = span.getConstant(); extent && *extent < 0)
      return rule.emitError() << "the kernel is larger than the padded input "
                              << "in spatial dim " << index;
    return span.floorDiv(stride) + 1;
  }
  DimExpr extra = arguments.outputPadding[index];
  if (!arguments.isEmpty() && proveAtMost(stride, extra) == TriBool::Yes &&
      proveAtMost(arguments.dilation[index], extra) == TriBool::Yes)
    return rule.emitError() << "output_padding " << extra.str()
                            << " is not smaller than stride or dilation in "
                            << "spatial dim " << index;
  DimExpr out = (in - 1) * stride - padding * 2 + reach + extra + 1;
  // oneDNN makes empty results, PyTorch's own kernels refuse them.
  Type type = arguments.input.elementType;
  bool empty = !type || type.isF32() || isa<Float16Type, BFloat16Type>(type);
  if (auto extent = out.getConstant(); extent && *extent < (empty ? 0 : 1))
    return rule.emitError() << "the result has extent " << *extent
                            << " in spatial dim " << index;
  return out;
}

/// Channels-last if either tensor is. Source:
/// determine_backend_memory_format in aten/src/ATen/native/Convolution.cpp.
static TriBool isResultChannelsLast(TensorInfo input, TensorInfo weight) {
  if (input.getRank() == 3) {
    // Computed as an image of height one of a contiguous row, of which only a
    // single channel can have strides of either layout.
    if (input.isContiguous() != TriBool::Yes) {
      auto channels = input.dim(1).getConstant();
      if (input.isContiguous() == TriBool::No || (channels && *channels > 1))
        input = TensorInfo::contiguous(*input.dims, input.elementType);
      else
        input.strides.reset();
    }
    input = unsqueeze(input, 2);
    weight = unsqueeze(weight, 2);
  }
  TriBool lhs = suggestsChannelsLast(input), rhs = suggestsChannelsLast(weight);
  if (lhs == TriBool::No && rhs == TriBool::No)
    return TriBool::No;
  // Only oneDNN keeps volumes channels-last, and float32 is its choice by
  // size. A complex convolution is made of real ones.
  if (input.getRank() == 5) {
    Type type = input.elementType;
    if (auto complex = dyn_cast_or_null<ComplexType>(type))
      type = complex.getElementType();
    bool reduced = type && isa<Float16Type, BFloat16Type>(type);
    return !type || type.isF32() || reduced ? TriBool::Unknown : TriBool::No;
  }
  return lhs == TriBool::Yes || rhs == TriBool::Yes ? TriBool::Yes
                                                    : TriBool::Unknown;
}

/// `result` is what is known of that of a convolution of `input`.
static LogicalResult inferResult(ShapeRule &rule, rules::ConvolutionKind kind,
                                 Value inputValue, Value weightValue,
                                 Value bias, TensorInfo &result) {
  Operation *op = rule.getOp();
  Arguments arguments;
  arguments.input = rule.tensor(inputValue);
  arguments.weight = rule.tensor(weightValue);
  arguments.bias = rule.tensor(bias);
  arguments.transposed = isTransposed(op, kind);
  arguments.groups = getGroups(op);
  result.elementType = arguments.input.elementType;
  if (failed(checkTypes(rule, arguments)))
    return failure();
  if (arguments.groups < 1 || arguments.groups > MostEntry)
    return rule.emitError()
           << "groups " << arguments.groups << " is "
           << (arguments.groups < 1 ? "below 1"
                                    : "more than there are channels");
  TensorInfo &input = arguments.input;
  const TensorInfo &weight = arguments.weight;
  arguments.rank = kind.spatialRank;
  if (!kind.spatialRank) {
    if (!weight.hasRank())
      return success();
    arguments.rank = weight.getRank() - 2;
    if (arguments.rank < 1 || arguments.rank > 3)
      return rule.emitError() << "convolves over 1, 2 or 3 spatial dims, the "
                              << "weight has rank " << weight.getRank();
  }
  int64_t rank = arguments.rank;
  if (failed(readLists(rule, arguments)))
    return failure();
  if (input.hasRank() && input.getRank() != rank + 2) {
    if (input.getRank() != rank + 1 || !kind.spatialRank) {
      InFlightDiagnostic error = rule.emitError();
      error << "expects an input of rank " << rank + 2;
      if (kind.spatialRank)
        error << " (or " << rank + 1 << " without batch)";
      return error << ", got " << input.getRank();
    }
    arguments.unbatched = true;
    input = unsqueeze(input, 0);
  }
  if (weight.hasRank() && weight.getRank() != rank + 2)
    return rule.emitError() << "expects a weight of rank " << rank + 2
                            << ", got " << weight.getRank();
  if (!input.hasRank() || !weight.hasRank())
    return success();
  if (failed(checkChannels(rule, arguments)))
    return failure();
  // Without input channels there are no output channels
  // (conv_output_size in Convolution.cpp).
  DimExpr channels = input.dim(1).isConstant(0) ? input.dim(1)
                     : arguments.transposed ? weight.dim(1) * arguments.groups
                                            : weight.dim(0);
  SmallVector<DimExpr> dims = {input.dim(0), channels};
  if (rank == 1)
    dims.push_back(rule.constant(1)); // The height.
  for (int64_t index = 0; index < rank; ++index) {
    auto extent = getExtent(rule, arguments, index);
    if (failed(extent))
      return failure();
    dims.push_back(*extent);
  }
  result =
      makeImage(dims, input.elementType, isResultChannelsLast(input, weight));
  if (rank == 1)
    result = squeeze(result, 2);
  if (arguments.unbatched)
    result = squeeze(result, 0);
  return success();
}

LogicalResult rules::inferConvolution(ShapeRule &rule, ConvolutionKind kind) {
  Operation *op = rule.getOp();
  TensorInfo result;
  if (failed(inferResult(rule, kind, getInput(op), getWeight(op), getBias(op),
                         result)))
    return failure();
  rule.setResult(0, result);
  return success();
}

void rules::inferConvolutionBatch(BatchRule &rule, ConvolutionKind kind) {
  Operation *op = rule.getOp();
  BatchFact fact = rule.fact(getInput(op));
  if (!rule.fact(getWeight(op)).isFree() || !rule.fact(getBias(op)).isFree())
    return rule.mix("the weight of a convolution depends on the batch");
  TensorInfo input = rule.tensor(getInput(op));
  TensorInfo weight = rule.tensor(getWeight(op));
  int64_t rank = kind.spatialRank   ? kind.spatialRank + 2
                 : weight.hasRank() ? weight.getRank()
                                    : -1;
  if (!input.hasRank() || input.getRank() != rank)
    return rule.mix("the batch is not dim 0 of a batched input");
  if (fact.dim != 0)
    return rule.mix("the batch is a channel or spatial dim of a convolution");
  TensorInfo result = rule.tensor(op->getResult(0));
  if (isTransposed(op, kind) && result.hasRank() &&
      llvm::any_of(*result.dims, [](DimExpr dim) { return dim.isConstant(0); }))
    return rule.mix("how many samples there are decides whether an empty "
                    "transposed convolution is refused");
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

LogicalResult rules::inferConvolutionBackward(ShapeRule &rule) {
  auto op = cast<ConvolutionBackwardOp>(rule.getOp());
  if (op.getOutputMask().size() != 3)
    return rule.emitError()
           << "output_mask names input, weight and bias, and "
           << "has " << op.getOutputMask().size() << " elements";
  TensorInfo gradient = rule.tensor(op.getGradOutput());
  TensorInfo input = rule.tensor(op.getInput());
  TensorInfo weight = rule.tensor(op.getWeight());
  if (input.hasRank() && weight.hasRank() &&
      input.getRank() != weight.getRank())
    return rule.emitError() << "the input has rank " << input.getRank()
                            << ", the weight " << weight.getRank();
  TensorInfo made;
  if (failed(inferResult(rule, {0, false}, op.getInput(), op.getWeight(),
                         /*bias=*/Value(), made)))
    return failure();
  if (gradient.elementType && input.elementType &&
      gradient.elementType != input.elementType)
    return rule.emitError() << "input is " << input.elementType
                            << ", grad_output is " << gradient.elementType;
  if (gradient.hasRank() && made.hasRank()) {
    bool fits = gradient.getRank() == made.getRank();
    for (int64_t dim = 0; fits && dim < made.getRank(); ++dim)
      fits = proveEqual(gradient.dim(dim), made.dim(dim)) != TriBool::No;
    if (!fits)
      return rule.emitError()
             << "grad_output is not shaped as the result of the convolution";
  }
  TensorInfo bias;
  bias.elementType = weight.elementType;
  if (input.hasRank() && weight.hasRank()) {
    // Where nothing is computed, the sizes are read; without them PyTorch dies.
    bool isEmpty = input.dim(0).isConstant(0) || input.dim(1).isConstant(0);
    if (isEmpty && op.getOutputMask()[2] && !op.getBiasSizes())
      return rule.emitError()
             << "needs bias_sizes for the bias of an empty input";
    TriBool isLast = isResultChannelsLast(input, weight);
    auto shape = [&](const TensorInfo &like) {
      // One dim is computed as two.
      TensorInfo image = like.getRank() == 3 ? unsqueeze(like, 2) : like;
      image = makeImage(*image.dims, image.elementType, isLast);
      return like.getRank() == 3 ? squeeze(image, 2) : image;
    };
    if (made.hasRank())
      bias = TensorInfo::contiguous({made.dim(1)}, weight.elementType);
    input = shape(input);
    // Of an empty input it is a copy of the weight, with zeros.
    auto kept = computePreservedStrides(weight);
    weight = shape(weight);
    if (isEmpty)
      weight.strides = kept;
  }
  setMaskedResults(rule, op.getOutputMask(), {input, weight, bias});
  return success();
}

void rules::inferConvolutionBackwardBatch(BatchRule &rule) {
  auto op = cast<ConvolutionBackwardOp>(rule.getOp());
  BatchFact gradient = rule.fact(op.getGradOutput());
  BatchFact input = rule.fact(op.getInput());
  if (!rule.fact(op.getWeight()).isFree())
    return rule.mix("the weight of a convolution depends on the batch");
  if (!input.isAt() || input.dim != 0 || !(gradient == input))
    return rule.mix("the batch is not dim 0 of the gradient and of the input");
  BatchFact sum = BatchFact::mixed(
      "the gradient of a weight is a sum over the samples", op);
  sum.combine = Combine::GradientSum;
  for (auto [index, isMade] : llvm::enumerate(op.getOutputMask())) {
    BatchFact fact = index == 0 ? input : sum;
    rule.setResult(index, isMade ? fact : BatchFact::free());
  }
}

/// A padding that is a number for each spatial dim; none where both ends of a
/// dim differ, or the weight is not known.
static std::optional<SmallVector<int64_t>> getPadding(Operation *op,
                                                      int64_t rank) {
  auto list = op->getAttrOfType<DenseI64ArrayAttr>("padding");
  if (list)
    return SmallVector<int64_t>(list.asArrayRef());
  auto same = isSame(op);
  if (!same)
    return std::nullopt;
  SmallVector<int64_t> padding(rank, 0);
  if (!*same)
    return padding;
  auto weight = cast<RankedTensorType>(getWeight(op).getType());
  auto dilation = op->getAttrOfType<DenseI64ArrayAttr>("dilation");
  for (int64_t dim = 0; dim < rank; ++dim) {
    if (weight.isDynamicDim(dim + 2))
      return std::nullopt;
    int64_t step = dilation.size() == 1 ? dilation[0] : dilation[dim];
    int64_t both = step * (weight.getDimSize(dim + 2) - 1);
    if (both % 2 != 0)
      return std::nullopt;
    padding[dim] = both / 2;
  }
  return padding;
}

bool rules::hasConvolutionGradients(Operation *op) {
  auto input = dyn_cast<RankedTensorType>(getInput(op).getType());
  auto weight = dyn_cast<RankedTensorType>(getWeight(op).getType());
  if (!input || !weight || input.getRank() != weight.getRank() ||
      input.getRank() < 3 || !isa<FloatType>(input.getElementType()) ||
      op->getNumOperands() > 3)
    return false;
  if (Value bias = getBias(op)) {
    auto type = dyn_cast<RankedTensorType>(bias.getType());
    if (!type || !type.hasStaticShape())
      return false;
  }
  for (NamedAttribute attr : op->getAttrs())
    if (auto list = dyn_cast<DenseI64ArrayAttr>(attr.getValue()))
      if (llvm::is_contained(list.asArrayRef(), ShapedType::kDynamic))
        return false;
  return getPadding(op, input.getRank() - 2).has_value();
}

SmallVector<Value>
rules::buildConvolutionGradients(Operation *op, ConvolutionKind kind,
                                 OpBuilder &builder, Value gradient,
                                 ValueRange operands, ArrayRef<bool> wanted) {
  auto weight = cast<RankedTensorType>(getWeight(op).getType());
  int64_t rank = weight.getRank() - 2;
  auto spread = [&](ArrayRef<int64_t> list) {
    SmallVector<int64_t> entries(list);
    if (entries.size() == 1)
      entries.assign(rank, list.front());
    return builder.getDenseI64ArrayAttr(entries);
  };
  auto read = [&](StringRef name, int64_t fallback) {
    auto list = op->getAttrOfType<DenseI64ArrayAttr>(name);
    return spread(list ? list.asArrayRef() : ArrayRef(fallback));
  };
  bool transposed = isTransposed(op, kind);
  int64_t groups = getGroups(op);
  SmallVector<NamedAttribute> shared{
      builder.getNamedAttr("stride", read("stride", 1)),
      builder.getNamedAttr("padding", spread(*getPadding(op, rank))),
      builder.getNamedAttr("dilation", read("dilation", 1)),
      builder.getNamedAttr("transposed", builder.getBoolAttr(transposed)),
      builder.getNamedAttr("output_padding", read("output_padding", 0)),
      builder.getNamedAttr("groups", builder.getI64IntegerAttr(groups))};
  SmallVector<Type> types{operands[0].getType(), operands[1].getType()};
  Type vector = RankedTensorType::get(
      {transposed ? ShapedType::kDynamic : weight.getDimSize(0)},
      weight.getElementType());
  types.push_back(operands.size() > 2 ? operands[2].getType() : vector);
  Type none = UnrankedTensorType::get(weight.getElementType());
  // What samples have apart, and what is a sum over them.
  SmallVector<Value> gradients(operands.size());
  auto make = [&](ArrayRef<bool> mask) {
    if (!llvm::is_contained(mask, true))
      return;
    SmallVector<NamedAttribute> attributes(shared);
    attributes.push_back(builder.getNamedAttr(
        "output_mask", builder.getDenseBoolArrayAttr(mask)));
    SmallVector<Type> results;
    for (auto [type, isMade] : llvm::zip_equal(types, mask))
      results.push_back(isMade ? type : none);
    auto bias = dyn_cast<RankedTensorType>(types[2]);
    if (mask[2] && bias && bias.hasStaticShape())
      attributes.push_back(builder.getNamedAttr(
          "bias_sizes", builder.getDenseI64ArrayAttr(bias.getShape())));
    auto made = ConvolutionBackwardOp::create(
        builder, op->getLoc(), results,
        ValueRange{gradient, operands[0], operands[1]}, attributes);
    for (auto [index, isMade] : llvm::enumerate(mask))
      if (isMade)
        gradients[index] = made->getResult(index);
  };
  bool wantsBias = wanted.size() > 2 && wanted[2];
  make({wanted[0], false, false});
  make({false, wanted[1], wantsBias});
  return gradients;
}

//===----------------------------------------------------------------------===//
// Over time
//===----------------------------------------------------------------------===//

LogicalResult rules::inferConvolutionOverTime(ShapeRule &rule) {
  Operation *op = rule.getOp();
  TensorInfo input = rule.tensor(getInput(op));
  TensorInfo weight = rule.tensor(getWeight(op));
  TensorInfo bias = rule.tensor(getBias(op));
  TensorInfo result;
  result.elementType = input.elementType;
  rule.setResult(0, result);
  if (input.elementType && weight.elementType &&
      input.elementType != weight.elementType)
    return rule.emitError() << "input is " << input.elementType
                            << ", the weight is " << weight.elementType;
  for (auto &[info, rank] :
       {std::pair(input, 3), std::pair(weight, 3), std::pair(bias, 1)})
    if (failed(checkRank(rule, info, rank, rank)))
      return failure();
  if (!input.hasRank() || !weight.hasRank())
    return success();
  if (proveEqual(input.dim(2), weight.dim(1)) == TriBool::No)
    return rule.emitError()
           << "the weight takes " << weight.dim(1).str()
           << " channels, the input has " << input.dim(2).str();
  if (bias.hasRank() && proveEqual(bias.dim(0), weight.dim(2)) == TriBool::No)
    return rule.emitError()
           << "the bias does not have one element for each "
           << "of " << weight.dim(2).str() << " output channels";
  DimExpr padding = rule.integerArgument("pad");
  DimExpr time;
  if (padding)
    time = input.dim(0) + padding * 2 - weight.dim(0) + 1;
  if (auto extent = time ? time.getConstant() : std::nullopt;
      extent && *extent < 0)
    return rule.emitError() << "the kernel is larger than the padded input";
  // Steps are views of [time * batch, channels]
  // (aten/src/ATen/native/ConvolutionTBC.cpp).
  auto padded = padding ? padding.getConstant() : std::nullopt;
  auto kernel = weight.dim(0).getConstant();
  if (padded && kernel && *padded < *kernel && input.strides &&
      proveAtMost(input.dim(0).min(time), rule.constant(1)) == TriBool::No &&
      !input.dim(1).isConstant(1)) {
    DimExpr step = (*input.strides)[0];
    DimExpr row = input.dim(1) * (*input.strides)[1];
    if (proveAtMost(step, row) == TriBool::No ||
        proveAtMost(row, step) == TriBool::No)
      return rule.emitError() << "the strides of the input do not allow to "
                              << "see time and batch as one dim";
  }
  rule.setResult(0, makeImage({time, input.dim(1), weight.dim(2)},
                              input.elementType, TriBool::No));
  return success();
}

void rules::inferConvolutionOverTimeBatch(BatchRule &rule) {
  Operation *op = rule.getOp();
  BatchFact fact = rule.fact(getInput(op));
  if (!rule.fact(getWeight(op)).isFree() || !rule.fact(getBias(op)).isFree())
    return rule.mix("the weight of a convolution depends on the batch");
  if (argumentsFollowBatch(rule))
    return rule.mix("the padding depends on the number of samples");
  if (fact.dim != 1)
    return rule.mix("the batch of conv_tbc is dim 1, not dim " +
                    Twine(fact.dim));
  // A part of the batch does not lie like that.
  rule.mix("conv_tbc sees time and batch as one dim");
}
