//===- DimAnalysis.cpp - Symbolic shapes of every value -------------------===//

#include "koila/Analysis/DimAnalysis.h"
#include "ArgumentFacts.h"
#include "ContainerPointsTo.h"
#include "koila/Analysis/ControlFlow.h"
#include "koila/Analysis/MetaKernelShapes.h"
#include "koila/Analysis/SameTensor.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Analysis/DataFlow/ConstantPropagationAnalysis.h"
#include "mlir/Analysis/DataFlow/DeadCodeAnalysis.h"
#include "mlir/Analysis/DataFlow/SparseAnalysis.h"
#include "mlir/Analysis/DataFlowFramework.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace koila;

namespace {

bool equal(const ValueInfo &lhs, const ValueInfo &rhs) {
  if (lhs.tensor.has_value() != rhs.tensor.has_value() ||
      lhs.integer != rhs.integer || lhs.list != rhs.list ||
      lhs.literal != rhs.literal || lhs.elements.size() != rhs.elements.size())
    return false;
  if (lhs.tensor && (lhs.tensor->dims != rhs.tensor->dims ||
                     lhs.tensor->elementType != rhs.tensor->elementType ||
                     lhs.tensor->strides != rhs.tensor->strides))
    return false;
  for (size_t i = 0; i < lhs.elements.size(); ++i)
    if (!equal(lhs.elements[i], rhs.elements[i]))
      return false;
  return true;
}

bool isNone(const ValueInfo &info) {
  return isa_and_nonnull<UnitAttr>(info.literal);
}

ValueInfo maybeNone(ValueInfo info, MLIRContext *context) {
  info.literal = DynamicAttr::get(context);
  return info;
}

/// What two facts agree on. Dims that they do not agree on are null.
ValueInfo join(const ValueInfo &lhs, const ValueInfo &rhs) {
  // A tensor or None: of the tensor everything stays known.
  if (isNone(lhs) && rhs.tensor)
    return maybeNone(rhs, lhs.literal.getContext());
  if (isNone(rhs) && lhs.tensor)
    return maybeNone(lhs, rhs.literal.getContext());
  ValueInfo result = lhs;
  if (lhs.integer != rhs.integer)
    result.integer = {};
  if (lhs.literal != rhs.literal)
    result.literal = isa_and_nonnull<DynamicAttr>(lhs.literal)   ? lhs.literal
                     : isa_and_nonnull<DynamicAttr>(rhs.literal) ? rhs.literal
                                                                 : Attribute();
  if (lhs.list != rhs.list)
    result.list.reset();
  if (lhs.elements.size() != rhs.elements.size())
    result.elements.clear();
  else
    for (auto [element, left, right] :
         llvm::zip_equal(result.elements, lhs.elements, rhs.elements))
      element = join(left, right);
  if (!lhs.tensor || !rhs.tensor) {
    result.tensor.reset();
    return result;
  }
  TensorInfo &tensor = *result.tensor;
  if (lhs.tensor->elementType != rhs.tensor->elementType)
    tensor.elementType = {};
  if (lhs.tensor->strides != rhs.tensor->strides)
    tensor.strides.reset();
  if (!lhs.tensor->hasRank() || !rhs.tensor->hasRank() ||
      lhs.tensor->getRank() != rhs.tensor->getRank()) {
    tensor.dims.reset();
    tensor.strides.reset();
    return result;
  }
  for (auto [dim, left, right] :
       llvm::zip_equal(*tensor.dims, *lhs.tensor->dims, *rhs.tensor->dims))
    if (left != right)
      dim = DimExpr();
  return result;
}

/// The lattice: uninitialised, then facts, then facts that joins took away.
/// A null dim or a set `integerLost` is such a loss; the analysis spells it
/// as a symbol of the value, which joins know nothing of.
struct DimState : ValueInfo {
  bool initialised = false;
  bool integerLost = false;

  bool operator==(const DimState &other) const {
    return initialised == other.initialised &&
           integerLost == other.integerLost && equal(*this, other);
  }

  static DimState join(const DimState &lhs, const DimState &rhs) {
    if (!lhs.initialised)
      return rhs;
    if (!rhs.initialised || lhs == rhs)
      return lhs;
    DimState result;
    result.initialised = true;
    result.integerLost =
        lhs.integerLost || rhs.integerLost || lhs.integer != rhs.integer;
    static_cast<ValueInfo &>(result) = ::join(lhs, rhs);
    return result;
  }

  void print(raw_ostream &os) const {
    if (!initialised)
      os << "<uninitialised>";
    else if (tensor && tensor->hasRank())
      llvm::interleaveComma(*tensor->dims, os, [&](DimExpr dim) {
        os << (dim ? dim.str() : std::string("?"));
      });
    else if (integer)
      os << integer;
    else
      os << "<unknown>";
  }
};

/// Puts numbers where symbols stand.
void substitute(ValueInfo &info, const SymbolMap &fixed) {
  if (fixed.empty())
    return;
  auto fix = [&](DimExpr &expr) {
    if (expr)
      expr = expr.substitute([&](DimSymbol symbol) {
        auto found = fixed.find(symbol);
        return found == fixed.end()
                   ? DimExpr()
                   : DimExpr::constant(expr.getContext(), found->second);
      });
  };
  if (info.tensor)
    for (auto *list : {&info.tensor->dims, &info.tensor->strides})
      if (*list)
        llvm::for_each(**list, fix);
  fix(info.integer);
  if (info.list)
    llvm::for_each(*info.list, fix);
  for (ValueInfo &element : info.elements)
    substitute(element, fixed);
}

/// How many symbols and functions `expr` has, written out; no more than `most`,
/// which ends the count.
static size_t countParts(DimExpr expr, size_t most) {
  size_t count = 0;
  for (ArrayAttr monomial : expr.getAttr().getMonomials())
    for (Attribute factor : monomial) {
      if (++count >= most)
        return most;
      if (auto atom = dyn_cast<DimAtomAttr>(factor))
        for (DimExpr side : {DimExpr(atom.getLhs()), DimExpr(atom.getRhs())})
          count += countParts(side, most - count);
    }
  return std::min(count, most);
}

/// Forgets expressions that no shape needs: one that takes another twice, and
/// is taken twice itself, would soon fill all memory. What is forgotten gets a
/// symbol of its value.
static void dropLarge(ValueInfo &info) {
  constexpr size_t kMostParts = 1000;
  auto drop = [&](DimExpr &expr) {
    bool isLarge = expr && countParts(expr, kMostParts) >= kMostParts;
    if (isLarge)
      expr = {};
    return !isLarge;
  };
  drop(info.integer);
  if (info.list)
    llvm::for_each(*info.list, drop);
  if (info.tensor && info.tensor->hasRank())
    llvm::for_each(*info.tensor->dims, drop);
  if (info.tensor && info.tensor->strides &&
      !llvm::all_of(*info.tensor->strides, drop))
    info.tensor->strides.reset();
  llvm::for_each(info.elements, dropLarge);
}

class DimLattice : public dataflow::Lattice<DimState> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DimLattice)
  using Lattice::Lattice;
};

/// What all elements agree on that are ever put into a container; of the value
/// that stands for it (ContainerPointsTo).
class ContentLattice : public dataflow::Lattice<DimState> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ContentLattice)
  using Lattice::Lattice;
};

/// Gives values without a fact symbols, in the order in which they are met.
class ValueSymbols {
public:
  /// An integer, or the number that stands for it.
  DimExpr getInteger(Value value) {
    DimSymbol symbol = get(value, "", SymbolKind::Integer);
    auto found = fixed.find(symbol);
    return found == fixed.end()
               ? DimExpr::symbol(symbol)
               : DimExpr::constant(value.getContext(), found->second);
  }
  /// Extent `dim` of a tensor, which `path` leads to from `value`.
  DimExpr getExtent(Value value, const std::string &path, unsigned dim) {
    return DimExpr::symbol(
        get(value, path + "d" + std::to_string(dim), SymbolKind::Extent));
  }
  /// How many elements of a mask are true.
  DimExpr getSelected(Value mask) {
    return DimExpr::symbol(get(mask, "m", SymbolKind::Selected));
  }
  void fix(const SymbolMap &symbols) { fixed = symbols; }

  /// Whether the symbol is the same number throughout a call: it is no value's
  /// that a loop computes anew.
  bool isSteady(DimSymbol symbol) const {
    if (symbol.isNamed() || symbol.getKind() == SymbolKind::ArgumentExtent)
      return true;
    Value value = values.lookup(symbol);
    if (!value)
      return false;
    Operation *op = value.getParentRegion()->getParentOp();
    while (op && !isa<LoopLikeOpInterface>(op))
      op = op->getParentOp();
    return !op;
  }

private:
  DimSymbol get(Value value, const std::string &suffix, SymbolKind kind) {
    auto number = numbers.try_emplace(value, numbers.size()).first->second;
    DimSymbol symbol = DimSymbol::get(
        value.getContext(), "_" + std::to_string(number) + suffix, kind);
    values.try_emplace(symbol, value);
    return symbol;
  }

  llvm::DenseMap<Value, size_t> numbers;
  llvm::DenseMap<DimSymbol, Value> values;
  SymbolMap fixed;
};

/// Integers that extents are made of; a bool is none.
static bool isNumber(Type type) {
  return type.isIntOrIndex() && !type.isInteger(1);
}

/// Gives dims that joins took away, also of elements, a symbol of the value. Of
/// what a mask selects it is one of the mask.
static void nameDims(ValueInfo &info, Value value, const std::string &path,
                     ValueSymbols &symbols) {
  Value mask = indexing::getSelectingMask(value.getDefiningOp());
  if (info.tensor && info.tensor->hasRank())
    for (auto [index, dim] : llvm::enumerate(*info.tensor->dims))
      if (!dim)
        dim = mask ? symbols.getSelected(mask)
                   : symbols.getExtent(value, path, index);
  for (auto [index, element] : llvm::enumerate(info.elements))
    nameDims(element, value, path + "e" + std::to_string(index), symbols);
}

/// Forgets what holds for one turn of a loop only.
static void keepSteady(ValueInfo &info, const ValueSymbols &symbols) {
  auto keep = [&](DimExpr &expr) {
    bool steady = true;
    if (expr)
      expr.forEachSymbol(
          [&](DimSymbol symbol) { steady &= symbols.isSteady(symbol); });
    if (!steady)
      expr = {};
    return steady;
  };
  keep(info.integer);
  if (info.list)
    llvm::for_each(*info.list, keep);
  if (info.tensor && info.tensor->hasRank())
    llvm::for_each(*info.tensor->dims, keep);
  if (info.tensor && info.tensor->strides &&
      !llvm::all_of(*info.tensor->strides, keep))
    info.tensor->strides.reset();
  for (ValueInfo &element : info.elements)
    keepSteady(element, symbols);
}

static ValueInfo toInfo(const DimState &state, Value value,
                        ValueSymbols &symbols) {
  ValueInfo info = state;
  if (!info.integer && isNumber(value.getType()))
    info.integer = symbols.getInteger(value);
  nameDims(info, value, "", symbols);
  return info;
}

class DimPropagation
    : public dataflow::SparseForwardDataFlowAnalysis<DimLattice> {
public:
  /// What is known from the start: of values, and of containers.
  struct Start {
    llvm::DenseMap<Value, DimState> values, contents;
    size_t size() const { return values.size() + contents.size(); }
  };

  DimPropagation(DataFlowSolver &solver, ValueSymbols &symbols,
                 const ContainerPointsTo &containers, const Start &start,
                 const SymbolMap &fixed, llvm::DenseSet<Value> &awaited,
                 llvm::DenseSet<Operation *> &judged,
                 SymbolTableCollection &params)
      : SparseForwardDataFlowAnalysis(solver), symbols(symbols),
        containers(containers), start(start), fixed(fixed), awaited(awaited),
        judged(judged), params(params) {}

  LogicalResult initialize(Operation *top) override {
    for (const auto &[value, state] : start.values) {
      DimLattice *lattice = getLatticeElement(value);
      propagateIfChanged(lattice, lattice->join(state));
    }
    for (const auto &[container, state] : start.contents) {
      auto *lattice = getOrCreate<ContentLattice>(container);
      propagateIfChanged(lattice, lattice->join(state));
    }
    return SparseForwardDataFlowAnalysis::initialize(top);
  }

  LogicalResult visitOperation(Operation *op,
                               ArrayRef<const DimLattice *> operands,
                               ArrayRef<DimLattice *> results) override {
    // Stays at the bottom: whatever another branch gives the variable, it is.
    if (isa<UninitializedOp>(op))
      return success();
    auto rule = dyn_cast<ShapeRuleInterface>(op);
    auto opaque = dyn_cast<TorchOpaqueOp>(op);
    auto carried = dyn_cast<CarriedOperatorInterface>(op);
    if (!rule && !carried) {
      setAllToEntryStates(results);
      return success();
    }
    judged.erase(op);
    // Wait for all operands: a rule on a fact that is still to come would
    // report conflicts that are none.
    for (const DimLattice *operand : operands)
      if (!operand->getValue().initialised)
        return success();
    putElements(op, operands);
    auto lookup = [&](Value value) {
      for (auto [operand, lattice] :
           llvm::zip_equal(op->getOperands(), operands))
        if (operand == value && !(isOrdered(op) && isMutable(value.getType())))
          return toInfo(lattice->getValue(), value, symbols);
      return ValueInfo();
    };
    ShapeRule shapes(op, lookup, &params);
    // On the way to the fixed point facts can contradict each other that the
    // program does not: one operand may still be a constant that a loop is
    // about to lose. Errors are judged at the end.
    bool waits = false;
    auto lists = [&](Value value) -> std::optional<ListFact> {
      Value container = containers.getContainer(value);
      if (!container || !isa<koila::ListType>(value.getType()) ||
          !lookup(value).elements.empty())
        return std::nullopt;
      const DimState &contents = getContents(container, op);
      waits |= !contents.initialised;
      return ListFact{contents, getLength(value, op)};
    };
    if (opaque && getComparedTensors(opaque))
      inferIdentity(opaque, shapes);
    else if (carried)
      inferMetaKernelShapes(carried, shapes, lists);
    else if (failed(rule.inferShapes(shapes)))
      return success();
    else if (!readsContents(op))
      judged.insert(op);
    for (auto [lattice, info, result] :
         llvm::zip_equal(results, shapes.getResults(), op->getResults())) {
      DimState state;
      state.initialised = true;
      static_cast<ValueInfo &>(state) = info;
      dropLarge(state);
      Value source = containers.getSource(result);
      if (source && saysNothing(info)) {
        const DimState &contents = getContents(source, op);
        waits |= !contents.initialised;
        static_cast<ValueInfo &>(state) = contents;
      }
      if (waits)
        return success();
      if (Value container = containers.getMade(result))
        putMade(container, info);
      // What no rule says, the type may; an undefined tensor has no shape.
      if (!state.tensor && !isNone(state) && isa<TensorType>(result.getType()))
        state.tensor = stated(result);
      propagateIfChanged(lattice, lattice->join(state));
    }
    return success();
  }

  void setToEntryState(DimLattice *lattice) override {
    Value value = lattice->getAnchor();
    DimState state;
    state.initialised = true;
    auto argument = dyn_cast<BlockArgument>(value);
    auto function =
        argument
            ? dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp())
            : FunctionOpInterface();
    if (function && argument.getOwner()->isEntryBlock()) {
      static_cast<ValueInfo &>(state) =
          getArgumentInfo(function, argument.getArgNumber());
      substitute(state, fixed);
    } else if (isa<TensorType>(value.getType())) {
      state.tensor = stated(value);
    } else {
      state.integerLost = true;
    }
    propagateIfChanged(lattice, lattice->join(state));
  }

private:
  /// Whether what `op` reads may change before it runs.
  static bool readsContents(Operation *op) {
    return isOrdered(op) && llvm::any_of(op->getOperandTypes(), [](Type type) {
             return isMutable(type);
           });
  }

  static bool saysNothing(const ValueInfo &info) {
    return !info.tensor && !info.integer && !info.list && !info.literal &&
           info.elements.empty();
  }

  /// Adds what `op` puts into containers to what is known of them.
  void putElements(Operation *op, ArrayRef<const DimLattice *> operands) {
    for (auto [element, container] : containers.getPuts(op)) {
      DimState state;
      state.initialised = true;
      if (element) {
        for (auto [operand, lattice] :
             llvm::zip_equal(op->getOperands(), operands))
          if (operand == element)
            static_cast<ValueInfo &>(state) =
                toInfo(lattice->getValue(), element, symbols);
        keepSteady(state, symbols);
      }
      auto *lattice = getOrCreate<ContentLattice>(container);
      propagateIfChanged(lattice, lattice->join(state));
    }
  }

  /// Adds what an operation made a list with.
  void putMade(Value container, const ValueInfo &list) {
    DimState state;
    if (list.elements.empty()) {
      state.initialised = true;
    } else {
      for (const ValueInfo &element : list.elements) {
        DimState next;
        next.initialised = true;
        static_cast<ValueInfo &>(next) = element;
        state = DimState::join(state, next);
      }
      keepSteady(state, symbols);
    }
    auto *lattice = getOrCreate<ContentLattice>(container);
    propagateIfChanged(lattice, lattice->join(state));
  }

  /// What is known of all elements; `op` is visited again when that changes.
  const DimState &getContents(Value container, Operation *op) {
    const auto *lattice =
        getOrCreateFor<ContentLattice>(getProgramPointAfter(op), container);
    if (!lattice->getValue().initialised)
      awaited.insert(container);
    return lattice->getValue();
  }

  /// How often the loop turns; null if unknown. `around` is the outermost loop
  /// that must not have a say in it.
  DimExpr getTrips(Operation *op, Operation *around, Operation *reader) {
    auto loop = dyn_cast<LoopLikeOpInterface>(op);
    auto lower = loop ? loop.getLoopLowerBounds() : std::nullopt;
    auto upper = loop ? loop.getLoopUpperBounds() : std::nullopt;
    auto step = loop ? loop.getLoopSteps() : std::nullopt;
    if (!lower || !upper || !step || upper->size() != 1 ||
        getConstantIntValue(lower->front()) != 0 ||
        getConstantIntValue(step->front()) != 1)
      return {};
    auto bound = dyn_cast<Value>(upper->front());
    if (!bound)
      return {};
    const DimLattice *lattice =
        getOrCreateFor<DimLattice>(getProgramPointAfter(reader), bound);
    DimExpr trips = toInfo(lattice->getValue(), bound, symbols).integer;
    if (!trips)
      return {};
    if (auto number = trips.getConstant())
      return *number < 0 && countsUnsigned(op)
                 ? DimExpr()
                 : DimExpr::constant(bound.getContext(),
                                     std::max<int64_t>(*number, 0));
    bool outside = !around->isAncestor(bound.getParentBlock()->getParentOp());
    return outside && isCount(trips) ? trips : DimExpr();
  }

  /// Whether the expression is surely not negative: it adds up extents.
  static bool isCount(DimExpr expr) {
    auto attr = expr.getAttr();
    return llvm::none_of(attr.getCoefficients(),
                         [](int64_t factor) { return factor < 0; }) &&
           llvm::all_of(attr.getMonomials(), [](ArrayAttr monomial) {
             return llvm::all_of(monomial, [](Attribute factor) {
               auto symbol = dyn_cast<DimSymbol>(factor);
               return symbol && symbol.isNamed();
             });
           });
  }

  DimExpr getLength(Value list, Operation *reader) {
    auto length = containers.getLength(list, reader);
    if (!length)
      return {};
    DimExpr sum = DimExpr::constant(list.getContext(), length->start);
    for (Operation *growth : length->growths) {
      Operation *around = length->block->findAncestorOpInBlock(*growth);
      DimExpr times = DimExpr::constant(list.getContext(), 1);
      for (Operation *op = growth; times && op != around;) {
        op = op->getParentOp();
        DimExpr trips = getTrips(op, around, reader);
        times = trips ? times * trips : DimExpr();
      }
      if (!times)
        return {};
      sum = sum + times;
    }
    return sum;
  }

  /// Sets what `a is b` gives where that is certain. What it follows from may
  /// be far away: whoever learns more there comes back here.
  void inferIdentity(TorchOpaqueOp op, ShapeRule &shapes) {
    ProgramPoint *point = getProgramPointAfter(op);
    auto isLive = [&](Block *block) {
      return getOrCreateFor<dataflow::Executable>(point,
                                                  getProgramPointBefore(block))
          ->isLive();
    };
    auto lookup = [&](Value value) {
      return toInfo(getOrCreateFor<DimLattice>(point, value)->getValue(), value,
                    symbols);
    };
    auto [lhs, rhs] = *getComparedTensors(op);
    TriBool same = proveIdentical(lhs, rhs, isLive, lookup);
    if (same == TriBool::Unknown)
      return;
    ValueInfo info;
    info.literal = BoolAttr::get(op.getContext(), (same == TriBool::Yes) !=
                                                      *isNegatedIdentity(op));
    shapes.setInfo(0, info);
  }

  TensorInfo stated(Value value) {
    return getTensorInfoFromType(value.getType(), [&](unsigned dim) {
      return symbols.getExtent(value, "", dim);
    });
  }

  ValueSymbols &symbols;
  const ContainerPointsTo &containers;
  const Start &start;
  const SymbolMap &fixed;
  /// Containers that something was taken from before anything was put there.
  llvm::DenseSet<Value> &awaited;
  /// Operations whose rules took all that is known of their operands.
  llvm::DenseSet<Operation *> &judged;
  /// Tables in which weights are found.
  SymbolTableCollection &params;
};

/// What conditions are known to be, so that the branches not taken are dead.
class ConditionPropagation : public dataflow::SparseForwardDataFlowAnalysis<
                                 dataflow::Lattice<dataflow::ConstantValue>> {
public:
  using ConstantLattice = dataflow::Lattice<dataflow::ConstantValue>;
  using SparseForwardDataFlowAnalysis::SparseForwardDataFlowAnalysis;

  LogicalResult visitOperation(Operation *op, ArrayRef<const ConstantLattice *>,
                               ArrayRef<ConstantLattice *> results) override {
    for (ConstantLattice *lattice : results) {
      Value value = lattice->getAnchor();
      dataflow::ConstantValue known =
          dataflow::ConstantValue::getUnknownConstant();
      if (value.getType().isInteger(1)) {
        const auto *dims =
            getOrCreateFor<DimLattice>(getProgramPointAfter(op), value);
        // A condition that is still to come decides nothing yet, unless
        // nothing ever will.
        if (auto flag = dyn_cast_or_null<BoolAttr>(dims->getValue().literal))
          known = dataflow::ConstantValue(flag, op->getDialect());
        else if (!dims->getValue().initialised && !isa<UninitializedOp>(op))
          continue;
      }
      propagateIfChanged(lattice, lattice->join(known));
    }
    return success();
  }

  void setToEntryState(ConstantLattice *lattice) override {
    auto known = dataflow::ConstantValue::getUnknownConstant();
    // An argument may itself be a condition.
    auto argument = dyn_cast<BlockArgument>(lattice->getAnchor());
    Operation *parent = argument ? argument.getOwner()->getParentOp() : nullptr;
    if (auto function = dyn_cast_or_null<FunctionOpInterface>(parent);
        function && argument.getType().isInteger(1))
      if (auto flag = dyn_cast_or_null<BoolAttr>(
              getArgumentInfo(function, argument.getArgNumber()).literal))
        known = dataflow::ConstantValue(flag, parent->getDialect());
    propagateIfChanged(lattice, lattice->join(known));
  }
};

/// Whether a join took an extent away, which has a symbol instead.
bool hasLostDims(const ValueInfo &info) {
  auto isLost = [](DimExpr dim) { return !dim; };
  return (info.tensor && info.tensor->hasRank() &&
          llvm::any_of(*info.tensor->dims, isLost)) ||
         llvm::any_of(info.elements, hasLostDims);
}

bool hasLost(const DimState &state) {
  return (state.integerLost && !state.integer) || hasLostDims(state);
}
} // namespace

/// Calls `callback` with every value that control flow merges.
static void forEachMerged(Operation *function,
                          llvm::function_ref<void(Value)> callback) {
  function->walk([&](RegionBranchOpInterface branch) {
    llvm::for_each(branch->getResults(), callback);
    for (Region &region : branch->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), callback);
  });
}

/// Indices that loops count: their turns, and what a turn computes from its own
/// value in the one before. They are taken for lost, since a run that finds
/// them lost is repeated; one to which a turn adds zero would be known.
static SmallVector<Value> findCounted(Operation *function) {
  SmallVector<Value> found;
  function->walk([&](LoopLikeOpInterface loop) {
    if (auto variables = loop.getLoopInductionVars())
      llvm::append_range(found, *variables);
    auto results = loop.getLoopResults();
    if (!results)
      return;
    for (auto [argument, yielded, result] : llvm::zip_equal(
             loop.getRegionIterArgs(), loop.getYieldedValues(), *results)) {
      Operation *maker = yielded.getDefiningOp();
      if (argument.getType().isIndex() && maker &&
          llvm::is_contained(maker->getOperands(), Value(argument))) {
        found.push_back(argument);
        found.push_back(result);
      }
    }
  });
  return found;
}

struct DimAnalysis::LocalSymbols : ValueSymbols {};

DimAnalysis::DimAnalysis(Operation *function, const SymbolMap &fixed)
    : symbols(std::make_unique<LocalSymbols>()) {
  run(function, fixed);
}

DimAnalysis::DimAnalysis(Operation *function, const SymbolMap &fixed,
                         const DimAnalysis &other)
    : symbols(std::make_unique<LocalSymbols>(*other.symbols)) {
  symbols->fix(fixed);
  run(function, fixed);
}

DimAnalysis::~DimAnalysis() = default;

void DimAnalysis::run(Operation *function, const SymbolMap &fixed) {
  if (failed(checkAssumptions(function))) {
    valid = false;
    return;
  }
  ValueSymbols &symbols = *this->symbols;
  // A value that changes from iteration to iteration starts as a constant and
  // loses it at the join; what was computed from the constant by then would
  // lose its relation to the value. So the run is repeated with what was lost
  // known from the start, until nothing more is; each round adds a value.
  DimPropagation::Start start;
  for (Value value : findCounted(function)) {
    DimState &state = start.values[value];
    state.initialised = state.integerLost = true;
  }
  ContainerPointsTo containers(function);
  SymbolTableCollection params;
  while (true) {
    llvm::DenseSet<Value> awaited;
    llvm::DenseSet<Operation *> judged;
    DataFlowSolver solver;
    solver.load<dataflow::DeadCodeAnalysis>();
    solver.load<ConditionPropagation>();
    solver.load<DimPropagation>(symbols, containers, start, fixed, awaited,
                                judged, params);
    {
      MLIRContext *context = function->getContext();
      ScopedDiagnosticHandler silence(context,
                                      [](Diagnostic &) { return success(); });
      // Numbering the values of the program for a message that nobody reads
      // would cost more than the whole analysis.
      bool prints = context->shouldPrintOpOnDiagnostic();
      context->printOpOnDiagnostic(false);
      bool done = succeeded(solver.initializeAndRun(function));
      context->printOpOnDiagnostic(prints);
      if (!done) {
        valid = false;
        return;
      }
    }
    size_t before = start.size();
    forEachMerged(function, [&](Value value) {
      const auto *lattice = solver.lookupState<DimLattice>(value);
      if (lattice && hasLost(lattice->getValue()))
        start.values.try_emplace(value, lattice->getValue());
    });
    for (Value container : containers.getContainers()) {
      const auto *lattice = solver.lookupState<ContentLattice>(container);
      DimState contents = lattice ? lattice->getValue() : DimState();
      // Nothing is ever put there: what is made of it would never be known.
      bool empty = !contents.initialised && awaited.contains(container);
      contents.initialised = true;
      if (empty || hasLost(contents))
        start.contents.try_emplace(container, contents);
    }
    if (start.size() != before)
      continue;
    auto record = [&](Value value) {
      const auto *lattice = solver.lookupState<DimLattice>(value);
      if (!lattice || !lattice->getValue().initialised)
        return;
      places.try_emplace(value, infos.size());
      infos.push_back(toInfo(lattice->getValue(), value, symbols));
    };
    function->walk<WalkOrder::PreOrder>([&](Operation *op) {
      llvm::for_each(op->getResults(), record);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          llvm::for_each(block.getArguments(), record);
    });
    function->walk([&](Block *block) {
      const auto *live = solver.lookupState<dataflow::Executable>(
          solver.getProgramPointBefore(block));
      if (block->getParentOp() != function && (!live || !live->isLive()))
        dead.insert(block);
    });
    // The rule keeps a reference to it.
    auto facts = [&](Value value) { return lookup(value); };
    function->walk<WalkOrder::PreOrder>([&](ShapeRuleInterface op) {
      if (judged.contains(op) || isDead(op.getOperation()))
        return;
      ShapeRule rule(op, facts, &params);
      // A branch may be made for other shapes than these; if it is taken
      // nevertheless, PyTorch raises.
      if (!isInBranch(op)) {
        valid &= succeeded(op.inferShapes(rule));
        return;
      }
    });
    return;
  }
}

bool koila::isInBranch(Operation *op) {
  for (Operation *parent = op->getParentOp();
       parent && !isa<FunctionOpInterface>(parent);
       parent = parent->getParentOp())
    if (isa<RegionBranchOpInterface>(parent) &&
        !isa<LoopLikeOpInterface>(parent))
      return true;
  return false;
}

bool DimAnalysis::isDead(Operation *op) const {
  if (dead.empty())
    return false;
  for (Block *block = op->getBlock(); block;
       block = block->getParentOp() ? block->getParentOp()->getBlock()
                                    : nullptr)
    if (dead.contains(block))
      return true;
  return false;
}

bool DimAnalysis::agreesWith(
    const DimAnalysis &other, Operation *function,
    llvm::function_ref<bool(Operation *)> apart) const {
  auto agrees = [&](Value value) {
    return equal(lookup(value), other.lookup(value));
  };
  WalkResult result =
      function->walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
        if (!llvm::all_of(op->getResults(), agrees))
          return WalkResult::interrupt();
        if (apart(op))
          return WalkResult::skip();
        for (Region &region : op->getRegions())
          for (Block &block : region)
            if (isDead(&block) != other.isDead(&block) ||
                !llvm::all_of(block.getArguments(), agrees))
              return WalkResult::interrupt();
        return WalkResult::advance();
      });
  return !result.wasInterrupted();
}

const ValueInfo &DimAnalysis::lookup(Value value) const {
  static const ValueInfo nothing;
  auto found = places.find(value);
  return found == places.end() ? nothing : infos[found->second];
}

LogicalResult koila::verifyGivenSizes(Operation *function) {
  auto module = function->getParentOfType<ModuleOp>();
  auto symbols =
      module ? module->getAttrOfType<ArrayAttr>(KoilaDialect::kSymbolsAttr)
             : ArrayAttr();
  SymbolMap given;
  std::string words;
  if (symbols)
    for (auto symbol : symbols.getAsRange<SymbolAttr>()) {
      if (symbol.getValue() < 0)
        continue;
      given[DimSymbol::get(function->getContext(), symbol.getName())] =
          symbol.getValue();
      words += (Twine(words.empty() ? "" : ", ") + symbol.getName() + " = " +
                Twine(symbol.getValue()))
                   .str();
    }
  if (given.empty())
    return success();
  ScopedDiagnosticHandler handler(
      function->getContext(), [&](Diagnostic &diagnostic) {
        diagnostic.attachNote(function->getLoc()) << "at " << words;
        return failure();
      });
  return success(DimAnalysis(function, given).isValid());
}
