//===- NormSupport.cpp - Rules shared by normalisations, dropout ----------===//

#include "../Rules/ReductionRules.h"
#include "koila/Dialect/Koila/IR/Dropout.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Memory format
//===----------------------------------------------------------------------===//

/// Whether PyTorch takes the strides for channels last, dense or not.
/// Source: is_channels_last_strides_2d_s4 in c10/core/MemoryFormat.h.
static TriBool looksChannelsLast(const TensorInfo &info,
                                 ArrayRef<int64_t> order) {
  ArrayRef<DimExpr> dims = *info.dims, strides = *info.strides;
  if (strides[1].isConstant(0))
    return TriBool::No;
  DimExpr least = DimExpr::constant(dims[0].getContext(), 0);
  TriBool all = TriBool::Yes;
  for (int64_t dim : order) {
    if (dims[dim].isConstant(0))
      return TriBool::No;
    TriBool ordered = proveAtMost(least, strides[dim]);
    if (ordered == TriBool::No)
      return TriBool::No;
    if (ordered == TriBool::Unknown)
      all = TriBool::Unknown;
    if (dim == 0 && proveEqual(least, strides[1]) == TriBool::Yes)
      return TriBool::No;
    least = strides[dim] * dims[dim];
  }
  return all;
}

TensorInfo rules::inSuggestedFormat(const TensorInfo &info) {
  if (!info.hasRank())
    return info;
  TensorInfo rows = TensorInfo::contiguous(*info.dims, info.elementType);
  int64_t rank = info.getRank();
  if (rank != 4 && rank != 5)
    return rows;
  // Channels first in memory, then the spatial dims from the last.
  SmallVector<int64_t> order{1};
  for (int64_t dim = rank - 1; dim > 1; --dim)
    order.push_back(dim);
  order.push_back(0);
  TriBool last =
      info.strides ? looksChannelsLast(info, order) : TriBool::Unknown;
  if (last == TriBool::Unknown && info.isContiguous() != TriBool::Yes)
    rows.strides.reset();
  if (last != TriBool::Yes)
    return rows;
  DimExpr stride = DimExpr::constant(info.dim(0).getContext(), 1);
  for (int64_t dim : order) {
    (*rows.strides)[dim] = stride;
    stride = stride * info.dim(dim);
  }
  return rows;
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

LogicalResult rules::checkParameterTypes(ShapeRule &rule,
                                         const TensorInfo &input,
                                         ValueRange parameters) {
  Type common;
  for (Value parameter : parameters) {
    Type type = rule.tensor(parameter).elementType;
    if (!type)
      continue;
    if (common && type != common)
      return rule.emitError()
             << "has parameters of " << common << " and " << type;
    common = type;
  }
  if (!common || !input.elementType || common == input.elementType ||
      (common.isF32() && isa<Float16Type, BFloat16Type>(input.elementType)))
    return success();
  return rule.emitError() << "has an input of " << input.elementType
                          << " and parameters of " << common;
}

LogicalResult rules::checkChannels(ShapeRule &rule, DimExpr channels,
                                   ValueRange vectors) {
  auto wanted = channels.getConstant();
  for (Value vector : vectors) {
    TensorInfo info = rule.tensor(vector);
    if (!info.hasRank() || !wanted)
      continue;
    auto count = info.getRank() == 1 ? info.dim(0).getConstant()
                                     : std::optional<int64_t>(-1);
    if (count && *count != *wanted)
      return rule.emitError() << "normalises " << *wanted
                              << " channels with a vector for " << *count;
  }
  return success();
}

bool rules::isEmpty(const TensorInfo &info) {
  return info.hasRank() && llvm::any_of(*info.dims, [](DimExpr dim) {
           return dim.isConstant(0);
         });
}

// Source: _batch_norm_impl_index in aten/src/ATen/native/Normalization.cpp.
LogicalResult rules::checkFirstElements(ShapeRule &rule, ValueRange vectors) {
  for (Value vector : vectors) {
    TensorInfo info = rule.tensor(vector);
    if (info.hasRank() && (info.getRank() == 0 || info.dim(0).isConstant(0)))
      return rule.emitError() << "takes the first element of a vector that "
                                 "has none";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Over trailing dims
//===----------------------------------------------------------------------===//

LogicalResult rules::inferTrailingNorm(ShapeRule &rule, Value input,
                                       ValueRange parameters) {
  TensorInfo info = rule.tensor(input);
  auto shape = rule.integerList("normalized_shape");
  if (!info.hasRank() || !shape)
    return success();
  int64_t leading = info.getRank() - static_cast<int64_t>(shape->size());
  if (shape->empty() || leading < 0)
    return rule.emitError() << "normalises " << shape->size()
                            << " dims of an input of rank " << info.getRank();
  for (auto [index, extent] : llvm::enumerate(*shape))
    if (extent && proveEqual(info.dim(leading + index), extent) == TriBool::No)
      return rule.emitError()
             << "normalises extent " << extent.str() << ", the input has "
             << info.dim(leading + index).str();
  for (Value vector : parameters) {
    TensorInfo parameter = rule.tensor(vector);
    if (!parameter.hasRank())
      continue;
    bool fits = parameter.getRank() == static_cast<int64_t>(shape->size());
    for (int64_t dim = 0; fits && dim < parameter.getRank(); ++dim)
      fits = !(*shape)[dim] ||
             proveEqual(parameter.dim(dim), (*shape)[dim]) != TriBool::No;
    if (!fits)
      return rule.emitError() << "weight and bias must have the normalized "
                                 "shape";
  }
  return success();
}

LogicalResult rules::inferNativeLayerNorm(ShapeRule &rule, Value input,
                                          ValueRange parameters) {
  TensorInfo info = rule.tensor(input), rows;
  if (failed(inferTrailingNorm(rule, input, parameters)) ||
      failed(checkParameterTypes(rule, info, parameters)))
    return failure();
  // Statistics are of the parameters' type.
  rows.elementType = info.elementType;
  for (Value parameter : llvm::reverse(parameters))
    if (parameter)
      rows.elementType = rule.tensor(parameter).elementType;
  if (info.hasRank()) {
    info = TensorInfo::contiguous(*info.dims, info.elementType);
    if (auto shape = rule.integerList("normalized_shape")) {
      SmallVector<DimExpr> dims(*info.dims);
      for (size_t i = 0; i < shape->size(); ++i)
        dims[dims.size() - 1 - i] = rule.constant(1);
      rows = TensorInfo::contiguous(dims, rows.elementType);
    }
  }
  rule.setResult(0, info);
  rule.setResult(1, rows);
  rule.setResult(2, rows);
  return success();
}

void rules::inferTrailingNormBatch(BatchRule &rule, Value input,
                                   ValueRange parameters) {
  StringRef name = getOperatorName(rule.getOp());
  TensorInfo info = rule.tensor(input);
  BatchFact fact = rule.fact(input);
  for (Value parameter : parameters)
    if (!rule.fact(parameter).isFree())
      return rule.mix("the weight of " + name + " depends on the batch");
  OperatorArguments arguments(rule.getOp());
  for (Value size : arguments.getDynamic()) {
    if (!rule.fact(size).isFree())
      return rule.mix(name + " normalises over the batch dim");
    if (!size.getType().isInteger(64))
      return rule.mix("the number of dims that " + name +
                      " normalises is unknown");
  }
  int64_t normalised =
      rule.getOp()->getAttrOfType<DenseI64ArrayAttr>("normalized_shape").size();
  if (!info.hasRank() || fact.dim >= info.getRank() - normalised)
    return rule.mix(name + " normalises over the batch dim");
  rule.setAll(fact);
}

//===----------------------------------------------------------------------===//
// Of each sample
//===----------------------------------------------------------------------===//

LogicalResult rules::inferGroupNorm(ShapeRule &rule, int64_t groups,
                                    Value weight, Value bias) {
  TensorInfo input = rule.tensor(rule.getOp()->getOperand(0));
  if (groups <= 0)
    return rule.emitError() << "has " << groups << " groups";
  if (input.hasRank()) {
    if (input.getRank() < 2)
      return rule.emitError()
             << "expects rank 2 or more, got " << input.getRank();
    auto channels = input.dim(1).getConstant();
    if (channels && *channels % groups != 0)
      return rule.emitError() << *channels << " channels are not divisible by "
                              << groups << " groups";
    if (failed(checkChannels(rule, input.dim(1), {weight, bias})))
      return failure();
  }
  if (failed(checkParameterTypes(rule, input, {weight, bias})))
    return failure();
  rule.setResult(0, inSuggestedFormat(input));
  return success();
}

LogicalResult rules::inferInstanceNorm(ShapeRule &rule, bool useInputStats,
                                       ValueRange parameters) {
  TensorInfo input = rule.tensor(rule.getOp()->getOperand(0));
  if (!useInputStats && (!parameters[2] || !parameters[3]))
    return rule.emitError()
           << "needs running_mean and running_var without use_input_stats";
  if (input.hasRank()) {
    if (input.getRank() < 2)
      return rule.emitError()
             << "expects rank 2 or more, got " << input.getRank();
    rule.setResult(0, TensorInfo::contiguous(*input.dims, input.elementType));
    if (isEmpty(input)) {
      // Weight and bias are repeated for each sample.
      if (input.dim(0).isConstant(0) && (parameters[0] || parameters[1]))
        return rule.emitError() << "takes the first element of a vector that "
                                   "has none";
      return checkFirstElements(rule, parameters.take_front(2));
    }
    if (failed(checkChannels(rule, input.dim(1), parameters)))
      return failure();
  } else {
    rule.setResult(0, input);
  }
  return checkParameterTypes(rule, input, parameters);
}

void rules::inferSampleNormBatch(BatchRule &rule, ValueRange parameters) {
  StringRef name = getOperatorName(rule.getOp());
  BatchFact fact = rule.fact(rule.getOp()->getOperand(0));
  for (Value parameter : parameters)
    if (!rule.fact(parameter).isFree())
      return rule.mix("the weight of " + name + " depends on the batch");
  if (!fact.isAt() || fact.dim != 0)
    return rule.mix(name + " normalises over the batch dim");
  rule.setAll(fact);
}

//===----------------------------------------------------------------------===//
// dropout, renorm, weight_norm
//===----------------------------------------------------------------------===//

LogicalResult rules::inferDropout(ShapeRule &rule, double p) {
  if (!(p >= 0 && p <= 1))
    return rule.emitError() << "probability " << p << " is not between 0 and 1";
  rule.setResult(0, rule.tensor(rule.getOp()->getOperand(0)));
  return success();
}

LogicalResult rules::inferRenorm(ShapeRule &rule, int64_t dim) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  if (self.elementType && isa<IntegerType>(self.elementType))
    return rule.emitError() << "takes no integers";
  auto isLess = [&](StringRef name, bool orEqual) {
    Attribute attr = rule.getOp()->getAttr(name);
    double value = 1;
    if (auto number = dyn_cast<FloatAttr>(attr))
      value = number.getValueAsDouble();
    else if (auto number = dyn_cast<IntegerAttr>(attr))
      value = number.getInt();
    return value < 0 || (orEqual && value == 0);
  };
  if (isLess("p", true) || isLess("maxnorm", false))
    return rule.emitError() << "p must be positive and maxnorm not negative";
  if (self.hasRank()) {
    if (self.getRank() < 2 || !normalizeDim(dim, self.getRank()))
      return rule.emitError() << "dim " << dim << " of rank " << self.getRank();
    if (!cast<TorchOperatorInterface>(rule.getOp()).isTied())
      self = TensorInfo::contiguous(*self.dims, self.elementType);
  }
  rule.setResult(0, self);
  return success();
}

void rules::inferRenormBatch(BatchRule &rule, int64_t dim) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  BatchFact fact = rule.fact(rule.getOp()->getOperand(0));
  if (!self.hasRank() || normalizeDim(dim, self.getRank()) != fact.dim)
    return rule.mix("renorm over dim " + Twine(fact.dim) + " mixes samples");
  rule.setResult(0, fact);
}

LogicalResult rules::inferWeightNorm(ShapeRule &rule, int64_t dim) {
  TensorInfo v = rule.tensor(rule.getOp()->getOperand(0));
  TensorInfo g = rule.tensor(rule.getOp()->getOperand(1));
  bool fused = v.hasRank() && (dim == 0 || dim == v.getRank() - 1);
  bool differ =
      v.elementType && g.elementType && v.elementType != g.elementType;
  if (differ && fused)
    return rule.emitError()
           << "v is of " << v.elementType << ", g of " << g.elementType;
  TensorInfo result;
  result.elementType = differ ? promoteTypes(v, g) : v.elementType;
  if (v.hasRank()) {
    int64_t rank = v.getRank();
    auto normal = normalizeDim(dim, rank);
    if (rank == 0 || !normal)
      return rule.emitError()
             << "dim " << dim << " is out of range for rank " << rank;
    bool half = !v.elementType || isa<Float16Type, BFloat16Type>(v.elementType);
    // The fused kernel of the first and the last dim does not look at g;
    // otherwise v * (g / norm) broadcasts (WeightNorm.cpp).
    if (!half && fused) {
      result = TensorInfo::contiguous(*v.dims, v.elementType);
    } else if (g.hasRank()) {
      // -1 is the norm of all there is; other dims count from either end.
      SmallVector<DimExpr> dims;
      if (dim != -1) {
        dims.assign(rank, rule.constant(1));
        dims[*normal] = v.dim(*normal);
      }
      TensorInfo norm = TensorInfo::contiguous(dims, v.elementType);
      auto common = broadcastOperands(rule, {v, g, norm});
      if (failed(common))
        return failure();
      TensorInfo scale = g.getRank() ? g : norm;
      scale.elementType = promoteTypes(g, norm);
      result = TensorInfo::contiguous(**common, promoteTypes(v, scale));
    }
  }
  rule.setResult(0, result);
  return success();
}
