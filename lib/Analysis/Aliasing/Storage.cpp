//===- Storage.cpp - Alias classes and tie resolution ---------------------===//

#include "koila/Analysis/Storage.h"
#include "koila/Analysis/MetaKernelShapes.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace koila;

namespace {
/// Disjoint sets of values that share a storage, with what a tie must know of
/// the whole set kept at its root, so that no question walks the members.
class AliasClasses {
public:
  struct Summary {
    unsigned allocations = 0;
    bool external = false;
  };

  void insert(Value value) { get(value); }
  bool contains(Value value) const { return indices.contains(value); }
  void unite(Value lhs, Value rhs) {
    size_t left = root(get(lhs)), right = root(get(rhs));
    if (left == right)
      return;
    if (sizes[left] < sizes[right])
      std::swap(left, right);
    parents[right] = left;
    sizes[left] += sizes[right];
    summaries[left].allocations += summaries[right].allocations;
    summaries[left].external |= summaries[right].external;
  }
  Summary &summary(Value value) { return summaries[root(get(value))]; }
  size_t classOf(Value value) { return root(get(value)); }

private:
  size_t get(Value value) {
    auto [entry, isNew] = indices.try_emplace(value, parents.size());
    if (isNew) {
      parents.push_back(parents.size());
      sizes.push_back(1);
      summaries.emplace_back();
    }
    return entry->second;
  }
  size_t root(size_t index) {
    while (parents[index] != index)
      index = parents[index] = parents[parents[index]];
    return index;
  }

  llvm::DenseMap<Value, size_t> indices;
  SmallVector<size_t> parents, sizes;
  SmallVector<Summary> summaries;
};

/// A tensor, or one that may be None.
bool holdsTensor(Type type) {
  if (auto optional = dyn_cast<OptionalType>(type))
    type = optional.getValueType();
  return isa<TensorType>(type);
}

/// The operand that `construct` puts at that place; null if there is none, or
/// if it is not known.
Value getPut(ConstructOp construct, Attribute at) {
  OperandRange elements = construct.getElements();
  auto index = dyn_cast<IntegerAttr>(at);
  if (construct.getContainer() != Container::Dict) {
    int64_t size = elements.size(), place = index ? index.getInt() : size;
    place += place < 0 ? size : 0;
    return place >= 0 && place < size ? elements[place] : Value();
  }
  // The last of equal keys counts.
  Value found;
  for (unsigned i = 0; i + 1 < elements.size(); i += 2) {
    Attribute key;
    if (auto constant = elements[i].getDefiningOp<ConstantOp>())
      key = constant.getValue();
    else if (!matchPattern(elements[i], m_Constant(&key)))
      return {};
    auto number = dyn_cast<IntegerAttr>(key);
    if (index && number ? number.getInt() == index.getInt() : key == at)
      found = elements[i + 1];
  }
  return found;
}
} // namespace

bool koila::mayHoldTensors(Type type) {
  return holdsTensor(type) || isContainerOfTensors(type);
}

bool koila::isContainerOfTensors(Type type) {
  auto mayHold = [](Type inner) {
    return isa<TensorType>(inner) || isContainerOfTensors(inner);
  };
  if (auto list = dyn_cast<koila::ListType>(type))
    return mayHold(list.getElementType());
  if (auto dict = dyn_cast<DictType>(type))
    return mayHold(dict.getKeyType()) || mayHold(dict.getValueType());
  if (auto tuple = dyn_cast<TupleType>(type))
    return llvm::any_of(tuple.getTypes(), mayHold);
  if (auto optional = dyn_cast<OptionalType>(type))
    return isContainerOfTensors(optional.getValueType());
  // Of a union, of a type that says nothing, or of a class or named tuple.
  auto other = dyn_cast<TorchType>(type);
  return other && (other.getSpelling() == "Any" ||
                   other.getSpelling().contains("Tensor") ||
                   other.getSpelling().starts_with("__torch__."));
}

/// Builds alias classes in program order, deciding each tie when it is met.
class StorageAnalysis::Builder {
public:
  Builder(StorageAnalysis &result, Operation *function, const DimAnalysis &dims,
          const llvm::SmallPtrSetImpl<Operation *> &denied,
          const StorageAnalysis *ties)
      : result(result), function(function), dims(dims), denied(denied),
        ties(ties) {}

  /// Adds to `violated` the ties that were granted before a later part of the
  /// program, a loop's next iteration for one, brought in another storage.
  void run(SmallVectorImpl<Operation *> &violated) {
    for (Region &region : function->getRegions())
      for (Block &block : region)
        for (Value argument : block.getArguments()) {
          if (mayHold(argument.getType()))
            makeExternal(argument);
          mergeElements(argument);
        }
    for (Region &region : function->getRegions())
      visit(region);
    for (auto [op, operand] : granted) {
      const AliasClasses::Summary &summary = classes.summary(operand);
      if (summary.external || summary.allocations != 1)
        violated.push_back(op);
    }
    collect();
  }

private:
  static bool mayHold(Type type) { return mayHoldTensors(type); }
  void makeExternal(Value value) { classes.summary(value).external = true; }
  void allocate(Value value) {
    allocations.insert(value);
    ++classes.summary(value).allocations;
  }

  void visit(Region &region) {
    for (Block &block : region)
      for (Operation &op : block)
        visit(&op);
  }

  void visit(Operation *op) {
    if (auto branch = dyn_cast<RegionBranchOpInterface>(op)) {
      // What is carried in: before the body, so that the body's ties see it.
      unite(branch, RegionBranchPoint::parent());
      for (Region &region : op->getRegions())
        visit(region);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          if (auto terminator = dyn_cast<RegionBranchTerminatorOpInterface>(
                  block.getTerminator());
              terminator && !(ties && dims.isDead(&block)))
            unite(branch, terminator);
      return;
    }
    for (Region &region : op->getRegions())
      visit(region);
    // Hands on one of its operands, unless it decides for each element.
    if (auto select = dyn_cast<SelectLikeOpInterface>(op);
        select && !isa<ShapedType>(select.getCondition().getType())) {
      for (Value operand : op->getOperands())
        if (holdsTensor(operand.getType())) {
          classes.unite(operand, op->getResult(0));
          selects[operand].push_back(op->getResult(0));
        } else if (isContainerOfTensors(operand.getType())) {
          put(operand, op->getResult(0));
        }
      return;
    }
    if (visitContainer(op))
      return;
    auto rule = dyn_cast<MemoryRuleInterface>(op);
    auto shapes = [&](Value value) { return dims.lookup(value); };
    StorageRule facts(op, shapes);
    if (rule)
      rule.describeStorage(facts);
    for (auto [value, fact] :
         llvm::zip_equal(op->getResults(), facts.getResults())) {
      if (!holdsTensor(value.getType())) {
        if (isContainerOfTensors(value.getType()))
          visitMade(op, cast<OpResult>(value), fact);
        continue;
      }
      classes.insert(value);
      // An order, not a permission: the result is the tensor that is written.
      if (isOrderedWrite(op) && op->getNumOperands() > 0 &&
          holdsTensor(op->getOperand(0).getType()) &&
          cast<OpResult>(value).getResultNumber() == 0 && rule) {
        classes.unite(op->getOperand(0), value);
        viewOf[value] = op->getOperand(0);
        continue;
      }
      if (!fact.exact)
        result.guesses.emplace_back(op, "view or copy depends on strides that "
                                        "are not known");
      switch (fact.kind) {
      case StorageFact::Kind::New:
        if (rule || !aliasOpaque(op, value))
          allocate(value);
        break;
      case StorageFact::Kind::Alias:
        mergeElements(fact.operand);
        classes.unite(fact.operand, value);
        viewOf[value] = fact.operand;
        break;
      case StorageFact::Kind::Tied:
        if (ties ? ties->mayReuse(op)
                 : dims.isValid() && !denied.contains(op) &&
                       mayReuse(op, fact.operand)) {
          result.reusing.insert(op);
          granted.emplace_back(op, fact.operand);
          classes.unite(fact.operand, value);
        } else {
          allocate(value);
        }
        break;
      case StorageFact::Kind::Keeps:
        makeExternal(value);
        break;
      }
    }
  }

  /// The operands that, as its schema says, a result of an operator that koila
  /// knows nothing of may share storage with.
  static SmallVector<Value> getShared(Operation *op, Value value) {
    SmallVector<Value> shared;
    auto opaque = dyn_cast<TorchOpaqueOp>(op);
    if (!opaque || !opaque.getAliases())
      return shared;
    auto aliases = dyn_cast<ArrayAttr>(
        (*opaque.getAliases())[cast<OpResult>(value).getResultNumber()]);
    if (aliases)
      for (auto index : aliases.getAsRange<IntegerAttr>())
        if (index.getInt() >= 0 && index.getInt() < op->getNumOperands() &&
            mayHold(op->getOperand(index.getInt()).getType()))
          shared.push_back(op->getOperand(index.getInt()));
    return shared;
  }

  /// True if the result may be, or be taken out of, an operand.
  bool aliasOpaque(Operation *op, Value value) {
    SmallVector<Value> shared = getShared(op, value);
    for (Value operand : shared) {
      mergeElements(operand);
      classes.unite(operand, value);
      viewOf[value] = operand;
    }
    return !shared.empty();
  }

  //===--------------------------------------------------------------------===//
  // Containers
  //===--------------------------------------------------------------------===//
  //
  // A container keeps what was put into it. What is taken out of one that was
  // just made is what was put there; of any other it may be all that is in it,
  // which is one storage from then on. That says the same where all of it are
  // views of one tensor.

  /// `container` may hold what `value` is, or holds.
  void put(Value value, Value container) {
    puts[container].push_back(value);
    if (!merged.contains(container))
      return;
    mergeElements(value);
    classes.unite(container, value);
  }

  void mergeElements(Value container) {
    if (!isContainerOfTensors(container.getType()) ||
        !merged.insert(container).second)
      return;
    classes.insert(container);
    for (Value value : SmallVector<Value>(puts.lookup(container))) {
      mergeElements(value);
      classes.unite(container, value);
    }
  }

  /// What `container` holds at `at`; null if that is not known.
  Value getElement(Value container, Attribute at) const {
    while (Value other = sameAs.lookup(container))
      container = other;
    auto made = container.getDefiningOp<ConstructOp>();
    bool changes =
        made && isOrdered(made) && made.getContainer() != Container::Tuple;
    return made && !changes ? getPut(made, at) : Value();
  }

  void take(Value result, Value container, Attribute at) {
    if (!mayHold(result.getType()))
      return;
    Value source = getElement(container, at);
    bool isKnown = source && mayHold(source.getType());
    if (!isKnown) {
      mergeElements(container);
      source = container;
    }
    if (!holdsTensor(result.getType())) {
      put(source, result);
      if (isKnown)
        sameAs[result] = source;
      else
        mergeElements(result);
      return;
    }
    mergeElements(source);
    classes.unite(source, result);
    viewOf[result] = source;
  }

  /// True if `op` does nothing but put together or take apart.
  bool visitContainer(Operation *op) {
    if (auto made = dyn_cast<ConstructOp>(op)) {
      for (Value element : made.getElements())
        if (mayHold(element.getType()))
          put(element, made.getResult());
      return true;
    }
    if (auto element = dyn_cast<ElementOp>(op)) {
      take(element.getResult(), element.getContainer(), element.getAt());
      return true;
    }
    auto unpack = dyn_cast<UnpackOp>(op);
    if (unpack)
      for (auto [index, result] : llvm::enumerate(unpack.getResults()))
        take(result, unpack.getContainer(),
             IntegerAttr::get(IntegerType::get(op->getContext(), 64), index));
    return unpack != nullptr;
  }

  /// `value` is a container that another operation than those makes.
  void visitMade(Operation *op, OpResult value, const StorageFact &fact) {
    if (fact.kind == StorageFact::Kind::Alias) {
      put(fact.operand, value);
      sameAs[value] = fact.operand;
      return;
    }
    if (isa<AttrGetOp>(op)) {
      makeExternal(value);
      mergeElements(value);
      return;
    }
    SmallVector<Value> shared = getShared(op, value);
    for (Value operand : shared)
      put(operand, value);
    // What is written into a container is in all values that are it.
    if (isOrderedWrite(op)) {
      mergeElements(value);
      for (Value operand : shared) {
        mergeElements(operand);
        classes.unite(operand, value);
      }
    }
    bool makesNothing = isa<MemoryRuleInterface>(op) ||
                        op->hasAttr(kViewsAttr) ||
                        op->hasTrait<OpTrait::ConstantLike>();
    if (auto opaque = dyn_cast<TorchOpaqueOp>(op); opaque && !makesNothing)
      makesNothing = getElementFlow(opaque).has_value();
    if (!makesNothing)
      result.guesses.emplace_back(
          op, "what an operator without a memory rule puts into a list or "
              "dict is not known");
  }

  template <typename Point>
  void unite(RegionBranchOpInterface branch, Point point) {
    SmallVector<RegionSuccessor> successors;
    RegionBranchPoint from(point);
    branch.getSuccessorRegions(from, successors);
    for (RegionSuccessor &successor : successors) {
      OperandRange operands = getOperands(branch, point, successor);
      if (operands.empty())
        continue;
      ValueRange inputs = successor.getSuccessorInputs();
      Operation *owner = from.isParent()
                             ? branch.getOperation()
                             : from.getTerminatorPredecessorOrNull();
      unsigned index = operands.getBeginOperandIndex();
      for (auto [operand, input] : llvm::zip(operands, inputs)) {
        OpOperand &source = owner->getOpOperand(index++);
        if (!mayHold(input.getType()))
          continue;
        if (isContainerOfTensors(input.getType())) {
          put(operand, input);
          mergeElements(input);
        } else {
          mergeElements(operand);
          classes.unite(operand, input);
        }
        comesFrom[input].push_back(&source);
        flowsTo[&source].push_back(input);
      }
    }
  }

  static OperandRange getOperands(RegionBranchOpInterface branch,
                                  RegionBranchPoint,
                                  RegionSuccessor &successor) {
    return branch.getEntrySuccessorOperands(successor);
  }
  static OperandRange getOperands(RegionBranchOpInterface,
                                  RegionBranchTerminatorOpInterface terminator,
                                  RegionSuccessor &successor) {
    return terminator.getSuccessorOperands(successor);
  }
  //===--------------------------------------------------------------------===//
  // Ties
  //===--------------------------------------------------------------------===//

  /// Whether `use`, which is not `op`, may run after `op`. `value` is what it
  /// uses.
  bool runsAfter(Operation *use, Operation *op, Value value) const {
    // The next iteration of a loop around both sees a value from outside the
    // loop again.
    for (Operation *parent = op->getParentOp(); parent && parent != function;
         parent = parent->getParentOp())
      if (isa<LoopLikeOpInterface>(parent) && parent->isAncestor(use) &&
          !parent->isAncestor(value.getParentRegion()->getParentOp()))
        return true;
    for (Operation *ancestor = use; ancestor;
         ancestor = ancestor->getParentOp())
      if (Operation *other =
              ancestor->getBlock()
                  ? ancestor->getBlock()->findAncestorOpInBlock(*op)
                  : nullptr)
        return other == ancestor || other->isBeforeInBlock(ancestor);
    return true;
  }

  static bool isSplit(Operation *op) {
    return isa<SplitOp, UnsafeSplitOp, SplitListOp, SplitSizesListOp,
               SplitWithSizesOp, UnsafeSplitWithSizesOp, ChunkOp, UnsafeChunkOp,
               TensorSplitOp, UnbindOp>(op);
  }
  /// Whether no two elements of `value` have the same place, unlike those of
  /// what is expanded: it is new, or a view that shows each element once.
  bool hasApartElements(Value value) const {
    while (Operation *op = value.getDefiningOp()) {
      const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
      if (info && info->isDense() == TriBool::Yes)
        return true;
      Value base = viewOf.lookup(value);
      if (!base && result.reusing.contains(op))
        base = op->getOperand(0);
      else if (!base)
        return allocations.contains(value) &&
               !isa<EmptyStridedOp, NewEmptyStridedOp>(op);
      else if (!isSplit(op) &&
               !isa<ViewOp, ReshapeOp, FlattenOp, UnflattenOp, PermuteOp,
                    TransposeOp, TOp, SelectOp, SliceOp, NarrowOp, SqueezeOp,
                    SqueezeDimOp, UnsqueezeOp>(op))
        return false;
      value = base;
    }
    return false;
  }
  /// Operations that split a tensor of which each element has a place to
  /// itself, each with the part of it that `value` is, or is a view of.
  llvm::SmallDenseMap<Operation *, Value> getParts(Value value) const {
    llvm::SmallDenseMap<Operation *, Value> parts;
    while (Value base = viewOf.lookup(value)) {
      Operation *view = value.getDefiningOp();
      if (view && isSplit(view) && hasApartElements(base))
        parts[view] = value;
      value = base;
    }
    return parts;
  }

  bool mayReuse(Operation *op, Value operand) {
    // The storage: exactly one allocation of this function, nobody else's.
    const AliasClasses::Summary &summary = classes.summary(operand);
    if (summary.external || summary.allocations != 1)
      return false;
    // Everything that still shows the old contents: the operand, what it is a
    // view of or was carried in from, and other views of those.
    SmallVector<Value> stale{operand};
    llvm::SmallDenseSet<Value> seen{operand};
    // Other parts of the same tensor do not show the write.
    llvm::SmallDenseMap<Operation *, Value> parts = getParts(operand);
    // The uses by which an enclosing loop carried the operand in.
    llvm::SmallPtrSet<OpOperand *, 4> carrying;
    auto push = [&](Value value) {
      if (value && seen.insert(value).second)
        stale.push_back(value);
    };
    for (size_t index = 0; index < stale.size(); ++index) {
      Value value = stale[index];
      push(viewOf.lookup(value));
      for (Value source : puts.lookup(value))
        push(source);
      for (OpOperand *source : comesFrom.lookup(value)) {
        Operation *owner = source->getOwner();
        if (owner->isProperAncestor(op))
          carrying.insert(source);
        else if (owner->hasTrait<OpTrait::IsTerminator>() &&
                 owner->getParentOp()->isProperAncestor(op))
          continue; // What the next iteration carries is made of the result.
        push(source->get());
      }
      // A loop inside which `op` writes must not read a value from outside
      // again: `op` itself is such a reader.
      for (OpOperand &use : value.getUses()) {
        Operation *user = use.getOwner();
        if (user == op) {
          // Read by another way, or anew in each iteration.
          if (value != operand || escapesLoop(op, value))
            return false;
          continue;
        }
        if (carrying.contains(&use) || isa<KeepAliveOp>(user))
          continue;
        // Any other way into a loop around `op` shows the old contents there.
        if (user->isProperAncestor(op) || runsAfter(user, op, value))
          return false;
        auto part = parts.find(user);
        for (Value view : user->getResults())
          if (viewOf.lookup(view) == value &&
              (part == parts.end() || part->second == view))
            push(view);
        // A container shows its elements, and whatever is taken out of it.
        bool isContainer = !isa<TensorType>(value.getType());
        for (Value result : user->getResults())
          if (isContainer || !(isa<TensorType>(result.getType()) ||
                               result.getType().isIntOrIndexOrFloat()))
            push(result);
        for (Value input : flowsTo.lookup(&use))
          push(input);
        for (Value selected : selects.lookup(value))
          push(selected);
      }
    }
    // The operand must not be given twice: the write would change the other.
    return llvm::count(op->getOperands(), operand) == 1;
  }

  /// Whether `value` is defined outside a loop that runs `op` repeatedly.
  bool escapesLoop(Operation *op, Value value) const {
    for (Operation *parent = op->getParentOp(); parent && parent != function;
         parent = parent->getParentOp())
      if (isa<LoopLikeOpInterface>(parent) &&
          !parent->isAncestor(value.getParentRegion()->getParentOp()))
        return true;
    return false;
  }

  //===--------------------------------------------------------------------===//
  // Result
  //===--------------------------------------------------------------------===//

  void collect() {
    llvm::DenseMap<size_t, Storage *> byClass;
    auto add = [&](Value value) {
      if (!holdsTensor(value.getType()) || !classes.contains(value))
        return;
      Storage *&storage = byClass[classes.classOf(value)];
      if (!storage) {
        storage =
            result.storages.emplace_back(std::make_unique<Storage>()).get();
        storage->external = classes.summary(value).external;
      }
      storage->values.push_back(value);
      if (allocations.contains(value))
        storage->allocations.push_back(cast<OpResult>(value));
      result.byValue[value] = storage;
    };
    function->walk<WalkOrder::PreOrder>([&](Operation *op) {
      for (Region &region : op->getRegions())
        for (Block &block : region)
          llvm::for_each(block.getArguments(), add);
      llvm::for_each(op->getResults(), add);
    });
    collectHolders(byClass);
  }

  void collectHolders(const llvm::DenseMap<size_t, Storage *> &byClass) {
    llvm::SetVector<Value> containers;
    auto add = [&](Value value) {
      if (isContainerOfTensors(value.getType()) &&
          (puts.contains(value) || merged.contains(value)))
        containers.insert(value);
    };
    function->walk<WalkOrder::PreOrder>([&](Operation *op) {
      for (Region &region : op->getRegions())
        for (Block &block : region)
          llvm::for_each(block.getArguments(), add);
      llvm::for_each(op->getResults(), add);
    });
    for (Value container : containers) {
      llvm::SetVector<Value> inside;
      llvm::SmallPtrSet<Storage *, 4> held;
      inside.insert(container);
      for (size_t index = 0; index < inside.size(); ++index) {
        Value value = inside[index];
        if (classes.contains(value))
          if (Storage *entry = byClass.lookup(classes.classOf(value));
              entry && held.insert(entry).second)
            entry->holders.push_back(container);
        for (Value source : puts.lookup(value))
          inside.insert(source);
      }
    }
  }

  StorageAnalysis &result;
  Operation *function;
  const DimAnalysis &dims;
  AliasClasses classes;
  llvm::DenseSet<Value> allocations;
  SmallVector<std::pair<Operation *, Value>> granted;
  llvm::DenseMap<Value, Value> viewOf;
  /// What was put into each container, and those whose elements may be any of
  /// it.
  llvm::DenseMap<Value, SmallVector<Value, 2>> puts;
  llvm::DenseSet<Value> merged;
  /// Containers that are another value.
  llvm::DenseMap<Value, Value> sameAs;
  /// What may be the operand, by choice of a condition.
  llvm::DenseMap<Value, SmallVector<Value, 1>> selects;
  /// How region operations hand values on: from an operand of the operation
  /// or a terminator to a block argument or result.
  llvm::DenseMap<Value, SmallVector<OpOperand *, 2>> comesFrom;
  llvm::DenseMap<OpOperand *, SmallVector<Value, 2>> flowsTo;
  /// Ties that an earlier run granted too early.
  const llvm::SmallPtrSetImpl<Operation *> &denied;
  /// Null: this analysis decides them.
  const StorageAnalysis *ties;
};

StorageAnalysis::StorageAnalysis(Operation *function, AnalysisManager &manager)
    : StorageAnalysis(function, manager.getAnalysis<DimAnalysis>()) {}

StorageAnalysis::StorageAnalysis(Operation *function, const DimAnalysis &dims,
                                 const StorageAnalysis *ties) {
  llvm::SmallPtrSet<Operation *, 4> denied;
  while (true) {
    SmallVector<Operation *> violated;
    Builder(*this, function, dims, denied, ties).run(violated);
    if (violated.empty() || ties)
      return;
    denied.insert_range(violated);
    byValue.clear();
    storages.clear();
    reusing.clear();
    guesses.clear();
  }
}

StorageAnalysis::~StorageAnalysis() = default;

const Storage *StorageAnalysis::lookup(Value value) const {
  return byValue.lookup(value);
}
