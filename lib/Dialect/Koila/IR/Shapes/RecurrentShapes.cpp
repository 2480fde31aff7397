//===- RecurrentShapes.cpp - Rules of recurrent layers and cells ----------===//

#include "../Rules/AttentionRules.h"
#include "../Rules/MatmulRules.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using rules::Recurrent;

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

/// Everything that is multiplied has one type.
static LogicalResult checkTypes(ShapeRule &rule, const Recurrent &layer) {
  Type type = rule.tensor(layer.input).elementType;
  if (failed(rules::checkOneElementType(
          rule, type, rule.tensor(layer.hidden[0]).elementType,
          "the hidden state")))
    return failure();
  for (Value param : layer.params)
    if (failed(rules::checkOneElementType(rule, type,
                                          rule.tensor(param).elementType)))
      return failure();
  return success();
}

/// The extent of a known dim; null if the rank is unknown.
static DimExpr getDim(const TensorInfo &info, int64_t dim) {
  return info.hasRank() && dim < info.getRank() ? info.dim(dim) : DimExpr();
}

static bool differ(DimExpr lhs, DimExpr rhs) {
  return lhs && rhs && proveEqual(lhs, rhs) == TriBool::No;
}

static LogicalResult checkParameters(ShapeRule &rule, const Recurrent &layer,
                                     DimExpr features, DimExpr hidden) {
  int64_t directions = layer.bidirectional ? 2 : 1;
  int64_t perCell = layer.biases ? 4 : 2;
  int64_t cells = layer.layers * directions;
  int64_t count = static_cast<int64_t>(layer.params.size());
  // An LSTM may have one weight more in each cell, of a projection.
  if (layer.gates == 4 && cells > 0 && count == cells * (perCell + 1))
    ++perCell;
  if (layer.layers < 1 || count % perCell != 0 || count < cells * perCell)
    return rule.emitError() << "expects " << cells * perCell << " weights for "
                            << cells << " cells, got " << count;
  for (int64_t cell = 0; cell < cells; ++cell) {
    for (Value weight : ValueRange(layer.params).slice(cell * perCell, 2))
      if (TensorInfo info = rule.tensor(weight);
          info.hasRank() && info.getRank() != 2)
        return rule.emitError()
               << "expects matrices as weights, got rank " << info.getRank();
    TensorInfo input = rule.tensor(layer.params[cell * perCell]);
    DimExpr width = cell < directions ? features
                    : hidden          ? hidden * directions
                                      : DimExpr();
    if (differ(getDim(input, 1), width))
      return rule.emitError()
             << "weight " << cell * perCell << " takes "
             << getDim(input, 1).str() << " features, it gets " << width.str();
    TensorInfo state = rule.tensor(layer.params[cell * perCell + 1]);
    if (differ(getDim(state, 1), hidden))
      return rule.emitError() << "weight " << cell * perCell + 1 << " takes "
                              << getDim(state, 1).str()
                              << " hidden features, there are " << hidden.str();
    if (differ(getDim(state, 0), getDim(input, 0)))
      return rule.emitError()
             << "weights " << cell * perCell << " and " << cell * perCell + 1
             << " have " << getDim(input, 0).str() << " and "
             << getDim(state, 0).str() << " rows";
  }
  return success();
}

LogicalResult rules::inferRecurrent(ShapeRule &rule, const Recurrent &layer) {
  TensorInfo input = rule.tensor(layer.input), result;
  bool packed = static_cast<bool>(layer.batchSizes);
  int64_t rank = packed ? 2 : 3;
  result.elementType = input.elementType;
  size_t states = layer.gates == 4 ? 2 : 1;
  if (layer.hidden.size() != states)
    return rule.emitError() << "expects " << states << " hidden states, got "
                            << layer.hidden.size();
  if (failed(checkTypes(rule, layer)))
    return failure();
  TensorInfo first = rule.tensor(layer.hidden[0]);
  for (auto [index, state] : llvm::enumerate(layer.hidden))
    if (TensorInfo info = rule.tensor(state); info.hasRank()) {
      if (info.getRank() != 3)
        return rule.emitError()
               << "expects hidden states of rank 3, got " << info.getRank();
      DimExpr cells =
          rule.constant(layer.layers * (layer.bidirectional ? 2 : 1));
      if (differ(info.dim(0), cells))
        return rule.emitError() << "expects " << cells.str()
                                << " hidden states, got " << info.dim(0).str();
    }
  if (input.hasRank() && input.getRank() != rank)
    return rule.emitError() << "expects an input of rank " << rank << ", got "
                            << input.getRank();
  DimExpr features = getDim(input, rank - 1), hidden = getDim(first, 2);
  if (failed(checkParameters(rule, layer, features, hidden)))
    return failure();
  int64_t time = layer.batchFirst ? 1 : 0;
  if (!packed && input.hasRank()) {
    if (input.dim(time).isConstant(0))
      return rule.emitError() << "expects a sequence of one step or more";
    if (differ(input.dim(1 - time), getDim(first, 1)))
      return rule.emitError()
             << "the input has " << input.dim(1 - time).str()
             << " samples, the hidden state " << first.dim(1).str();
  }
  for (auto [index, state] : llvm::enumerate(layer.hidden)) {
    TensorInfo info = rule.tensor(state), last;
    last.elementType = result.elementType;
    if (info.hasRank())
      last = TensorInfo::contiguous(*info.dims, result.elementType);
    rule.setResult(index + 1, last);
  }
  if (!input.hasRank() || !hidden) {
    rule.setResult(0, result);
    return success();
  }
  SmallVector<DimExpr> dims(ArrayRef(*input.dims).drop_back());
  dims.push_back(layer.bidirectional ? hidden * 2 : hidden);
  // Computed step by step: time is the slowest dim in memory.
  if (time == 1)
    std::swap(dims[0], dims[1]);
  result = TensorInfo::contiguous(dims, result.elementType);
  if (time == 1) {
    std::swap((*result.dims)[0], (*result.dims)[1]);
    std::swap((*result.strides)[0], (*result.strides)[1]);
  }
  rule.setResult(0, result);
  return success();
}

void rules::inferRecurrentBatch(BatchRule &rule, const Recurrent &layer) {
  if (layer.batchSizes)
    return rule.mix("packed sequences hold the samples of each step together");
  for (Value param : layer.params)
    if (!rule.fact(param).isFree())
      return rule.mix("a weight of the recurrent layer depends on the batch");
  BatchFact fact = rule.fact(layer.input);
  int64_t place = layer.batchFirst ? 0 : 1;
  if (!fact.isAt() || fact.dim != place)
    return rule.mix(fact.isFree()
                        ? "only the hidden state carries the batch"
                        : "the batch is the time or a feature of a recurrent "
                          "layer");
  BatchFact state = BatchFact::at(1, fact.factor);
  for (Value hidden : layer.hidden)
    if (!(rule.fact(hidden) == state))
      return rule.mix("the hidden state does not follow the batch");
  rule.setAll(state);
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

LogicalResult rules::inferCell(ShapeRule &rule, const Recurrent &cell) {
  TensorInfo input = rule.tensor(cell.input), result;
  TensorInfo weight = rule.tensor(cell.params[0]);
  TensorInfo recurrent = rule.tensor(cell.params[1]);
  size_t states = cell.gates == 4 ? 2 : 1;
  if (cell.hidden.size() != states)
    return rule.emitError() << "expects " << states << " hidden states, got "
                            << cell.hidden.size();
  if (failed(checkTypes(rule, cell)))
    return failure();
  TensorInfo hidden = rule.tensor(cell.hidden[0]);
  for (const TensorInfo &info : {input, hidden, weight, recurrent})
    if (info.hasRank() && info.getRank() != 2)
      return rule.emitError()
             << "expects matrices, got rank " << info.getRank();
  if (differ(getDim(input, 1), getDim(weight, 1)))
    return rule.emitError()
           << "the weight takes " << weight.dim(1).str()
           << " features, the input has " << input.dim(1).str();
  if (differ(getDim(hidden, 1), getDim(recurrent, 1)))
    return rule.emitError()
           << "the weight takes " << recurrent.dim(1).str()
           << " hidden features, there are " << hidden.dim(1).str();
  for (const TensorInfo &info : {weight, recurrent})
    if (hidden.hasRank() && differ(getDim(info, 0), hidden.dim(1) * cell.gates))
      return rule.emitError()
             << "expects a weight of " << (hidden.dim(1) * cell.gates).str()
             << " rows, got " << info.dim(0).str();
  for (Value state : cell.hidden) {
    TensorInfo info = rule.tensor(state);
    if (info.hasRank() && hidden.hasRank() &&
        (info.getRank() != 2 || differ(info.dim(0), hidden.dim(0)) ||
         differ(info.dim(1), hidden.dim(1))))
      return rule.emitError() << "the hidden states differ in shape";
  }
  if (differ(getDim(input, 0), getDim(hidden, 0)))
    return rule.emitError()
           << "the input has " << input.dim(0).str()
           << " samples, the hidden state " << hidden.dim(0).str();
  result.elementType = input.elementType;
  if (hidden.hasRank()) {
    result = TensorInfo::contiguous(*hidden.dims, input.elementType);
    // gru_cell ends in a difference with the hidden state
    // (aten/src/ATen/native/RNN.cpp).
    if (cell.gates == 3)
      result.strides =
          computeElementwiseStrides({hidden, result}, *hidden.dims);
  }
  // An LSTM computes with the state of its cell, whose type may be wider.
  if (states == 2 && result.hasRank() && result.elementType)
    if (Type own = rule.tensor(cell.hidden[1]).elementType)
      result.elementType = promoteTypes(result.elementType, true, own, true);
  for (size_t index = 0; index < states; ++index)
    rule.setResult(index, result);
  return success();
}

void rules::inferCellBatch(BatchRule &rule, const Recurrent &cell) {
  for (Value param : cell.params)
    if (!rule.fact(param).isFree())
      return rule.mix("a weight of the cell depends on the batch");
  BatchFact fact = rule.fact(cell.input);
  for (Value hidden : cell.hidden)
    if (!(rule.fact(hidden) == fact))
      return rule.mix("input and hidden state carry the batch differently");
  if (!fact.isAt() || fact.dim != 0)
    return rule.mix("the batch is a feature of the cell");
  rule.setAll(fact);
}

//===----------------------------------------------------------------------===//
// Packed sequences
//===----------------------------------------------------------------------===//

LogicalResult rules::inferPack(ShapeRule &rule, Value input, Value lengths) {
  TensorInfo info = rule.tensor(input), data, sizes;
  TensorInfo counts = rule.tensor(lengths);
  if (counts.hasRank() && counts.getRank() != 1)
    return rule.emitError()
           << "expects lengths of rank 1, got " << counts.getRank();
  data.elementType = info.elementType;
  sizes.elementType = IntegerType::get(rule.getContext(), 64);
  sizes.dims.emplace(1);
  if (info.hasRank()) {
    if (info.getRank() < 2)
      return rule.emitError()
             << "expects sequences of rank 2 or more, got " << info.getRank();
    // The lengths decide how many steps there are.
    data.dims.emplace(ArrayRef(*info.dims).drop_front(1));
    (*data.dims)[0] = DimExpr();
  }
  rule.setResult(0, data);
  rule.setResult(1, sizes);
  return success();
}

LogicalResult rules::inferPad(ShapeRule &rule, Value data, Value batchSizes,
                              bool batchFirst) {
  TensorInfo info = rule.tensor(data), result, lengths;
  TensorInfo sizes = rule.tensor(batchSizes);
  result.elementType = info.elementType;
  lengths.elementType = IntegerType::get(rule.getContext(), 64);
  lengths.dims.emplace(1);
  DimExpr total = rule.integerArgument("total_length");
  if (info.hasRank() && info.getRank() > 0) {
    DimExpr steps;
    if (total && total.getConstant())
      steps = *total.getConstant() > 0 ? total : getDim(sizes, 0);
    if (differ(steps, getDim(sizes, 0)) &&
        proveAtMost(steps, getDim(sizes, 0)) == TriBool::Yes)
      return rule.emitError()
             << "total_length " << steps.str() << " is less than "
             << getDim(sizes, 0).str() << " steps";
    result.dims.emplace(
        {batchFirst ? DimExpr() : steps, batchFirst ? steps : DimExpr()});
    result.dims->append(info.dims->begin() + 1, info.dims->end());
  }
  rule.setResult(0, result);
  rule.setResult(1, lengths);
  return success();
}
