//===- Specialize.cpp - What is decided before tiling ---------------------===//

#include "Specialize.h"
#include "KnownLoops.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace koila;

/// Moves the operations of `region` to where `branch` stands.
static void inlineRegion(scf::IfOp branch, Region &region) {
  if (!region.empty()) {
    Block &block = region.front();
    Operation *terminator = block.getTerminator();
    SmallVector<Value> results(terminator->getOperands());
    terminator->erase();
    branch->getBlock()->getOperations().splice(Block::iterator(branch),
                                               block.getOperations());
    branch->replaceAllUsesWith(results);
  }
  branch->erase();
}

/// Drops operations that nothing asks for any more.
static void eraseDead(FunctionOpInterface function) {
  // Users stand after their operands.
  SmallVector<Operation *> operations;
  function->walk([&](Operation *op) { operations.push_back(op); });
  for (Operation *op : llvm::reverse(operations))
    if (op->getNumRegions() == 0 && isOpTriviallyDead(op))
      op->erase();
}

void koila::foldNumbers(FunctionOpInterface function) {
  bool folded = false;
  function->walk([&](IntTensorOp read) {
    SmallVector<OpFoldResult, 1> number;
    if (failed(read->fold(number)) || number.empty())
      return;
    read.getResult().replaceAllUsesWith(cast<Value>(number.front()));
    folded = true;
  });
  if (folded)
    eraseDead(function);
}

/// The first argument with a dim that is the batch itself, and that dim.
static std::optional<std::pair<Value, int64_t>>
findBatch(FunctionOpInterface function, const DimAnalysis &dims,
          StringRef symbol) {
  for (Value argument : function.getFunctionBody().getArguments())
    if (const auto &tensor = dims.lookup(argument).tensor;
        tensor && tensor->hasRank())
      for (auto [index, dim] : llvm::enumerate(*tensor->dims))
        if (dim.getMultipleOf(symbol) == 1)
          return std::pair(argument, static_cast<int64_t>(index));
  return std::nullopt;
}

void koila::countByArgument(FunctionOpInterface function, StringRef symbol) {
  DimAnalysis dims(function);
  auto batch = findBatch(function, dims, symbol);
  if (!batch)
    return;
  function->walk([&](IntTensorOp read) {
    DimExpr number = dims.lookup(read.getResult()).integer;
    auto factor = number ? number.getMultipleOf(symbol) : std::nullopt;
    if (!factor || !isMemoryEffectFree(read) || read.getResult().use_empty())
      return;
    OpBuilder builder(read);
    Location loc = read.getLoc();
    auto [argument, dim] = *batch;
    Value count =
        SizeIntOp::create(builder, loc, builder.getI64Type(), argument, dim);
    if (factor != 1)
      count = arith::MulIOp::create(
          builder, loc, count,
          arith::ConstantIntOp::create(builder, loc, *factor, 64));
    read.getResult().replaceAllUsesWith(count);
  });
}

/// Where `value` got the type that says more.
static Value skipRefinements(Value value) {
  while (auto refine = value.getDefiningOp<RefineOp>())
    value = refine->getOperand(0);
  return value;
}

/// What says on which device `tensor` is: an argument that is there, or a
/// device that the program moved it to. An operator computes on the device of
/// its first tensor that is more than a number, unless it is told another.
static Value findDevice(Value tensor) {
  tensor = skipRefinements(tensor);
  while (Operation *op = tensor.getDefiningOp()) {
    if (!isa<TorchOperatorInterface>(op) || isa<CpuOp>(op))
      return {};
    if (op->hasAttr("device"))
      return OperatorArguments(op).getDynamic("device");
    tensor = {};
    for (Value operand : op->getOperands()) {
      operand = skipRefinements(operand);
      auto type = dyn_cast<TensorType>(operand.getType());
      if (!type)
        continue;
      // A number on the CPU goes with tensors of any device.
      if (!type.hasRank())
        return {};
      if (type.getRank() == 0)
        continue;
      tensor = operand;
      break;
    }
    if (!tensor)
      return {};
  }
  auto argument = cast<BlockArgument>(tensor);
  bool isInput = isa<FunctionOpInterface>(argument.getOwner()->getParentOp());
  return isInput ? tensor : Value();
}

void koila::readDevicesOfArguments(FunctionOpInterface function) {
  function->walk([](DeviceOp read) {
    Value found = findDevice(read.getSelf());
    if (!found)
      return;
    if (isa<TensorType>(found.getType()))
      read.getSelfMutable().assign(found);
    else if (found.getType() == read.getType())
      read.getResult().replaceAllUsesWith(found);
  });
}

/// What is taken out of a tuple that is there is what was put in: LibTorch goes
/// past such tuples when it reads the program that is written.
static void skipTuples(FunctionOpInterface function) {
  auto getParts = [](Value tuple) -> ValueRange {
    auto made = tuple.getDefiningOp<ConstructOp>();
    return made && isa<TupleType>(tuple.getType()) ? made->getOperands()
                                                   : ValueRange();
  };
  auto replace = [](Value result, Value part) {
    if (part.getType() == result.getType())
      result.replaceAllUsesWith(part);
  };
  function->walk([&](Operation *op) {
    if (auto element = dyn_cast<ElementOp>(op)) {
      ValueRange parts = getParts(element.getContainer());
      auto index = dyn_cast<IntegerAttr>(element.getAt());
      if (index && index.getInt() >= 0 &&
          index.getInt() < static_cast<int64_t>(parts.size()))
        replace(element.getResult(), parts[index.getInt()]);
    } else if (isa<UnpackOp>(op)) {
      ValueRange parts = getParts(op->getOperand(0));
      if (parts.size() == op->getNumResults())
        for (auto [result, part] : llvm::zip_equal(op->getResults(), parts))
          replace(result, part);
    }
  });
}

bool koila::inlineDecidedBranches(FunctionOpInterface function) {
  DimAnalysis dims(function);
  if (!dims.isValid())
    return false;
  SmallVector<std::pair<scf::IfOp, Region *>> decided;
  // Inner ones first: what is inside moves along.
  function->walk([&](scf::IfOp branch) {
    auto isDead = [&](Region &region) {
      return !region.empty() && dims.isDead(&region.front());
    };
    Region &thenRegion = branch.getThenRegion();
    Region &elseRegion = branch.getElseRegion();
    if (dims.isDead(branch))
      return;
    if (isDead(elseRegion))
      decided.emplace_back(branch, &thenRegion);
    else if (isDead(thenRegion))
      decided.emplace_back(branch, &elseRegion);
  });
  bool folded = false;
  for (BlockArgument argument : function.getFunctionBody().getArguments()) {
    auto number = dyn_cast_or_null<IntegerAttr>(dims.lookup(argument).literal);
    auto isProgram = [](OpOperand &use) {
      return !isa<AssumeOp>(use.getOwner());
    };
    if (!number || number.getType() != argument.getType() ||
        llvm::none_of(argument.getUses(), isProgram))
      continue;
    OpBuilder builder = OpBuilder::atBlockBegin(argument.getOwner());
    argument.replaceUsesWithIf(
        arith::ConstantOp::create(builder, argument.getLoc(), number),
        isProgram);
    folded = true;
  }
  // Arithmetic of the program where the assumptions say what comes out: no
  // batch rule speaks of `len(x.size())`, and one asks for a literal factor.
  function->walk([&](Operation *op) {
    if (op->getNumRegions() > 0 || isa<arith::ConstantOp>(op) ||
        !isMemoryEffectFree(op) || dims.isDead(op))
      return;
    for (Value result : op->getResults()) {
      const ValueInfo &info = dims.lookup(result);
      TypedAttr known;
      if (result.getType().isInteger(64) && info.integer) {
        if (auto constant = info.integer.getConstant())
          known = IntegerAttr::get(result.getType(), *constant);
      } else if (result.getType().isInteger(1)) {
        known = dyn_cast_or_null<BoolAttr>(info.literal);
      }
      if (!known || result.use_empty())
        continue;
      OpBuilder builder(op);
      result.replaceAllUsesWith(
          arith::ConstantOp::create(builder, op->getLoc(), known));
      folded = true;
    }
  });
  for (auto [branch, region] : decided)
    inlineRegion(branch, *region);
  if (decided.empty() && !folded)
    return false;
  skipTuples(function);
  eraseDead(function);
  return true;
}

LogicalResult koila::decideControlFlow(ModuleOp module,
                                       FunctionOpInterface function) {
  foldNumbers(function);
  bool changed = inlineDecidedBranches(function);
  if (changed && failed(inferShapes(module)))
    return failure();
  if (unrollKnownLoops(function)) {
    changed = true;
    if (failed(inferShapes(module)))
      return failure();
    // What each turn decides by its number.
    if (inlineDecidedBranches(function) && failed(inferShapes(module)))
      return failure();
  }
  if (!changed)
    return success();
  // It means something else where the facts do not hold, tiled or not.
  for (StringRef name :
       {KoilaDialect::kSpecializedAttr, KoilaDialect::kDecidedAttr})
    function->setAttr(name, UnitAttr::get(module.getContext()));
  return success();
}
