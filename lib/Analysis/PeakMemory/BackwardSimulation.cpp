//===- BackwardSimulation.cpp - A backward pass run over byte counts ------===//

#include "BackwardSimulation.h"
#include "../../KernelModels/ATen/Backward/BackwardReplay.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

const Storage *
PeakMemoryAnalysis::Impl::BackwardSimulation::getEntry(Operation &op,
                                                       unsigned operand) {
  // One for each that is alive at the same time: a weight's gradient outlives
  // the tile that made it.
  auto &entries = impl.gradientEntries[{&op, operand}];
  for (const std::unique_ptr<Storage> &entry : entries)
    if (!run.live.contains(entry.get()))
      return entry.get();
  auto entry = std::make_unique<Storage>();
  Value value = op.getOperand(operand);
  auto result = dyn_cast<OpResult>(value);
  if (!result && op.getNumResults() > 0)
    result = op.getResult(0);
  if (result)
    entry->allocations.push_back(result);
  for (const Impl *known = &impl; known; known = known->general)
    known->ofGradients.insert(entry.get());
  entries.push_back(std::move(entry));
  return entries.back().get();
}

PeakMemoryAnalysis::Impl::BackwardSimulation::Gradient
PeakMemoryAnalysis::Impl::BackwardSimulation::make(ConcreteTensor shape,
                                                   Operation &op,
                                                   unsigned operand,
                                                   int64_t storageBytes) {
  if (run.stopped) {
    bytes.push_back({nullptr, 1});
    tensors.push_back({bytes.size() - 1, 1, std::nullopt});
    return {tensors.size() - 1, std::move(shape)};
  }
  const Storage *entry = getEntry(op, operand);
  int64_t size = storageBytes > 0 ? storageBytes : shape.numBytes();
  Impl::setLive(entry, size, run);
  if (run.detailed && !run.timeline.empty())
    run.spans[entry] = {run.timeline.size() - 1, 0, size, nullptr};
  bytes.push_back({entry, 1});
  tensors.push_back({bytes.size() - 1, 1, std::nullopt});
  return {tensors.size() - 1, std::move(shape)};
}

PeakMemoryAnalysis::Impl::BackwardSimulation::Gradient
PeakMemoryAnalysis::Impl::BackwardSimulation::view(const Gradient &gradient,
                                                   ConcreteTensor shape) {
  size_t of = tensors[gradient.tensor].bytes;
  size_t base = tensors[gradient.tensor].base.value_or(gradient.tensor);
  ++bytes[of].tensors;
  ++tensors[base].holders;
  tensors.push_back({of, 1, base});
  return {tensors.size() - 1, std::move(shape)};
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::drop(
    const Gradient &gradient, Operation &op) {
  std::optional<size_t> dropped = gradient.tensor;
  while (dropped && !run.stopped) {
    Tensor &tensor = tensors[*dropped];
    if (--tensor.holders > 0)
      return;
    Bytes &of = bytes[tensor.bytes];
    if (--of.tensors == 0 && of.entry)
      impl.freeStorage(of.entry, op, run);
    dropped = tensor.base;
  }
}

bool PeakMemoryAnalysis::Impl::BackwardSimulation::isAlone(
    const Gradient &gradient) const {
  const Tensor &tensor = tensors[gradient.tensor];
  return tensor.holders == 1 && bytes[tensor.bytes].tensors == 1;
}

bool PeakMemoryAnalysis::Impl::BackwardSimulation::isLast(
    const Gradient &gradient) const {
  const Tensor &tensor = tensors[gradient.tensor];
  if (!tensor.base)
    return isAlone(gradient);
  return tensor.holders == 1 && tensors[*tensor.base].holders == 1 &&
         bytes[tensor.bytes].tensors == 2;
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::note(Operation &op,
                                                        int64_t held) {
  if (run.stopped || !impl.reach(&op, Run::Phase::Backward, held, run))
    return;
  int64_t total = saturate(run.liveBytes + held);
  TimelineEntry &entry = run.timeline[Run::Moment(&op, true)];
  if (entry.op.empty() || total > entry.getTotalBytes()) {
    entry.op = getOperatorName(op) + " (backward)";
    entry.place = getSourcePlace(op.getLoc());
    if (impl.options.frames)
      entry.frames = getSourceFrames(op.getLoc());
    entry.liveBytes = saturate(before);
    entry.transientBytes = total - entry.liveBytes;
  }
}

//===----------------------------------------------------------------------===//
// Delivery
//===----------------------------------------------------------------------===//

PeakMemoryAnalysis::Impl::BackwardSimulation::Leaf
PeakMemoryAnalysis::Impl::BackwardSimulation::getLeaf(
    const Run::Edge &edge) const {
  if (edge.record)
    return nullptr;
  if (auto get = edge.value.getDefiningOp<ParamGetOp>())
    return get.getParamAttr().getAsOpaquePointer();
  return edge.value.getAsOpaquePointer();
}

PeakMemoryAnalysis::Impl::BackwardSimulation::Gradient
PeakMemoryAnalysis::Impl::BackwardSimulation::add(Gradient first,
                                                  Gradient second,
                                                  Operation &op,
                                                  unsigned operand) {
  added.push_back(second);
  if (isAlone(first) && kernels::isDense(first.shape))
    return first;
  ConcreteTensor shape = kernels::addStrides(first.shape, second.shape);
  Gradient sum = make(std::move(shape), op, operand);
  note(op, 0);
  drop(first, op);
  return sum;
}

/// Source: obeys_layout_contract in autograd/utils/grad_layout_contract.h.
static bool obeysLayout(const ConcreteTensor &gradient,
                        const ConcreteTensor &weight) {
  auto own = gradient.getStrides(), wanted = weight.getStrides();
  if (!own || !wanted)
    return true;
  if (!kernels::isDense(weight))
    return gradient.contiguous;
  for (auto [dim, extent] : llvm::enumerate(gradient.dims))
    if (extent != 1 && (*own)[dim] != (*wanted)[dim])
      return false;
  return true;
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::accumulate(
    Leaf leaf, const Run::Edge &edge, Gradient gradient, Operation &op) {
  if (hasGradient(leaf, edge))
    return drop(gradient, op);
  auto weight = impl.getConcrete(edge.value, run);
  if (!weight || !weight->getStrides() || !gradient.shape.getStrides())
    impl.markInexact(op, "the strides of a gradient are unknown", run);
  bool isStolen = tensors[gradient.tensor].holders == 1 &&
                  (!weight || obeysLayout(gradient.shape, *weight));
  Gradient kept = gradient;
  if (!isStolen) {
    kept = make(weight.value_or(gradient.shape), op, edge.operand);
    note(op, 0);
    drop(gradient, op);
  }
  const Storage *entry = bytes[tensors[kept.tensor].bytes].entry;
  run.leaves[leaf] = entry ? entry : given;
  if (entry)
    ++run.sharers[entry];
  if (!entry && given &&
      llvm::any_of(edge.value.getUsers(), llvm::IsaPred<LeafGradOp>)) {
    Run::Lent &lent = run.lent[given];
    ++lent.pending;
    lent.isThere = true;
  }
}

bool PeakMemoryAnalysis::Impl::BackwardSimulation::isAbsent(size_t index) {
  auto [known, isNew] = absent.try_emplace(index, false);
  const Run::Record &record = run.records[index];
  if (isNew && record.kind == Run::Record::Kind::Operation &&
      isa<TorchOperatorInterface>(record.op) && record.edges.size() == 1 &&
      record.edges.front().operand == 0)
    known->second = impl.returnsOperand(*record.op, run);
  return known->second;
}

const PeakMemoryAnalysis::Impl::Run::Edge &
PeakMemoryAnalysis::Impl::BackwardSimulation::follow(const Run::Edge &edge) {
  const Run::Edge *found = &edge;
  while (found->record && isAbsent(*found->record))
    found = &run.records[*found->record].edges.front();
  return *found;
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::skip(const Run::Edge &from) {
  const Run::Edge &edge = follow(from);
  Leaf leaf = getLeaf(edge);
  if (leaf && --leaves[leaf].missing == 0 && leaves[leaf].sum)
    ready.emplace_back(leaf, &edge);
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::deliver(
    const Run::Edge &from, Gradient gradient, Operation &op) {
  const Run::Edge &edge = follow(from);
  if (Leaf leaf = getLeaf(edge)) {
    Pending &pending = leaves[leaf];
    std::optional<Gradient> before = std::exchange(pending.sum, std::nullopt);
    pending.sum = before ? add(*before, gradient, op, from.operand) : gradient;
    if (--pending.missing == 0)
      ready.emplace_back(leaf, &edge);
    return;
  }
  auto [place, isFirst] = waiting.try_emplace(getInput(edge), gradient);
  if (!isFirst)
    place->second = add(place->second, gradient, op, from.operand);
}

std::pair<size_t, unsigned>
PeakMemoryAnalysis::Impl::BackwardSimulation::getInput(
    const Run::Edge &edge) const {
  auto made = dyn_cast<OpResult>(edge.value);
  bool isOfMaker = made && made.getOwner() == run.records[*edge.record].op;
  return {*edge.record, isOfMaker ? made.getResultNumber() : 0};
}

bool PeakMemoryAnalysis::Impl::BackwardSimulation::isAdded(
    const Run::Edge &from) {
  const Run::Edge &edge = follow(from);
  if (Leaf leaf = getLeaf(edge))
    return leaves[leaf].sum || hasGradient(leaf, edge);
  return waiting.contains(getInput(edge));
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

void PeakMemoryAnalysis::Impl::BackwardSimulation::fit(Gradient &gradient,
                                                       const Run::Edge &edge,
                                                       Operation &op) {
  auto wanted = impl.getConcrete(edge.value, run);
  if (!wanted)
    return;
  if (gradient.shape.dims != wanted->dims) {
    ConcreteTensor sum{wanted->dims, gradient.shape.elementType};
    auto unknown = [](Value) -> std::optional<ConcreteTensor> {
      return std::nullopt;
    };
    WorkspaceRule rule(&op, impl.target, unknown);
    // Dims in front, and those that were one.
    SmallVector<bool> isReduced(gradient.shape.dims.size(), true);
    for (auto [own, given, reduced] : llvm::zip(
             llvm::reverse(wanted->dims), llvm::reverse(gradient.shape.dims),
             llvm::reverse(isReduced)))
      reduced = own != given;
    AllocationTrace trace;
    if (const LeafKernels *leaves = impl.target.leaves)
      leaves->sum(trace, rule, gradient.shape, sum, isReduced);
    else
      rule.setInexact("no kernel model of a sum on '" + impl.device + "'");
    impl.addDoubts(op, rule, run);
    if (run.log)
      run.log->beginKernel();
    Gradient reduced = make(std::move(sum), op, edge.operand);
    int64_t made = run.live.lookup(bytes[tensors[reduced.tensor].bytes].entry);
    note(op, trace.getPeak());
    if (run.log)
      impl.logKernel(op, trace, saturate(__int128(made) + trace.getPeak()),
                     run);
    // Leading dims go by a view.
    if (!wanted->dims.empty() &&
        gradient.shape.dims.size() > wanted->dims.size()) {
      Gradient seen = view(reduced, reduced.shape);
      drop(reduced, op);
      reduced = seen;
    }
    drop(gradient, op);
    gradient = reduced;
  }
  if (gradient.shape.elementType != wanted->elementType) {
    ConcreteTensor cast = gradient.shape;
    cast.elementType = wanted->elementType;
    if (!kernels::isDense(cast)) {
      cast.contiguous = true;
      cast.strides.reset();
    }
    Gradient narrow = make(std::move(cast), op, edge.operand);
    note(op, 0);
    drop(gradient, op);
    gradient = narrow;
  }
}

SmallVector<std::pair<const PeakMemoryAnalysis::Impl::Run::Edge *,
                      PeakMemoryAnalysis::Impl::BackwardSimulation::Gradient>>
PeakMemoryAnalysis::Impl::BackwardSimulation::makeOutputs(
    const Run::Record &record, const BackwardRule &rule,
    ArrayRef<std::optional<Gradient>> arrived) {
  Operation &op = *record.op;
  SmallVector<std::pair<const Run::Edge *, Gradient>> outputs;
  llvm::SmallDenseSet<unsigned> made;
  for (const BackwardRule::Output &output : rule.getOutputs()) {
    // Edges are in the order of operands.
    const auto *edge = llvm::lower_bound(
        record.edges, output.operand,
        [](const Run::Edge &edge, unsigned at) { return edge.operand < at; });
    if (edge == record.edges.end() || edge->operand != output.operand ||
        !made.insert(output.operand).second)
      continue;
    if (!impl.getConcrete(edge->value, run)) {
      impl.markInexact(op, "the shape of an operand is unknown", run);
      skip(*edge);
      continue;
    }
    if (!output.of) {
      Gradient made =
          make(output.tensor, op, output.operand, output.storageBytes);
      if (run.log && !output.block.isEmpty())
        run.log->place(bytes[tensors[made.tensor].bytes].entry, output.block);
      if (output.isViewed) {
        Gradient seen = view(made, output.tensor);
        drop(made, op);
        made = seen;
      }
      outputs.emplace_back(edge, made);
    } else if (const auto &from = arrived[*output.of]; output.isSame) {
      ++tensors[from->tensor].holders;
      outputs.emplace_back(edge, Gradient{from->tensor, output.tensor});
    } else {
      outputs.emplace_back(edge, view(*from, output.tensor));
    }
  }
  // Edges follow each other as the operands do, whatever is computed first.
  llvm::stable_sort(outputs, [&](const auto &lhs, const auto &rhs) {
    return rule.getPlace(lhs.first->operand) <
           rule.getPlace(rhs.first->operand);
  });
  for (const Run::Edge &edge : record.edges) {
    if (made.contains(edge.operand))
      continue;
    if (rule.isUnread(edge.operand)) {
      skip(edge);
      continue;
    }
    impl.markInexact(op, "a gradient that its backward rule does not name",
                     run);
    auto tensor = impl.getConcrete(edge.value, run);
    if (!tensor) {
      skip(edge);
      continue;
    }
    tensor->contiguous = true;
    tensor->strides.reset();
    outputs.emplace_back(&edge, make(*tensor, op, edge.operand));
  }
  return outputs;
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::setSaved(
    const Run::Record &record, BackwardRule &rule) const {
  SmallVector<const void *> storages;
  SmallVector<int64_t> bytes;
  auto add = [&](Value value) {
    const Storage *entry = impl.storage.lookup(value);
    bool isOnlyHere = entry && llvm::is_contained(record.saved, entry) &&
                      run.savedBy.lookup(entry) == 1 &&
                      run.onlySaved.contains(entry);
    storages.push_back(entry);
    bytes.push_back(isOnlyHere ? run.live.lookup(entry) : 0);
  };
  llvm::for_each(record.op->getOperands(), add);
  llvm::for_each(record.op->getResults(), add);
  rule.setStorages(std::move(storages));
  rule.setSavedBytes(std::move(bytes));
}

EventLog::Outside PeakMemoryAnalysis::Impl::BackwardSimulation::listFreed(
    const Run::Record &record, const BackwardRule &rule,
    ArrayRef<std::optional<Gradient>> arrived) const {
  EventLog::Outside freed;
  for (const std::optional<Gradient> &gradient : arrived)
    if (gradient && isLast(*gradient))
      if (const Storage *entry = bytes[tensors[gradient->tensor].bytes].entry)
        freed.arrived.push_back(entry);
  if (record.kept)
    freed.saved.push_back(record.kept);
  for (const Storage *entry : record.saved)
    if (run.savedBy.lookup(entry) == 1 && run.onlySaved.contains(entry))
      freed.saved.push_back(entry);
  for (const BackwardRule::Freed &each : rule.getFreed())
    if (each.value)
      freed.known.push_back({each.event, impl.storage.lookup(each.value),
                             each.number, each.count});
    else if (record.kept && keepers.lookup(record.kept) == 1)
      // All iterations of a loop have one storage for what they keep.
      freed.known.push_back({each.event, record.kept, each.number, each.count});
  return freed;
}

/// Their gradients are summed over places that several elements share, or have
/// bytes between them.
static constexpr StringRef kWriteIntoSparse =
    "a write into a view of a tensor that is not dense, or that views expand";

/// Source: _maybe_overlapping_memory in FunctionsManual.cpp.
static bool mayOverlap(const ConcreteTensor &tensor) {
  auto strides = tensor.getStrides();
  if (!strides)
    return true;
  SmallVector<std::pair<int64_t, int64_t>> dims;
  for (auto [extent, stride] : llvm::zip_equal(tensor.dims, *strides))
    if (extent != 1)
      dims.emplace_back(stride, extent);
  llvm::sort(dims);
  int64_t reached = 0;
  for (auto [stride, extent] : dims) {
    if (stride <= reached)
      return true;
    reached += stride * (extent - 1);
  }
  return false;
}

/// A new buffer as large as the tensor that is viewed, and a view of it.
/// Source: as_strided_backward in FunctionsManual.cpp.
void PeakMemoryAnalysis::Impl::BackwardSimulation::runAsStrided(
    const Run::Record &record, const Gradient &arrived) {
  Operation &op = *record.op;
  const Run::Edge &edge = record.edges.front();
  auto base = impl.getConcrete(edge.value, run);
  auto seen = impl.getConcrete(record.view, run);
  if (!base || !kernels::isDense(*base) || !seen || mayOverlap(*seen))
    impl.markInexact(op, kWriteIntoSparse, run);
  Gradient made = make(base.value_or(arrived.shape), op, edge.operand);
  note(op, 0);
  Gradient given = view(made, made.shape);
  drop(made, op);
  drop(arrived, op);
  deliver(edge, given, op);
  finishLeaves(op);
}

/// Source: CopySlices::apply_impl in autograd/functions/tensor.cpp.
std::optional<PeakMemoryAnalysis::Impl::BackwardSimulation::CopiedSlices>
PeakMemoryAnalysis::Impl::BackwardSimulation::copySlices(
    const Run::Record &record) {
  Operation &op = *record.op;
  if (record.kind != Run::Record::Kind::CopySlices)
    return std::nullopt;
  auto base = impl.getConcrete(impl.getBase(op.getOperand(0), run), run);
  auto slice = impl.getConcrete(op.getOperand(0), run);
  if (!base || !slice || !kernels::isDense(*base)) {
    impl.markInexact(op, kWriteIntoSparse, run);
    return std::nullopt;
  }
  slice->contiguous = true;
  slice->strides.reset();
  Gradient copied = make(*base, op, 0);
  return CopiedSlices{copied, make(*slice, op, 0)};
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::finishSlices(
    const CopiedSlices &slices, Operation &op,
    MutableArrayRef<std::pair<const Run::Edge *, Gradient>> outputs) {
  auto first = llvm::find_if(
      outputs, [](const auto &output) { return output.first->operand == 0; });
  drop(slices.slice, op);
  drop(first == outputs.end() ? slices.copied
                              : std::exchange(first->second, slices.copied),
       op);
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::runNode(size_t index) {
  using Kind = Run::Record::Kind;
  Operation &op = *run.records[index].op;
  if (run.log)
    run.log->enter(&op, /*isBackward=*/true);
  bool isOperation = run.records[index].kind == Kind::Operation;
  SmallVector<std::optional<Gradient>> arrived(op.getNumResults());
  SmallVector<std::optional<ConcreteTensor>> shapes(op.getNumResults());
  bool isAsked = false;
  for (OpResult result : op.getResults()) {
    unsigned number = result.getResultNumber();
    auto found = waiting.find({index, number});
    if (found == waiting.end())
      continue;
    isAsked = true;
    arrived[number] = found->second;
    shapes[number] = found->second.shape;
    waiting.erase(found);
    auto own = impl.getConcrete(result, run);
    if (own && own->dims != shapes[number]->dims) {
      if (isOperation)
        impl.markInexact(op, "its result has been written in place", run);
      shapes[number] = own;
    }
  }
  if (!isAsked) {
    impl.release(run.records[index], op, run);
    for (const Run::Edge &edge : run.records[index].edges)
      skip(edge);
    return finishLeaves(op);
  }
  before = run.liveBytes;
  if (run.records[index].kind == Kind::AsStrided)
    return runAsStrided(run.records[index], *arrived.front());
  std::optional<CopiedSlices> slices = copySlices(run.records[index]);
  std::optional<Gradient> whole;
  if (slices) {
    whole = std::exchange(arrived.front(), slices->slice);
    shapes.front() = slices->slice.shape;
  }
  auto lookup = [&](Value value) { return impl.getConcrete(value, run); };
  auto wants = [&](Value value) {
    if (!llvm::is_contained(op.getOperands(), value))
      return impl.gradients->wants(value);
    return llvm::any_of(run.records[index].edges, [&](const Run::Edge &edge) {
      return op.getOperand(edge.operand) == value;
    });
  };
  BackwardRule rule(&op, impl.target, lookup, wants, shapes);
  if (!slices && arrived.front() && isLast(*arrived.front()))
    rule.setReleasableBytes(
        run.live.lookup(bytes[tensors[arrived.front()->tensor].bytes].entry));
  setSaved(run.records[index], rule);
  for (const Run::Edge &edge : run.records[index].edges) {
    if (Leaf leaf = getLeaf(follow(edge));
        leaf && hasGradient(leaf, follow(edge)) && leaves[leaf].missing == 1)
      rule.setAccumulated(edge.operand);
    if (isAdded(edge))
      rule.setAdded(edge.operand);
  }
  if (isa<MemoryRuleInterface>(op))
    impl.models->describeBackward(rule);
  else
    rule.setInexact("koila has no memory rule for its gradient");
  auto tiedOp = dyn_cast<TorchOperatorInterface>(op);
  bool isHidden = run.records[index].isViewed && tiedOp && tiedOp.isTied();
  if (!rule.isIdentity() && !impl.modelledWrites.contains(&op) &&
      (isHidden || impl.writesView(op)) && !writesUntracked(op))
    impl.markInexact(op, "the backward pass of a write into views", run);
  bool allocates = rule.getPeak() > 0 ||
                   llvm::any_of(rule.getOutputs(),
                                [](const auto &output) { return !output.of; });
  if (auto torchOp = dyn_cast<TorchOperatorInterface>(op);
      torchOp && run.detailed && allocates && rule.isBounded())
    impl.checkTable(torchOp, rule, run);
  impl.addDoubts(op, rule, run);
  if (run.log)
    run.log->beginKernel();
  note(op, rule.getPeak());
  if (run.stopped)
    return;
  auto outputs = makeOutputs(run.records[index], rule, arrived);
  if (run.log)
    impl.logKernel(op, rule.getTrace(), rule.getPeak(), run,
                   listFreed(run.records[index], rule, arrived));
  if (slices) {
    finishSlices(*slices, op, outputs);
    arrived.front() = whole;
  }
  for (auto &[edge, gradient] : outputs) {
    if (!rule.isApart(edge->operand))
      fit(gradient, *edge, op);
    if (run.stopped)
      return;
  }
  for (const std::optional<Gradient> &gradient : arrived)
    if (gradient)
      drop(*gradient, op);
  impl.release(run.records[index], op, run);
  for (auto &[edge, gradient] : outputs) {
    if (rule.isApart(edge->operand)) {
      finishLeaves(op);
      fit(gradient, *edge, op);
      if (run.stopped)
        return;
    }
    deliver(*edge, gradient, op);
  }
  finishLeaves(op);
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::finishLeaves(Operation &op) {
  for (const Gradient &gradient : std::exchange(added, {}))
    drop(gradient, op);
  for (auto [leaf, edge] : std::exchange(ready, {})) {
    Gradient sum = *leaves[leaf].sum;
    leaves[leaf].sum.reset();
    accumulate(leaf, *edge, sum, op);
  }
}

std::vector<size_t>
PeakMemoryAnalysis::Impl::BackwardSimulation::findReachable(size_t last) {
  std::vector<size_t> found{last};
  llvm::DenseSet<size_t> seen{last};
  for (size_t next = 0; next < found.size(); ++next)
    for (const Run::Edge &from : run.records[found[next]].edges) {
      const Run::Edge &edge = follow(from);
      if (edge.record && seen.insert(*edge.record).second)
        found.push_back(*edge.record);
      if (Leaf leaf = getLeaf(edge))
        ++leaves[leaf].missing;
    }
  llvm::sort(found, std::greater<>());
  return found;
}

void PeakMemoryAnalysis::Impl::BackwardSimulation::execute(Value loss,
                                                           Value gradient) {
  for (StringRef name : {"retain_graph", "create_graph"})
    if (auto keeps = root.getAttrOfType<BoolAttr>(name);
        keeps && keeps.getValue())
      impl.markInexact(root, "a backward pass that keeps its graph", run);
  for (Operation *parent = root.getParentOp(); parent != impl.function;
       parent = parent->getParentOp())
    if (!isa<LoopLikeOpInterface>(parent)) {
      impl.markInexact(root, "a backward pass in a branch", run);
      break;
    }
  auto made = run.recordOf.find(loss);
  auto shape = impl.getConcrete(loss, run);
  given = gradient ? impl.storage.lookup(gradient) : nullptr;
  if (auto lender = run.lenders.find(given); lender != run.lenders.end())
    given = lender->second;
  Run::Edge self{0, loss, std::nullopt};
  // To a leaf itself, of which nothing is recorded, the gradient is added.
  if (gradient && shape && made == run.recordOf.end() &&
      isa_and_nonnull<ParamGetOp, LeafOp>(loss.getDefiningOp())) {
    bytes.push_back({nullptr, 1});
    // The caller has it, too.
    tensors.push_back({0, 2, std::nullopt});
    leaves[getLeaf(self)].missing = 1;
    deliver(self, {0, impl.getConcrete(gradient, run).value_or(*shape)}, root);
    return finishLeaves(root);
  }
  if (made == run.recordOf.end() || !shape)
    return impl.markInexact(root, "the record of the loss is not known", run);
  // It stays until backward() returns.
  Gradient first;
  if (gradient) {
    bytes.push_back({nullptr, 1});
    tensors.push_back({0, 1, std::nullopt});
    first = {0, impl.getConcrete(gradient, run).value_or(*shape)};
  } else {
    first = make(*shape, root, 0);
  }
  ++tensors[first.tensor].holders;
  // Of an operation that gave its operand back there is no node.
  const Run::Edge asked{0, skipContainers(loss), made->second};
  const Run::Edge &start = follow(asked).record ? follow(asked) : asked;
  size_t last = *start.record;
  auto result = dyn_cast<OpResult>(start.value);
  unsigned number = result && result.getOwner() == run.records[last].op
                        ? result.getResultNumber()
                        : 0;
  std::vector<size_t> order = findReachable(last);
  waiting.try_emplace({last, number}, first);
  for (size_t index : order) {
    runNode(index);
    if (run.stopped)
      return;
  }
  drop(first, root);
}
