//===- Stft.cpp - What short-time transforms hold inside ------------------===//
//
// Source: stft and istft in native/SpectralOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "Backward/BackwardModels.h"
#include "StftOperands.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using namespace koila::spectral;

//===----------------------------------------------------------------------===//
// stft
//===----------------------------------------------------------------------===//

/// Half a window on both sides of `signal`, which is a row for each sample.
static AllocationTrace::Block pad(WorkspaceRule &rule, AllocationTrace &trace,
                                  Signal &signal, int64_t points,
                                  StringRef mode) {
  if (mode != "reflect" && mode != "constant") {
    rule.setInexact("padding of stft in another mode");
    return {};
  }
  Signal padded = spectral::makeContiguous(
      {signal.dims[0], signal.dims[1] + points / 2 * 2}, signal.elementType);
  AllocationTrace::Block block = trace.allocate(padded.numBytes());
  if (mode == "reflect")
    trace.allocateTemporary(getCopyBytes(signal));
  signal = padded;
  return block;
}

/// What is left of the signal is freed at the end. `saved` is told what
/// autograd keeps, if it is there.
static void runStft(WorkspaceRule &rule, AllocationTrace &trace, Signal signal,
                    AllocationTrace::Block padded, int64_t points, int64_t hop,
                    int64_t window, bool onesided, SavedRule *saved) {
  int64_t samples = signal.dims[0];
  int64_t frames = (signal.dims[1] - points) / hop + 1;
  auto strides = *signal.strides;
  Signal windows = signal;
  windows.dims = {samples, frames, points};
  windows.strides = {strides[0], hop * strides[1], strides[1]};
  AllocationTrace::Block filled, products;
  if (window >= 0) {
    // Products with the window. Frames that start one element after the other
    // are as fast as elements, and then the shorter dim is the slower one.
    bool swaps = hop == 1 && points > frames;
    windows =
        swaps ? spectral::makeDense(windows.dims, signal.elementType, {0, 2, 1})
              : spectral::makeContiguous(windows.dims, signal.elementType);
    filled = trace.allocate(window);
    products = trace.allocate(windows.numBytes());
    trace.free(padded);
  }
  transformReal(trace, windows, {2}, onesided);
  if (window < 0)
    trace.free(padded);
  trace.free(filled);
  trace.free(products);
  rule.setTrace(std::move(trace));
  if (saved) {
    saved->keep(filled);
    saved->keep(products);
  }
}

template <typename OpT>
static void describeStft(WorkspaceRule &rule, OpT op, bool center,
                         StringRef mode, SavedRule *saved = nullptr) {
  if (saved && (center || rule.wantsGradient(op.getWindow())))
    return rule.setInexact("what autograd keeps of a signal that is padded, or "
                           "for the gradient of a window");
  auto signal = spectral::getSignal(rule, op.getSelf());
  auto frame = rule.tensor(op.getWindow());
  if (!signal || (op.getWindow() && !frame))
    return rule.setInexact("the strides of a signal are unknown");
  if (op.getAlignToWindow().value_or(false))
    return rule.setInexact("frames that are aligned to their windows");
  Type type = signal->elementType;
  if ((!type.isF32() && !type.isF64()) || (frame && frame->elementType != type))
    return rule.setInexact("stft of these element types");
  int64_t points = op.getNFft(), hop = op.getHopLength().value_or(points / 4);
  int64_t width = op.getWinLength().value_or(points);
  if (hop < 1 || signal->numElements() == 0)
    return rule.setInexact("stft of nothing");
  if (signal->dims.size() == 1) {
    signal->dims.insert(signal->dims.begin(), 1);
    signal->strides->insert(signal->strides->begin(),
                            signal->dims[1] * (*signal->strides)[0]);
  }
  AllocationTrace trace;
  AllocationTrace::Block padded;
  if (center) {
    padded = pad(rule, trace, *signal, points, mode);
  } else if (!signal->contiguous) {
    return rule.setInexact("frames of a strided signal");
  }
  // A window that is shorter than a frame is filled up; none is no product.
  int64_t window = width < points ? points * getElementBytes(type)
                   : frame        ? 0
                                  : -1;
  // Where the window is not multiplied the frames are a view of the signal.
  if (saved && window < 0)
    saved->save(op.getSelf());
  else if (saved && width >= points)
    saved->save(op.getWindow());
  if (rule.isExact())
    runStft(rule, trace, *signal, padded, points, hop, window,
            op.getOnesided().value_or(true), saved);
}

//===----------------------------------------------------------------------===//
// istft
//===----------------------------------------------------------------------===//

namespace {
/// Of istft; lengths in elements, and bytes of one.
struct Synthesis {
  int64_t samples, frames, points, hop, size;
  /// Of the signal with what was padded, and the part that is wanted.
  int64_t total, start, end;

  int64_t getFrameBytes() const { return samples * frames * points * size; }
  int64_t getKept() const { return std::min(end, total) - start; }
};
} // namespace

/// torch.unfold_backward: the sums, and while frames overlap, their places.
static AllocationTrace::Block addFrames(AllocationTrace &trace,
                                        const Synthesis &s, int64_t rows) {
  constexpr int64_t kIndexBytes = 8;
  AllocationTrace::Block sums = trace.allocate(rows * s.total * s.size);
  if (s.hop < s.points)
    trace.allocateTemporary(s.total * kIndexBytes);
  return sums;
}

/// Frames, which are in `transformed`, by the window, added up, over the added
/// squares of the window.
static void runIstft(WorkspaceRule &rule, AllocationTrace &trace,
                     const Synthesis &s, Type type,
                     AllocationTrace::Block window,
                     AllocationTrace::Block transformed, bool isRecorded,
                     SavedRule *saved) {
  AllocationTrace::Block products = trace.allocate(s.getFrameBytes());
  AllocationTrace::Block sums = addFrames(trace, s, s.samples);
  AllocationTrace::Block squares = trace.allocate(s.points * s.size);
  // Autograd keeps the window.
  if (!isRecorded)
    trace.free(window);
  AllocationTrace::Block weights = addFrames(trace, s, 1);
  // Whether the least of the squares is near zero; the bool lives on.
  AllocationTrace::Block magnitudes = trace.allocate(s.getKept() * s.size);
  AllocationTrace::Block least = trace.allocate(s.size);
  // What it is compared with is a number of float64, which is cast.
  AllocationTrace::Block number = trace.allocate(sizeof(double));
  AllocationTrace::Block bound = trace.allocate(type.isF64() ? 0 : s.size);
  AllocationTrace::Block isNear = trace.allocate(1);
  for (AllocationTrace::Block block : {number, bound, least, magnitudes})
    trace.free(block);
  trace.allocateTemporary(1);
  int64_t kept = s.samples * s.getKept() * s.size;
  AllocationTrace::Block result = trace.allocate(kept);
  trace.free(sums);
  if (s.end > s.total) {
    trace.allocate(s.samples * (s.end - s.start) * s.size);
    trace.free(result);
  }
  for (AllocationTrace::Block block :
       {isNear, weights, products, squares, transformed})
    trace.free(block);
  if (isRecorded)
    trace.free(window);
  rule.setTrace(std::move(trace));
  if (saved) {
    saved->keep(window);
    saved->keep(weights);
  }
}

/// The spectra of all frames, as [samples, frames, frequencies].
static std::optional<Signal> getSpectra(const WorkspaceRule &rule, IstftOp op) {
  auto signal = getSignal(rule, op.getSelf());
  if (!signal || !isa<ComplexType>(signal->elementType))
    return std::nullopt;
  if (signal->dims.size() == 2) {
    signal->dims.insert(signal->dims.begin(), 1);
    signal->strides->insert(signal->strides->begin(), 0);
  }
  std::swap(signal->dims[1], signal->dims[2]);
  std::swap((*signal->strides)[1], (*signal->strides)[2]);
  // Of both sides one is read.
  signal->dims[2] = std::min<int64_t>(signal->dims[2], op.getNFft() / 2 + 1);
  return signal;
}

/// None where a shape is unknown or of no signal, and then the rule says so.
static std::optional<Synthesis> getSynthesis(WorkspaceRule &rule, IstftOp op) {
  auto spectra = getSpectra(rule, op);
  auto frame = rule.tensor(op.getWindow());
  auto result = rule.tensor(op.getResult());
  auto fail = [&](StringRef why) -> std::optional<Synthesis> {
    rule.setInexact(why);
    return std::nullopt;
  };
  if (!spectra || !result || (op.getWindow() && !frame))
    return fail("the strides of the spectra are unknown");
  Type type = getRealType(spectra->elementType);
  if (op.getReturnComplex() || (frame && frame->elementType != type))
    return fail("istft of these element types");
  Synthesis s;
  s.samples = spectra->dims[0];
  s.frames = spectra->dims[1];
  s.points = op.getNFft();
  s.hop = op.getHopLength().value_or(s.points / 4);
  s.size = getElementBytes(type);
  s.total = s.points + s.hop * (s.frames - 1);
  s.start = op.getCenter() ? s.points / 2 : 0;
  s.end = s.total - s.start;
  if (op.getLength())
    s.end = s.start + result->dims.back();
  if (s.points < 2 || spectra->numElements() == 0 || s.getKept() < 1)
    return fail("istft of no signal");
  return s;
}

/// `saved` is told what autograd keeps, if it is there.
static void describeIstft(WorkspaceRule &rule, IstftOp op,
                          SavedRule *saved = nullptr) {
  auto synthesis = getSynthesis(rule, op);
  if (!synthesis)
    return;
  Synthesis s = *synthesis;
  auto spectra = getSpectra(rule, op);
  auto frame = rule.tensor(op.getWindow());
  Type type = getRealType(spectra->elementType);
  int64_t width = op.getWinLength().value_or(s.points);
  AllocationTrace trace;
  // Ones where no window is given, which is filled up to a frame.
  AllocationTrace::Block window = trace.allocate(frame ? 0 : width * s.size);
  if (width != s.points) {
    AllocationTrace::Block filled = trace.allocate(s.points * s.size);
    trace.free(window);
    window = filled;
  }
  // Of one dim: the result is the next block.
  AllocationTrace::Block transformed(trace.getNumBlocks());
  transformToReal(trace, *spectra, {2}, s.points);
  runIstft(rule, trace, s, type, window, transformed,
           rule.wantsGradient(op.getSelf()), saved);
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// Whether the window is given for whole frames.
static bool isWhole(IstftOp op, const Synthesis &s) {
  auto width = static_cast<int64_t>(op.getWinLength().value_or(s.points));
  return op.getWindow() && width == s.points;
}

/// The window, or what it was filled up to, and the sum of its squares.
static void saveIstft(SavedRule &rule) {
  auto op = cast<IstftOp>(rule.getOp());
  auto s = getSynthesis(rule, op);
  if (!s)
    return;
  if (rule.wantsGradient(op.getWindow()))
    return rule.setInexact("the gradient of a window");
  if (isWhole(op, *s))
    rule.save(op.getWindow());
  describeIstft(rule, op, &rule);
}

static bool isCentred(StftOp) { return false; }
static bool isCentred(StftCenterOp op) { return op.getCenter(); }

/// The gradient with the other half of the frequencies, transformed, times the
/// window, added up where frames overlap. Sources: fft_r2c_backward,
/// as_strided_backward.
template <typename OpT>
static void describeStftGradient(BackwardRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  auto signal = getSignal(rule, op.getSelf());
  const ConcreteTensor &gradient = *rule.getGradient();
  auto result = rule.tensor(op.getResult());
  int64_t points = op.getNFft(), hop = op.getHopLength().value_or(points / 4);
  int64_t width = op.getWinLength().value_or(points);
  auto frame = rule.tensor(op.getWindow());
  if (isCentred(op) || !signal || !result || !signal->contiguous || hop < 1 ||
      signal->dims.size() > 2 || rule.wantsGradient(op.getWindow()) ||
      !isa<ComplexType>(gradient.elementType))
    return koila::detail::describeUnknownBackward(rule);
  int64_t samples = signal->dims.size() == 2 ? signal->dims[0] : 1;
  int64_t frames = (signal->dims.back() - points) / hop + 1;
  int64_t real = getElementBytes(signal->elementType);
  int64_t elements = samples * frames * points, whole = elements * 2 * real;
  bool hasWindow = frame || width < points;
  BackwardReplay steps(rule);
  AllocationTrace &trace = steps;
  bool isHalf = op.getOnesided().value_or(true);
  Signal spectra = transposeDims(gradient, -1, -2);
  AllocationTrace::Block block;
  if (isHalf) {
    spectra = spectral::makeContiguous({samples, frames, points},
                                       gradient.elementType);
    block = trace.allocate(whole);
  }
  spectra.strides = spectra.getStrides();
  if (!spectra.strides)
    return koila::detail::describeUnknownBackward(rule);
  int64_t last = spectra.dims.size() - 1;
  AllocationTrace::Block arrived =
      transformComplex(steps, spectra, {last}).block;
  trace.free(block);
  trace.freeOutside(rule.getReleasableBytes());
  // The first node saves the signal where its frames are a view of it.
  if (!hasWindow)
    steps.freeSaved(0);
  if (hasWindow) {
    bool isFilled = width < points;
    // The frames times the window, which the transform kept, and the gradient
    // times the window, which was kept before if it was filled up.
    steps.freeKept(isFilled ? 1 : 0, elements * real);
    AllocationTrace::Block product = trace.allocate(elements * real);
    trace.free(std::exchange(arrived, product));
    if (isFilled)
      steps.freeKept(0, points * real);
    else
      steps.freeSaved(1);
  }
  // Places of the signal, and those of all frames.
  constexpr int64_t kIndexBytes = 8;
  steps.give(0, steps.allocate(*signal), /*isViewed=*/true);
  if (hop < points) {
    AllocationTrace::Block places =
        trace.allocate(signal->numElements() * kIndexBytes);
    trace.allocateTemporary(elements * kIndexBytes);
    trace.free(places);
  }
  trace.free(arrived);
  steps.finish();
}

/// The gradient over the added squares of the window, written into zeros, of
/// which frames are views; times the window, and transformed.
static void describeIstftGradient(BackwardRule &rule) {
  auto op = cast<IstftOp>(rule.getOp());
  auto s = getSynthesis(rule, op);
  if (!s)
    return;
  auto self = rule.tensor(op.getSelf());
  // Both halves are cut, and what lies beyond the frames is filled up by nodes
  // of their own.
  if (!self || self->dims.size() < 2 || rule.wantsGradient(op.getWindow()) ||
      self->dims.rbegin()[1] != s->points / 2 + 1 || s->end > s->total)
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  AllocationTrace &trace = steps;
  bool ownsWindow = !isWhole(op, *s);
  AllocationTrace::Block quotient =
      trace.allocate(s->samples * s->getKept() * s->size);
  trace.freeOutside(rule.getReleasableBytes());
  // The squares are kept after the window.
  steps.freeKept(ownsWindow ? 1 : 0, s->total * s->size);
  AllocationTrace::Block total =
      trace.allocate(s->samples * s->total * s->size);
  trace.free(quotient);
  AllocationTrace::Block frames = trace.allocate(s->getFrameBytes());
  trace.free(total);
  if (ownsWindow)
    steps.freeKept(0, s->points * s->size);
  else
    steps.freeSaved(1);
  ConcreteTensor spectra = *self;
  std::swap(spectra.dims.rbegin()[0], spectra.dims.rbegin()[1]);
  MadeTensor made = steps.allocate(spectra);
  if (s->points / 2 + 1 < s->points)
    allocateInteger(trace, spectra.elementType);
  trace.free(frames);
  // As pairs of real numbers they are read in rows: view_as_complex takes no
  // others. Source: view_as_real in derivatives.yaml.
  ConcreteTensor turned = transposeDims(made, -1, -2);
  if (turned.contiguous) {
    steps.give(0, turned, /*isViewed=*/true);
  } else {
    MadeTensor rows = steps.allocate(*self);
    steps.free(made);
    steps.give(0, rows);
  }
  steps.finish();
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

static void replayStft(WorkspaceRule &rule, SavedRule *saved) {
  describeStft(rule, cast<StftOp>(rule.getOp()), /*center=*/false, "", saved);
}

static void replayStftCenter(WorkspaceRule &rule, SavedRule *saved) {
  auto op = cast<StftCenterOp>(rule.getOp());
  describeStft(rule, op, op.getCenter(), op.getPadMode(), saved);
}

static void replayIstft(WorkspaceRule &rule, SavedRule *saved) {
  describeIstft(rule, cast<IstftOp>(rule.getOp()), saved);
}

void kernels::addStftModels(KernelLibrary &library) {
  library.add<StftOp>({forwardOf<replayStft>, savedOf<replayStft>,
                       ofGradient<describeStftGradient<StftOp>>});
  library.add<StftCenterOp>({forwardOf<replayStftCenter>,
                             savedOf<replayStftCenter>,
                             ofGradient<describeStftGradient<StftCenterOp>>});
  library.add<IstftOp>(
      {forwardOf<replayIstft>, saveIstft, ofGradient<describeIstftGradient>});
}
