//===- IndexBackward.cpp - Gradients of reads by indices ------------------===//
//
// Zeros of the shape that was read, into which the gradient is added. Sources:
// FunctionsManual.cpp, native/Embedding.cpp, native/cpu/IndexKernel.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Embedding.h"
#include "../Linalg.h"
#include "../Pad.h"
#include "BackwardModels.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// The sums over what was repeated: dims that were added first, one after the
/// other, then each dim seen as repetitions of what was there.
/// Source: repeat_backward.
static void sumRepeated(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0), sum = steps.getGradient();
  // Of nothing: zeros. Source: repeat_backward in FunctionsManual.cpp.
  if (sum.numElements() == 0)
    return steps.giveContiguous(0);
  bool isFirst = true;
  auto firstOf = [](const ConcreteTensor &tensor) {
    SmallVector<bool> isReduced(tensor.dims.size());
    isReduced.front() = true;
    return isReduced;
  };
  auto replace = [&](ConcreteTensor by, const ConcreteTensor &summed,
                     ArrayRef<bool> isReduced) {
    by = steps.allocate(by);
    allocateSum(rule, steps, summed, by, isReduced);
    if (!isFirst)
      steps.free(sum);
    isFirst = false;
    sum = by;
  };
  while (sum.dims.size() > self.dims.size())
    replace(dropDim(sum, 0, /*keepdim=*/false), sum, firstOf(sum));
  if (sum.dims != self.dims) {
    ConcreteTensor apart{{}, sum.elementType};
    SmallVector<int64_t> apartStrides;
    SmallVector<bool> isReduced;
    auto strides = sum.getStrides();
    for (auto [dim, extent] : llvm::enumerate(self.dims)) {
      int64_t stride = strides ? (*strides)[dim] : 0;
      apart.dims.append({extent ? sum.dims[dim] / extent : 0, extent});
      apartStrides.append({stride * extent, stride});
      isReduced.append({true, false});
    }
    apart = withStrides(apart,
                        strides ? std::optional(apartStrides) : std::nullopt);
    replace(self, apart, isReduced);
  }
  if (isFirst)
    return rule.forwardGrad(0);
  steps.give(0, sum);
}

/// The sum over the dim of the repetitions, as a view; of a copy, where the
/// strides of the gradient allow no such dim.
/// Source: repeat_interleave_symint in native/Repeat.cpp.
static void sumInterleaved(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<RepeatInterleaveIntOp>(rule.getOp());
  ConcreteTensor self = steps.read(0), sum = self;
  const ConcreteTensor &gradient = steps.getGradient();
  sum.contiguous = true;
  sum.strides.reset();
  if (!op.getDim())
    sum.dims = {self.numElements()};
  int64_t rank = sum.dims.size(), dim = op.getDim().value_or(0);
  dim += dim < 0 ? rank : 0;
  if (dim < 0 || dim >= rank || gradient.numElements() == 0)
    return koila::detail::describeUnknownBackward(rule);
  int64_t repeats = gradient.dims[dim] / sum.dims[dim];
  SmallVector<int64_t> dims = sum.dims;
  dims.insert(dims.begin() + dim + 1, repeats);
  bool isCopy = false;
  ConcreteTensor apart = steps.reshape(gradient, dims, isCopy);
  if (repeats == 1) {
    if (!apart.contiguous)
      return koila::detail::describeUnknownBackward(rule);
    sum.dims = self.dims;
    return isCopy ? steps.give(0, sum, /*isViewed=*/true)
                  : rule.setView(0, sum);
  }
  if (isCopy)
    steps.freeOutside(rule.getReleasableBytes());
  sum = steps.allocate(sum);
  SmallVector<bool> isReduced(apart.dims.size());
  isReduced[dim + 1] = true;
  allocateSum(rule, steps, apart, sum, isReduced);
  sum.dims = self.dims;
  steps.give(0, sum, /*isViewed=*/true);
}

/// Whether the index surely names single places, not whole rows, for which half
/// types do not go by way of float32.
static bool namesPlaces(const ConcreteTensor &index) {
  int64_t rest = 1;
  for (int64_t extent : ArrayRef(index.dims).drop_front(!index.dims.empty()))
    rest *= extent;
  return index.contiguous && rest > 1;
}

/// The indices as int64, and then `numBytes` as float32: gather and scatter in
/// native/TensorAdvancedIndexing.cpp.
static void castIndices(BackwardReplay &steps, int64_t numBytes) {
  ConcreteTensor index = steps.read(1);
  AllocationTrace &trace = steps;
  if (index.numElements() == 0)
    return;
  AllocationTrace::Block cast = trace.allocate(getCastIndexBytes(index));
  AllocationTrace::Block wide = trace.allocate(numBytes);
  trace.free(cast);
  trace.free(wide);
}

/// What gather reads of the gradient.
static void giveGathered(BackwardRule &rule, BackwardReplay &steps,
                         unsigned source) {
  if (isHalf(steps.getGradient().elementType) && !namesPlaces(steps.read(1)))
    return koila::detail::describeUnknownBackward(rule);
  steps.giveContiguous(source);
  castIndices(steps, getWideBytes(steps.read(source)));
}

/// What index_select reads of the gradient, of which it copies what is strided
/// along dim 1, by indices in a row. Source: index_select_out_cpu_ in
/// native/TensorAdvancedIndexing.cpp.
static void giveSelected(BackwardReplay &steps, unsigned source, int64_t dim) {
  const ConcreteTensor &gradient = steps.getGradient();
  int64_t rank = gradient.dims.size();
  dim += dim < 0 ? rank : 0;
  MadeTensor read = steps.allocate(steps.read(source));
  if (read.numElements() > 0) {
    MadeTensor indices = steps.contiguous(steps.read(1));
    if (dim == 1)
      steps.free(steps.contiguous(gradient));
    steps.free(indices);
  }
  steps.give(source, read);
}

/// Whether half types may be summed in a buffer, since an expanded index names
/// whole rows, which are written in their order. That order is in memory which
/// PyTorch's allocator does not hand out. Sources: can_use_expanded_index_path
/// in native/TensorAdvancedIndexing.cpp, cpu_scatter_reduce_expanded_index in
/// native/cpu/ScatterGatherKernel.cpp.
static bool mayBeBuffered(const ConcreteTensor &gradient,
                          const ConcreteTensor &index, int64_t dim,
                          int64_t rank) {
  constexpr int64_t kFewColumns = 16;
  bool isFirst = dim == 0 || dim == -rank;
  return isHalf(gradient.elementType) && isFirst && !index.contiguous &&
         index.dims.size() > 1 &&
         index.numElements() >= kFewColumns * index.dims[0];
}

namespace {
/// The gradients of scatter_reduce, both of which are always made.
struct ScatterReduce {
  BackwardRule &rule;
  BackwardReplay &steps;
  ConcreteTensor gradient, self, index, source;

  MadeTensor gather() const {
    return steps.allocate({index.dims, gradient.elementType});
  }
  /// A copy of `into`, written.
  MadeTensor scatter(const ConcreteTensor &into) const {
    MadeTensor made = steps.allocate(into);
    steps.allocateBriefly(getBlockBytes(into));
    return made;
  }
  MadeTensor toMask(const ConcreteTensor &lhs,
                    const ConcreteTensor &rhs) const {
    return steps.compute({lhs, rhs}, BackwardReplay::Number::None,
                         BackwardReplay::Result::Bool);
  }
  MadeTensor toNumbers(const ConcreteTensor &lhs,
                       const ConcreteTensor &rhs) const {
    MadeTensor mask = toMask(lhs, rhs);
    MadeTensor numbers = steps.allocate(lhs);
    steps.free(mask);
    return numbers;
  }
  void runSum(bool includesSelf);
  void runMean(bool includesSelf);
  void runExtremum(bool includesSelf);
  /// `own` is a new tensor, or none where it is the gradient.
  void give(std::optional<MadeTensor> own, const MadeTensor &other,
            bool includesSelf);
};
} // namespace

void ScatterReduce::give(std::optional<MadeTensor> own, const MadeTensor &other,
                         bool includesSelf) {
  if (!includesSelf) {
    MadeTensor written =
        scatter(own ? static_cast<const ConcreteTensor &>(*own) : gradient);
    if (own)
      steps.free(*own);
    own = written;
  }
  if (!steps.wants(0)) {
    if (own)
      steps.free(*own);
  } else if (own) {
    steps.give(0, *own);
  } else {
    rule.forwardGrad(0);
  }
  if (steps.wants(2))
    steps.give(2, other);
  else
    steps.free(other);
}

void ScatterReduce::runSum(bool includesSelf) {
  give(std::nullopt, gather(), includesSelf);
}

/// grad / count, and that of what was read divided by its count.
void ScatterReduce::runMean(bool includesSelf) {
  MadeTensor start = steps.makeLike(gradient);
  MadeTensor ones = steps.makeLike(source);
  MadeTensor count = scatter(start);
  steps.free({start, ones});
  steps.free(steps.compute(count, BackwardReplay::Number::Integer,
                           BackwardReplay::Result::Bool));
  MadeTensor own = steps.compute({gradient, count});
  MadeTensor counts = gather(), read = gather();
  MadeTensor other = steps.compute({read, counts});
  steps.free({counts, read, count});
  give(own, other, includesSelf);
}

/// Shared by all that are the extremum.
void ScatterReduce::runExtremum(bool includesSelf) {
  MadeTensor value = gather();
  MadeTensor selves = toNumbers(self, self);
  MadeTensor sources = toNumbers(source, value);
  MadeTensor count = scatter(selves);
  MadeTensor shares = steps.compute({gradient, count});
  MadeTensor mask = toMask(self, self);
  MadeTensor own = steps.compute({mask, shares});
  steps.free(mask);
  MadeTensor read = gather();
  MadeTensor sourceMask = toMask(source, value);
  MadeTensor other = steps.compute({sourceMask, read});
  steps.free({read, sourceMask});
  if (includesSelf) {
    steps.free({value, selves, sources, count, shares});
    return give(own, other, includesSelf);
  }
  steps.free({value, selves, sources, count, shares});
  MadeTensor written = scatter(own);
  steps.free(own);
  give(written, other, /*includesSelf=*/true);
}

static void describeScatterReduce(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<ScatterReduceTwoOp>(rule.getOp());
  ScatterReduce of{rule,          steps,         steps.getGradient(),
                   steps.read(0), steps.read(1), steps.read(2)};
  // Only the part of the source that the index names is read.
  if (of.index.dims != of.source.dims || of.index.numElements() == 0 ||
      !of.index.elementType.isInteger(64) || !isPlain(of.gradient.elementType))
    return koila::detail::describeUnknownBackward(rule);
  StringRef reduce = op.getReduce();
  if (reduce == "sum")
    of.runSum(op.getIncludeSelf());
  else if (reduce == "mean")
    of.runMean(op.getIncludeSelf());
  else if (reduce == "amax" || reduce == "amin")
    of.runExtremum(op.getIncludeSelf());
  else
    koila::detail::describeUnknownBackward(rule);
}

/// The gradient without what scatter wrote.
static void describeScatter(BackwardRule &, BackwardReplay &steps) {
  if (!steps.wants(0))
    return;
  const ConcreteTensor &gradient = steps.getGradient();
  MadeTensor made = steps.allocate(gradient);
  steps.allocateBriefly(getBlockBytes(gradient));
  castIndices(steps, getWideBytes(made));
  steps.give(0, made);
}

/// The gradient without the rows that were written.
static void describeRows(BackwardRule &, BackwardReplay &steps) {
  if (steps.wants(0))
    steps.give(0, steps.makeLike(steps.getGradient()));
}

/// How many elements index_put writes; none if a shape is unknown.
template <typename PutOp>
static std::optional<int64_t> countWritten(BackwardRule &rule, PutOp op,
                                           const ConcreteTensor &self) {
  SmallVector<int64_t> extents;
  for (Value value : op.getIndices()) {
    auto index = rule.tensor(value);
    if (!index || !index->elementType.isInteger(64))
      return std::nullopt;
    if (extents.size() < index->dims.size())
      extents.insert(extents.begin(), index->dims.size() - extents.size(), 1);
    for (auto [mine, other] :
         llvm::zip(llvm::reverse(extents), llvm::reverse(index->dims)))
      mine = mine == 1 ? other : mine;
  }
  int64_t count = 1;
  for (int64_t extent : extents)
    count *= extent;
  auto mask = op->template getAttrOfType<DenseBoolArrayAttr>("indices_mask");
  for (auto [dim, extent] : llvm::enumerate(self.dims)) {
    bool isIndexed = mask ? dim < static_cast<size_t>(mask.size()) && mask[dim]
                          : dim < op.getIndices().size();
    count *= isIndexed ? 1 : extent;
  }
  return count;
}

/// The gradient, zero where it was written; and what was read of it there.
template <typename PutOp>
static void describePut(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<PutOp>(rule.getOp());
  unsigned source = 1 + op.getIndices().size();
  ConcreteTensor gradient = steps.getGradient(), values = steps.read(source);
  auto first = op.getIndices().empty() ? std::nullopt
                                       : rule.tensor(op.getIndices().front());
  // One number under one mask is masked_fill_.
  bool isFill = !op.getAccumulate() && source == 2 && first &&
                first->elementType.isInteger(1) && values.numElements() == 1;
  int64_t places = 0;
  bool selects =
      !isFill && indexing::describeSelection(rule, op.getIndices(), places);
  // How many elements a mask reads, data decide.
  if ((isFill || selects) && steps.wants(source))
    return koila::detail::describeUnknownBackward(rule);
  auto count = isFill || selects ? std::optional(values.numElements())
                                 : countWritten(rule, op, gradient);
  if (!count || *count != values.numElements() || !gradient.contiguous)
    return koila::detail::describeUnknownBackward(rule);
  if (steps.wants(0) && op.getAccumulate())
    rule.forwardGrad(0);
  else if (steps.wants(0)) {
    MadeTensor zeros = steps.allocate(values);
    steps.give(0, steps.makeLike(gradient));
    steps.allocateTemporary(isFill ? 0 : places);
    steps.free(zeros);
  }
  if (steps.wants(source))
    steps.giveContiguous(source);
}

/// Padding by what is there: zeros in the format of the operand, which a kernel
/// fills in that of the gradient, and copies where these are not it.
static void describeWindowPad(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0), gradient = steps.getGradient();
  if (padsUnbatchedVolume(rule.getOp(), self))
    return koila::detail::describeUnknownBackward(rule);
  auto isImage = [](const ConcreteTensor &tensor) {
    return !tensor.contiguous && suggestsChannelsLast(tensor);
  };
  bool isOwn = isImage(self), isRead = isImage(gradient);
  MadeTensor made = steps.allocate(self);
  int64_t copies = isRead ? getSuggestedCopyBytes(gradient)
                          : getCopyBytes(gradient) + getBlockBytes(gradient);
  if (isOwn != isRead)
    copies += self.numBytes();
  steps.allocateTemporary(copies);
  steps.give(0, isOwn ? toChannelsLast(made) : made);
}

/// The part of the gradient that was not added.
static void describeConstantPad(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor part = steps.read(0);
  const ConcreteTensor &gradient = steps.getGradient();
  if (gradient.contiguous)
    return steps.giveContiguous(0);
  bool isSmaller =
      llvm::all_of(llvm::zip(part.dims, gradient.dims), [](auto extents) {
        return std::get<0>(extents) <= std::get<1>(extents);
      });
  if (!isSmaller || !gradient.getStrides())
    return koila::detail::describeUnknownBackward(rule);
  part = withStrides(part, gradient.getStrides());
  steps.give(0, steps.makeLike(part));
}

/// Tensor::diagonal of the gradient.
static void takeDiagonal(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<DiagEmbedOp>(rule.getOp());
  const ConcreteTensor &gradient = steps.getGradient();
  int64_t rank = gradient.dims.size();
  auto strides = gradient.getStrides();
  auto wrap = [&](int64_t dim) { return dim < 0 ? dim + rank : dim; };
  int64_t first = wrap(op.getDim1()), second = wrap(op.getDim2());
  if (!strides || first >= rank || second >= rank || first == second)
    return koila::detail::describeUnknownBackward(rule);
  SmallVector<int64_t> kept;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (dim != first && dim != second)
      kept.push_back((*strides)[dim]);
  kept.push_back((*strides)[first] + (*strides)[second]);
  rule.setView(0, withStrides(steps.read(0), kept));
}

/// Blocks of an image as columns, or the reverse: the result starts as a tensor
/// like the gradient, whose storage it keeps where that is large enough.
/// Sources: im2col_cpu and col2im_cpu in native/Im2Col.cpp and Col2Im.cpp.
static void describeBlocks(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0);
  const ConcreteTensor &gradient = steps.getGradient();
  AllocationTrace &trace = steps;
  int64_t kept = std::max(gradient.numBytes(), self.numBytes());
  AllocationTrace::Block result = trace.allocate(gradient.numBytes());
  AllocationTrace::Block rows = allocateContiguous(trace, gradient);
  if (kept > gradient.numBytes())
    trace.free(std::exchange(result, trace.allocate(kept)));
  trace.free(rows);
  self.contiguous = true;
  self.strides.reset();
  rule.setNew(0, self, /*isViewed=*/false, kept, result);
}

static void describeEmbedding(BackwardRule &, BackwardReplay &steps) {
  ConcreteTensor indices = steps.read(1), gradient = steps.getGradient();
  steps.contiguous(indices);
  steps.contiguous(gradient);
  steps.giveContiguous(0);
  steps.freeContiguous(gradient);
  steps.freeContiguous(indices);
}

/// Along the first dim half types are added as by scatter_add.
static void describeSelect(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<IndexSelectOp>(rule.getOp());
  int64_t rank = steps.read(0).dims.size();
  if (isHalf(steps.getGradient().elementType) &&
      (op.getDim() == 0 || static_cast<int64_t>(op.getDim()) == -rank))
    return koila::detail::describeUnknownBackward(rule);
  steps.giveContiguous(0);
  steps.allocateBriefly(getCopyBytes(steps.read(1)));
}

static void describeGather(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<GatherOp>(rule.getOp());
  ConcreteTensor index = steps.read(1);
  if (!index.elementType.isInteger(64) ||
      mayBeBuffered(steps.getGradient(), index, op.getDim(),
                    steps.read(0).dims.size()))
    return koila::detail::describeUnknownBackward(rule);
  steps.giveScattered(0);
}

static void describeTakeAlong(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<TakeAlongDimOp>(rule.getOp());
  ConcreteTensor self = steps.read(0), index = steps.read(1);
  auto isOther = [&](size_t dim) {
    int64_t along = op.getDim() ? *op.getDim() : 0;
    along += along < 0 ? static_cast<int64_t>(self.dims.size()) : 0;
    return static_cast<int64_t>(dim) != along &&
           self.dims[dim] != index.dims[dim];
  };
  // What broadcasts is summed in another node.
  if (!op.getDim() || self.dims.size() != index.dims.size() ||
      llvm::any_of(llvm::seq(self.dims.size()), isOther) ||
      mayBeBuffered(steps.getGradient(), index, *op.getDim(), self.dims.size()))
    return koila::detail::describeUnknownBackward(rule);
  steps.giveScattered(0);
}

static void describeScatterSource(BackwardRule &rule, BackwardReplay &steps) {
  describeScatter(rule, steps);
  if (steps.wants(2))
    giveGathered(rule, steps, 2);
}

static void describeIndexCopy(BackwardRule &rule, BackwardReplay &steps) {
  describeRows(rule, steps);
  if (steps.wants(2))
    giveSelected(steps, 2, cast<IndexCopyOp>(rule.getOp()).getDim());
}

static void describeIndex(BackwardRule &rule, BackwardReplay &steps) {
  OperandRange indices = rule.getOp()->getOperands().drop_front();
  // Where a mask is true is found again.
  if (int64_t places; indexing::describeSelection(rule, indices, places)) {
    steps.giveContiguous(0);
    steps.allocateTemporary(places);
    return;
  }
  for (Value operand : indices)
    if (auto index = rule.tensor(operand);
        !index || !index->elementType.isInteger(64))
      return koila::detail::describeUnknownBackward(rule);
  steps.giveContiguous(0);
}

static void describeScatterAdd(BackwardRule &rule, BackwardReplay &steps) {
  if (steps.wants(0))
    rule.forwardGrad(0);
  if (steps.wants(2))
    giveGathered(rule, steps, 2);
}

static void describeIndexAdd(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<IndexAddOp>(rule.getOp());
  if (steps.wants(0))
    rule.forwardGrad(0);
  if (!steps.wants(2))
    return;
  auto alpha = dyn_cast<IntegerAttr>(op.getAlphaAttr());
  if (alpha && alpha.getInt() == 1)
    return giveSelected(steps, 2, op.getDim());
  if (!isa<FloatAttr>(op.getAlphaAttr()) || !steps.getGradient().contiguous)
    return koila::detail::describeUnknownBackward(rule);
  MadeTensor read = steps.allocate(steps.read(2));
  steps.give(2, steps.compute(read, BackwardReplay::Number::Float));
  steps.free(read);
}

static void describePad(BackwardRule &rule, BackwardReplay &steps) {
  StringRef mode = cast<PadOp>(rule.getOp()).getMode();
  if (mode == "circular")
    return koila::detail::describeUnknownBackward(rule);
  mode == "constant" ? describeConstantPad(rule, steps)
                     : describeWindowPad(rule, steps);
}

static void describeShuffle(BackwardRule &rule, BackwardReplay &steps) {
  if (!steps.getGradient().contiguous)
    return koila::detail::describeUnknownBackward(rule);
  steps.giveContiguous(0);
}

/// Of a matrix the diagonal of zeros is written.
static void describeDiagonal(BackwardRule &rule, BackwardReplay &steps) {
  if (steps.read(0).dims.size() != 2)
    return koila::detail::describeUnknownBackward(rule);
  steps.giveContiguous(0);
}

static void describeFlip(BackwardRule &, BackwardReplay &steps) {
  steps.give(0, steps.makeLike(steps.getGradient()));
}

/// One dim after the other: each calls the next, and what it has made ends with
/// it.
static void describeRoll(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<RollOp>(rule.getOp());
  const ConcreteTensor &gradient = steps.getGradient();
  bool isOfImages = !gradient.contiguous && suggestsChannelsLast(gradient);
  if (op.getDims().empty() || isOfImages || gradient.numElements() == 0)
    return koila::detail::describeUnknownBackward(rule);
  SmallVector<MadeTensor> made;
  for (size_t dim = 0; dim < op.getDims().size(); ++dim)
    made.push_back(steps.allocate(gradient));
  steps.give(0, made.pop_back_val());
  steps.free(made);
}

/// Repeated matrices may be read as they are.
static void describeTriangle(BackwardRule &rule, BackwardReplay &steps) {
  const ConcreteTensor &gradient = steps.getGradient();
  auto strides = gradient.getStrides();
  if (!strides || llvm::is_contained(*strides, 0))
    return koila::detail::describeUnknownBackward(rule);
  steps.give(0, steps.allocate(gradient));
  if (linalg::copiesForTriangle(gradient))
    steps.allocateBriefly(gradient.numBytes());
}

/// Sparse gradients are not known.
template <auto Steps>
static void ofDenseGradient(BackwardRule &rule) {
  for (StringRef name : {"sparse", "sparse_grad"})
    if (auto flag = rule.getOp()->getAttrOfType<BoolAttr>(name);
        flag && flag.getValue())
      return koila::detail::describeUnknownBackward(rule);
  ofRealGradient<Steps>(rule);
}

void kernels::addMoveGradients(KernelLibrary &library) {
  library.add<ChannelShuffleOp, PixelShuffleOp, PixelUnshuffleOp>(
      {.backward = ofRealGradient<describeShuffle>});
  library.add<Col2imOp, Im2colOp>({.backward = ofRealGradient<describeBlocks>});
  library.add<ConstantPadNdOp>({.backward = ofGradient<describeConstantPad>});
  library.add<DiagEmbedOp>({.backward = ofRealGradient<takeDiagonal>});
  library.add<FlipOp>({.backward = ofRealGradient<describeFlip>});
  library.add<RepeatInterleaveIntOp>(
      {.backward = ofRealGradient<sumInterleaved>});
  library.add<RepeatOp, TileOp>({.backward = ofRealGradient<sumRepeated>});
  library.add<RollOp>({.backward = ofRealGradient<describeRoll>});
}

void kernels::addIndexGradients(KernelLibrary &library) {
  library.add<DiagOp>({.backward = ofRealGradient<describeDiagonal>});
  library.add<EmbeddingBagOp, EmbeddingBagPaddingOp>(
      {.backward = ofDenseGradient<indexing::describeBagBackward>});
  library.add<EmbeddingOp>({.backward = ofDenseGradient<describeEmbedding>});
  library.add<GatherOp>({.backward = ofDenseGradient<describeGather>});
  library.add<IndexAddOp>({.backward = ofRealGradient<describeIndexAdd>});
  library.add<IndexCopyOp>({.backward = ofRealGradient<describeIndexCopy>});
  library.add<IndexFillScalarOp>({.backward = ofRealGradient<describeRows>});
  library.add<IndexHackedTwinOp, IndexTensorOp>(
      {.backward = ofRealGradient<describeIndex>});
  library.add<IndexPutHackedTwinOp>(
      {.backward = ofRealGradient<describePut<IndexPutHackedTwinOp>>});
  library.add<IndexPutOp>(
      {.backward = ofRealGradient<describePut<IndexPutOp>>});
  library.add<IndexSelectOp>({.backward = ofRealGradient<describeSelect>});
  library.add<PadOp>({.backward = ofGradient<describePad>});
  library.add<ReflectionPad1dOp, ReflectionPad2dOp, ReflectionPad3dOp,
              ReplicationPad1dOp, ReplicationPad2dOp, ReplicationPad3dOp>(
      {.backward = ofRealGradient<describeWindowPad>});
  library.add<ScatterAddOp>({.backward = ofRealGradient<describeScatterAdd>});
  library.add<ScatterReduceTwoOp>(
      {.backward = ofRealGradient<describeScatterReduce>});
  library.add<ScatterSrcOp>(
      {.backward = ofRealGradient<describeScatterSource>});
  library.add<ScatterValueOp>({.backward = ofRealGradient<describeScatter>});
  library.add<TakeAlongDimOp>({.backward = ofRealGradient<describeTakeAlong>});
  library.add<TrilOp, TriuOp>({.backward = ofRealGradient<describeTriangle>});
}
