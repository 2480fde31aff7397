//===- Optimizer.cpp - What a step of an optimizer allocates --------------===//
//
// Sources: torch/optim/{sgd,adam,rmsprop,adagrad,_adafactor}.py; AdamW is Adam
// with another decay. Compared with PyTorch by
// test/training/optimizer_memory.py.
//
//===----------------------------------------------------------------------===//

#include "koila/KernelModels/Optimizer.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <algorithm>

using namespace koila;
using llvm::ArrayRef;
using llvm::StringRef;

/// A Python number on its way into an operator: float64, and float32.
static constexpr int64_t kNumberBytes = 8 + 4;
/// A tensor of one float32: the number of steps of each weight, and a norm.
static constexpr int64_t kScalarBytes = 4;
/// No more than fits many times over, whatever the types of a program say.
static constexpr int64_t kMostBytes = int64_t(1) << 58;

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

/// "(0.9, 0.999)"; of Adafactor's eps "(None, 0.001)" too.
static bool isPair(StringRef value, bool mayLackFirst = false) {
  if (!value.consume_front("(") || !value.consume_back(")"))
    return false;
  auto [first, second] = value.split(',');
  double number = 0;
  return (!first.trim().getAsDouble(number) ||
          (mayLackFirst && first.trim() == "None")) &&
         !second.trim().getAsDouble(number);
}

/// Whether an argument changes the numbers of a step, but not its bytes.
static bool changesNumbers(StringRef optimizer, StringRef key,
                           StringRef value) {
  double number = 0;
  bool isNumber = !value.getAsDouble(number);
  if (optimizer == "adafactor")
    return key == "eps" ? isPair(value, /*mayLackFirst=*/true)
                        : llvm::is_contained({"lr", "beta2_decay", "d"}, key) &&
                              isNumber;
  if (key == "betas")
    return isPair(value);
  return llvm::is_contained({"lr", "eps", "alpha", "dampening", "lr_decay",
                             "initial_accumulator_value"},
                            key) &&
         isNumber;
}

std::optional<Optimizer> Optimizer::parse(StringRef text,
                                          std::string &problem) {
  auto [name, rest] = text.trim().split('(');
  Optimizer found;
  found.name = name.trim().lower();
  if (!llvm::is_contained(
          {"sgd", "adam", "adamw", "rmsprop", "adagrad", "adafactor"},
          found.name)) {
    problem = "is unknown; the optimizers are sgd, adam, adamw, rmsprop, "
              "adagrad and adafactor";
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
    if (changesNumbers(found.name, key, value)) {
      // Not bytes.
    } else if (key == "weight_decay" && isNumber) {
      found.hasDecay = number != 0;
    } else if (key == "momentum" && isNumber && found.name == "sgd") {
      found.hasMomentum = number != 0;
    } else if (key == "nesterov" && flag && found.name == "sgd") {
      found.isNesterov = *flag;
    } else if (key == "foreach" && flag) {
      found.foreach = *flag;
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

static int64_t add(ArrayRef<int64_t> sizes) {
  int64_t sum = 0;
  for (int64_t size : sizes)
    sum = std::min(kMostBytes, sum + std::min(kMostBytes, size));
  return sum;
}

static llvm::SmallVector<int64_t> getSizes(ArrayRef<TrainedWeight> weights) {
  return llvm::map_to_vector(
      weights, [](const TrainedWeight &weight) { return weight.bytes; });
}

namespace {
/// Bytes of what Adafactor keeps or makes of a weight.
struct Factors {
  explicit Factors(const TrainedWeight &weight) : whole(add(weight.bytes)) {
    ArrayRef<int64_t> dims = weight.dims;
    isFactored = dims.size() > 1;
    if (!isFactored)
      return;
    means = count(dims.drop_back(2), 1);
    rows = count(dims.drop_back(), 1);
    columns = count(dims.drop_back(2), dims.back());
  }

  /// The weight, its gradient, and what becomes of it.
  int64_t whole;
  /// A number for each row and for each column of the last two dims, and of
  /// each such matrix the mean over its rows.
  int64_t rows = 0, columns = 0, means = 0;
  /// Of vectors and scalars the variance is kept whole.
  bool isFactored;

  int64_t getStateBytes() const {
    return add({isFactored ? add({rows, columns}) : whole, kScalarBytes});
  }
  /// What Tensor::mean() of the rows holds beyond its result: a sum, of which
  /// each thread has a part if it is one of many, and then a number that
  /// divides it.
  int64_t getMeanBytes(int64_t threads) const {
    constexpr int64_t kGrain = 32768;
    bool isSplit =
        threads > 1 && means == kScalarBytes && rows >= kGrain * kScalarBytes;
    return std::max(isSplit ? threads * kScalarBytes : 0, kNumberBytes);
  }

private:
  static int64_t count(ArrayRef<int64_t> dims, int64_t last) {
    __int128 bytes = kScalarBytes;
    for (int64_t dim : dims)
      bytes = std::min<__int128>(kMostBytes, bytes * dim);
    return std::min<__int128>(kMostBytes, bytes * last);
  }
};
} // namespace

int64_t Optimizer::getStateBytes(ArrayRef<TrainedWeight> weights) const {
  if (name == "adafactor") {
    int64_t sum = 0;
    for (const TrainedWeight &weight : weights)
      sum = add({sum, Factors(weight).getStateBytes()});
    return sum;
  }
  int64_t count = weights.size();
  llvm::SmallVector<int64_t> sizes = getSizes(weights);
  if (name == "sgd")
    return hasMomentum ? add(sizes) : 0;
  int64_t tensors = name == "adam" || name == "adamw" ? 2 : 1;
  return tensors * add(sizes) + count * kScalarBytes;
}

int64_t Optimizer::getSgdBytes(ArrayRef<int64_t> sizes, int64_t numbers) const {
  // With foreach the second look at the momentum is written into the gradients.
  if (usesForeach(/*byDefault=*/false))
    return (hasDecay ? add(sizes) : 0) + numbers;
  int64_t largest = add(*llvm::max_element(sizes));
  int64_t decayed = hasDecay ? largest : 0;
  return decayed + std::max(numbers, isNesterov ? largest : 0);
}

int64_t Optimizer::getAdafactorBytes(ArrayRef<TrainedWeight> weights,
                                     int64_t threads) const {
  // The names of the loop over weights: each holds what it got of one weight
  // until that of the next is there, a name of matrices over vectors too.
  int64_t rowMean = 0, columnMean = 0, squared = 0, update = 0, most = 0;
  auto reach = [&](ArrayRef<int64_t> made) {
    most =
        std::max(most, add({rowMean, columnMean, squared, update, add(made)}));
  };
  for (const TrainedWeight &weight : weights) {
    Factors factors(weight);
    // The count of steps goes up; a decay is a number too.
    reach({kNumberBytes});
    if (factors.isFactored) {
      // The squared norms are divided by the extent.
      reach({factors.rows, kNumberBytes});
      rowMean = factors.rows;
      reach({factors.columns, kNumberBytes});
      columnMean = factors.columns;
      // The estimate is their product over the means of the rows.
      reach({factors.whole, factors.means, factors.getMeanBytes(threads)});
    } else {
      reach({factors.whole});
      squared = factors.whole;
      // The estimate is a copy of the variance.
      reach({factors.whole});
    }
    // The estimate becomes the update, in place.
    update = factors.whole;
    // The norm of the update.
    reach({kScalarBytes});
  }
  return most;
}

int64_t Optimizer::getForeachAdafactorBytes(ArrayRef<TrainedWeight> weights,
                                            int64_t threads) const {
  // Matrices and vectors are two groups, that of the first weight comes first.
  // The updates of one live until those of the other are there.
  int64_t updates = 0, most = 0;
  auto reach = [&](ArrayRef<int64_t> made) {
    most = std::max(most, add({updates, add(made)}));
  };
  bool startsFactored = Factors(weights.front()).isFactored;
  for (bool isFactored : {startsFactored, !startsFactored}) {
    int64_t rows = 0, columns = 0, whole = 0;
    llvm::SmallVector<Factors> group;
    for (const TrainedWeight &weight : weights)
      if (Factors factors(weight); factors.isFactored == isFactored) {
        rows = add({rows, factors.rows});
        columns = add({columns, factors.columns});
        whole = add({whole, factors.whole});
        group.push_back(factors);
      }
    if (group.empty())
      continue;
    // What is added to the counts of steps, and the norm of each weight.
    reach({hasDecay ? kNumberBytes : kScalarBytes});
    if (isFactored) {
      reach({rows, kNumberBytes});
      reach({columns, kNumberBytes});
    }
    // Of matrices the products of rows and columns; of vectors the squared
    // gradients, and in their place the copies of the variances.
    reach({whole});
    int64_t means = 0;
    for (const Factors &factors : group)
      if (isFactored) {
        means = add({means, factors.means});
        reach({whole, means, factors.getMeanBytes(threads)});
      }
    updates = whole;
    // Each update times its number.
    reach({kNumberBytes});
  }
  return most;
}

int64_t Optimizer::getStepBytes(ArrayRef<TrainedWeight> weights,
                                int64_t threads) const {
  if (weights.empty())
    return 0;
  if (name == "adafactor")
    return usesForeach(/*byDefault=*/false)
               ? getForeachAdafactorBytes(weights, threads)
               : getAdafactorBytes(weights, threads);
  llvm::SmallVector<int64_t> sizes = getSizes(weights);
  if (name == "sgd")
    return getSgdBytes(sizes, hasMomentum ? kNumberBytes : 0);
  // AdamW shrinks the weights themselves.
  bool addsDecay = hasDecay && name != "adamw";
  // Adam drops decayed gradients before it takes roots, Adagrad's product of
  // gradients is there with and without them.
  if (usesForeach(/*byDefault=*/false)) {
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

int64_t Optimizer::getFirstStepBytes(ArrayRef<TrainedWeight> weights,
                                     int64_t threads) const {
  if (!makesState() || weights.empty())
    return getStepBytes(weights, threads);
  if (name != "sgd")
    return getStateBytes(weights) + getStepBytes(weights, threads);
  llvm::SmallVector<int64_t> sizes = getSizes(weights);
  // The momentum starts as a copy of the gradient, not as a product.
  if (usesForeach(/*byDefault=*/false))
    return getStateBytes(weights) + getSgdBytes(sizes, /*numbers=*/0);
  // It is made of each weight when SGD comes to it.
  int64_t most = 0, state = 0;
  for (int64_t size : sizes) {
    state = add({state, hasMomentum ? size : 0});
    most = std::max(most, state + getSgdBytes(size, /*numbers=*/0));
  }
  return most;
}
