//===- InferShapes.cpp - Refine types and dims ----------------------------===//

#include "TraceSpecializedBatch.h"
#include "koila/Analysis/ControlFlow.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/SetVector.h"

namespace koila {
#define GEN_PASS_DEF_INFERSHAPESPASS
#include "koila/Dialect/Koila/Transforms/Passes.h.inc"
} // namespace koila

using namespace mlir;
using namespace koila;

/// The type of `value` with what `info` adds. An extent over symbols is `?`,
/// also where the symbol has one value only: the expression keeps the batch.
static Type refine(Value value, const ValueInfo &info) {
  auto type = dyn_cast<TensorType>(value.getType());
  if (!type || !info.tensor)
    return value.getType();
  auto found = cast<TensorType>(getTensorType(*info.tensor, type.getContext()));
  // PyTorch has types that koila has not: half a complex number.
  Type element = found.getElementType();
  if (getDTypeName(element).empty())
    element = type.getElementType();
  if (!found.hasRank())
    return type.hasRank() ? RankedTensorType::get(type.getShape(), element)
                          : Type(UnrankedTensorType::get(element));
  return RankedTensorType::get(found.getShape(), element);
}

/// Says where what is stated of a value contradicts what is inferred.
static LogicalResult checkStated(Value value, Type type,
                                 const ValueInfo &info) {
  auto stated = dyn_cast<TensorType>(value.getType());
  auto found = dyn_cast<TensorType>(type);
  if (!stated || !found)
    return success();
  // What is found may be of a type that koila has not.
  Type element = info.tensor && info.tensor->elementType
                     ? info.tensor->elementType
                     : found.getElementType();
  if (!isa<AnyType>(stated.getElementType()) && !isa<AnyType>(element) &&
      stated.getElementType() != element)
    return emitError(value.getLoc())
           << "has result element type " << stated.getElementType()
           << ", the operands give " << element;
  if (!stated.hasRank() || !found.hasRank())
    return success();
  if (stated.getRank() != found.getRank())
    return emitError(value.getLoc())
           << "has a result of rank " << stated.getRank()
           << ", the operands give rank " << found.getRank();
  for (int64_t dim = 0; dim < stated.getRank(); ++dim)
    if (!stated.isDynamicDim(dim) && !found.isDynamicDim(dim) &&
        stated.getDimSize(dim) != found.getDimSize(dim))
      return emitError(value.getLoc())
             << "has result extent " << stated.getDimSize(dim) << " in dim "
             << dim << ", the operands give " << found.getDimSize(dim);
  return success();
}

static Type getUnknownType(MLIRContext *context) {
  return UnrankedTensorType::get(AnyType::get(context));
}

/// Gives `value`, a block argument or result, the type that fits everything; a
/// refinement after it has the old one.
static void generalize(Value value) {
  Type known = value.getType(), unknown = getUnknownType(value.getContext());
  if (known == unknown)
    return;
  OpBuilder builder(value.getContext());
  builder.setInsertionPointAfterValue(value);
  value.setType(unknown);
  auto refined = RefineOp::create(builder, value.getLoc(), known, value);
  value.replaceAllUsesExcept(refined.getResult(), refined);
}

/// Calls `callback` with each operand that `branch` hands on from or to one of
/// its regions, in program order, and with what receives it.
static void
forEachHandedOn(RegionBranchOpInterface branch,
                function_ref<void(OpOperand &, ArrayRef<Value>)> callback) {
  RegionBranchSuccessorMapping mapping;
  branch.getSuccessorOperandInputMapping(mapping);
  auto visit = [&](Operation *owner) {
    for (OpOperand &operand : owner->getOpOperands())
      if (auto found = mapping.find(&operand);
          found != mapping.end() &&
          isa<TensorType>(found->second.front().getType()))
        callback(operand, found->second);
  };
  visit(branch);
  for (Region &region : branch->getRegions())
    for (Block &block : region)
      if (!block.empty())
        visit(&block.back());
}

/// Gives `operand` the type of what receives it.
static void refineTo(Type type, OpOperand &operand, OpBuilder &builder) {
  Value value = operand.get();
  if (value.getType() == type)
    return;
  Location loc = operand.getOwner()->getLoc();
  Type unknown = getUnknownType(type.getContext());
  // What no call takes may contradict what calls take.
  if (value.getType() != unknown && type != unknown)
    value = RefineOp::create(builder, loc, unknown, value);
  operand.set(RefineOp::create(builder, loc, type, value));
}

/// Where a region operation hands on a value that is known better, or worse,
/// than what receives it, a refinement stands between.
static void alignTypes(RegionBranchOpInterface branch) {
  // What one terminator hands on to several places has one type there: the
  // condition of `scf.while` goes into the loop, which no call may get to, and
  // out of it.
  forEachHandedOn(branch, [](OpOperand &, ArrayRef<Value> inputs) {
    if (!llvm::all_equal(llvm::map_range(
            inputs, [](Value input) { return input.getType(); })))
      llvm::for_each(inputs, generalize);
  });
  forEachHandedOn(branch, [](OpOperand &operand, ArrayRef<Value> inputs) {
    OpBuilder builder(operand.getOwner());
    refineTo(inputs.front().getType(), operand, builder);
  });
}

/// An operation that shapes rule out may stand in a branch that they rule out,
/// too: there its operands stay unknown.
static void hideShapes(Operation *op) {
  if (!isa<ShapeRuleInterface>(op) || !isInBranch(op))
    return;
  bool fits;
  {
    ScopedDiagnosticHandler quiet(op->getContext(),
                                  [](Diagnostic &) { return success(); });
    fits = succeeded(koila::detail::verifyShapeRule(op));
  }
  if (fits)
    return;
  // Other dialects want the element type, and some the rank.
  auto hide = [&](function_ref<Type(TensorType)> getType) {
    SmallVector<Value> before(op->getOperands());
    OpBuilder builder(op);
    for (OpOperand &operand : op->getOpOperands())
      if (auto type = dyn_cast<TensorType>(operand.get().getType()))
        refineTo(getType(type), operand, builder);
    ScopedDiagnosticHandler quiet(op->getContext(),
                                  [](Diagnostic &) { return success(); });
    if (succeeded(verify(op, /*verifyRecursively=*/false)))
      return true;
    SmallVector<Value> tried(op->getOperands());
    op->setOperands(before);
    for (Value value : tried)
      while (auto refined = value.getDefiningOp<RefineOp>()) {
        if (!refined->use_empty())
          break;
        value = refined.getSource();
        refined.erase();
      }
    return false;
  };
  (void)(hide([&](TensorType) { return getUnknownType(op->getContext()); }) ||
         hide([](TensorType type) {
           return UnrankedTensorType::get(type.getElementType());
         }) ||
         hide([](TensorType type) -> Type {
           if (!type.hasRank())
             return type;
           SmallVector<int64_t> dims(type.getRank(), ShapedType::kDynamic);
           return RankedTensorType::get(dims, type.getElementType());
         }));
}

/// Whether `op` hands on one of its operands; others select for each element.
static bool handsOnOperand(Operation *op) {
  auto select = dyn_cast<SelectLikeOpInterface>(op);
  return select && !isa<ShapedType>(select.getCondition().getType());
}

/// Both choices have the type of the result.
static void alignTypes(SelectLikeOpInterface select) {
  if (!handsOnOperand(select))
    return;
  Type type = select->getResult(0).getType();
  if (!isa<TensorType>(type))
    return;
  OpBuilder builder(select);
  for (OpOperand &operand : select->getOpOperands())
    if (isa<TensorType>(operand.get().getType()))
      refineTo(type, operand, builder);
}

/// Assumptions about the arguments, one of each kind, in argument order. They
/// stand at entry; what is there already is replaced.
static void writeAssumptions(FunctionOpInterface function,
                             const DimAnalysis &dims) {
  Block &entry = function.getFunctionBody().front();
  for (AssumeOp op : llvm::make_early_inc_range(entry.getOps<AssumeOp>()))
    // Facts about attributes are import's.
    if (op.getFact() != Fact::Attribute)
      op.erase();
  OpBuilder builder(&entry, entry.begin());
  auto assume = [&](Fact fact, Value value, IntegerAttr dim,
                    Attribute expected) {
    AssumeOp::create(builder, function.getLoc(), fact, value, dim, expected,
                     /*path=*/StringAttr());
  };
  MLIRContext *context = function.getContext();
  auto module = function->getParentOfType<ModuleOp>();
  for (BlockArgument argument : entry.getArguments()) {
    // What decides branches.
    if (Attribute literal = dims.lookup(argument).literal)
      assume(Fact::Value, argument, {}, literal);
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    auto stated = function.getArgAttrOfType<DimsAttr>(argument.getArgNumber(),
                                                      KoilaDialect::kDimsAttr);
    if (!type || !stated)
      continue;
    if (!isa<AnyType>(type.getElementType()))
      assume(Fact::DType, argument, {}, TypeAttr::get(type.getElementType()));
    assume(Fact::Rank, argument, {}, builder.getI64IntegerAttr(type.getRank()));
    for (auto [index, expr] : llvm::enumerate(stated.getExprs())) {
      // A symbol with one value stands for that number.
      Attribute expected = expr;
      if (!type.isDynamicDim(index))
        expected = DimExpr::constant(context, type.getDimSize(index)).getAttr();
      assume(Fact::Extent, argument, builder.getI64IntegerAttr(index),
             expected);
    }
  }
  if (auto training =
          module ? module->getAttrOfType<BoolAttr>(KoilaDialect::kTrainingAttr)
                 : BoolAttr())
    assume(Fact::Training, {}, {}, training);
}

/// Whether control flow or the shape of a tensor follows from `number`.
static bool decides(Value number, const DimAnalysis &dims) {
  auto isOpen = [&](Value result) {
    const std::optional<TensorInfo> &info = dims.lookup(result).tensor;
    return !info || !info->hasRank() ||
           llvm::any_of(*info->dims,
                        [](DimExpr dim) { return dim.hasLocalSymbol(); });
  };
  llvm::SetVector<Value> values;
  values.insert(number);
  for (size_t i = 0; i < values.size(); ++i)
    for (Operation *user : values[i].getUsers()) {
      if (isa<AssumeOp>(user))
        continue;
      if (isa<RegionBranchOpInterface>(user) ||
          user->hasTrait<OpTrait::IsTerminator>())
        return true;
      for (Value result : user->getResults())
        if (!isa<TensorType>(result.getType()))
          values.insert(result);
        else if (isOpen(result))
          return true;
    }
  return false;
}

/// The numbers that arguments have in the call that was described hold for the
/// program where it depends on them; with others it runs untiled.
static void assumeNumbers(FunctionOpInterface function) {
  SmallVector<std::pair<BlockArgument, IntegerAttr>> numbers;
  for (BlockArgument argument : function.getFunctionBody().getArguments()) {
    auto number = function.getArgAttrOfType<IntegerAttr>(
        argument.getArgNumber(), KoilaDialect::kValueAttr);
    if (number && !isa<BoolAttr>(number))
      numbers.emplace_back(argument, number);
  }
  if (numbers.empty())
    return;
  Block &entry = function.getFunctionBody().front();
  // What was assumed may be folded by now.
  for (AssumeOp op : entry.getOps<AssumeOp>())
    if (op.getFact() == Fact::Value)
      llvm::erase_if(numbers,
                     [&](auto &entry) { return entry.first == op.getValue(); });
  if (numbers.empty())
    return;
  ScopedDiagnosticHandler quiet(function->getContext(),
                                [](Diagnostic &) { return success(); });
  DimAnalysis dims(function);
  OpBuilder builder(&entry, entry.begin());
  for (auto [argument, number] : numbers)
    if (decides(argument, dims))
      AssumeOp::create(builder, function.getLoc(), Fact::Value, argument,
                       IntegerAttr(), number, /*path=*/StringAttr());
}

/// The types that values had before some were refined.
using OldTypes = llvm::DenseMap<Value, Type>;

/// Gives the operands of `op` that have other types now those that they had.
static void restoreOperands(Operation *op, const OldTypes &old) {
  OpBuilder builder(op);
  for (OpOperand &operand : op->getOpOperands())
    if (Type type = old.lookup(operand.get());
        type && type != operand.get().getType())
      operand.set(RefineOp::create(builder, op->getLoc(), type, operand.get()));
}

static bool isValid(Operation *op) {
  ScopedDiagnosticHandler quiet(op->getContext(),
                                [](Diagnostic &) { return success(); });
  return succeeded(op->getName().verifyInvariants(op)) &&
         succeeded(op->getName().verifyRegionInvariants(op));
}

/// Operations of other dialects tie their types to each other, to attributes or
/// to a callee: `tensor.empty(%n)` has a `?` in its type whatever %n is. What
/// fits no more stays as it was.
static void keepForeign(Operation *op, const OldTypes &old) {
  if (isa_and_nonnull<KoilaDialect>(op->getDialect()) ||
      isa<RegionBranchOpInterface, RegionBranchTerminatorOpInterface,
          FunctionOpInterface>(op) ||
      handsOnOperand(op))
    return;
  // Only a look at the symbol table would tell.
  if (isa<CallOpInterface>(op))
    return restoreOperands(op, old);
  bool isChanged = llvm::any_of(
      op->getOperands(), [&](Value operand) { return old.contains(operand); });
  isChanged |= llvm::any_of(op->getResults(),
                            [&](Value result) { return old.contains(result); });
  if (!isChanged || isValid(op))
    return;
  for (Value result : op->getResults())
    if (Type type = old.lookup(result))
      result.setType(type);
  if (!isValid(op))
    restoreOperands(op, old);
}

/// The same of operations with regions, which hand values on and still do not
/// fit: their results and what their regions take stay as they were.
static void keepForeign(RegionBranchOpInterface branch, const OldTypes &old) {
  if (isValid(branch))
    return;
  auto restore = [&](Value value) {
    Type type = old.lookup(value);
    if (!type || type == value.getType())
      return;
    Type refined = value.getType();
    value.setType(type);
    OpBuilder builder(value.getContext());
    builder.setInsertionPointAfterValue(value);
    auto known = RefineOp::create(builder, value.getLoc(), refined, value);
    value.replaceAllUsesExcept(known.getResult(), known);
  };
  llvm::for_each(branch->getResults(), restore);
  for (Region &region : branch->getRegions())
    for (Block &block : region)
      llvm::for_each(block.getArguments(), restore);
  restoreOperands(branch, old);
  alignTypes(branch);
}

/// What the function returns has the types of the values, unless a caller
/// expects the declared ones.
static void writeResults(FunctionOpInterface function, ModuleOp module,
                         const OldTypes &old) {
  Operation &terminator = function.getFunctionBody().front().back();
  if (!terminator.hasTrait<OpTrait::ReturnLike>())
    return;
  auto builtin = dyn_cast<func::FuncOp>(function.getOperation());
  if (!builtin || !SymbolTable::symbolKnownUseEmpty(function, module))
    restoreOperands(&terminator, old);
  if (builtin)
    builtin.setFunctionType(FunctionType::get(module.getContext(),
                                              builtin.getArgumentTypes(),
                                              terminator.getOperandTypes()));
}

static LogicalResult inferShapes(FunctionOpInterface function, ModuleOp module,
                                 bool warns) {
  if (Operation *branching = findSeveralBlocks(function))
    return branching->emitError()
           << "cannot infer the shapes of a "
           << (branching == function ? "function" : "region")
           << " with several blocks";
  assumeNumbers(function);
  DimAnalysis dims(function);
  if (!dims.isValid())
    return failure();
  // Region operations, their arguments, yields and results take one fact
  // from the fixed point, so that they stay consistent.
  bool contradicted = false;
  OldTypes old;
  auto apply = [&](Value value) {
    const ValueInfo &info = dims.lookup(value);
    Type type = refine(value, info);
    contradicted |= failed(checkStated(value, type, info));
    if (type != value.getType())
      old.try_emplace(value, value.getType());
    value.setType(type);
  };
  function->walk<WalkOrder::PreOrder>([&](Operation *op) {
    // Weights are typed by their declaration, and a refinement by itself.
    // Operations of other dialects tie their result types to something
    // else, a callee for one.
    bool hasRule = isa<ShapeRuleInterface, RegionBranchOpInterface,
                       CarriedOperatorInterface>(op);
    if (hasRule && !isa<ParamGetOp, RefineOp>(op))
      llvm::for_each(op->getResults(), apply);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        if (op != function.getOperation())
          llvm::for_each(block.getArguments(), apply);
  });
  // What is assumed of a tensor is held against the type that it has now.
  function->walk([&](AssumeOp op) { contradicted |= failed(op.verify()); });
  if (contradicted)
    return failure();
  function->walk<WalkOrder::PreOrder>(
      [&](Operation *op) { keepForeign(op, old); });
  function->walk([](RegionBranchOpInterface op) { alignTypes(op); });
  function->walk([](SelectLikeOpInterface op) { alignTypes(op); });
  function->walk([&](RegionBranchOpInterface op) { keepForeign(op, old); });
  function->walk(hideShapes);
  writeResults(function, module, old);
  writeAssumptions(function, dims);
  if (warns)
    warnOfTraceSpecializedBatch(function, dims);
  return success();
}

LogicalResult koila::inferShapes(ModuleOp module, bool warns) {
  // Those of modules in the module, too.
  WalkResult result =
      module.walk<WalkOrder::PreOrder>([&](FunctionOpInterface function) {
        if (!function.isExternal() &&
            failed(::inferShapes(function, module, warns)))
          return WalkResult::interrupt();
        return WalkResult::skip();
      });
  return failure(result.wasInterrupted());
}

namespace {
struct InferShapesPass
    : public koila::impl::InferShapesPassBase<InferShapesPass> {
  void runOnOperation() override {
    if (failed(inferShapes(getOperation())))
      signalPassFailure();
  }
};
} // namespace
