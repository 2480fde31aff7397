//===- RequiresGradAnalysis.cpp - Values to which a gradient flows --------===//

#include "koila/Analysis/RequiresGradAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace koila;

static bool isTied(Operation *op) {
  auto torchOp = dyn_cast_or_null<TorchOperatorInterface>(op);
  return torchOp && torchOp.isTied();
}

bool koila::writesUntracked(Operation &op) {
  if (!isTied(&op))
    return false;
  Value written = op.getOperand(0);
  while (isTied(written.getDefiningOp()))
    written = written.getDefiningOp()->getOperand(0);
  auto made = dyn_cast_or_null<TorchOperatorInterface>(written.getDefiningOp());
  return made && made.getTorchSchema().starts_with("aten::unsafe_");
}

bool koila::isOnlyDetached(Value value) {
  auto isInteger = [](Type type) {
    return getElementTypeOrSelf(type).isIntOrIndex();
  };
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (isa<LeafOp, DetachOp, DeviceOp>(user) ||
        llvm::all_of(user->getResultTypes(), isInteger))
      return true;
    return isa<RefineOp, tensor::CastOp, tensor::ExtractSliceOp>(user) &&
           isOnlyDetached(user->getResult(0));
  });
}

/// Whether a value can carry a gradient: integers and bools cannot.
static bool isDifferentiable(const ValueInfo &info, Type type) {
  if (!isa<TensorType>(type))
    return !type.isIntOrIndexOrFloat() && !isa<NoneType>(type);
  Type element = info.tensor ? info.tensor->elementType : Type();
  return !element || isa<FloatType, ComplexType>(element);
}

bool RequiresGradAnalysis::isDetached(Operation &op,
                                      DifferentiationRule::Wants wants) const {
  return llvm::any_of(op.getResultTypes(), llvm::IsaPred<TensorType>) &&
         getDifferentiation(&op, wants, [&](Value value) {
           return dims.lookup(value).getElementType();
         }).isDetached;
}

Value RequiresGradAnalysis::findDetached(Value value,
                                         const Storage &entry) const {
  auto all = [](Value) { return true; };
  while (Operation *maker = value.getDefiningOp()) {
    if (maker->getNumOperands() == 0 ||
        storage.lookup(maker->getOperand(0)) != &entry)
      return {};
    if (isDetached(*maker, all))
      return value;
    value = maker->getOperand(0);
  }
  return {};
}

/// Of an operation with several results, each a view of its own operand: those
/// operands, from which alone a gradient flows. Null for other results.
static SmallVector<Value> getViewed(Operation *op) {
  SmallVector<Value> viewed(op->getNumResults());
  auto memory = dyn_cast<MemoryRuleInterface>(op);
  if (op->getNumResults() < 2 || op->getNumOperands() < 2 || !memory)
    return viewed;
  auto nothing = [](Value) { return ValueInfo(); };
  StorageRule rule(op, nothing);
  memory.describeStorage(rule);
  for (auto [value, fact] : llvm::zip_equal(viewed, rule.getResults()))
    if (fact.kind == StorageFact::Kind::Alias)
      value = fact.operand;
  return viewed;
}

/// Marks results of `op`; true if that was news. With `followWrites` also what
/// shares a storage with them.
bool RequiresGradAnalysis::mark(Operation &op, bool followWrites) {
  bool isNew = false;
  auto mark = [&](Value value) {
    if (isDifferentiable(dims.lookup(value), value.getType()))
      isNew |= wanting.insert(value).second;
  };
  if (auto leaf = dyn_cast<LeafOp>(op)) {
    mark(leaf.getResult());
    return isNew;
  }
  // Where a tensor is carries no gradient of it.
  if (isa<DeviceOp>(op))
    return false;
  // What is written keeps the graph that it has.
  if (op.hasAttr(kUnrecordedAttr)) {
    if (isTied(&op) && wants(op.getOperand(0)))
      mark(op.getResult(0));
    return isNew;
  }
  bool wantsAny =
      llvm::any_of(op.getOperands(), [&](Value value) { return wants(value); });
  // Which branch hands on what is not looked at.
  for (Region &region : op.getRegions())
    for (Block &block : region)
      if (block.mightHaveTerminator())
        for (Value operand : block.getTerminator()->getOperands())
          wantsAny |= wants(operand);
  if (!wantsAny || isDetached(op, [&](Value value) { return wants(value); }))
    return isNew;
  for (auto [result, viewed] : llvm::zip_equal(op.getResults(), getViewed(&op)))
    if (!viewed || wants(viewed))
      mark(result);
  for (Region &region : op.getRegions())
    llvm::for_each(region.getArguments(), mark);
  // What is written into a tensor flows to all its views, which what is
  // detached of it is not.
  if (followWrites && isOrderedWrite(&op) && !writesUntracked(op))
    for (Value result : op.getResults())
      if (const Storage *entry = storage.lookup(result)) {
        Value written = findDetached(result, *entry);
        for (Value value : entry->values)
          if (findDetached(value, *entry) == written)
            mark(value);
      }
  return isNew;
}

RequiresGradAnalysis::RequiresGradAnalysis(Operation *function,
                                           const DimAnalysis &dims,
                                           const StorageAnalysis &storage)
    : dims(dims), storage(storage) {
  if (auto callee = dyn_cast<FunctionOpInterface>(function))
    for (BlockArgument argument : callee.getArguments())
      if (callee.getArgAttr(argument.getArgNumber(),
                            KoilaDialect::kRequiresGradAttr) &&
          !isOnlyDetached(argument))
        wanting.insert(argument);
  SymbolTableCollection params;
  function->walk([&](ParamGetOp read) {
    auto param =
        params.lookupNearestSymbolFrom<ParamOp>(read, read.getParamAttr());
    Value weight = read.getResult();
    if (param && param.getRequiresGrad() &&
        isDifferentiable(dims.lookup(weight), weight.getType()))
      wanting.insert(weight);
  });
  auto spread = [&](bool followWrites) {
    bool changed = true;
    while (changed) {
      changed = false;
      function->walk<WalkOrder::PreOrder>([&](Operation *op) {
        changed |= op != function && mark(*op, followWrites);
      });
    }
  };
  spread(/*followWrites=*/false);
  unwritten = wanting;
  spread(/*followWrites=*/true);
}
