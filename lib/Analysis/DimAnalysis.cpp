//===- DimAnalysis.cpp - Symbolic shapes of every value -------------------===//

#include "koila/Analysis/DimAnalysis.h"
#include "koila/Analysis/OpaqueShapes.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Analysis/DataFlow/ConstantPropagationAnalysis.h"
#include "mlir/Analysis/DataFlow/DeadCodeAnalysis.h"
#include "mlir/Analysis/DataFlow/SparseAnalysis.h"
#include "mlir/Analysis/DataFlowFramework.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace koila;

namespace {

bool equal(const ValueInfo &lhs, const ValueInfo &rhs) {
  if (lhs.tensor.has_value() != rhs.tensor.has_value() ||
      lhs.integer != rhs.integer || lhs.list != rhs.list ||
      lhs.literal != rhs.literal ||
      lhs.elements.size() != rhs.elements.size())
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
    // A tensor or None: of the tensor everything stays known.
    auto isNone = [](const DimState &state) {
      return isa_and_nonnull<UnitAttr>(state.literal);
    };
    if (isNone(lhs) && rhs.tensor)
      return maybeNone(rhs, lhs.literal.getContext());
    if (isNone(rhs) && lhs.tensor)
      return maybeNone(lhs, rhs.literal.getContext());
    DimState result = lhs;
    if (lhs.integerLost || rhs.integerLost || lhs.integer != rhs.integer) {
      result.integer = {};
      result.integerLost = true;
    }
    if (lhs.literal != rhs.literal)
      result.literal = isa_and_nonnull<DynamicAttr>(lhs.literal)   ? lhs.literal
                       : isa_and_nonnull<DynamicAttr>(rhs.literal) ? rhs.literal
                                                                   : Attribute();
    if (lhs.list != rhs.list)
      result.list.reset();
    if (!llvm::equal(lhs.elements, rhs.elements, equal))
      result.elements.clear();
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

  static DimState maybeNone(DimState state, MLIRContext *context) {
    state.literal = DynamicAttr::get(context);
    return state;
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

class DimLattice : public dataflow::Lattice<DimState> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DimLattice)
  using Lattice::Lattice;
};

/// Gives values without a fact a symbol, in the order in which they are met.
class LocalSymbols {
public:
  std::string get(Value value) {
    auto [entry, isNew] = numbers.try_emplace(value, numbers.size());
    return "_" + std::to_string(entry->second);
  }

private:
  llvm::DenseMap<Value, size_t> numbers;
};

/// Integers that extents are made of; a bool is none.
static bool isNumber(Type type) {
  return type.isIntOrIndex() && !type.isInteger(1);
}

static ValueInfo toInfo(const DimState &state, Value value,
                        LocalSymbols &symbols) {
  ValueInfo info = state;
  MLIRContext *context = value.getContext();
  if (!info.integer && isNumber(value.getType()))
    info.integer = DimExpr::symbol(context, symbols.get(value));
  if (info.tensor && info.tensor->hasRank())
    for (auto [index, dim] : llvm::enumerate(*info.tensor->dims))
      if (!dim)
        dim = DimExpr::symbol(context,
                              symbols.get(value) + "d" + std::to_string(index));
  return info;
}

class DimPropagation
    : public dataflow::SparseForwardDataFlowAnalysis<DimLattice> {
public:
  DimPropagation(DataFlowSolver &solver, LocalSymbols &symbols,
                 const llvm::DenseMap<Value, DimState> &lost)
      : SparseForwardDataFlowAnalysis(solver), symbols(symbols), lost(lost) {}

  LogicalResult initialize(Operation *top) override {
    for (const auto &[value, state] : lost) {
      DimLattice *lattice = getLatticeElement(value);
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
    if (!rule && !opaque) {
      setAllToEntryStates(results);
      return success();
    }
    // Wait for all operands: a rule on a fact that is still to come would
    // report conflicts that are none.
    for (const DimLattice *operand : operands)
      if (!operand->getValue().initialised)
        return success();
    auto lookup = [&](Value value) {
      for (auto [operand, lattice] :
           llvm::zip_equal(op->getOperands(), operands))
        if (operand == value && !(isOrdered(op) && isMutable(value.getType())))
          return toInfo(lattice->getValue(), value, symbols);
      return ValueInfo();
    };
    ShapeRule shapes(op, lookup);
    // On the way to the fixed point facts can contradict each other that the
    // program does not: one operand may still be a constant that a loop is
    // about to lose. Errors are judged at the end.
    if (opaque)
      inferOpaqueShapes(opaque, shapes);
    else if (failed(rule.inferShapes(shapes)))
      return success();
    for (auto [lattice, info, result] :
         llvm::zip_equal(results, shapes.getResults(), op->getResults())) {
      DimState state;
      state.initialised = true;
      static_cast<ValueInfo &>(state) = info;
      // What no rule says, the type may.
      if (!state.tensor && isa<TensorType>(result.getType()))
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
    } else if (isa<TensorType>(value.getType())) {
      state.tensor = stated(value);
    } else {
      state.integerLost = true;
    }
    propagateIfChanged(lattice, lattice->join(state));
  }

private:
  TensorInfo stated(Value value) {
    auto type = cast<TensorType>(value.getType());
    if (!type.hasRank() || type.hasStaticShape())
      return getTensorInfoFromType(type, "");
    return getTensorInfoFromType(type, symbols.get(value));
  }

  LocalSymbols &symbols;
  const llvm::DenseMap<Value, DimState> &lost;
};

/// What conditions are known to be, so that the branches not taken are dead.
class ConditionPropagation
    : public dataflow::SparseForwardDataFlowAnalysis<
          dataflow::Lattice<dataflow::ConstantValue>> {
public:
  using ConstantLattice = dataflow::Lattice<dataflow::ConstantValue>;
  using SparseForwardDataFlowAnalysis::SparseForwardDataFlowAnalysis;

  LogicalResult visitOperation(Operation *op, ArrayRef<const ConstantLattice *>,
                               ArrayRef<ConstantLattice *> results) override {
    for (ConstantLattice *lattice : results) {
      Value value = lattice->getAnchor();
      const auto *dims = getOrCreateFor<DimLattice>(getProgramPointAfter(op),
                                                    value);
      dataflow::ConstantValue known =
          dataflow::ConstantValue::getUnknownConstant();
      if (value.getType().isInteger(1)) {
        // A condition that is still to come decides nothing yet, unless
        // nothing ever will.
        if (auto flag =
                dyn_cast_or_null<BoolAttr>(dims->getValue().literal))
          known = dataflow::ConstantValue(flag, op->getDialect());
        else if (!dims->getValue().initialised && !isa<UninitializedOp>(op))
          continue;
      }
      propagateIfChanged(lattice, lattice->join(known));
    }
    return success();
  }

  void setToEntryState(ConstantLattice *lattice) override {
    propagateIfChanged(lattice,
                       lattice->join(
                           dataflow::ConstantValue::getUnknownConstant()));
  }
};

/// Whether a join took something away, which has a symbol instead.
bool hasLost(const DimState &state) {
  if (state.integerLost && !state.integer)
    return true;
  return state.tensor && state.tensor->hasRank() &&
         llvm::any_of(*state.tensor->dims, [](DimExpr dim) { return !dim; });
}
} // namespace

/// Facts of the elements of a container as `koila.value` says them. Numbers
/// are not taken from there: the program runs with others, too.
static std::vector<ValueInfo> getElements(Attribute value) {
  std::vector<ValueInfo> infos;
  if (auto dict = dyn_cast<DictionaryAttr>(value))
    value = dict.get("values");
  auto elements = dyn_cast_or_null<ArrayAttr>(value);
  if (!elements)
    return infos;
  for (Attribute element : elements) {
    ValueInfo &info = infos.emplace_back();
    auto tensor = dyn_cast<DictionaryAttr>(element);
    auto type = tensor ? tensor.getAs<TypeAttr>("type") : TypeAttr();
    auto dims = tensor ? tensor.getAs<DimsAttr>("dims") : DimsAttr();
    if (type && dims && isa<TensorType>(type.getValue())) {
      SmallVector<DimExpr> exprs(dims.getExprs());
      info.tensor = TensorInfo::contiguous(
          exprs, cast<TensorType>(type.getValue()).getElementType());
    } else {
      info.elements = getElements(element);
    }
  }
  return infos;
}

ValueInfo koila::getArgumentInfo(FunctionOpInterface function, unsigned index) {
  ValueInfo info;
  Type type = function.getArgumentTypes()[index];
  if (Attribute value = function.getArgAttr(index, KoilaDialect::kValueAttr)) {
    info.elements = getElements(value);
    // None, a bool or a text decide branches, under an assumption.
    if (isa<UnitAttr, BoolAttr, StringAttr>(value))
      info.literal = value;
  }
  if (!isa<TensorType>(type))
    return info;
  std::string prefix = "_a" + std::to_string(index);
  info.tensor = getTensorInfoFromType(type, prefix);
  TensorInfo &tensor = *info.tensor;
  if (auto dims =
          function.getArgAttrOfType<DimsAttr>(index, KoilaDialect::kDimsAttr)) {
    tensor.dims.emplace();
    for (DimExprAttr expr : dims.getExprs())
      tensor.dims->push_back(expr);
  }
  if (!tensor.hasRank())
    return info;
  // Contiguous unless said otherwise; an assumption that the guard checks
  // where a rewritten program relies on it.
  auto format = function.getArgAttrOfType<StringAttr>(
      index, KoilaDialect::kMemoryFormatAttr);
  tensor = format && format.getValue() == "channels_last"
               ? TensorInfo::channelsLast(*tensor.dims, tensor.elementType)
               : TensorInfo::contiguous(*tensor.dims, tensor.elementType);
  return info;
}

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

DimAnalysis::DimAnalysis(Operation *function) {
  LocalSymbols symbols;
  // A value that changes from iteration to iteration starts as a constant and
  // loses it at the join; what was computed from the constant by then would
  // lose its relation to the value. So the run is repeated with what was lost
  // known from the start, until nothing more is; each round adds a value.
  llvm::DenseMap<Value, DimState> lost;
  while (true) {
    DataFlowSolver solver;
    solver.load<dataflow::DeadCodeAnalysis>();
    solver.load<ConditionPropagation>();
    solver.load<DimPropagation>(symbols, lost);
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
    size_t before = lost.size();
    forEachMerged(function, [&](Value value) {
      const auto *lattice = solver.lookupState<DimLattice>(value);
      if (lattice && hasLost(lattice->getValue()))
        lost.try_emplace(value, lattice->getValue());
    });
    if (lost.size() != before)
      continue;
    auto record = [&](Value value) {
      const auto *lattice = solver.lookupState<DimLattice>(value);
      if (lattice && lattice->getValue().initialised)
        values[value] = toInfo(lattice->getValue(), value, symbols);
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
    function->walk<WalkOrder::PreOrder>([&](ShapeRuleInterface op) {
      if (isDead(op.getOperation()))
        return;
      ShapeRule rule(op, [&](Value value) { return lookup(value); });
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

const ValueInfo &DimAnalysis::lookup(Value value) const {
  static const ValueInfo nothing;
  auto found = values.find(value);
  return found == values.end() ? nothing : found->second;
}

FunctionOpInterface koila::findFunction(ModuleOp module, StringRef name) {
  FunctionOpInterface found;
  std::string names;
  for (auto function : module.getOps<FunctionOpInterface>()) {
    if (function.isExternal())
      continue;
    if (!name.empty() && function.getName() == name)
      return function;
    if (!function.isPublic())
      continue;
    names += (names.empty() ? "'" : ", '") + function.getName().str() + "'";
    if (name.empty() && found) {
      module.emitError() << "several functions: say which by function=NAME "
                         << "(" << names << ")";
      return {};
    }
    found = function;
  }
  if (name.empty() && found)
    return found;
  if (name.empty())
    module.emitError() << "the module has no function";
  else
    module.emitError() << "no function '" << name << "'; there is " << names;
  return {};
}
