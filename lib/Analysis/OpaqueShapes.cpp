//===- OpaqueShapes.cpp - Shapes of operators without a rule --------------===//

#include "koila/Analysis/OpaqueShapes.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace koila;
namespace json = llvm::json;

namespace {
/// One value per symbol, in their order.
using Point = SmallVector<int64_t>;

struct Answer {
  bool isTensor = false;
  /// Of a tensor; of an integer, its value.
  SmallVector<int64_t> dims;
  bool isInteger = false;
  /// Follows from what the arguments are, whatever their sizes.
  bool structural = false;
  /// Of a bool, a text or None.
  Attribute literal;
  int64_t dtype = -1;
  bool contiguous = false;
};

class Inference {
public:
  Inference(TorchOpaqueOp op, ShapeRule &rule, const OpaqueShapeSource &source)
      : op(op), rule(rule), source(source) {}
  void run();

private:
  bool collectSymbols(const ValueInfo &info);
  std::optional<json::Value> encode(const ValueInfo &info, Type type,
                                    const Point &point);
  std::optional<json::Value> encode(Attribute literal, const Point &point);
  std::optional<SmallVector<Answer>> ask(const Point &point);
  DimExpr fit(unsigned result, unsigned dim);

  TorchOpaqueOp op;
  ShapeRule &rule;
  const OpaqueShapeSource &source;
  llvm::SetVector<StringAttr> symbols;
  /// The base, one step along each symbol, then points that confirm.
  SmallVector<Point> points;
  SmallVector<SmallVector<Answer>> answers;
};
} // namespace

static std::optional<int64_t> getDType(Type type) {
  for (int64_t code : llvm::seq<int64_t>(0, 16))
    if (type && rules::getTypeForScalarTypeCode(type.getContext(), code) == type)
      return code;
  return std::nullopt;
}

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
    expr.forEachSymbol([&](StringRef name) {
      symbols.insert(StringAttr::get(op.getContext(), name));
    });
    return true;
  };
  // It may be None as well.
  if (isa_and_nonnull<DynamicAttr>(info.literal))
    return false;
  if (info.tensor)
    return info.tensor->hasRank() && getDType(info.tensor->elementType) &&
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

std::optional<json::Value> Inference::encode(const ValueInfo &info, Type type,
                                             const Point &point) {
  auto values = [&](StringRef name) -> std::optional<int64_t> {
    for (auto [symbol, value] : llvm::zip_equal(symbols, point))
      if (symbol == name)
        return value;
    return std::nullopt;
  };
  if (info.tensor) {
    json::Array dims;
    for (DimExpr dim : *info.tensor->dims) {
      auto extent = dim.evaluate(values);
      if (!extent || *extent < 0)
        return std::nullopt;
      dims.push_back(*extent);
    }
    return json::Object{
        {"tensor", json::Object{{"dims", std::move(dims)},
                                {"dtype", *getDType(
                                              info.tensor->elementType)}}}};
  }
  if (info.integer) {
    auto value = info.integer.evaluate(values);
    if (!value || type.isInteger(1))
      return std::nullopt;
    return json::Object{{"value", *value}};
  }
  if (info.literal)
    return encode(info.literal, point);
  if (info.list) {
    json::Array numbers;
    for (DimExpr element : *info.list) {
      auto value = element.evaluate(values);
      if (!value)
        return std::nullopt;
      numbers.push_back(json::Object{{"value", *value}});
    }
    return json::Object{{"list", std::move(numbers)}};
  }
  json::Array list;
  for (const ValueInfo &element : info.elements) {
    auto encoded = encode(element, IntegerType::get(op.getContext(), 64), point);
    if (!encoded)
      return std::nullopt;
    list.push_back(std::move(*encoded));
  }
  return json::Object{{"list", std::move(list)}};
}

std::optional<json::Value> Inference::encode(Attribute literal,
                                             const Point &point) {
  auto value = [](json::Value made) {
    return json::Object{{"value", std::move(made)}};
  };
  if (auto operand = dyn_cast<OperandAttr>(literal)) {
    if (operand.getIndex() < 0 ||
        operand.getIndex() >= static_cast<int64_t>(op.getOperands().size()))
      return std::nullopt;
    Value given = op.getOperands()[operand.getIndex()];
    if (isDevice(given.getType()))
      return json::Object{{"device", "cpu"}};
    return encode(rule.info(given), given.getType(), point);
  }
  if (isa<UnitAttr>(literal))
    return value(nullptr);
  if (auto flag = dyn_cast<BoolAttr>(literal))
    return value(flag.getValue());
  if (auto integer = dyn_cast<IntegerAttr>(literal))
    return value(integer.getInt());
  if (auto number = dyn_cast<FloatAttr>(literal))
    return json::Object{{"float", number.getValueAsDouble()}};
  if (auto text = dyn_cast<StringAttr>(literal))
    return value(text.getValue());
  if (auto dictionary = dyn_cast<DictionaryAttr>(literal))
    if (auto device = dictionary.getAs<StringAttr>("device"))
      return json::Object{{"device", device.getValue()}};
  auto array = dyn_cast<ArrayAttr>(literal);
  if (!array)
    return std::nullopt;
  json::Array list;
  for (Attribute element : array) {
    auto encoded = encode(element, point);
    if (!encoded)
      return std::nullopt;
    list.push_back(std::move(*encoded));
  }
  return json::Object{{"list", std::move(list)}};
}

std::optional<SmallVector<Answer>> Inference::ask(const Point &point) {
  json::Array arguments;
  for (Attribute argument : op.getArguments()) {
    auto encoded = encode(argument, point);
    if (!encoded)
      return std::nullopt;
    arguments.push_back(std::move(*encoded));
  }
  std::string request;
  llvm::raw_string_ostream(request)
      << json::Value(json::Object{{"callee", op.getCallee()},
                                  {"arguments", std::move(arguments)}});
  std::optional<std::string> text = source.run(request);
  if (!text)
    return std::nullopt;
  auto parsed = json::parse(*text);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return std::nullopt;
  }
  const json::Array *results = parsed->getAsArray();
  if (!results || results->size() != op->getNumResults())
    return std::nullopt;
  SmallVector<Answer> found;
  for (const json::Value &result : *results) {
    Answer &answer = found.emplace_back();
    const json::Object *object = result.getAsObject();
    const json::Array *dims = object ? object->getArray("dims") : nullptr;
    if (const json::Value *value = object ? object->get("value") : nullptr) {
      answer.structural = object->getBoolean("structural").value_or(false);
      MLIRContext *context = op.getContext();
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
      continue;
    }
    if (!dims)
      continue;
    answer.isTensor = true;
    for (const json::Value &dim : *dims)
      answer.dims.push_back(dim.getAsInteger().value_or(-1));
    answer.dtype = object->getInteger("dtype").value_or(-1);
    answer.contiguous = object->getBoolean("contiguous").value_or(false);
  }
  return found;
}

/// The extent as a polynomial that all points agree with; null if there is
/// none. Linear in each symbol, or quadratic in the only one.
DimExpr Inference::fit(unsigned result, unsigned dim) {
  auto at = [&](unsigned point) { return answers[point][result].dims[dim]; };
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
  auto symbol = [&](unsigned i) {
    return DimExpr::symbol(op.getContext(), symbols[i].getValue());
  };
  if (linear && confirmed([&](const Point &point) {
        int64_t value = constant;
        for (auto [slope, x] : llvm::zip_equal(slopes, point))
          value += slope * x;
        return value;
      })) {
    DimExpr expr = rule.constant(constant);
    for (unsigned i = 0; i < count; ++i)
      expr = expr + symbol(i) * slopes[i];
    return expr;
  }
  if (count != 1)
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

void Inference::run() {
  for (Value operand : op.getOperands()) {
    ValueInfo info = rule.info(operand);
    if (!isDevice(operand.getType()) && !collectSymbols(info))
      return;
  }
  constexpr size_t kMostSymbols = 3;
  if (symbols.size() > kMostSymbols)
    return;
  // Multiples of 12, which divide as batches do, unlike each other and unlike
  // most constants of programs; then some that are no multiples, and small ones,
  // where a lower bound shows.
  static const int64_t kBase[] = {60, 84, 132}, kStep[] = {24, 36, 48},
                       kConfirm[] = {156, 204, 228}, kOdd[] = {37, 53, 41},
                       kSmall[] = {2, 3, 5};
  size_t count = symbols.size();
  points.emplace_back(kBase, kBase + count);
  for (unsigned i = 0; i < count; ++i) {
    points.push_back(points.front());
    points.back()[i] += kStep[i];
  }
  if (count > 0) {
    points.emplace_back(kConfirm, kConfirm + count);
    points.emplace_back(kOdd, kOdd + count);
    points.emplace_back(kSmall, kSmall + count);
  }
  for (const Point &point : points) {
    auto answer = ask(point);
    if (!answer)
      return;
    answers.push_back(std::move(*answer));
  }
  for (unsigned result = 0; result < op->getNumResults(); ++result) {
    const Answer &first = answers.front()[result];
    if (first.literal) {
      // A few sizes prove nothing for all, unless sizes do not matter.
      bool same = llvm::all_of(answers, [&](ArrayRef<Answer> answer) {
        return answer[result].literal == first.literal;
      });
      if (same && (symbols.empty() || first.structural)) {
        ValueInfo info;
        info.literal = first.literal;
        rule.setInfo(result, info);
      }
      continue;
    }
    if (first.isInteger) {
      // Of numbers anything may be made: max(B, 4) is B at most points.
      if ((symbols.empty() || first.structural) && llvm::all_of(answers, [&](ArrayRef<Answer> answer) {
            return answer[result].isInteger;
          }))
        if (DimExpr value = fit(result, 0))
          rule.setInteger(result, value);
      continue;
    }
    bool agree = llvm::all_of(answers, [&](ArrayRef<Answer> answer) {
      return answer[result].isTensor && answer[result].dtype == first.dtype &&
             answer[result].dims.size() == first.dims.size();
    });
    if (!agree)
      continue;
    SmallVector<DimExpr> dims;
    for (unsigned dim = 0; dim < first.dims.size(); ++dim)
      dims.push_back(fit(result, dim));
    TensorInfo info;
    info.elementType =
        rules::getTypeForScalarTypeCode(op.getContext(), first.dtype);
    bool known = llvm::all_of(dims, [](DimExpr dim) { return bool(dim); });
    if (known && llvm::all_of(answers, [&](ArrayRef<Answer> answer) {
          return answer[result].contiguous;
        }))
      info = TensorInfo::contiguous(dims, info.elementType);
    else
      info.dims = dims;
    rule.setResult(result, info);
  }
}

void koila::inferOpaqueShapes(TorchOpaqueOp op, ShapeRule &rule) {
  const auto *source =
      op->getDialect()->getRegisteredInterface<OpaqueShapeSource>();
  // Text without an archive speaks of no library. What writes or has unknown
  // effects may not be run at all, even on shapes.
  auto module = op->getParentOfType<ModuleOp>();
  bool mayRun = op.getEffects() == Effects::None ||
                op.getEffects() == Effects::Rng;
  if (source && module && module->hasAttr(KoilaDialect::kArchiveAttr) && mayRun)
    Inference(op, rule, *source).run();
}
