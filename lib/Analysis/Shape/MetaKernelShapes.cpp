//===- MetaKernelShapes.cpp - Shapes of operators without a rule ----------===//

#include "koila/Analysis/MetaKernelShapes.h"
#include "GenericListInference.h"
#include "koila/Analysis/SameTensor.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
#include "koila/Interfaces/CustomOperators.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace koila;
namespace json = llvm::json;

namespace {
/// One value per symbol, in their order.
using Point = SmallVector<int64_t>;

struct Answer {
  bool isTensor = false;
  bool isList = false;
  std::vector<Answer> elements;
  /// Of a tensor; of an integer, its value.
  SmallVector<int64_t> dims;
  bool isInteger = false;
  /// Follows from what the arguments are, whatever their sizes.
  bool structural = false;
  /// Of a bool, a number that is no integer, a text or None.
  Attribute literal;
  int64_t dtype = -1;
  bool contiguous = false;
  std::optional<SmallVector<int64_t>> strides;
};

class Inference {
public:
  /// What of the operator gives the results for encoded arguments.
  using Kernel =
      llvm::function_ref<std::optional<json::Value>(json::Array arguments)>;
  /// With `strides` the kernel is told how operands lie in memory, and says how
  /// results do.
  Inference(CarriedOperatorInterface op, ShapeRule &rule, Kernel kernel,
            ListLookup lists, bool strides = false)
      : op(op), rule(rule), kernel(kernel), lists(lists), strides(strides) {}
  void run();

private:
  bool collectSymbols(const ValueInfo &info);
  bool collectSymbols(const ListFact &list);
  std::optional<int64_t> evaluate(DimExpr expr, const Point &point) const;
  std::optional<json::Value> encode(const ValueInfo &info, Type type,
                                    const Point &point);
  std::optional<json::Value> encode(const ListFact &list, const Point &point);
  std::optional<json::Value> encode(Attribute literal, const Point &point);
  std::optional<std::vector<Answer>> ask(const Point &point);
  /// Asks at the point; false if there is no answer.
  bool add(Point point);
  /// Asks where lists get longer that were as long at all points so far.
  bool addListPoints();
  /// What the answers, one per point, agree on.
  ValueInfo conclude(ArrayRef<const Answer *> found);
  TensorInfo concludeTensor(ArrayRef<const Answer *> found);
  DimExpr fit(ArrayRef<int64_t> values);

  CarriedOperatorInterface op;
  ShapeRule &rule;
  Kernel kernel;
  ListLookup lists;
  bool strides;
  /// An operand lies in memory in a way that is not known.
  bool isUnknownLayout = false;
  llvm::SetVector<DimSymbol> symbols;
  /// The base, one step along each symbol, then points that confirm.
  SmallVector<Point> points;
  std::vector<std::vector<Answer>> answers;
  /// The largest number in the arguments.
  int64_t largest = 1;
};
} // namespace

/// Shapes are the same on every device.
static bool isDevice(Type type) {
  auto torch = dyn_cast<TorchType>(type);
  return torch && torch.getSpelling() == "Device";
}

/// False if something about the value is not known.
bool Inference::collectSymbols(const ValueInfo &info) {
  auto collect = [&](DimExpr expr) {
    if (!expr)
      return false;
    if (auto number = expr.getConstant())
      largest = std::max(largest, *number);
    expr.forEachSymbol([&](DimSymbol symbol) { symbols.insert(symbol); });
    return true;
  };
  // It may be None as well.
  if (isa_and_nonnull<DynamicAttr>(info.literal))
    return false;
  if (info.tensor)
    return info.tensor->hasRank() &&
           rules::getScalarTypeCode(info.tensor->elementType) &&
           llvm::all_of(*info.tensor->dims, collect);
  if (info.integer)
    return collect(info.integer);
  if (info.literal)
    return true;
  if (info.list)
    return llvm::all_of(*info.list, collect);
  return !info.elements.empty() &&
         llvm::all_of(info.elements, [&](const ValueInfo &element) {
           return collectSymbols(element);
         });
}

/// Stands for the lengths that nobody knows; no result may be made of it.
static DimSymbol getUnknownLength(MLIRContext *context) {
  return DimSymbol::get(context, "_length", SymbolKind::Integer);
}

bool Inference::collectSymbols(const ListFact &list) {
  ValueInfo length;
  length.integer = list.length
                       ? list.length
                       : DimExpr::symbol(getUnknownLength(op->getContext()));
  return collectSymbols(list.element) && collectSymbols(length);
}

std::optional<int64_t> Inference::evaluate(DimExpr expr,
                                           const Point &point) const {
  return expr.evaluate([&](DimSymbol symbol) -> std::optional<int64_t> {
    for (auto [known, value] : llvm::zip_equal(symbols, point))
      if (known == symbol)
        return value;
    return std::nullopt;
  });
}

std::optional<json::Value> Inference::encode(const ListFact &list,
                                             const Point &point) {
  // A list of everything that a large number counts is nothing to try.
  constexpr int64_t kMost = 1 << 16;
  DimExpr expr = list.length
                     ? list.length
                     : DimExpr::symbol(getUnknownLength(op->getContext()));
  auto length = evaluate(expr, point);
  auto element =
      encode(list.element, IntegerType::get(op->getContext(), 64), point);
  if (!length || !element || *length < 0 || *length > kMost)
    return std::nullopt;
  json::Array elements;
  for (int64_t i = 0; i < *length; ++i)
    elements.push_back(*element);
  return json::Object{{"list", std::move(elements)}};
}

std::optional<json::Value> Inference::encode(const ValueInfo &info, Type type,
                                             const Point &point) {
  if (info.tensor) {
    json::Array dims;
    for (DimExpr dim : *info.tensor->dims) {
      auto extent = evaluate(dim, point);
      if (!extent || *extent < 0)
        return std::nullopt;
      dims.push_back(*extent);
    }
    json::Object tensor{
        {"dims", std::move(dims)},
        {"dtype", *rules::getScalarTypeCode(info.tensor->elementType)}};
    if (strides) {
      json::Array steps;
      for (DimExpr stride :
           info.tensor->strides.value_or(SmallVector<DimExpr>()))
        if (auto step = stride ? evaluate(stride, point) : std::nullopt)
          steps.push_back(*step);
      isUnknownLayout |= steps.size() != info.tensor->dims->size();
      if (steps.size() == info.tensor->dims->size())
        tensor["strides"] = std::move(steps);
    }
    return json::Object{{"tensor", std::move(tensor)}};
  }
  if (info.integer) {
    auto value = evaluate(info.integer, point);
    if (!value || type.isInteger(1))
      return std::nullopt;
    return json::Object{{"value", *value}};
  }
  if (info.literal)
    return encode(info.literal, point);
  if (info.list) {
    json::Array numbers;
    for (DimExpr element : *info.list) {
      auto value = evaluate(element, point);
      if (!value)
        return std::nullopt;
      numbers.push_back(json::Object{{"value", *value}});
    }
    return json::Object{{"list", std::move(numbers)}};
  }
  json::Array list;
  for (const ValueInfo &element : info.elements) {
    auto encoded =
        encode(element, IntegerType::get(op->getContext(), 64), point);
    if (!encoded)
      return std::nullopt;
    list.push_back(std::move(*encoded));
  }
  return json::Object{{"list", std::move(list)}};
}

std::optional<json::Value> Inference::encode(Attribute literal,
                                             const Point &point) {
  auto operand = dyn_cast<OperandAttr>(literal);
  if (!operand)
    return encodeLiteral(literal);
  if (operand.getIndex() < 0 ||
      operand.getIndex() >= static_cast<int64_t>(op->getNumOperands()))
    return std::nullopt;
  Value given = op->getOperand(operand.getIndex());
  if (isDevice(given.getType()))
    return json::Object{{"device", "cpu"}};
  if (std::optional<ListFact> list = lists(given))
    return encode(*list, point);
  return encode(rule.info(given), given.getType(), point);
}

static Answer parse(const json::Value &result, MLIRContext *context) {
  Answer answer;
  const json::Object *object = result.getAsObject();
  if (!object)
    return answer;
  if (const json::Array *list = object->getArray("list")) {
    answer.isList = true;
    for (const json::Value &element : *list)
      answer.elements.push_back(parse(element, context));
    return answer;
  }
  if (const json::Value *value = object->get("value")) {
    answer.structural = object->getBoolean("structural").value_or(false);
    if (auto flag = value->getAsBoolean()) {
      answer.literal = BoolAttr::get(context, *flag);
    } else if (auto text = value->getAsString()) {
      answer.literal = StringAttr::get(context, *text);
    } else if (value->getAsNull()) {
      answer.literal = UnitAttr::get(context);
    } else if (auto integer = value->getAsInteger()) {
      answer.isInteger = true;
      answer.dims.push_back(*integer);
    }
    return answer;
  }
  if (auto number = object->getNumber("float")) {
    answer.structural = object->getBoolean("structural").value_or(false);
    answer.literal = FloatAttr::get(Float64Type::get(context), *number);
    return answer;
  }
  const json::Array *dims = object->getArray("dims");
  if (!dims)
    return answer;
  answer.isTensor = true;
  for (const json::Value &dim : *dims)
    answer.dims.push_back(dim.getAsInteger().value_or(-1));
  answer.dtype = object->getInteger("dtype").value_or(-1);
  answer.contiguous = object->getBoolean("contiguous").value_or(false);
  if (const json::Array *steps = object->getArray("strides");
      steps && steps->size() == dims->size()) {
    answer.strides.emplace();
    for (const json::Value &step : *steps)
      answer.strides->push_back(step.getAsInteger().value_or(-1));
  }
  return answer;
}

std::optional<std::vector<Answer>> Inference::ask(const Point &point) {
  json::Array arguments;
  for (Attribute argument : op.getArguments()) {
    auto encoded = encode(argument, point);
    if (!encoded)
      return std::nullopt;
    arguments.push_back(std::move(*encoded));
  }
  auto answer = kernel(std::move(arguments));
  const json::Array *results = answer ? answer->getAsArray() : nullptr;
  if (!results || results->size() != op->getNumResults())
    return std::nullopt;
  std::vector<Answer> found;
  for (const json::Value &result : *results)
    found.push_back(parse(result, op->getContext()));
  return found;
}

bool Inference::add(Point point) {
  auto answer = ask(point);
  if (!answer)
    return false;
  points.push_back(std::move(point));
  answers.push_back(std::move(*answer));
  return true;
}

/// The extent as a polynomial that all points agree with; null if there is
/// none. Linear in each symbol, or quadratic in the only one.
DimExpr Inference::fit(ArrayRef<int64_t> values) {
  auto at = [&](unsigned point) { return values[point]; };
  auto confirmed = [&](auto evaluate) {
    for (unsigned i = 0; i < points.size(); ++i)
      if (evaluate(points[i]) != at(i))
        return false;
    return true;
  };
  size_t count = symbols.size();
  SmallVector<int64_t> slopes;
  int64_t constant = at(0);
  bool linear = true;
  for (unsigned i = 0; i < count; ++i) {
    int64_t step = points[i + 1][i] - points[0][i], rise = at(i + 1) - at(0);
    linear &= rise % step == 0;
    slopes.push_back(rise / step);
    constant -= slopes.back() * points[0][i];
  }
  auto symbol = [&](unsigned i) { return DimExpr::symbol(symbols[i]); };
  DimSymbol unknownLength = getUnknownLength(op->getContext());
  if (linear && confirmed([&](const Point &point) {
        int64_t value = constant;
        for (auto [slope, x] : llvm::zip_equal(slopes, point))
          value += slope * x;
        return value;
      })) {
    DimExpr expr = rule.constant(constant);
    for (unsigned i = 0; i < count; ++i)
      expr = expr + symbol(i) * slopes[i];
    return expr.dependsOn(unknownLength) ? DimExpr() : expr;
  }
  if (count != 1 || symbols.front() == unknownLength)
    return {};
  // Newton's divided differences over the first three points.
  int64_t x0 = points[0][0], x1 = points[1][0], x2 = points[2][0];
  int64_t second = ((at(2) - at(1)) * (x1 - x0) - (at(1) - at(0)) * (x2 - x1));
  int64_t divisor = (x1 - x0) * (x2 - x1) * (x2 - x0);
  if (second % divisor != 0)
    return {};
  int64_t square = second / divisor;
  int64_t rest0 = at(0) - square * x0 * x0, rest1 = at(1) - square * x1 * x1;
  if ((rest1 - rest0) % (x1 - x0) != 0)
    return {};
  int64_t slope = (rest1 - rest0) / (x1 - x0);
  int64_t offset = rest0 - slope * x0;
  if (!confirmed([&](const Point &point) {
        return square * point[0] * point[0] + slope * point[0] + offset;
      }))
    return {};
  return symbol(0) * symbol(0) * square + symbol(0) * slope + offset;
}

TensorInfo Inference::concludeTensor(ArrayRef<const Answer *> found) {
  SmallVector<DimExpr> dims;
  for (unsigned dim = 0; dim < found.front()->dims.size(); ++dim) {
    SmallVector<int64_t> values;
    for (const Answer *answer : found)
      values.push_back(answer->dims[dim]);
    dims.push_back(fit(values));
  }
  Type elementType =
      rules::getTypeForScalarTypeCode(op->getContext(), found.front()->dtype);
  bool known = llvm::all_of(dims, [](DimExpr dim) { return bool(dim); });
  if (known && !isUnknownLayout &&
      llvm::all_of(found,
                   [](const Answer *answer) { return answer->contiguous; }))
    return TensorInfo::contiguous(dims, elementType);
  TensorInfo info;
  info.elementType = elementType;
  info.dims = dims;
  if (!strides || isUnknownLayout ||
      !llvm::all_of(found, [](const Answer *answer) {
        return answer->strides.has_value();
      }))
    return info;
  SmallVector<DimExpr> steps;
  for (unsigned dim = 0; dim < dims.size(); ++dim) {
    SmallVector<int64_t> values;
    for (const Answer *answer : found)
      values.push_back((*answer->strides)[dim]);
    steps.push_back(fit(values));
  }
  if (llvm::all_of(steps, [](DimExpr step) { return bool(step); }))
    info.strides = steps;
  return info;
}

ValueInfo Inference::conclude(ArrayRef<const Answer *> found) {
  ValueInfo info;
  const Answer &first = *found.front();
  auto agree = [&](auto same) {
    return llvm::all_of(found,
                        [&](const Answer *answer) { return same(*answer); });
  };
  // Of numbers anything may be made: max(B, 4) is B at most points.
  bool follows = symbols.empty() || first.structural;
  if (first.literal) {
    // A few sizes prove nothing for all, unless sizes do not matter.
    if (follows && agree([&](const Answer &answer) {
          return answer.literal == first.literal;
        }))
      info.literal = first.literal;
  } else if (first.isInteger) {
    if (!follows ||
        !agree([](const Answer &answer) { return answer.isInteger; }))
      return info;
    SmallVector<int64_t> values;
    for (const Answer *answer : found)
      values.push_back(answer->dims.front());
    info.integer = fit(values);
  } else if (first.isTensor) {
    if (agree([&](const Answer &answer) {
          return answer.isTensor && answer.dtype == first.dtype &&
                 answer.dims.size() == first.dims.size();
        }))
      info.tensor = concludeTensor(found);
  } else if (first.isList) {
    if (!agree([&](const Answer &answer) {
          return answer.isList &&
                 answer.elements.size() == first.elements.size();
        }))
      return info;
    for (unsigned i = 0; i < first.elements.size(); ++i) {
      SmallVector<const Answer *> parts;
      for (const Answer *answer : found)
        parts.push_back(&answer->elements[i]);
      info.elements.push_back(conclude(parts));
    }
  }
  return info;
}

/// How many parts `split` or `chunk` makes may follow from an extent: below
/// some extent it makes one, beyond it more.
bool Inference::addListPoints() {
  size_t count = symbols.size(), results = op->getNumResults();
  auto isSteady = [&](unsigned result) {
    const Answer &first = answers.front()[result];
    return first.isList &&
           llvm::all_of(answers, [&](const std::vector<Answer> &answer) {
             return answer[result].elements.size() == first.elements.size();
           });
  };
  if (count == 0 || llvm::none_of(llvm::seq<unsigned>(0, results), isSteady))
    return true;
  // Numbers in the arguments are where such a bound can come from.
  constexpr int64_t kMost = 1 << 20;
  if (largest > kMost)
    return false;
  if (!add(Point(count, 13 * largest + 1)))
    return false;
  // One of everything may be refused.
  add(Point(count, 1));
  return true;
}

void Inference::run() {
  for (Value operand : op->getOperands()) {
    if (isDevice(operand.getType()))
      continue;
    std::optional<ListFact> list = lists(operand);
    if (list ? !collectSymbols(*list) : !collectSymbols(rule.info(operand)))
      return;
  }
  constexpr size_t kMostSymbols = 3;
  if (symbols.size() > kMostSymbols)
    return;
  for (Attribute argument : op.getArguments())
    argument.walk([&](IntegerAttr number) {
      if (number.getValue().isSignedIntN(64))
        largest = std::max(largest, number.getValue().getSExtValue());
    });
  // Multiples of 12, which divide as batches do, unlike each other and unlike
  // most constants of programs; then some that are no multiples, and small
  // ones, where a lower bound shows.
  static const int64_t kBase[] = {60, 84, 132}, kStep[] = {24, 36, 48},
                       kConfirm[] = {156, 204, 228}, kOdd[] = {37, 53, 41},
                       kSmall[] = {2, 3, 5};
  size_t count = symbols.size();
  Point base(kBase, kBase + count);
  if (!add(base))
    return;
  for (unsigned i = 0; i < count; ++i) {
    Point step = base;
    step[i] += kStep[i];
    if (!add(step))
      return;
  }
  if (count > 0)
    for (const int64_t *values : {kConfirm, kOdd, kSmall})
      if (!add(Point(values, values + count)))
        return;
  if (!addListPoints())
    return;
  for (unsigned result = 0; result < op->getNumResults(); ++result) {
    SmallVector<const Answer *> found;
    for (const std::vector<Answer> &answer : answers)
      found.push_back(&answer[result]);
    rule.setInfo(result, conclude(found));
  }
}

/// Python's quotient and remainder of two integers, which stay PyTorch's where
/// the divisor may be zero: arith must never meet that, PyTorch raises.
static bool inferDivision(TorchOpaqueOp op, ShapeRule &rule) {
  bool isQuotient = op.getCallee() == "aten::floordiv.int";
  if ((!isQuotient && op.getCallee() != "aten::remainder.int") ||
      op.getArguments().size() != 2 || op->getNumResults() != 1)
    return false;
  SmallVector<DimExpr, 2> sides;
  for (Attribute argument : op.getArguments()) {
    auto operand = dyn_cast<OperandAttr>(argument);
    auto literal = dyn_cast<IntegerAttr>(argument);
    sides.push_back(operand   ? rule.integer(op->getOperand(operand.getIndex()))
                    : literal ? rule.constant(literal.getInt())
                              : DimExpr());
  }
  if (!sides[0] || !sides[1] || sides[1].isConstant(0))
    return false;
  rule.setInteger(0, isQuotient ? sides[0].floorDiv(sides[1])
                                : sides[0].mod(sides[1]));
  return true;
}

/// `len(x)`, as a loop over a tensor asks.
static bool inferLength(TorchOpaqueOp op, ShapeRule &rule) {
  if (op.getCallee() != "aten::len.Tensor" || op->getNumOperands() != 1)
    return false;
  TensorInfo info = rule.tensor(op->getOperand(0));
  if (!info.hasRank() || info.getRank() == 0)
    return false;
  rule.setInteger(0, info.dim(0));
  return true;
}

/// By the rule that was registered with it, else by the operator itself.
static void inferCustom(CustomOp op, ShapeRule &rule,
                        const MetaKernelShapeSource *source, ListLookup lists) {
  const auto *rules =
      op->getDialect()->getRegisteredInterface<CustomOperatorSource>();
  const CustomOperator *found = rules ? rules->lookup(op.getCallee()) : nullptr;
  auto run = [&](json::Array arguments) -> std::optional<json::Value> {
    if (!found || !found->shape)
      return source ? source->ask(
                          json::Object{{"callee", op.getCallee()},
                                       {"arguments", std::move(arguments)}})
                    : std::nullopt;
    auto answer = rules->ask(json::Object{{"callee", op.getCallee()},
                                          {"rule", "shape"},
                                          {"arguments", std::move(arguments)}});
    json::Object *object = answer ? answer->getAsObject() : nullptr;
    json::Value *results = object ? object->get("results") : nullptr;
    return results ? std::optional(std::move(*results)) : std::nullopt;
  };
  Inference(op, rule, run, lists, /*strides=*/true).run();
}

void koila::inferMetaKernelShapes(CarriedOperatorInterface carried,
                                  ShapeRule &rule, ListLookup lists) {
  const auto *source =
      carried->getDialect()->getRegisteredInterface<MetaKernelShapeSource>();
  // Text without an archive speaks of no library.
  auto module = carried->getParentOfType<ModuleOp>();
  if (!module || !module->hasAttr(KoilaDialect::kArchiveAttr))
    source = nullptr;
  if (auto custom = dyn_cast<CustomOp>(*carried))
    return inferCustom(custom, rule, source, lists);
  auto op = cast<TorchOpaqueOp>(*carried);
  if (inferDivision(op, rule) || inferLength(op, rule))
    return;
  // Which tensors are one, copies of their shapes do not tell.
  if (getComparedTensors(op))
    return;
  // What writes or has unknown effects may not be run at all, even on shapes.
  bool mayRun =
      op.getEffects() == Effects::None || op.getEffects() == Effects::Rng;
  if (!source || !mayRun)
    return;
  auto run = [&](json::Array arguments) {
    return source->ask(json::Object{{"callee", op.getCallee()},
                                    {"arguments", std::move(arguments)}});
  };
  if (!koila::detail::inferGenericListElements(op, rule, *source))
    Inference(op, rule, run, lists).run();
}
