//===- Compare.cpp - Whether two programs agree ---------------------------===//

#include "Compare.h"
#include "DoubleProgram.h"
#include "Inputs.h"
#include "Options.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <sstream>

using namespace koila::run;

namespace {
/// One tensor of the result in all four runs.
struct Quartet {
  std::string path;
  at::Tensor first, second, firstDouble, secondDouble;
  bool isGradient = false;
};
} // namespace

static std::string describe(const at::Tensor &tensor) {
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << tensor.sizes();
  return text.str();
}

/// For arithmetic: float64 or complex128.
static at::Tensor widen(const at::Tensor &tensor) {
  return tensor.to(tensor.is_complex() ? at::kComplexDouble : at::kDouble);
}

static double getEpsilon(at::ScalarType type) {
  switch (type) {
  case at::kHalf:
    return 9.765625e-4;
  case at::kBFloat16:
    return 7.8125e-3;
  case at::kDouble:
  case at::kComplexDouble:
    return 2.220446049250313e-16;
  default:
    return 1.1920928955078125e-7;
  }
}

static double maxAbs(const at::Tensor &tensor) {
  return tensor.numel() == 0 ? 0.0 : tensor.abs().max().item<double>();
}

static std::string number(double value) {
  char text[32];
  snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

/// Whether `second` passes for `first`; otherwise why not. `stepNorm` is the
/// largest norm of a gradient of the step, for gradients.
static std::optional<std::string> getDifference(const at::Tensor &first,
                                                const at::Tensor &firstDouble,
                                                const at::Tensor &second,
                                                const at::Tensor &secondDouble,
                                                double stepNorm = 0.0) {
  bool floating = first.is_floating_point() || first.is_complex();
  if (!floating) {
    if (!at::equal(first, second))
      return std::to_string(at::ne(first, second).sum().item<int64_t>()) +
             " of " + std::to_string(first.numel()) + " integers differ";
    if (!at::equal(firstDouble, secondDouble))
      return "integers differ in float64";
    return std::nullopt;
  }
  at::Tensor reference = widen(firstDouble), other = widen(secondDouble);
  if (at::isnan(widen(first)).any().item<bool>() ||
      at::isnan(reference).any().item<bool>())
    return "the first program's result contains NaN";
  // The defaults of torch.testing.assert_close for float64.
  if (!at::allclose(other, reference, /*rtol=*/1e-7, /*atol=*/1e-7))
    return "in float64 they differ by " +
           number(maxAbs(at::nan_to_num(other - reference)));
  // Infinities have to be the same; norms are taken over the rest.
  at::Tensor wideFirst = widen(first), wideSecond = widen(second);
  at::Tensor finite = at::isfinite(reference);
  if (!at::equal(at::isfinite(wideSecond), at::isfinite(wideFirst)))
    return "infinities or NaN where the first program has none";
  finite = at::logical_and(finite, at::isfinite(wideFirst));
  auto norm = [&](const at::Tensor &tensor) {
    return at::where(finite, tensor, at::zeros_like(tensor))
        .abs()
        .norm()
        .item<double>();
  };
  double distance = norm(wideSecond - reference);
  double own = norm(wideFirst - reference), whole = norm(reference);
  double epsilon = getEpsilon(first.scalar_type());
  double allowed = 2 * own + 8 * epsilon * whole;
  // Where terms cancel out, rounding leaves an epsilon of them, and they are as
  // large as the other gradients: up to a thousandth of this one, or all of it
  // where no digit of the first program's is right, as of the bias of keys
  // under a softmax.
  double rounding = epsilon * stepNorm;
  allowed = std::max(
      allowed, own >= whole / 2 ? rounding : std::min(rounding, whole / 1000));
  if (!(distance <= allowed))
    return "its distance from the float64 result is " + number(distance) +
           ", allowed is " + number(allowed);
  return std::nullopt;
}

/// The tensor with the next sample in place of each; undefined if no dim holds
/// the samples.
static at::Tensor rotate(const at::Tensor &tensor, int64_t batch) {
  if (batch < 2)
    return {};
  for (bool exact : {true, false})
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      int64_t extent = tensor.size(dim);
      if (exact ? extent == batch : extent > 0 && extent % batch == 0)
        return tensor.roll(extent / batch, dim);
    }
  return {};
}

/// Whether both results have the same structure, dtypes and shapes; otherwise
/// `reason` says where not.
static bool pair(const std::vector<Leaf> &first,
                 const std::vector<Leaf> &second, const char *where,
                 std::string &reason) {
  if (first.size() != second.size()) {
    reason = std::string("the results have ") + std::to_string(first.size()) +
             " and " + std::to_string(second.size()) + " parts" + where;
    return false;
  }
  for (size_t index = 0; index < first.size(); ++index) {
    const Leaf &left = first[index], &right = second[index];
    std::string leftText =
        left.tensor.defined() ? describe(left.tensor) : left.text;
    std::string rightText =
        right.tensor.defined() ? describe(right.tensor) : right.text;
    if (left.path == right.path && leftText == rightText)
      continue;
    reason = left.path + " is " + leftText + " in the first program, and " +
             (left.path == right.path ? "" : right.path + " ") + rightText +
             " in the second" + where;
    return false;
  }
  return true;
}

/// Sizes of the values, and whether the comparison could have failed.
static void judge(const std::vector<Quartet> &outputs, int64_t batch,
                  Comparison &result) {
  bool zerosPass = true, rotatedPass = true, constant = true;
  size_t rotatedCount = 0;
  for (const Quartet &output : outputs) {
    at::Tensor wide = at::nan_to_num(widen(output.first), 0.0, 0.0, 0.0);
    if (wide.numel() == 0)
      continue;
    double largest = maxAbs(wide);
    result.largest = std::max(result.largest, largest);
    at::Tensor flat = wide.flatten();
    constant &= maxAbs(flat - flat[0]) == 0.0;
    zerosPass &= !getDifference(output.first, output.firstDouble,
                                at::zeros_like(output.second),
                                at::zeros_like(output.secondDouble));
    at::Tensor rotated = rotate(output.second, batch);
    if (!rotated.defined())
      continue;
    ++rotatedCount;
    double spread = maxAbs(wide - rotate(wide, batch));
    result.spread = std::max(result.spread, spread);
    bool passes = !getDifference(output.first, output.firstDouble, rotated,
                                 rotate(output.secondDouble, batch));
    rotatedPass &= passes;
    if (passes && outputs.size() > 1)
      result.notes.push_back(output.path +
                             " is the same for every sample, so that it alone "
                             "proves nothing");
  }
  result.hasSpread = rotatedCount > 0;
  // The definition's absolute tolerance; float32 is judged by norms.
  if (result.largest > 0.0 && result.largest <= 1e-7)
    result.notes.push_back("the values are below the absolute tolerance of the "
                           "float64 comparison; only the given dtype counts");
  if (outputs.empty())
    result.reason = "the programs return no tensor";
  else if (zerosPass)
    result.reason = "all-zero outputs would have passed as well; the largest "
                    "value is " +
                    number(result.largest);
  else if (result.hasSpread && rotatedPass)
    result.reason = "the outputs of another sample would have passed as well; "
                    "samples differ by " +
                    number(result.spread) + " at a largest value of " +
                    number(result.largest);
  else if (constant && outputs.front().first.numel() > 1)
    result.reason = "the outputs are constant";
  result.vacuous = !result.reason.empty();
  if (result.vacuous)
    result.reason +=
        "; make the program sensitive to its inputs (for a freshly "
        "initialised network, one pass in training mode sets the "
        "statistics of its normalisations)";
}

/// Whether a tiled program says that it ran the untiled one instead. It may
/// warn of other things, such as a batch above its budget, and be tiled.
static bool ranUntiled(const std::vector<std::string> &warnings) {
  for (const std::string &warning : warnings)
    if (llvm::StringRef(warning).starts_with("koila:") &&
        llvm::StringRef(warning).contains("untiled program"))
      return true;
  return false;
}

Comparison koila::run::compare(Program &first, Program &second,
                               const CallMode &mode,
                               const std::vector<c10::IValue> &inputs,
                               int64_t batch, WarningLog &log) {
  Comparison result;
  // The copies first: a call may change buffers.
  std::vector<Leaf> firstDouble, secondDouble;
  std::vector<std::string> doubleWarnings;
  {
    auto program = makeDoubleProgram(first.module, mode.method);
    firstDouble = runProgram(program, first.path + " in float64", mode,
                             cloneToDouble(inputs));
    log.take();
  }
  {
    auto program = makeDoubleProgram(second.module, mode.method);
    secondDouble = runProgram(program, second.path + " in float64", mode,
                              cloneToDouble(inputs));
    doubleWarnings = log.take();
  }
  std::vector<Leaf> firstLeaves =
      runProgram(first.module, first.path, mode, cloneInputs(inputs));
  first.warnings = log.take();
  std::vector<Leaf> secondLeaves =
      runProgram(second.module, second.path, mode, cloneInputs(inputs));
  second.warnings = log.take();

  // What a program computes in float32 whatever it gets (an integer tensor
  // times a number) stays so in its copy, but not in the buffer that tiles
  // write to. Dtypes are compared in the programs themselves.
  for (std::vector<Leaf> *leaves : {&firstDouble, &secondDouble})
    for (Leaf &leaf : *leaves)
      if (leaf.tensor.defined() && leaf.tensor.is_floating_point())
        leaf.tensor = leaf.tensor.to(at::kDouble);
  if (!pair(firstLeaves, secondLeaves, "", result.reason) ||
      !pair(firstDouble, secondDouble, " (in float64)", result.reason))
    return result;
  if (firstLeaves.size() != firstDouble.size()) {
    result.reason = "the first program returns another structure in float64";
    return result;
  }
  std::vector<Quartet> quartets, outputs;
  for (size_t index = 0; index < firstLeaves.size(); ++index) {
    if (!firstLeaves[index].tensor.defined())
      continue;
    quartets.push_back({firstLeaves[index].path, firstLeaves[index].tensor,
                        secondLeaves[index].tensor, firstDouble[index].tensor,
                        secondDouble[index].tensor, false});
    if (firstLeaves[index].kind == Leaf::Kind::Output)
      outputs.push_back(quartets.back());
    quartets.back().isGradient =
        firstLeaves[index].kind == Leaf::Kind::Gradient;
  }
  result.tensors = outputs.size();
  for (const Quartet &part : quartets) {
    at::Tensor wide = widen(part.first);
    double difference = maxAbs(at::nan_to_num(widen(part.second) - wide));
    double scale = maxAbs(at::nan_to_num(wide, 0.0, 0.0, 0.0));
    double relative = scale > 0.0 ? difference / scale : 0.0;
    if (part.isGradient) {
      ++result.gradients;
      result.gradientMaxAbs = std::max(result.gradientMaxAbs, difference);
      result.gradientMaxRel = std::max(result.gradientMaxRel, relative);
      continue;
    }
    result.maxAbs = std::max(result.maxAbs, difference);
    result.maxRel = std::max(result.maxRel, relative);
    result.maxAbsDouble = std::max(
        result.maxAbsDouble, maxAbs(at::nan_to_num(widen(part.secondDouble) -
                                                   widen(part.firstDouble))));
  }
  double stepNorm = 0.0;
  for (const Quartet &part : quartets)
    if (part.isGradient)
      stepNorm = std::max(stepNorm,
                          at::nan_to_num(widen(part.firstDouble), 0.0, 0.0, 0.0)
                              .abs()
                              .norm()
                              .item<double>());
  std::string differences;
  for (const Quartet &part : quartets)
    if (auto difference =
            getDifference(part.first, part.firstDouble, part.second,
                          part.secondDouble, part.isGradient ? stepNorm : 0.0);
        difference && differences.empty())
      differences = part.path + ": " + *difference;
  judge(outputs, batch, result);
  bool zerosPass =
      result.gradients > 0 && llvm::all_of(quartets, [](const Quartet &part) {
        return !part.isGradient ||
               !getDifference(part.first, part.firstDouble,
                              at::zeros_like(part.second),
                              at::zeros_like(part.secondDouble));
      });
  if (zerosPass && !result.vacuous) {
    result.vacuous = true;
    result.reason = "gradients that are all zero would have passed as well";
  }
  result.equal = differences.empty();
  if (!result.equal)
    result.reason = differences;

  if (second.isTiled && ranUntiled(second.warnings)) {
    result.notes.push_back("the second program did not take its tiled path; "
                           "see its warning");
  } else if (second.isTiled && ranUntiled(doubleWarnings)) {
    result.vacuous = true;
    result.notes.push_back("in float64: " + doubleWarnings.front());
    if (result.equal)
      result.reason = "the float64 copy of the second program did not take its "
                      "tiled path, so that its tiles were not compared";
  }
  return result;
}
