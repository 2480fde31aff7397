//===- BatchAnalysis.cpp - Where the batch is in every value --------------===//

#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Analysis/DataFlow/SparseAnalysis.h"
#include "mlir/Analysis/DataFlow/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace koila;

namespace {
struct BatchState {
  BatchFact fact;

  bool operator==(const BatchState &other) const { return fact == other.fact; }
  static BatchState join(const BatchState &lhs, const BatchState &rhs) {
    if (lhs.fact.kind == BatchFact::Kind::Unset)
      return rhs;
    if (rhs.fact.kind == BatchFact::Kind::Unset || lhs == rhs)
      return lhs;
    if (lhs.fact.isMixed())
      return lhs;
    if (rhs.fact.isMixed())
      return rhs;
    return {BatchFact::mixed("control flow merges values that carry the batch "
                             "differently",
                             nullptr)};
  }
  void print(raw_ostream &os) const {
    switch (fact.kind) {
    case BatchFact::Kind::Unset:
      os << "unset";
      break;
    case BatchFact::Kind::Free:
      os << "free";
      break;
    case BatchFact::Kind::At:
      os << "at(" << fact.dim << ", " << fact.factor << ")";
      break;
    case BatchFact::Kind::Inner:
      if (fact.mask) {
        os << "selected(" << fact.dim << ")";
        break;
      }
      os << "inner(" << fact.dim << ", " << fact.factor << ", "
         << fact.outer.str() << ")";
      break;
    case BatchFact::Kind::Mixed:
      os << "mixed: " << fact.reason;
      break;
    }
  }
};

class BatchLattice : public dataflow::Lattice<BatchState> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(BatchLattice)
  using Lattice::Lattice;
};

/// Where an argument, or the whole of a tensor, has the batch.
BatchFact getFact(const TensorInfo &tensor, StringRef symbol) {
  std::optional<BatchFact> found;
  for (auto [index, dim] : llvm::enumerate(*tensor.dims)) {
    if (!dim.dependsOn(symbol))
      continue;
    auto factor = dim.getMultipleOf(symbol);
    if (!factor)
      return BatchFact::mixed("extent " + dim.str() +
                                  " of an argument is no multiple of " +
                                  symbol.str(),
                              nullptr);
    if (found)
      return BatchFact::mixed("an argument has the batch in two dims", nullptr);
    found = BatchFact::at(index, *factor);
  }
  return found.value_or(BatchFact::free());
}

/// Whether `expr` is known from the arguments alone. What data decide may
/// follow the batch without saying so.
bool isOfArguments(DimExpr expr) { return expr && !expr.hasLocalSymbol(); }

/// What upstream arithmetic on numbers of samples gives; none where a tile may
/// not compute it. With its own number a tile gets what the expression is for
/// that: a number of its samples, or the same number for all.
std::optional<BatchFact> countSamples(const DimAnalysis &dims, StringRef symbol,
                                      Operation *op,
                                      ArrayRef<BatchFact> operands) {
  auto isCount = [](const BatchFact &fact) {
    return fact.isFree() || (fact.isAt() && fact.dim == -1);
  };
  if (!isa_and_nonnull<arith::ArithDialect>(op->getDialect()) ||
      op->getNumResults() != 1 || !llvm::all_of(operands, isCount))
    return std::nullopt;
  DimExpr number = dims.lookup(op->getResult(0)).integer;
  if (!isOfArguments(number))
    return std::nullopt;
  if (!number.dependsOn(symbol))
    return BatchFact::free();
  auto factor = number.getMultipleOf(symbol);
  return factor ? std::optional(BatchFact::at(-1, *factor)) : std::nullopt;
}

/// What readers may rely on of a value in which samples have met, once all of
/// it is there. Rows of it are rows, whatever was done to make them.
BatchFact restart(const DimAnalysis &dims, StringRef symbol, Value value,
                  const BatchFact &mixed) {
  const ValueInfo &info = dims.lookup(value);
  Type type = value.getType();
  if (type.isInteger(1) || isa<FloatType>(type))
    return BatchFact::free();
  if (info.integer)
    return isOfArguments(info.integer) && !info.integer.dependsOn(symbol)
               ? BatchFact::free()
               : mixed;
  if (symbol.empty() || !info.tensor || !info.tensor->hasRank() ||
      !llvm::all_of(*info.tensor->dims, isOfArguments))
    return mixed;
  BatchFact fact = getFact(*info.tensor, symbol);
  return fact.isMixed() ? mixed : fact;
}

class BatchPropagation
    : public dataflow::SparseForwardDataFlowAnalysis<BatchLattice> {
public:
  BatchPropagation(DataFlowSolver &solver, const DimAnalysis &dims,
                   StringRef symbol, BatchAnalysis::Barriers barriers,
                   const BatchAnalysis::Operations &whole)
      : SparseForwardDataFlowAnalysis(solver), dims(dims), symbol(symbol),
        barriers(barriers), whole(whole) {}

  LogicalResult visitOperation(Operation *op,
                               ArrayRef<const BatchLattice *> operands,
                               ArrayRef<BatchLattice *> results) override {
    auto set = [&](ArrayRef<BatchFact> facts) {
      for (auto [lattice, fact] : llvm::zip_equal(results, facts))
        propagateIfChanged(lattice, lattice->join(BatchState{fact}));
      return success();
    };
    bool all = true;
    SmallVector<BatchFact> read;
    for (auto [operand, lattice] :
         llvm::zip_equal(op->getOperands(), operands)) {
      BatchFact fact = lattice->getValue().fact;
      if (fact.kind == BatchFact::Kind::Unset)
        return success();
      if (fact.isMixed() && barriers == BatchAnalysis::Barriers::Cut)
        fact = restart(dims, symbol, operand, fact);
      if (fact.isMixed())
        return set(SmallVector<BatchFact>(results.size(), fact));
      all &= fact.isFree();
      read.push_back(fact);
    }
    // A list that changes: what is in it by now, its maker did not know.
    if (isOrdered(op) && llvm::any_of(op->getOperandTypes(), isMutable))
      return set(SmallVector<BatchFact>(
          results.size(),
          BatchFact::mixed("what is in a list or object that changes has no "
                           "batch rule",
                           op)));
    // What reads no batch has none; this holds for every operator, opaque
    // ones included.
    if (all)
      return set(SmallVector<BatchFact>(results.size(), BatchFact::free()));
    if (auto count = countSamples(dims, symbol, op, read))
      return set(*count);
    llvm::SmallDenseSet<Value, 4> asked;
    auto lookup = [&](Value value) {
      asked.insert(value);
      for (auto [operand, fact] : llvm::zip_equal(op->getOperands(), read))
        if (operand == value)
          return fact;
      return BatchFact::free();
    };
    auto shapes = [&](Value value) { return dims.lookup(value); };
    BatchRule rule(op, lookup, shapes);
    if (auto interface = dyn_cast<BatchRuleInterface>(op))
      interface.inferBatch(rule);
    else if (auto opaque = dyn_cast<TorchOpaqueOp>(op))
      rule.mix(llvm::none_of(op->getOperandTypes(),
                             [](Type type) { return isa<TensorType>(type); })
                   ? "'" + opaque.getCallee() +
                         "' computes with the number of "
                         "samples; a tile has another one"
                   : "koila does not know how '" + opaque.getCallee() +
                         "' treats samples");
    // A rule that did not look at an operand cannot vouch for a batch there.
    bool vouches = llvm::any_of(rule.getResults(), [](const BatchFact &fact) {
      return !fact.isMixed();
    });
    for (auto [index, operand, fact] : llvm::enumerate(op->getOperands(), read))
      if (vouches && !fact.isFree() && !asked.contains(operand))
        rule.mix("'" + op->getName().getStringRef() +
                 "' has no batch rule for a batch in its operand " +
                 Twine(index));
    SmallVector<BatchFact, 1> found = rule.takeResults();
    for (BatchFact &fact : found)
      if (fact.isInner() && whole.contains(op))
        fact = BatchFact::mixed(
            fact.isSelected() ? "how many elements a mask selects of a sample "
                                "is decided by data"
            : fact.reason.empty() ? "merges the batch into the dim before it"
                                  : fact.reason,
            op);
    return set(found);
  }

  void setToEntryState(BatchLattice *lattice) override {
    BatchFact fact = BatchFact::free();
    const ValueInfo &info = dims.lookup(lattice->getAnchor());
    if (info.tensor && info.tensor->hasRank() && !symbol.empty())
      fact = getFact(*info.tensor, symbol);
    for (const ValueInfo &element : info.elements)
      if (element.tensor && element.tensor->hasRank() && !symbol.empty() &&
          !getFact(*element.tensor, symbol).isFree())
        fact = BatchFact::mixed("the batch comes inside of a container; give "
                                "the tensors as arguments of their own",
                                nullptr);
    propagateIfChanged(lattice, lattice->join(BatchState{fact}));
  }

private:
  const DimAnalysis &dims;
  StringRef symbol;
  BatchAnalysis::Barriers barriers;
  const BatchAnalysis::Operations &whole;
};
} // namespace

BatchAnalysis::BatchAnalysis(Operation *function, const DimAnalysis &dims,
                             StringRef batchSymbol, Barriers barriers,
                             const Operations &whole) {
  DataFlowSolver solver;
  dataflow::loadBaselineAnalyses(solver);
  solver.load<BatchPropagation>(dims, batchSymbol, barriers, whole);
  if (failed(solver.initializeAndRun(function)))
    return;
  auto record = [&](Value value) {
    if (const auto *lattice = solver.lookupState<BatchLattice>(value))
      values[value] = lattice->getValue().fact;
    if (barriers == Barriers::Cut && values.lookup(value).isMixed())
      read[value] = restart(dims, batchSymbol, value, values.lookup(value));
  };
  function->walk<WalkOrder::PreOrder>([&](Operation *op) {
    llvm::for_each(op->getResults(), record);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), record);
  });
}

const BatchFact &BatchAnalysis::lookup(Value value) const {
  static const BatchFact unset;
  auto found = values.find(value);
  return found == values.end() ? unset : found->second;
}

const BatchFact &BatchAnalysis::lookupRead(Value value) const {
  auto found = read.find(value);
  return found == read.end() ? lookup(value) : found->second;
}

StringRef koila::getBatchSymbol(ModuleOp module) {
  auto symbols = module->getAttrOfType<ArrayAttr>(KoilaDialect::kSymbolsAttr);
  if (symbols)
    for (auto symbol : symbols.getAsRange<SymbolAttr>())
      if (symbol.getBatch())
        return symbol.getName();
  return {};
}
