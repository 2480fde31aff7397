//===- TraceControlFlow.cpp - Branches and loops of a traced call ---------===//

#include "Tracer.h"
#include "koila/Analysis/ControlFlow.h"

using namespace mlir;
using namespace koila;

bool Tracer::executeIf(scf::IfOp op) {
  std::optional<bool> taken = decide(op.getCondition());
  if (!taken)
    taken = choose(op.getCondition(), op);
  if (!taken)
    return leaveIf(op);
  Region &region = *taken ? op.getThenRegion() : op.getElseRegion();
  if (region.empty())
    return true;
  auto cells = execute(region.front());
  if (cells)
    hand(op.getResults(), *cells);
  return cells.has_value();
}

/// What a loop starts with, held.
Tracer::Cells Tracer::takeInits(LoopLikeOpInterface loop) {
  Cells carried;
  for (Value init : loop.getInits()) {
    carried.push_back(lookup(init));
    hold(carried.back());
  }
  endInits(loop);
  return carried;
}

bool Tracer::executeFor(scf::ForOp op) {
  auto from = getNumber(op.getLowerBound()), to = getNumber(op.getUpperBound()),
       step = getNumber(op.getStep());
  if (!from || !to || !step || *step <= 0 ||
      (countsUnsigned(op) && (*from < 0 || *to < 0)))
    return leaveFor(op);
  Cells carried = takeInits(op);
  Value counter = op.getInductionVar();
  for (int64_t at = *from; at < *to; at += *step) {
    hand(op.getRegionIterArgs(), carried);
    bind(counter, {makeConstant(builder.getIntegerAttr(counter.getType(), at),
                                counter.getType(), op.getLoc())});
    auto cells = execute(*op.getBody());
    if (!cells)
      return false;
    carried = std::move(*cells);
    if (__int128(at) + *step > *to)
      break;
  }
  hand(op.getResults(), carried);
  return true;
}

bool Tracer::executeWhile(scf::WhileOp op) {
  Cells carried = takeInits(op);
  while (true) {
    hand(op.getBeforeArguments(), carried);
    // If nobody knows whether there is a next turn, the loop starts here.
    Value condition = op.getConditionOp().getCondition();
    bool decides = op.getBeforeBody()->without_terminator().empty();
    if (decides && !decide(condition) && !choose(condition, op))
      return leaveWhile(op, carried);
    auto cells = execute(*op.getBeforeBody());
    std::optional<bool> goesOn = cells ? decide(condition) : std::nullopt;
    if (cells && !goesOn)
      goesOn = choose(condition, op);
    if (!goesOn)
      return false;
    cells->erase(cells->begin());
    if (!*goesOn) {
      hand(op.getResults(), *cells);
      return true;
    }
    hand(op.getAfterArguments(), *cells);
    cells = execute(*op.getAfterBody());
    if (!cells)
      return false;
    carried = std::move(*cells);
  }
}

void Tracer::bindUnknown(ValueRange olds, ValueRange values) {
  for (auto [old, value] : llvm::zip_equal(olds, values)) {
    name(value, ValueInfo());
    variables[old] = {value};
    if (records)
      markWanting(value);
  }
}

bool Tracer::executeRegion(Region &region, Block *into,
                           function_ref<void(ValueRange)> terminate) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(into);
  bindUnknown(region.getArguments(), into->getArguments());
  ++depth;
  auto cells = execute(region.front());
  --depth;
  if (!cells)
    return false;
  Operation *terminator = region.front().getTerminator();
  SmallVector<Value> values;
  for (auto [cell, old] : llvm::zip_equal(*cells, terminator->getOperands())) {
    values.push_back(getValue(cell, old.getType(), terminator->getLoc()));
    if (!values.back())
      return false;
    release(cell);
  }
  flush(terminator->getLoc());
  terminate(values);
  return true;
}

bool Tracer::leaveIf(scf::IfOp op) {
  ++undecided;
  forks = true;
  Location loc = op.getLoc();
  Value condition = getValue(lookup(op.getCondition()), Type(), loc);
  if (!condition)
    return false;
  auto made = scf::IfOp::create(builder, loc, op.getResultTypes(), condition,
                                /*addThenBlock=*/true, /*addElseBlock=*/true);
  auto yield = [&](ValueRange values) {
    scf::YieldOp::create(builder, loc, values);
  };
  for (auto [from, to] :
       llvm::zip_equal(op->getRegions(), made->getRegions())) {
    if (!to.front().empty())
      to.front().back().erase();
    if (!from.empty()) {
      if (!executeRegion(from, &to.front(), yield))
        return false;
      continue;
    }
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&to.front());
    yield({});
  }
  bindUnknown(op.getResults(), made.getResults());
  return true;
}

bool Tracer::leaveFor(scf::ForOp op) {
  ++undecided;
  forks = true;
  Location loc = op.getLoc();
  SmallVector<Value> bounds, inits;
  for (Value bound : {op.getLowerBound(), op.getUpperBound(), op.getStep()})
    bounds.push_back(getValue(lookup(bound), bound.getType(), loc));
  for (auto [init, argument] :
       llvm::zip_equal(op.getInits(), op.getRegionIterArgs()))
    inits.push_back(getValue(lookup(init), argument.getType(), loc));
  if (llvm::is_contained(bounds, Value()) || llvm::is_contained(inits, Value()))
    return false;
  endInits(op);
  auto made =
      scf::ForOp::create(builder, loc, bounds[0], bounds[1], bounds[2], inits);
  made.setUnsignedCmp(op.getUnsignedCmp());
  Block *body = made.getBody();
  if (!body->empty())
    body->back().erase();
  if (!executeRegion(op.getRegion(), body, [&](ValueRange values) {
        scf::YieldOp::create(builder, loc, values);
      }))
    return false;
  bindUnknown(op.getResults(), made.getResults());
  return true;
}

bool Tracer::leaveWhile(scf::WhileOp op, Cells carried) {
  ++undecided;
  forks = true;
  Location loc = op.getLoc();
  SmallVector<Value> inits;
  for (auto [cell, argument] :
       llvm::zip_equal(carried, op.getBeforeArguments())) {
    inits.push_back(getValue(cell, argument.getType(), loc));
    if (!inits.back())
      return false;
    release(cell);
  }
  flush(loc);
  auto made = scf::WhileOp::create(builder, loc, op.getResultTypes(), inits);
  auto trace = [&](Region &from, Region &to,
                   function_ref<void(ValueRange)> terminate) {
    Block *block;
    {
      OpBuilder::InsertionGuard guard(builder);
      SmallVector<Location> locations(from.getNumArguments(), loc);
      block = builder.createBlock(&to, {}, from.getArgumentTypes(), locations);
    }
    return executeRegion(from, block, terminate);
  };
  auto decide = [&](ValueRange values) {
    scf::ConditionOp::create(builder, loc, values.front(), values.drop_front());
  };
  auto yield = [&](ValueRange values) {
    scf::YieldOp::create(builder, loc, values);
  };
  if (!trace(op.getBefore(), made.getBefore(), decide) ||
      !trace(op.getAfter(), made.getAfter(), yield))
    return false;
  bindUnknown(op.getResults(), made.getResults());
  return true;
}
