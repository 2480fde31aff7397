//===- TraceControlFlow.cpp - Branches and loops of a traced call ---------===//

#include "Tracer.h"
#include "koila/Analysis/ControlFlow.h"

using namespace mlir;
using namespace koila;

bool Tracer::executeIf(scf::IfOp op) {
  std::optional<bool> taken = decide(op.getCondition());
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

bool Tracer::executeFor(scf::ForOp op) {
  auto from = getNumber(op.getLowerBound()), to = getNumber(op.getUpperBound()),
       step = getNumber(op.getStep());
  if (!from || !to || !step || *step <= 0 ||
      (countsUnsigned(op) && (*from < 0 || *to < 0)))
    return leaveFor(op);
  Cells carried;
  for (Value init : op.getInits()) {
    carried.push_back(lookup(init));
    hold(carried.back());
  }
  endInits(op);
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
  Cells carried;
  for (Value init : op.getInits()) {
    carried.push_back(lookup(init));
    hold(carried.back());
  }
  endInits(op);
  while (true) {
    hand(op.getBeforeArguments(), carried);
    // If nobody knows whether there is a next turn, the loop starts here.
    bool decides = op.getBeforeBody()->without_terminator().empty();
    if (decides && !decide(op.getConditionOp().getCondition()))
      return leaveWhile(op, carried);
    auto cells = execute(*op.getBeforeBody());
    std::optional<bool> goesOn =
        cells ? decide(op.getConditionOp().getCondition()) : std::nullopt;
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
  }
}

std::optional<Tracer::Cells> Tracer::executeRegion(Region &region, Block *into,
                                                   ValueRange arguments) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(into);
  bindUnknown(region.getArguments(), arguments);
  ++depth;
  auto cells = execute(region.front());
  --depth;
  if (!cells)
    return std::nullopt;
  // As operands of the terminator.
  Operation *terminator = region.front().getTerminator();
  for (auto [cell, old] : llvm::zip_equal(*cells, terminator->getOperands())) {
    Value value = getValue(cell, old.getType(), terminator->getLoc());
    if (!value)
      return std::nullopt;
    release(cell);
    cell = {value};
  }
  return cells;
}

bool Tracer::leaveIf(scf::IfOp op) {
  ++undecided;
  Value condition = getValue(lookup(op.getCondition()), Type(), op.getLoc());
  if (!condition)
    return false;
  auto made =
      scf::IfOp::create(builder, op.getLoc(), op.getResultTypes(), condition,
                        /*addThenBlock=*/true, /*addElseBlock=*/true);
  for (auto [from, to] :
       {std::pair(&op.getThenRegion(), &made.getThenRegion()),
        std::pair(&op.getElseRegion(), &made.getElseRegion())}) {
    if (!to->front().empty())
      to->front().back().erase();
    SmallVector<Value> values;
    if (!from->empty()) {
      auto cells = executeRegion(*from, &to->front(), {});
      if (!cells)
        return false;
      for (const Cell &cell : *cells)
        values.push_back(cell.value);
    }
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&to->front());
    flush(op.getLoc());
    scf::YieldOp::create(builder, op.getLoc(), values);
  }
  bindUnknown(op.getResults(), made.getResults());
  return true;
}

bool Tracer::leaveFor(scf::ForOp op) {
  ++undecided;
  Location loc = op.getLoc();
  SmallVector<Value> bounds, inits;
  for (Value bound : {op.getLowerBound(), op.getUpperBound(), op.getStep()})
    bounds.push_back(getValue(lookup(bound), bound.getType(), loc));
  for (auto [init, argument] :
       llvm::zip_equal(op.getInits(), op.getRegionIterArgs()))
    inits.push_back(getValue(lookup(init), argument.getType(), loc));
  if (llvm::is_contained(bounds, Value()) || llvm::is_contained(inits, Value()))
    return false;
  auto made =
      scf::ForOp::create(builder, loc, bounds[0], bounds[1], bounds[2], inits);
  made.setUnsignedCmp(op.getUnsignedCmp());
  Block *body = made.getBody();
  if (!body->empty())
    body->back().erase();
  auto cells = executeRegion(op.getRegion(), body, body->getArguments());
  if (!cells)
    return false;
  SmallVector<Value> values;
  for (const Cell &cell : *cells)
    values.push_back(cell.value);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(body);
  flush(loc);
  scf::YieldOp::create(builder, loc, values);
  bindUnknown(op.getResults(), made.getResults());
  return true;
}

bool Tracer::leaveWhile(scf::WhileOp op, Cells carried) {
  ++undecided;
  Location loc = op.getLoc();
  SmallVector<Value> inits;
  for (auto [cell, argument] :
       llvm::zip_equal(carried, op.getBeforeArguments())) {
    inits.push_back(getValue(cell, argument.getType(), loc));
    if (!inits.back())
      return false;
    release(cell);
  }
  auto made = scf::WhileOp::create(builder, loc, op.getResultTypes(), inits);
  for (auto [from, to] : {std::pair(&op.getBefore(), &made.getBefore()),
                          std::pair(&op.getAfter(), &made.getAfter())}) {
    Block *block = builder.createBlock(
        to, {}, from->getArgumentTypes(),
        SmallVector<Location>(from->getNumArguments(), loc));
    builder.setInsertionPointAfter(made);
    auto cells = executeRegion(*from, block, block->getArguments());
    if (!cells)
      return false;
    SmallVector<Value> values;
    for (const Cell &cell : *cells)
      values.push_back(cell.value);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(block);
    flush(loc);
    if (from == &op.getBefore())
      scf::ConditionOp::create(builder, loc, values.front(),
                               ArrayRef(values).drop_front());
    else
      scf::YieldOp::create(builder, loc, values);
  }
  bindUnknown(op.getResults(), made.getResults());
  return true;
}
