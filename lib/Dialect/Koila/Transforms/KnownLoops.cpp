//===- KnownLoops.cpp - Loops of a known number of turns ------------------===//

#include "KnownLoops.h"
#include "koila/Analysis/ControlFlow.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace koila;

/// What is emitted must stay of a size that TorchScript compiles quickly.
static constexpr int64_t kMostTurns = 64, kMostOperations = 2048;

namespace {
struct Turns {
  int64_t first, step, count;
};
} // namespace

static std::optional<int64_t> getNumber(Value value, const DimAnalysis &dims) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return constant.trySExtValue();
  DimExpr expr = dims.lookup(value).integer;
  return expr ? expr.getConstant() : std::nullopt;
}

static std::optional<Turns> getTurns(scf::ForOp loop, const DimAnalysis &dims) {
  auto from = getNumber(loop.getLowerBound(), dims),
       to = getNumber(loop.getUpperBound(), dims),
       step = getNumber(loop.getStep(), dims);
  if (!from || !to || !step || *step <= 0 ||
      (countsUnsigned(loop) && (*from < 0 || *to < 0)))
    return std::nullopt;
  __int128 distance = __int128(*to) - *from;
  __int128 count = distance > 0 ? (distance + *step - 1) / *step : 0;
  int64_t operations = 0;
  bool keeps = false;
  loop.getBody()->walk([&](Operation *op) {
    ++operations;
    keeps |= llvm::any_of(op->getOperandTypes(), isMutable);
  });
  // What a list keeps is not known either way.
  if (keeps || count > kMostTurns || count * operations > kMostOperations)
    return std::nullopt;
  return Turns{*from, *step, static_cast<int64_t>(count)};
}

static void unroll(scf::ForOp loop, Turns turns) {
  OpBuilder builder(loop);
  SmallVector<Value> carried(loop.getInits());
  for (int64_t turn = 0; turn < turns.count; ++turn) {
    IRMapping mapping;
    Value counter = loop.getInductionVar();
    mapping.map(counter,
                arith::ConstantOp::create(
                    builder, loop.getLoc(),
                    builder.getIntegerAttr(counter.getType(),
                                           turns.first + turn * turns.step)));
    mapping.map(loop.getRegionIterArgs(), carried);
    for (Operation &op : loop.getBody()->without_terminator())
      builder.clone(op, mapping);
    for (auto [value, yielded] :
         llvm::zip_equal(carried, loop.getYieldedValues()))
      value = mapping.lookupOrDefault(yielded);
  }
  loop.replaceAllUsesWith(carried);
  loop.erase();
}

//===----------------------------------------------------------------------===//
// `while i < 3`, and loops that a number of a turn leaves early
//===----------------------------------------------------------------------===//

namespace {
/// Puts the turns of an `scf.while` behind each other, folding what its numbers
/// decide, for as long as they decide whether there is a next one.
class WhileUnroller {
public:
  WhileUnroller(scf::WhileOp loop, const DimAnalysis &dims)
      : loop(loop), builder(loop), dims(dims) {}

  /// Whether it did; otherwise nothing has changed.
  bool run() {
    if (keepsContainers())
      return false;
    mapKnown();
    SmallVector<Value> carried =
        llvm::map_to_vector(loop.getInits(), [&](Value value) {
          return mapping.lookupOrDefault(value);
        });
    for (int64_t turn = 0; turn <= kMostTurns; ++turn) {
      mapping.map(loop.getBeforeArguments(), carried);
      cloneFolded(*loop.getBeforeBody());
      scf::ConditionOp condition = loop.getConditionOp();
      APInt goesOn;
      if (!matchPattern(mapping.lookupOrDefault(condition.getCondition()),
                        m_ConstantInt(&goesOn)) ||
          operations > kMostOperations)
        break;
      carried = lookup(condition.getArgs());
      if (goesOn.isZero()) {
        loop->replaceAllUsesWith(carried);
        loop->erase();
        return true;
      }
      mapping.map(loop.getAfterArguments(), carried);
      cloneFolded(*loop.getAfterBody());
      carried = lookup(loop.getYieldedValues());
    }
    // Users stand after their operands.
    for (Operation *op : llvm::reverse(made))
      op->erase();
    return false;
  }

private:
  bool keepsContainers() {
    WalkResult result = loop->walk([](Operation *op) {
      return llvm::any_of(op->getOperandTypes(), isMutable)
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    return result.wasInterrupted();
  }

  /// Numbers from outside that the assumptions say.
  void mapKnown() {
    loop->walk([&](Operation *op) {
      for (Value operand : op->getOperands()) {
        bool isInside =
            op != loop &&
            loop->isAncestor(operand.getParentBlock()->getParentOp());
        if (!isInside && !mapping.contains(operand))
          mapNumber(operand);
      }
    });
  }

  /// Whether `value` is a number that is the same in all turns.
  bool mapNumber(Value value) {
    auto number =
        value.getType().isInteger(64) ? getNumber(value, dims) : std::nullopt;
    if (!number)
      return false;
    auto constant = arith::ConstantOp::create(
        builder, loop.getLoc(), builder.getI64IntegerAttr(*number));
    made.push_back(constant);
    mapping.map(value, constant.getResult());
    return true;
  }

  SmallVector<Value> lookup(ValueRange values) {
    return llvm::map_to_vector(
        values, [&](Value value) { return mapping.lookupOrDefault(value); });
  }

  void cloneFolded(Block &block) {
    for (Operation &op : block.without_terminator()) {
      ++operations;
      if (auto branch = dyn_cast<scf::IfOp>(op); branch && inlineTaken(branch))
        continue;
      if (op.getNumResults() == 1 && isMemoryEffectFree(&op) &&
          mapNumber(op.getResult(0)))
        continue;
      Operation *copy = builder.clone(op, mapping);
      SmallVector<Value> folded;
      SmallVector<Operation *> constants;
      bool isFolded = copy->getNumRegions() == 0 &&
                      succeeded(builder.tryFold(copy, folded, &constants));
      llvm::append_range(made, constants);
      if (isFolded && !folded.empty() && folded.size() == op.getNumResults() &&
          !llvm::is_contained(copy->getResults(), folded.front())) {
        mapping.map(op.getResults(), folded);
        copy->erase();
      } else {
        made.push_back(copy);
      }
    }
  }

  bool inlineTaken(scf::IfOp branch) {
    APInt taken;
    if (!matchPattern(mapping.lookupOrDefault(branch.getCondition()),
                      m_ConstantInt(&taken)))
      return false;
    Region &region =
        taken.isZero() ? branch.getElseRegion() : branch.getThenRegion();
    if (region.empty())
      return true;
    cloneFolded(region.front());
    mapping.map(branch.getResults(),
                lookup(region.front().getTerminator()->getOperands()));
    return true;
  }

  scf::WhileOp loop;
  OpBuilder builder;
  const DimAnalysis &dims;
  IRMapping mapping;
  SmallVector<Operation *> made;
  int64_t operations = 0;
};
} // namespace

/// Those that hand tensors on, inner ones first.
static SmallVector<LoopLikeOpInterface>
findLoops(FunctionOpInterface function) {
  SmallVector<LoopLikeOpInterface> loops;
  function->walk([&](LoopLikeOpInterface loop) {
    if (isa<scf::ForOp, scf::WhileOp>(loop) &&
        llvm::any_of(loop->getResultTypes(), llvm::IsaPred<TensorType>))
      loops.push_back(loop);
  });
  return loops;
}

static bool unrollKnown(LoopLikeOpInterface loop, const DimAnalysis &dims) {
  if (auto known = dyn_cast<scf::WhileOp>(*loop))
    return WhileUnroller(known, dims).run();
  auto counted = cast<scf::ForOp>(*loop);
  std::optional<Turns> turns = getTurns(counted, dims);
  if (turns)
    unroll(counted, *turns);
  return turns.has_value();
}

bool koila::unrollKnownLoops(FunctionOpInterface function) {
  SmallVector<LoopLikeOpInterface> loops = findLoops(function);
  if (loops.empty())
    return false;
  DimAnalysis dims(function);
  bool any = false;
  for (LoopLikeOpInterface loop : loops)
    any |= unrollKnown(loop, dims);
  return any;
}
