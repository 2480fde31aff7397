//===- CustomOp.cpp - Operators whose rules were registered ---------------===//

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
#include "koila/Interfaces/BackwardRule.h"
#include "koila/Interfaces/CustomOperators.h"

using namespace mlir;
using namespace koila;
namespace json = llvm::json;
using llvm::Twine;

namespace {
/// One operation, and the rules that are registered for it.
class Asked {
public:
  explicit Asked(CustomOp op) : op(op) {
    source = op->getDialect()->getRegisteredInterface<CustomOperatorSource>();
    rules = source ? source->lookup(op.getCallee()) : nullptr;
  }

  bool has(bool CustomOperator::*rule) const { return rules && rules->*rule; }
  const CustomOperator *operator->() const { return rules; }
  explicit operator bool() const { return rules; }

  /// What the rule `name` answers to `question`; the reason in `problem` where
  /// it does not.
  std::optional<json::Object> ask(StringRef name, json::Object question,
                                  std::string &problem) const {
    question["callee"] = op.getCallee();
    question["rule"] = name;
    auto answer = source->ask(std::move(question));
    json::Object *object = answer ? answer->getAsObject() : nullptr;
    auto error = object ? object->getString("error") : std::nullopt;
    if (object && !error)
      return std::move(*object);
    problem = describe(name, error ? *error : "gives no answer");
    return std::nullopt;
  }
  /// What doubts say of the rule.
  std::string describe(StringRef name, const Twine &what) const {
    return ("the " + name + " rule of '" + op.getCallee() + "' " + what).str();
  }

  /// One per argument: a literal, or what `encode` makes of an operand. None if
  /// that is none for one, or if an argument is neither.
  std::optional<json::Array> encodeArguments(
      llvm::function_ref<std::optional<json::Value>(Value operand)> encode)
      const {
    json::Array arguments;
    for (auto [index, argument] : llvm::enumerate(op.getArguments())) {
      Value operand = getOperand(index);
      auto encoded = operand ? encode(operand) : encodeLiteral(argument);
      if (!encoded)
        return std::nullopt;
      arguments.push_back(std::move(*encoded));
    }
    return arguments;
  }
  /// Null for a literal.
  Value getOperand(size_t argument) const {
    if (argument >= op.getArguments().size())
      return {};
    auto operand = dyn_cast<OperandAttr>(op.getArguments()[argument]);
    return operand ? op->getOperand(operand.getIndex()) : Value();
  }

private:
  mutable CustomOp op;
  const CustomOperatorSource *source;
  const CustomOperator *rules;
};
} // namespace

//===----------------------------------------------------------------------===//
// Batch and storage
//===----------------------------------------------------------------------===//

/// Rows per sample in dim `dim` of result `index`: as many times those of
/// `operand`, which has `fact`, as the dim is larger. None if that is no
/// number.
static std::optional<int64_t> getFactor(BatchRule &rule, Value result,
                                        int64_t dim, Value operand,
                                        const BatchFact &fact) {
  TensorInfo made = rule.tensor(result), read = rule.tensor(operand);
  if (!made.hasRank() || !read.hasRank() || dim < 0 || dim >= made.getRank() ||
      fact.dim >= read.getRank() || !made.dim(dim) || !read.dim(fact.dim))
    return std::nullopt;
  DimExpr samples = read.dim(fact.dim).floorDiv(
      DimExpr::constant(result.getContext(), fact.factor));
  for (int64_t factor : {fact.factor, int64_t(1)})
    if (proveEqual(made.dim(dim), samples * factor) == TriBool::Yes)
      return factor;
  return std::nullopt;
}

void CustomOp::inferBatch(BatchRule &rule) {
  Asked asked(*this);
  if (!asked.has(&CustomOperator::batch))
    return rule.mix("no batch rule of '" + getCallee() + "' is registered");
  Value carrier;
  auto encode = [&](Value operand) -> std::optional<json::Value> {
    BatchFact fact = rule.fact(operand);
    TensorInfo tensor = rule.tensor(operand);
    if (!isa<TensorType>(operand.getType()) || !tensor.hasRank() ||
        !(fact.isFree() || fact.isAt()))
      return std::nullopt;
    json::Object encoded{{"batch", nullptr}, {"rank", tensor.getRank()}};
    if (fact.isAt()) {
      encoded["batch"] = fact.dim;
      if (!carrier)
        carrier = operand;
    }
    return encoded;
  };
  auto arguments = asked.encodeArguments(encode);
  if (!arguments)
    return rule.mix("what '" + getCallee() +
                    "' is called with is computed when it runs");
  std::string problem;
  auto answer = asked.ask(
      "batch", json::Object{{"arguments", std::move(*arguments)}}, problem);
  const json::Array *results = answer ? answer->getArray("results") : nullptr;
  if (!results || results->size() != getNumResults())
    return rule.mix(problem.empty()
                        ? asked.describe("batch", "names other results")
                        : problem);
  for (auto [index, result] : llvm::enumerate(*results)) {
    const json::Object *object = result.getAsObject();
    if (object && object->getBoolean("free").value_or(false)) {
      rule.setResult(index, BatchFact::free());
      continue;
    }
    if (auto mixed = object ? object->getString("mixed") : std::nullopt)
      return rule.mix(*mixed);
    auto dim = object ? object->getInteger("dim") : std::nullopt;
    auto factor = dim && carrier ? getFactor(rule, getResult(index), *dim,
                                             carrier, rule.fact(carrier))
                                 : std::nullopt;
    if (!factor)
      return rule.mix(asked.describe(
          "batch", "names a dim of result " + Twine(index) +
                       " whose extent does not follow the batch"));
    rule.setResult(index, BatchFact::at(*dim, *factor));
  }
}

void CustomOp::describeStorage(StorageRule &rule) {
  Asked asked(*this);
  if (!asked)
    return;
  for (auto [index, argument] : llvm::enumerate(asked->storage))
    if (Value operand = argument < 0 ? Value() : asked.getOperand(argument);
        operand && index < getNumResults())
      rule.setAlias(index, operand);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static json::Value encodeTensor(const ConcreteTensor &tensor) {
  json::Object encoded{{"dims", json::Array(tensor.dims)}};
  if (auto code = rules::getScalarTypeCode(tensor.elementType))
    encoded["dtype"] = *code;
  if (auto strides = tensor.getStrides())
    encoded["strides"] = json::Array(*strides);
  return json::Object{{"tensor", std::move(encoded)}};
}

static bool isKnown(const std::optional<ConcreteTensor> &tensor) {
  return tensor && tensor->getStrides() &&
         rules::getScalarTypeCode(tensor->elementType);
}

/// What all rules about bytes are told; none, after a doubt, if something that
/// they are told is not known.
static std::optional<json::Object> encodeCall(CustomOp op, const Asked &asked,
                                              WorkspaceRule &rule) {
  auto encode = [&](Value value) -> std::optional<json::Value> {
    auto tensor =
        isa<TensorType>(value.getType()) ? rule.tensor(value) : std::nullopt;
    return isKnown(tensor) ? std::optional(encodeTensor(*tensor))
                           : std::nullopt;
  };
  json::Object call{{"threads", rule.getTarget().threads}};
  auto arguments = asked.encodeArguments(encode);
  json::Array results, wants;
  for (Value result : op->getResults())
    if (auto encoded = encode(result))
      results.push_back(std::move(*encoded));
  for (size_t index = 0; index < op.getArguments().size(); ++index)
    wants.push_back(rule.wantsGradient(asked.getOperand(index)));
  if (!arguments || results.size() != op->getNumResults()) {
    rule.setInexact("what '" + op.getCallee() +
                    "' is called with is not known before it runs");
    return std::nullopt;
  }
  call["arguments"] = std::move(*arguments);
  call["results"] = std::move(results);
  call["wants"] = std::move(wants);
  return call;
}

/// What the rule says; none, after a doubt, if it says nothing.
static std::optional<json::Object> askBytes(CustomOp op, const Asked &asked,
                                            bool CustomOperator::*has,
                                            StringRef name, WorkspaceRule &rule,
                                            json::Object more = {}) {
  if (!asked.has(has)) {
    rule.setInexact("no " + name + " rule of '" + op.getCallee() +
                    "' is registered");
    return std::nullopt;
  }
  auto call = encodeCall(op, asked, rule);
  if (!call)
    return std::nullopt;
  for (auto &[key, value] : more)
    (*call)[key] = std::move(value);
  std::string problem;
  auto answer = asked.ask(name, std::move(*call), problem);
  if (!answer)
    rule.setInexact(problem);
  return answer;
}

void CustomOp::describeWorkspace(WorkspaceRule &rule) {
  Asked asked(*this);
  if (auto answer =
          askBytes(*this, asked, &CustomOperator::forward, "forward", rule))
    rule.setTransient(answer->getInteger("transient").value_or(0));
}

void CustomOp::describeDifferentiation(DifferentiationRule &rule) {
  if (!Asked(*this).has(&CustomOperator::saved))
    return rule.setUnknown("no saved rule of '" + getCallee().str() +
                           "' is registered");
  // Which of them does not depend on shapes here, and any of them may be.
  for (Value value : getOperands())
    rule.save(value);
  for (Value value : getResults())
    rule.save(value);
  rule.saveInner();
}

void CustomOp::describeSaved(SavedRule &rule) {
  Asked asked(*this);
  auto answer = askBytes(*this, asked, &CustomOperator::saved, "saved", rule);
  if (!answer)
    return;
  if (const json::Array *arguments = answer->getArray("arguments"))
    for (const json::Value &argument : *arguments)
      rule.save(asked.getOperand(argument.getAsInteger().value_or(-1)));
  if (const json::Array *results = answer->getArray("results"))
    for (const json::Value &result : *results)
      if (auto index = result.getAsInteger();
          index && *index >= 0 && *index < getNumResults())
        rule.save(getResult(*index));
  int64_t bytes = answer->getInteger("bytes").value_or(0);
  rule.keep(bytes);
  // It is there when the operator ends.
  rule.setTransient(std::max(rule.getTransient(), bytes));
}

//===----------------------------------------------------------------------===//
// Backward
//===----------------------------------------------------------------------===//

static std::optional<ConcreteTensor> decodeTensor(const json::Object *encoded,
                                                  MLIRContext *context) {
  const json::Array *dims = encoded ? encoded->getArray("dims") : nullptr;
  const json::Array *strides = encoded ? encoded->getArray("strides") : nullptr;
  if (!dims || !strides || dims->size() != strides->size())
    return std::nullopt;
  auto decode = [](const json::Array &numbers) {
    return llvm::map_to_vector(numbers, [](const json::Value &number) {
      return number.getAsInteger().value_or(0);
    });
  };
  ConcreteTensor tensor;
  tensor.dims = decode(*dims);
  tensor.elementType = rules::getTypeForScalarTypeCode(
      context, encoded->getInteger("dtype").value_or(-1));
  tensor.strides = decode(*strides);
  tensor.contiguous = encoded->getBoolean("contiguous").value_or(false);
  return tensor;
}

void CustomOp::describeBackward(BackwardRule &rule) {
  Asked asked(*this);
  json::Array arrived;
  bool isComplete = true;
  for (unsigned index = 0; index < getNumResults(); ++index) {
    const ConcreteTensor *gradient = rule.getGradient(index);
    arrived.push_back(gradient ? encodeTensor(*gradient) : nullptr);
    isComplete &= !gradient || isKnown(*gradient);
  }
  if (!isComplete)
    return rule.setInexact("a gradient that arrives at '" + getCallee() +
                           "' is not known");
  auto answer = askBytes(*this, asked, &CustomOperator::backward, "backward",
                         rule, json::Object{{"gradients", std::move(arrived)}});
  const json::Array *gradients =
      answer ? answer->getArray("gradients") : nullptr;
  if (!gradients)
    return;
  rule.setPeak(answer->getInteger("peak").value_or(0));
  for (auto [index, gradient] : llvm::enumerate(*gradients)) {
    const json::Object *object = gradient.getAsObject();
    auto operand = index < getArguments().size()
                       ? dyn_cast<OperandAttr>(getArguments()[index])
                       : OperandAttr();
    if (!operand || !rule.wantsOperand(operand.getIndex()))
      continue;
    // Autograd takes None for zeros that nobody makes.
    if (!object) {
      rule.setUnread(operand.getIndex());
      continue;
    }
    auto same = object->getInteger("same");
    auto viewed = object->getInteger("view");
    auto tensor = decodeTensor(object->getObject("tensor"), getContext());
    auto isArrived = [&](std::optional<int64_t> result) {
      return result && *result >= 0 && rule.getGradient(*result);
    };
    if (isArrived(same))
      rule.forwardGrad(operand.getIndex(), *same);
    else if (isArrived(viewed) && tensor)
      rule.setView(operand.getIndex(), *tensor, *viewed);
    else if (tensor)
      rule.setNew(operand.getIndex(), *tensor);
  }
}
