//===- KnownLoops.cpp - Loops of a known number of turns ------------------===//

#include "koila/Analysis/KnownLoops.h"
#include "koila/Analysis/ControlFlow.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

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

/// Whether all tensors from outside that the body reads are the caller's, the
/// module's, or used after the loop as well.
static bool endsNothing(scf::ForOp loop) {
  auto outlives = [&](Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || isa<ParamGetOp>(op) || !isa<TensorType>(value.getType()))
      return true;
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      Operation *ancestor = loop->getBlock()->findAncestorOpInBlock(*user);
      return ancestor && loop->isBeforeInBlock(ancestor);
    });
  };
  WalkResult result = loop.getBody()->walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (!loop->isAncestor(operand.getParentBlock()->getParentOp()) &&
          !outlives(operand))
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  return !result.wasInterrupted();
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

/// Those that hand tensors on, inner ones first.
static SmallVector<scf::ForOp> findLoops(FunctionOpInterface function) {
  SmallVector<scf::ForOp> loops;
  function->walk([&](scf::ForOp loop) {
    if (llvm::any_of(loop.getResultTypes(), llvm::IsaPred<TensorType>))
      loops.push_back(loop);
  });
  return loops;
}

bool koila::unrollKnownLoops(FunctionOpInterface function,
                             bool keepsLifetimes) {
  SmallVector<scf::ForOp> loops = findLoops(function);
  if (loops.empty())
    return false;
  DimAnalysis dims(function);
  bool any = false;
  for (scf::ForOp loop : loops) {
    std::optional<Turns> turns = getTurns(loop, dims);
    if (!turns || (keepsLifetimes && !endsNothing(loop)))
      continue;
    unroll(loop, *turns);
    any = true;
  }
  return any;
}

OwningOpRef<ModuleOp> koila::copyUnrolled(FunctionOpInterface function) {
  auto module = function->getParentOfType<ModuleOp>();
  // Loops over tiles turn as often as the tile says.
  if (!module || function->hasAttr(KoilaDialect::kTiledAttr) ||
      findLoops(function).empty())
    return nullptr;
  OwningOpRef<ModuleOp> copy(module.clone());
  FunctionOpInterface inside = findFunction(*copy, function.getName());
  return inside && unrollKnownLoops(inside, /*keepsLifetimes=*/true)
             ? std::move(copy)
             : nullptr;
}
