//===- ContainerPointsTo.cpp - What goes into lists and dicts -------------===//

#include "ContainerPointsTo.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace koila;
using Role = ElementFlow::Role;

static bool isListOrDict(Type type) {
  return isa<koila::ListType, DictType>(type);
}

/// Whether a value of that type may be a list or dict, or hold one.
static bool mayHoldContainer(Type type) {
  if (isa<TensorType, FloatType>(type) || type.isIntOrIndex())
    return false;
  if (auto tuple = dyn_cast<TupleType>(type))
    return llvm::any_of(tuple.getTypes(), mayHoldContainer);
  if (auto optional = dyn_cast<OptionalType>(type))
    return mayHoldContainer(optional.getValueType());
  // Texts, devices, None, numbers of any kind.
  if (auto torch = dyn_cast<TorchType>(type))
    return !llvm::is_contained({"str", "Device", "NoneType", "number"},
                               torch.getSpelling());
  return true;
}

static bool holdsInside(Value list) {
  return mayHoldContainer(
      cast<koila::ListType>(list.getType()).getElementType());
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

unsigned ContainerPointsTo::makeNode() {
  unsigned made = nodes.size();
  nodes.emplace_back().parent = made;
  return made;
}

unsigned ContainerPointsTo::find(unsigned node) const {
  while (nodes[node].parent != node)
    node = nodes[node].parent;
  return node;
}

unsigned ContainerPointsTo::getNode(Value value) {
  auto [entry, isNew] = numbers.try_emplace(value, 0);
  if (isNew) {
    entry->second = makeNode();
    nodes.back().members.push_back(value);
  }
  return find(entry->second);
}

unsigned ContainerPointsTo::getElements(unsigned node) {
  node = find(node);
  if (nodes[node].elements == ~0u) {
    unsigned made = makeNode();
    nodes[made].unknown = nodes[node].unknown;
    nodes[node].elements = made;
  }
  return find(nodes[node].elements);
}

void ContainerPointsTo::unite(unsigned lhs, unsigned rhs) {
  // Nested as deep as the elements are, which types bound.
  while (true) {
    lhs = find(lhs);
    rhs = find(rhs);
    if (lhs == rhs)
      return;
    if (nodes[lhs].members.size() < nodes[rhs].members.size())
      std::swap(lhs, rhs);
    if (nodes[lhs].unknown != nodes[rhs].unknown) {
      forget(lhs);
      forget(rhs);
    }
    Node &into = nodes[lhs], &from = nodes[rhs];
    from.parent = lhs;
    llvm::append_range(into.members, from.members);
    into.growths.insert(from.growths.begin(), from.growths.end());
    into.changesOtherwise |= from.changesOtherwise;
    from.members.clear();
    from.growths.clear();
    unsigned mine = into.elements, theirs = from.elements;
    if (mine == ~0u)
      into.elements = theirs;
    if (mine == ~0u || theirs == ~0u)
      return;
    lhs = mine;
    rhs = theirs;
  }
}

void ContainerPointsTo::forget(unsigned node) {
  for (node = find(node); !nodes[node].unknown; node = find(node)) {
    nodes[node].unknown = true;
    node = nodes[node].elements;
    if (node == ~0u)
      return;
  }
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void ContainerPointsTo::put(Operation *op, Value element, Value container) {
  bool holds = mayHoldContainer(element.getType());
  if (holds)
    unite(getElements(getNode(container)), getNode(element));
  // What is known of a container may not be true any more when it is taken out.
  if (isListOrDict(container.getType()))
    puts[op].push_back({holds ? Value() : element, container});
}

void ContainerPointsTo::take(Value result, Value container) {
  if (mayHoldContainer(result.getType()))
    unite(getNode(result), getElements(getNode(container)));
  if (isListOrDict(container.getType()))
    sources[result] = container;
}

void ContainerPointsTo::visitRegions(RegionBranchOpInterface op) {
  RegionBranchSuccessorMapping mapping;
  op.getSuccessorOperandInputMapping(mapping);
  for (auto &[operand, inputs] : mapping)
    for (Value input : inputs)
      if (mayHoldContainer(input.getType()))
        unite(getNode(operand->get()), getNode(input));
}

/// What is not known to be harmless may keep the containers it sees, change
/// them, and give others away.
void ContainerPointsTo::visitUnknown(Operation *op) {
  for (ValueRange values :
       {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value value : values)
      if (mayHoldContainer(value.getType()))
        forget(getNode(value));
}

void ContainerPointsTo::visitGeneric(TorchOpaqueOp op,
                                     const ElementFlow &flow) {
  // All lists, dicts and single elements hold the same type of elements.
  SmallVector<Value> containers, elements;
  auto collect = [&](Role role, Value value) {
    if (role == Role::List || role == Role::Dict)
      containers.push_back(value);
    else if (role == Role::Element)
      elements.push_back(value);
    else if (mayHoldContainer(value.getType()))
      forget(getNode(value));
  };
  for (auto [role, argument] :
       llvm::zip_equal(flow.arguments, op.getArguments()))
    if (auto operand = dyn_cast<OperandAttr>(argument))
      collect(role, op.getOperands()[operand.getIndex()]);
    else if (role == Role::Element || role == Role::List)
      // A literal: of elements without an operation nothing is known.
      return visitUnknown(op);
  bool other = llvm::is_contained(flow.arguments, Role::Other) ||
               llvm::is_contained(flow.results, Role::Other);
  for (auto [role, result] : llvm::zip_equal(flow.results, op->getResults()))
    collect(role, result);
  if (containers.empty() || other)
    return visitUnknown(op);
  Value first = containers.front();
  // Not the same one, maybe, but with the same elements.
  for (Value container : containers)
    unite(getNode(first), getNode(container));
  for (Value element : elements)
    if (isa<OpResult>(element) && element.getDefiningOp() == op)
      take(element, first);
    else
      put(op, element, first);
  Node &node = nodes[getNode(first)];
  if (flow.grows)
    node.growths.insert(op);
  else
    node.changesOtherwise |= flow.writes;
}

void ContainerPointsTo::visitOpaque(TorchOpaqueOp op) {
  if (std::optional<ElementFlow> flow = getElementFlow(op))
    return visitGeneric(op, *flow);
  auto holds = [](Value value) { return mayHoldContainer(value.getType()); };
  bool reads = op.getEffects() == Effects::None;
  // A result may be an operand, or inside of it.
  bool mayPass = llvm::any_of(op.getOperands(), holds) &&
                 llvm::any_of(op->getResults(), holds);
  if (!reads || mayPass)
    return visitUnknown(op);
  // It makes lists, and may know what is in them.
  for (Value result : op->getResults()) {
    if (!holds(result))
      continue;
    if (!isa<koila::ListType>(result.getType()))
      forget(getNode(result));
    else if (holdsInside(result))
      forget(getElements(getNode(result)));
    made.insert(result);
  }
}

void ContainerPointsTo::visit(Operation *op) {
  if (auto branch = dyn_cast<RegionBranchOpInterface>(op))
    return visitRegions(branch);
  if (op->hasTrait<OpTrait::IsTerminator>())
    return;
  if (auto opaque = dyn_cast<TorchOpaqueOp>(op))
    return visitOpaque(opaque);
  // An object may keep what it is given, or pass it on.
  if (mayWriteModuleState(op))
    return visitUnknown(op);
  if (auto made = dyn_cast<ConstructOp>(op)) {
    bool isDict = made.getContainer() == Container::Dict;
    for (auto [index, element] : llvm::enumerate(made.getElements()))
      if (!isDict || index % 2 == 1)
        put(op, element, made.getResult());
    return;
  }
  if (auto element = dyn_cast<ElementOp>(op))
    return take(element.getResult(), element.getContainer());
  if (auto unpack = dyn_cast<UnpackOp>(op)) {
    for (Value result : unpack.getResults())
      take(result, unpack.getContainer());
    return;
  }
  if (isa<UpcastOp, UncheckedCastOp>(op)) {
    if (mayHoldContainer(op->getResult(0).getType()) ||
        mayHoldContainer(op->getOperand(0).getType()))
      unite(getNode(op->getResult(0)), getNode(op->getOperand(0)));
    return;
  }
  // Operators with a rule read lists of numbers, and of what an attribute holds
  // nothing is known.
  for (Value result : op->getResults())
    if (mayHoldContainer(result.getType()))
      forget(getNode(result));
}

ContainerPointsTo::ContainerPointsTo(Operation *function) {
  for (Region &region : function->getRegions())
    for (Value argument : region.getArguments())
      if (mayHoldContainer(argument.getType()))
        forget(getNode(argument));
  function->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op != function)
      visit(op);
  });
}

//===----------------------------------------------------------------------===//
// Questions
//===----------------------------------------------------------------------===//

Value ContainerPointsTo::getContainer(Value value) const {
  auto found = numbers.find(value);
  if (found == numbers.end() || !isListOrDict(value.getType()))
    return {};
  const Node &node = nodes[find(found->second)];
  return node.unknown ? Value() : node.members.front();
}

SmallVector<ContainerPointsTo::Put>
ContainerPointsTo::getPuts(Operation *op) const {
  SmallVector<Put> known;
  auto found = puts.find(op);
  if (found == puts.end())
    return known;
  for (const Put &put : found->second)
    if (Value container = getContainer(put.container))
      known.push_back({put.element, container});
  return known;
}

Value ContainerPointsTo::getMade(Value result) const {
  return made.contains(result) ? getContainer(result) : Value();
}

Value ContainerPointsTo::getSource(Value result) const {
  Value container = sources.lookup(result);
  return container ? getContainer(container) : Value();
}

SmallVector<Value> ContainerPointsTo::getContainers() const {
  SmallVector<Value> found;
  for (const Node &node : nodes)
    if (!node.unknown && !node.members.empty() &&
        isListOrDict(node.members.front().getType()))
      found.push_back(node.members.front());
  return found;
}

std::optional<ContainerPointsTo::Length>
ContainerPointsTo::getLength(Value list, Operation *reader) const {
  auto construct = list.getDefiningOp<ConstructOp>();
  auto found = numbers.find(list);
  if (!construct || found == numbers.end() ||
      construct.getContainer() != Container::List)
    return std::nullopt;
  const Node &node = nodes[find(found->second)];
  // No other list: all other values are what growing it returned.
  bool single = llvm::all_of(node.members, [&](Value member) {
    return member == list || node.growths.contains(member.getDefiningOp());
  });
  if (node.unknown || node.changesOtherwise || !single)
    return std::nullopt;
  Length length;
  length.start = construct.getElements().size();
  length.block = construct->getBlock();
  Operation *place = length.block->findAncestorOpInBlock(*reader);
  for (Operation *growth : node.growths) {
    Operation *around = length.block->findAncestorOpInBlock(*growth);
    if (!place || !around || around == place)
      return std::nullopt;
    if (around->isBeforeInBlock(place))
      length.growths.push_back(growth);
  }
  return length;
}
