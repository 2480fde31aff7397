//===- StftShapes.cpp - Rules of short-time Fourier transforms ------------===//
//
// Source: stft and istft of aten/src/ATen/native/SpectralOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Rules/SpectralRules.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;

/// Lengths in samples, given or by default; all or none are known.
struct Lengths {
  int64_t points = 0, hop = 0, window = 0;
};
static FailureOr<std::optional<Lengths>> getLengths(ShapeRule &rule,
                                                    Value window) {
  DimExpr points = rule.integerArgument("n_fft");
  if (!points || !points.getConstant())
    return std::optional<Lengths>();
  Lengths lengths;
  lengths.points = *points.getConstant();
  lengths.hop = lengths.points / 4;
  lengths.window = lengths.points;
  for (auto [name, value] : {std::pair(StringRef("hop_length"), &lengths.hop),
                             {StringRef("win_length"), &lengths.window}}) {
    if (!rule.hasArgument(name))
      continue;
    DimExpr given = rule.integerArgument(name);
    if (!given || !given.getConstant())
      return std::optional<Lengths>();
    *value = *given.getConstant();
  }
  if (lengths.points < 1)
    return LogicalResult(rule.emitError() << "n_fft is " << lengths.points);
  if (lengths.hop < 1)
    return LogicalResult(rule.emitError() << "hop_length is " << lengths.hop);
  if (lengths.window < 1 || lengths.window > lengths.points)
    return LogicalResult(rule.emitError()
                         << "win_length is " << lengths.window << " of "
                         << lengths.points << " points");
  TensorInfo info = rule.tensor(window);
  if (info.hasRank() &&
      (info.getRank() != 1 ||
       proveEqual(info.dim(0), rule.constant(lengths.window)) == TriBool::No))
    return LogicalResult(rule.emitError() << "expects a window of "
                                          << lengths.window << " elements");
  return std::optional<Lengths>(lengths);
}

/// The value of an optional bool argument.
static std::optional<bool> getFlag(ShapeRule &rule, StringRef name) {
  auto attr = rule.getOp()->getAttrOfType<BoolAttr>(name);
  return attr ? std::optional(attr.getValue()) : std::nullopt;
}

static bool isComplex(const TensorInfo &info) {
  return info.elementType && isa<ComplexType>(info.elementType);
}

LogicalResult rules::inferStft(ShapeRule &rule, Value self, Value window,
                               bool center) {
  TensorInfo input = rule.tensor(self), frame = rule.tensor(window), result;
  if (!input.elementType || (window && !frame.elementType))
    return success();
  if (isa<IntegerType>(input.elementType))
    return rule.emitError()
           << "expects a signal of floats, got " << input.elementType;
  bool complex = isComplex(input) || isComplex(frame);
  auto wanted = getFlag(rule, "return_complex");
  if (!wanted && !complex)
    return rule.emitError() << "needs return_complex for real numbers";
  bool returned = wanted.value_or(true);
  bool onesided = getFlag(rule, "onesided").value_or(!complex);
  if (complex && onesided)
    return rule.emitError() << "the spectrum of complex numbers has two sides";
  bool aligned = getFlag(rule, "align_to_window").value_or(false);
  if (center && rule.hasArgument("align_to_window"))
    return rule.emitError() << "align_to_window is for center=False only";
  Type real = input.elementType;
  if (auto own = dyn_cast<ComplexType>(real))
    real = own.getElementType();
  result.elementType = returned ? Type(ComplexType::get(real)) : real;
  auto lengths = getLengths(rule, window);
  if (failed(lengths))
    return failure();
  if (!input.hasRank() || !*lengths) {
    rule.setResult(0, result);
    return success();
  }
  if (input.getRank() != 1 && input.getRank() != 2)
    return rule.emitError() << "expects rank 1 or 2, got " << input.getRank();
  auto [points, hop, width] = **lengths;
  DimExpr signal = input.dim(input.getRank() - 1);
  auto mode = rule.getOp()->getAttrOfType<StringAttr>("pad_mode");
  if (center && mode && mode.getValue() == "reflect" &&
      proveAtMost(signal, rule.constant(points / 2)) == TriBool::Yes)
    return rule.emitError() << "reflects " << points / 2 << " of "
                            << signal.str() << " elements";
  if (center)
    signal = signal + points / 2 * 2;
  if (auto count = signal.getConstant(); count && *count < points)
    return rule.emitError()
           << "n_fft is " << points << " of " << *count << " elements";
  DimExpr bins = rule.constant(onesided ? points / 2 + 1 : points);
  DimExpr frames = (signal - (aligned ? width : points)).floorDiv(hop) + 1;
  // Frame after frame in memory.
  SmallVector<DimExpr> dims(ArrayRef(*input.dims).drop_back());
  dims.append({frames, bins});
  if (!returned)
    dims.push_back(rule.constant(2));
  size_t place = input.getRank() - 1;
  result = TensorInfo::contiguous(dims, result.elementType);
  std::swap((*result.dims)[place], (*result.dims)[place + 1]);
  std::swap((*result.strides)[place], (*result.strides)[place + 1]);
  if (aligned || (!center && input.isContiguous() != TriBool::Yes))
    result.strides.reset();
  rule.setResult(0, result);
  return success();
}

LogicalResult rules::inferIstft(ShapeRule &rule, Value self, Value window,
                                bool center) {
  TensorInfo input = rule.tensor(self), result;
  if (!input.elementType)
    return success();
  // A spectrum of pairs of real numbers is refused nowadays.
  auto own = dyn_cast<ComplexType>(input.elementType);
  if (!own)
    return rule.emitError()
           << "expects complex numbers, got " << input.elementType;
  if (input.hasRank() &&
      llvm::any_of(*input.dims, [](DimExpr dim) { return dim.isConstant(0); }))
    return rule.emitError() << "expects a tensor that is not empty";
  bool complex = getFlag(rule, "return_complex").value_or(false);
  // The window is multiplied with the signal, and may be wider.
  Type real = own.getElementType(), frame = rule.tensor(window).elementType;
  if (window && !frame)
    return success();
  if (window && isa<FloatType>(frame) &&
      frame.getIntOrFloatBitWidth() > real.getIntOrFloatBitWidth())
    real = frame;
  result.elementType = complex ? Type(ComplexType::get(real)) : real;
  auto lengths = getLengths(rule, window);
  if (failed(lengths))
    return failure();
  if (!input.hasRank() || !*lengths) {
    rule.setResult(0, result);
    return success();
  }
  if (input.getRank() != 2 && input.getRank() != 3)
    return rule.emitError() << "expects rank 2 or 3, got " << input.getRank();
  auto [points, hop, width] = **lengths;
  int64_t leading = input.getRank() - 2;
  DimExpr bins = input.dim(leading), frames = input.dim(leading + 1);
  if (frames.isConstant(0))
    return rule.emitError() << "expects one frame or more";
  auto onesided = getFlag(rule, "onesided");
  if (auto count = bins.getConstant()) {
    bool half = onesided.value_or(*count != points);
    if (*count != (half ? points / 2 + 1 : points))
      return rule.emitError()
             << "has " << *count << " frequencies for " << points << " points";
    if (half && complex)
      return rule.emitError() << "complex numbers need both sides";
  }
  SmallVector<DimExpr> dims(ArrayRef(*input.dims).take_front(leading));
  DimExpr total =
      rule.hasArgument("length")
          ? rule.integerArgument("length")
          : frames * hop - hop + points - (center ? points / 2 * 2 : 0);
  dims.push_back(total);
  if (total) {
    result = TensorInfo::contiguous(dims, result.elementType);
  } else {
    result.dims = dims;
  }
  rule.setResult(0, result);
  return success();
}

void rules::inferStftBatch(BatchRule &rule, Value self, Value window,
                           int64_t rank) {
  BatchFact fact = rule.fact(self);
  TensorInfo info = rule.tensor(self);
  for (Value value : OperatorArguments(rule.getOp()).getDynamic())
    if (!rule.fact(value).isFree())
      return rule.mix("a length of the transform follows the batch");
  if (!rule.fact(window).isFree())
    return rule.mix("the window depends on the batch");
  if (!info.hasRank() || info.getRank() <= rank || fact.dim != 0)
    return rule.mix("the batch is the time or the frequency of " +
                    rule.getOp()->getName().stripDialect());
  rule.setResult(0, fact);
}
