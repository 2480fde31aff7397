//===- Optimizer.cpp - What a step of an optimizer allocates --------------===//
//
// Sources: torch/optim/{sgd,adam,rmsprop,adagrad}.py; AdamW is Adam with
// another decay. Compared with PyTorch by test/training/optimizer_memory.py.
//
//===----------------------------------------------------------------------===//

#include "koila/Analysis/Optimizer.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <algorithm>

using namespace koila;
using llvm::ArrayRef;
using llvm::StringRef;

/// A Python number on its way into an operator: float64, and float32.
static constexpr int64_t kNumberBytes = 8 + 4;
/// The number of steps, a tensor of float32 for each weight.
static constexpr int64_t kStepBytes = 4;

static std::optional<bool> parseFlag(StringRef text) {
  return llvm::StringSwitch<std::optional<bool>>(text.lower())
      .Cases({"true", "1"}, true)
      .Cases({"false", "0", "none"}, false)
      .Default(std::nullopt);
}

/// The arguments between the parentheses; commas within others do not count.
static llvm::SmallVector<StringRef> splitArguments(StringRef text) {
  llvm::SmallVector<StringRef> parts;
  size_t start = 0, depth = 0;
  for (size_t index = 0; index <= text.size(); ++index) {
    char c = index < text.size() ? text[index] : ',';
    depth += c == '(' || c == '[';
    depth -= depth > 0 && (c == ')' || c == ']');
    if (c != ',' || (depth > 0 && index < text.size()))
      continue;
    if (StringRef part = text.slice(start, index).trim(); !part.empty())
      parts.push_back(part);
    start = index + 1;
  }
  return parts;
}

std::optional<Optimizer> Optimizer::parse(StringRef text,
                                          std::string &problem) {
  auto [name, rest] = text.trim().split('(');
  Optimizer found;
  found.name = name.trim().lower();
  if (!llvm::is_contained({"sgd", "adam", "adamw", "rmsprop", "adagrad"},
                          found.name)) {
    problem = found.name == "adafactor" ? "is not supported yet" : "is unknown";
    problem += "; the optimizers are sgd, adam, adamw, rmsprop and adagrad";
    return std::nullopt;
  }
  if (text.contains('(') && !rest.consume_back(")")) {
    problem = "lacks a closing parenthesis";
    return std::nullopt;
  }
  for (StringRef argument : splitArguments(rest)) {
    auto [key, value] = argument.split('=');
    key = key.trim();
    value = value.trim();
    double number = 0;
    bool isNumber = !value.getAsDouble(number);
    auto flag = parseFlag(value);
    bool isFine = true;
    if (llvm::is_contained({"lr", "eps", "betas", "alpha", "dampening",
                            "lr_decay", "initial_accumulator_value"},
                           key) &&
        (isNumber || key == "betas")) {
      // These change numbers, not bytes.
    } else if (key == "weight_decay" && isNumber) {
      found.hasDecay = number != 0;
    } else if (key == "momentum" && isNumber && found.name == "sgd") {
      found.hasMomentum = number != 0;
    } else if (key == "nesterov" && flag && found.name == "sgd") {
      found.isNesterov = *flag;
    } else if (key == "foreach" && flag) {
      found.isForeach = *flag;
    } else {
      isFine = false;
    }
    if (!isFine) {
      problem = ("'" + argument +
                 "' is unknown or not supported yet; what counts is "
                 "weight_decay, momentum, nesterov and foreach")
                    .str();
      return std::nullopt;
    }
  }
  if (found.isNesterov && !found.hasMomentum) {
    problem = "nesterov=true needs a momentum";
    return std::nullopt;
  }
  return found;
}

/// No more than fits many times over, whatever the types of a program say.
static int64_t add(ArrayRef<int64_t> sizes) {
  constexpr int64_t kMost = int64_t(1) << 58;
  int64_t sum = 0;
  for (int64_t size : sizes)
    sum = std::min(kMost, sum + std::min(kMost, size));
  return sum;
}

int64_t Optimizer::getStateBytes(ArrayRef<int64_t> sizes) const {
  int64_t count = sizes.size();
  if (name == "sgd")
    return hasMomentum ? add(sizes) : 0;
  int64_t tensors = name == "adam" || name == "adamw" ? 2 : 1;
  return tensors * add(sizes) + count * kStepBytes;
}

int64_t Optimizer::getSgdBytes(ArrayRef<int64_t> sizes, int64_t numbers) const {
  // With foreach the second look at the momentum is written into the gradients.
  if (isForeach)
    return (hasDecay ? add(sizes) : 0) + numbers;
  int64_t largest = add(*llvm::max_element(sizes));
  int64_t decayed = hasDecay ? largest : 0;
  return decayed + std::max(numbers, isNesterov ? largest : 0);
}

int64_t Optimizer::getStepBytes(ArrayRef<int64_t> sizes) const {
  if (sizes.empty())
    return 0;
  if (name == "sgd")
    return getSgdBytes(sizes, hasMomentum ? kNumberBytes : 0);
  // AdamW shrinks the weights themselves.
  bool addsDecay = hasDecay && name != "adamw";
  // Adam drops decayed gradients before it takes roots, Adagrad's product of
  // gradients is there with and without them.
  if (isForeach) {
    bool isTwice = name == "adagrad" || (name == "rmsprop" && addsDecay);
    return (isTwice ? 2 : 1) * add(sizes) + kNumberBytes;
  }
  // The root of what was averaged, and for Adam the quotient beside it, which
  // lives until that of the next weight is there.
  int64_t copies = name.starts_with("adam") ? 2 : 1;
  int64_t most = 0, before = 0;
  for (int64_t bytes : sizes) {
    int64_t size = add(bytes), decayed = addsDecay ? size : 0;
    int64_t held = before + copies * size + decayed;
    // RMSprop drops the root of the weight before as it makes the next.
    most = std::max(most, name == "rmsprop"
                              ? std::max(held, size + decayed + kNumberBytes)
                              : held + kNumberBytes);
    before = size;
  }
  return most;
}

int64_t Optimizer::getFirstStepBytes(ArrayRef<int64_t> sizes) const {
  if (!makesState() || sizes.empty())
    return getStepBytes(sizes);
  if (name != "sgd")
    return getStateBytes(sizes) + getStepBytes(sizes);
  // The momentum starts as a copy of the gradient, not as a product.
  if (isForeach)
    return getStateBytes(sizes) + getSgdBytes(sizes, /*numbers=*/0);
  // It is made of each weight when SGD comes to it.
  int64_t most = 0, state = 0;
  for (int64_t size : sizes) {
    state = add({state, hasMomentum ? size : 0});
    most = std::max(most, state + getSgdBytes(size, /*numbers=*/0));
  }
  return most;
}
