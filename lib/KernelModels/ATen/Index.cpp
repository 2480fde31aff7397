//===- Index.cpp - What indexing holds inside -----------------------------===//
//
// Sources: native/TensorAdvancedIndexing.cpp, native/Embedding.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Models.h"
#include "Embedding.h"
#include "OpReplay.h"
#include "Reduction.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

static const char kUnknown[] = "a shape of the operator is unknown";
static const char kNoStrides[] = "the strides of the indices are unknown";

/// Rows are read by a contiguous vector of indices: other indices are made one
/// first, and index_select copies what still is not contiguous. Source:
/// embedding in native/Embedding.cpp.
static void describeEmbedding(WorkspaceRule &rule) {
  auto index = rule.tensor(cast<EmbeddingOp>(rule.getOp()).getIndices());
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!index || !result)
    return rule.setInexact(kUnknown);
  AllocationTrace trace;
  if (getFlatCopyBytes(*index) > 0) {
    allocateContiguous(trace, *index);
    trace.allocate(result->numBytes());
    return rule.setTrace(std::move(trace), result->numBytes());
  }
  trace.allocate(getCopyBytes(*index));
  rule.setTrace(std::move(trace), 0);
}

/// index_select along dim 1 copies what is strided into rows.
/// Source: index_select_out_cpu_dim1_ in native/TensorAdvancedIndexing.cpp.
static void describeSelect(WorkspaceRule &rule) {
  auto op = cast<IndexSelectOp>(rule.getOp());
  auto self = rule.tensor(op.getSelf()), index = rule.tensor(op.getIndex());
  if (!self || !index)
    return rule.setInexact(kUnknown);
  AllocationTrace trace;
  allocateContiguous(trace, *index);
  int64_t rank = self->dims.size(), dim = op.getDim();
  dim += dim < 0 ? rank : 0;
  if (rank > 1 && dim == 1 && index->numElements() > 0)
    allocateContiguous(trace, *self);
  rule.setTrace(std::move(trace), 0);
}

/// Whether `index` is a column that names whole rows, for which there are other
/// kernels; no answer where strides are not known. `written` is what is written
/// and `read` what is read. Source: can_use_expanded_index_path in
/// native/TensorAdvancedIndexing.cpp.
static std::optional<bool> namesRows(const ConcreteTensor &index,
                                     const ConcreteTensor &written,
                                     const ConcreteTensor &read, int64_t dim) {
  int64_t rank = index.dims.size();
  if ((dim != 0 && dim != -rank) || rank == 0 || !read.contiguous ||
      !written.contiguous || read.dims.size() != index.dims.size() ||
      ArrayRef(read.dims).drop_front() != ArrayRef(index.dims).drop_front())
    return false;
  auto strides = index.getStrides();
  if (!strides)
    return std::nullopt;
  // A cast of what overlaps is made in rows.
  if (!index.elementType.isInteger(64) && !isDense(index))
    strides = ConcreteTensor{index.dims, index.elementType}.getStrides();
  return strides->front() == 1 &&
         llvm::all_of(ArrayRef(*strides).drop_front(),
                      [](int64_t stride) { return stride <= 1; });
}

/// Indices as int64, and then elements as float32.
static void describeCasts(WorkspaceRule &rule, int64_t indices,
                          int64_t floats) {
  AllocationTrace trace;
  AllocationTrace::Block cast = trace.allocate(indices);
  AllocationTrace::Block wide = trace.allocate(floats);
  trace.free(cast);
  trace.free(wide);
  rule.setTrace(std::move(trace));
}

/// Half types are read by way of float32, but not where rows are.
static void describeGather(WorkspaceRule &rule) {
  auto op = cast<GatherOp>(rule.getOp());
  auto index = rule.tensor(op.getIndex()), self = rule.tensor(op.getSelf());
  auto result = rule.tensor(op.getResult());
  if (!index || !self || !result)
    return rule.setInexact(kUnknown);
  if (index->numElements() == 0)
    return;
  int64_t floats = getWideBytes(*result);
  if (floats > 0) {
    auto isOfRows = namesRows(*index, *result, *self, op.getDim());
    if (!isOfRows)
      return rule.setInexact(kNoStrides);
    floats = *isOfRows ? 0 : floats;
  }
  describeCasts(rule, getCastIndexBytes(*index), floats);
}

/// Half types are written as float32: what is written is cast, or each thread
/// sums rows. `added` has the elements that are added to others; none: they are
/// put there.
static void describeScatter(WorkspaceRule &rule, Value written, int64_t dim,
                            Value indices, Value added) {
  auto index = rule.tensor(indices), tensor = rule.tensor(written);
  auto source = added ? rule.tensor(added) : std::nullopt;
  if (!index || !tensor || (added && !source))
    return rule.setInexact(kUnknown);
  // What is written is first copied into the result.
  bool isInPlace = rules::isInPlace(rule.getOp());
  int64_t block = isInPlace ? 0 : getBlockBytes(*tensor);
  if (index->numElements() == 0)
    return rule.setTransient(block);
  int64_t bytes = getCastIndexBytes(*index), floats = getWideBytes(*tensor);
  if (floats > 0 && added) {
    constexpr int64_t kFewColumns = 16;
    if (!isInPlace)
      tensor->contiguous = true;
    auto isOfRows = namesRows(*index, *tensor, *source, dim);
    if (!isOfRows)
      return rule.setInexact(kNoStrides);
    int64_t columns =
        *isOfRows ? index->numElements() / index->dims.front() : 0;
    if (columns >= kFewColumns)
      floats = rule.getTarget().threads * columns * 4;
  }
  if (block > 0)
    return rule.setTransient(std::max(block, bytes + floats));
  describeCasts(rule, bytes, floats);
}

template <typename OpT>
static void describePut(WorkspaceRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  describeScatter(rule, op.getSelf(), op.getDim(), op.getIndex(),
                  /*added=*/Value());
}

template <typename OpT>
static void describeAdd(WorkspaceRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  if constexpr (std::is_same_v<OpT, ScatterReduceTwoOp>)
    if (op.getReduce() == "mean")
      return rule.setInexact("scatter_reduce divides by a count");
  describeScatter(rule, op.getSelf(), op.getDim(), op.getIndex(), op.getSrc());
}

static void describeIndexAdd(WorkspaceRule &rule) {
  auto op = cast<IndexAddOp>(rule.getOp());
  auto self = rule.tensor(op.getSelf()), index = rule.tensor(op.getIndex());
  if (!self || !index)
    return rule.setInexact(kUnknown);
  if (isHalf(self->elementType))
    return rule.setInexact("index_add of a half type");
  rule.setTransient(getCopyBytes(*index));
}

/// gather by the indices modulo the extent. Without a dim, of all elements.
/// Source: take_along_dim in native/TensorAdvancedIndexing.cpp.
static void describeTakeAlong(WorkspaceRule &rule) {
  auto op = cast<TakeAlongDimOp>(rule.getOp());
  auto result = rule.tensor(op.getResult());
  auto index = rule.tensor(op.getIndices()), self = rule.tensor(op.getSelf());
  if (!result || !index || !self || !index->elementType.isInteger(64))
    return rule.setInexact(kUnknown);
  if (isHalf(result->elementType) && rule.wantsGradient(op.getSelf()))
    return rule.setInexact("how gradients of a half type are gathered");
  // As namesRows, of the indices modulo the extent, which are dense, or of all
  // elements in a row.
  bool isOfRows = self->contiguous;
  if (op.getDim()) {
    ArrayRef<int64_t> dims = result->dims;
    int64_t rank = dims.size(), dim = *op.getDim();
    isOfRows &= rank > 0 && (dim == 0 || dim == -rank) &&
                llvm::all_of(dims.drop_front(),
                             [](int64_t extent) { return extent == 1; });
  } else {
    isOfRows &= index->contiguous;
  }
  int64_t inside = isOfRows ? 0 : getWideBytes(*result);
  OpReplay steps(rule);
  MadeTensor wrapped;
  if (op.getDim())
    wrapped =
        steps.compute({{result->dims, index->elementType}},
                      OpReplay::Result::Common, OpReplay::Number::Integer);
  steps.allocate(*result);
  steps.allocateTemporary(inside);
  steps.free(wrapped);
  steps.finish(result->numBytes());
}

/// The indices as int64.
static void savePlaces(SavedRule &rule) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (saveDifferentiated(rule).savesInner && result)
    rule.keep(result->numElements() * sizeof(int64_t));
}

namespace {
/// What stands for the indices.
struct IndexBlocks {
  /// Bytes of one cast to int64, of indices that broadcast first, and how many
  /// there are.
  int64_t cast = 0, casts = 0;
  /// The places where masks are true, of which data decide how many there are.
  int64_t places = 0;

  int64_t getBytes() const { return casts * cast + places; }
  /// Before `result`; masks are not itemized.
  void describe(WorkspaceRule &rule, int64_t result) const {
    if (places > 0)
      return rule.setTransient(getBytes());
    AllocationTrace trace;
    SmallVector<AllocationTrace::Block> made;
    for (int64_t index = 0; index < casts; ++index)
      made.push_back(trace.allocate(cast));
    trace.allocate(result);
    // The iterator over the indices lets go of the last one first.
    for (AllocationTrace::Block block : llvm::reverse(made))
      trace.free(block);
    rule.setTrace(std::move(trace), result);
  }
};
} // namespace

/// None if a shape is unknown.
static std::optional<IndexBlocks> countIndexBlocks(WorkspaceRule &rule,
                                                   ValueRange indices) {
  constexpr int64_t kPlace = 8;
  SmallVector<int64_t> dims;
  IndexBlocks blocks;
  bool selects = false;
  for (Value value : indices) {
    auto index = rule.tensor(value);
    if (!index) {
      rule.setInexact(kUnknown);
      return std::nullopt;
    }
    SmallVector<int64_t> extents = index->dims;
    if (index->elementType.getIntOrFloatBitWidth() <= 8) {
      selects = true;
      blocks.places += index->numElements() * kPlace *
                       static_cast<int64_t>(index->dims.size());
      extents = {index->numElements()};
    } else {
      blocks.casts += !index->elementType.isInteger(64);
    }
    if (dims.size() < extents.size())
      dims.insert(dims.begin(), extents.size() - dims.size(), 1);
    for (auto [mine, other] :
         llvm::zip(llvm::reverse(dims), llvm::reverse(extents)))
      mine = mine == 1               ? other
             : selects && other != 1 ? std::max(mine, other)
                                     : mine;
  }
  blocks.cast = kPlace;
  for (int64_t extent : dims)
    blocks.cast *= extent;
  if (selects)
    rule.setBound("how many elements a mask selects is decided by data");
  return blocks;
}

bool indexing::describeSelection(WorkspaceRule &rule, ValueRange indices,
                                 int64_t &bytes) {
  auto isMask = [&](Value value) {
    auto index = rule.tensor(value);
    return index && index->elementType.getIntOrFloatBitWidth() <= 8;
  };
  if (llvm::none_of(indices, isMask))
    return false;
  auto blocks = countIndexBlocks(rule, indices);
  bytes = blocks ? blocks->getBytes() : 0;
  return blocks.has_value();
}

template <typename OpT>
static void describeIndex(WorkspaceRule &rule) {
  auto blocks = countIndexBlocks(rule, cast<OpT>(rule.getOp()).getIndices());
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (blocks && result)
    blocks->describe(rule, result->numBytes());
}

/// One number under one mask is masked_fill_.
template <typename OpT>
static void describeIndexPut(WorkspaceRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  ValueRange indices = op.getIndices();
  auto written = rule.tensor(op.getValues());
  if (!written)
    return rule.setInexact(kUnknown);
  auto first = indices.empty() ? std::nullopt : rule.tensor(indices.front());
  if (!op.getAccumulate() && indices.size() == 1 && first &&
      first->elementType.isInteger(1) && written->numElements() == 1)
    return;
  auto blocks = countIndexBlocks(rule, indices);
  if (!blocks)
    return;
  blocks->describe(rule, /*result=*/0);
  bool isCast = llvm::any_of(indices, [&](Value value) {
    auto index = rule.tensor(value);
    return index->elementType.isInteger(32);
  });
  if (isCast && blocks->getBytes() > 0)
    rule.setInexact("index_put by indices of another type than int64");
}

/// The mask is summed as int64 before there is a result; where several threads
/// or strides read it, its sums tell each of them where to write.
/// Source: masked_select_out_impl_cpu.
static void describeMaskedSelect(WorkspaceRule &rule) {
  auto op = cast<MaskedSelectOp>(rule.getOp());
  auto self = rule.tensor(op.getSelf()), mask = rule.tensor(op.getMask());
  auto result = rule.tensor(op.getResult());
  if (!self || !mask || !result)
    return rule.setInexact(kUnknown);
  constexpr int64_t kNumber = 8;
  // As many as both have when broadcast, which is what can be selected.
  int64_t elements = result->numElements();
  bool isSerial = rule.getTarget().threads == 1 && self->contiguous &&
                  mask->contiguous && self->dims == mask->dims;
  AllocationTrace trace;
  trace.allocateTemporary((elements + 1) * kNumber);
  trace.allocate(result->numBytes());
  if (!isSerial)
    trace.allocateTemporary(2 * elements * kNumber);
  rule.setTrace(std::move(trace), result->numBytes());
  rule.setBound("how many elements a mask selects is decided by data");
}

/// A copy in rows is written, from rows.
static void describeMaskedScatter(WorkspaceRule &rule) {
  auto op = cast<MaskedScatterOp>(rule.getOp());
  auto self = rule.tensor(op.getSelf()), source = rule.tensor(op.getSource());
  auto result = rule.tensor(op.getResult());
  if (!self || !source || !result)
    return rule.setInexact(kUnknown);
  AllocationTrace trace;
  if (!rules::isInPlace(op) && self->dims == result->dims)
    trace.allocateTemporary(getBlockBytes(*self));
  trace.free(allocateContiguous(trace, *source));
  rule.setTrace(std::move(trace));
}

/// The least and the greatest number are checked before there is a result.
/// Source: one_hot in native/Onehot.cpp.
static void describeOneHot(WorkspaceRule &rule) {
  auto op = cast<OneHotOp>(rule.getOp());
  auto self = rule.tensor(op.getSelf()), result = rule.tensor(op.getResult());
  if (!self || !result)
    return rule.setInexact(kUnknown);
  if (self->numElements() == 0)
    return;
  AllocationTrace trace;
  reduction::allocateExtremes(trace, *self);
  trace.allocate(result->numBytes());
  rule.setTrace(std::move(trace));
}

/// The results are columns of one tensor.
static void describeColumns(WorkspaceRule &rule) {
  auto results = rule.getOp()->getResults();
  if (results.empty())
    return;
  if (auto column = rule.tensor(results.front()))
    rule.setStorageBytes(results.front(), column->numBytes() * results.size());
}

void kernels::addIndexModels(KernelLibrary &library) {
  library.add<ArgwhereOp, DiagOp, IndexCopyOp, IndexFillScalarOp,
              IndexFillTensorOp, NonzeroOp, TakeOp>(
      {.forward = allocateNothing});
  library.add<EmbeddingBagOp, EmbeddingBagPaddingOp>(
      {.forward = indexing::describeBagMemory});
  library.add<EmbeddingOp>({.forward = describeEmbedding});
  library.add<GatherOp>({.forward = describeGather});
  library.add<IndexAddOp>({.forward = describeIndexAdd});
  library.add<IndexHackedTwinOp>({.forward = describeIndex<IndexHackedTwinOp>});
  library.add<IndexPutHackedTwinOp>(
      {.forward = describeIndexPut<IndexPutHackedTwinOp>});
  library.add<IndexPutOp>({.forward = describeIndexPut<IndexPutOp>});
  library.add<IndexSelectOp>({.forward = describeSelect});
  library.add<IndexTensorOp>({.forward = describeIndex<IndexTensorOp>});
  library.add<MaskedScatterOp>({.forward = describeMaskedScatter});
  library.add<MaskedSelectOp>({.forward = describeMaskedSelect});
  library.add<NonzeroNumpyOp, WhereConditionOp>({.forward = describeColumns});
  library.add<OneHotOp>({.forward = describeOneHot});
  library.add<ScatterAddOp>({.forward = describeAdd<ScatterAddOp>});
  library.add<ScatterReduceOp>({.forward = describePut<ScatterReduceOp>});
  library.add<ScatterReduceTwoOp>({.forward = describeAdd<ScatterReduceTwoOp>});
  library.add<ScatterSrcOp>({.forward = describePut<ScatterSrcOp>});
  library.add<ScatterValueOp>({.forward = describePut<ScatterValueOp>});
  library.add<ScatterValueReduceOp>(
      {.forward = describePut<ScatterValueReduceOp>});
  library.add<TakeAlongDimOp>({describeTakeAlong, savePlaces});
}
