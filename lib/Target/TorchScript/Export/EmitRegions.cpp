//===- EmitRegions.cpp - Branches and loops as TorchScript ----------------===//
//
// The text of an archive knows For and While loops. `scf.for` becomes a For
// over the number of iterations; `scf.while` becomes a While, whose condition
// is computed before the loop and at the end of its body.
//
//===----------------------------------------------------------------------===//

#include "../Boundary/DiagnosticJSON.h"
#include "Emit.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include <limits>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;

void GraphEmitter::nameInOrder(at::ArrayRef<TorchValue *> values) {
  // The compiler that reads the file back orders variables by name, "_100"
  // before "_99". Letters of one width, and no name twice: LibTorch would look
  // for a free one at length.
  auto spell = [](size_t number, size_t width) {
    std::string letters(width, 'a');
    for (size_t i = width; i > 0; --i, number /= 26)
      letters[i - 1] = static_cast<char>('a' + number % 26);
    return letters;
  };
  for (auto [position, value] : llvm::enumerate(values))
    value->setDebugName("v_" + spell(numNamed, 5) + "_" + spell(position, 3));
  ++numNamed;
}

void GraphEmitter::keepInPlace(Node *unpack) {
  // LibTorch takes a value that is read once for an expression, and writes it
  // where it is read; but unpacking is a statement, and what stands before it
  // would move behind it. What has a name stays.
  if (unpack->outputs().size() == 1)
    nameInOrder(unpack->outputs());
}

c10::TypePtr GraphEmitter::getResultType(Operation *op, unsigned index,
                                         TorchValue *fallback) {
  Type type = op->getResult(index).getType();
  if (isa<TensorType>(type))
    return c10::TensorType::get();
  if (Node *from = getOriginal(op); from && index < from->outputs().size())
    if (convertType(from->outputs()[index]->type(), type.getContext()) == type)
      return from->outputs()[index]->type();
  c10::TypePtr known = getType(type);
  return known ? known : fallback->type();
}

void GraphEmitter::emitIf(Operation *op) {
  auto branch = cast<scf::IfOp>(op);
  Node *node = insert(op, prim::If, {lookup(branch.getCondition(), op)},
                      branch.getNumResults());
  for (Region &region : branch->getRegions()) {
    tj::Block *block = node->addBlock();
    if (region.empty())
      continue;
    tj::WithInsertPoint guard(block);
    for (TorchValue *value : emitBlock(region.front()))
      block->registerOutput(value);
  }
  for (auto [i, result] : llvm::enumerate(branch.getResults())) {
    node->outputs()[i]->setType(
        getResultType(op, i, node->blocks()[0]->outputs()[i]));
    values[result] = node->outputs()[i];
  }
  nameInOrder(node->outputs());
}

tj::Block *GraphEmitter::addLoop(Operation *op,
                                 llvm::ArrayRef<TorchValue *> inputs,
                                 ValueRange carried) {
  Node *node = insert(op, prim::Loop, inputs, op->getNumResults());
  tj::Block *body = node->addBlock();
  body->addInput("i")->setType(c10::IntType::get());
  for (auto [i, argument] : llvm::enumerate(carried)) {
    TorchValue *input = body->addInput();
    input->setType(getResultType(op, i, inputs[i + 2]));
    node->outputs()[i]->setType(input->type());
    values[argument] = input;
    values[op->getResult(i)] = node->outputs()[i];
  }
  nameInOrder(body->inputs().slice(1));
  nameInOrder(node->outputs());
  return body;
}

void GraphEmitter::emitFor(Operation *op) {
  auto loop = cast<scf::ForOp>(op);
  TorchValue *lower = lookup(loop.getLowerBound(), op);
  TorchValue *upper = lookup(loop.getUpperBound(), op);
  TorchValue *step = lookup(loop.getStep(), op);
  auto lowerConstant = getConstantIntValue(loop.getLowerBound());
  auto stepConstant = getConstantIntValue(loop.getStep());
  auto [tile, sizes] = emitTile(op);
  if (sizes)
    upper = sizes;
  // ceil((upper - lower) / step); a negative count is no iteration.
  TorchValue *trips = upper;
  if (lowerConstant != 0)
    trips = call("aten::sub", {trips, lower});
  if (stepConstant != 1) {
    TorchValue *round = call("aten::sub", {step, integer(1)});
    trips = call("aten::floordiv", {call("aten::add", {trips, round}), step});
  }
  llvm::SmallVector<TorchValue *> inputs = {trips, constant(true)};
  for (Value init : loop.getInitArgs())
    inputs.push_back(lookup(init, op));
  if (tile)
    inputs.back() = tile;
  tj::Block *body = addLoop(op, inputs, loop.getRegionIterArgs());
  TorchValue *index = body->inputs()[0];
  tj::WithInsertPoint guard(body);
  if (stepConstant != 1)
    index = call("aten::mul", {index, step});
  if (lowerConstant != 0)
    index = call("aten::add", {index, lower});
  values[loop.getInductionVar()] = index;
  llvm::SmallVector<TorchValue *> yielded = emitBlock(*loop.getBody());
  body->registerOutput(constant(true));
  for (TorchValue *value : yielded)
    body->registerOutput(value);
}

void GraphEmitter::emitWhile(Operation *op) {
  auto loop = cast<scf::WhileOp>(op);
  Block &before = loop.getBefore().front(), &after = loop.getAfter().front();
  // The condition and what the body gets, from what `before` takes.
  auto emitBefore = [&](llvm::ArrayRef<TorchValue *> given) {
    for (auto [argument, value] : llvm::zip_equal(before.getArguments(), given))
      values[argument] = value;
    return emitBlock(before);
  };
  llvm::SmallVector<TorchValue *> given;
  for (Value init : loop.getInits())
    given.push_back(lookup(init, op));
  llvm::SmallVector<TorchValue *> first = emitBefore(given);
  llvm::SmallVector<TorchValue *> inputs = {
      integer(std::numeric_limits<int64_t>::max()), first.front()};
  llvm::append_range(inputs, llvm::ArrayRef(first).drop_front());
  tj::Block *body = addLoop(op, inputs, after.getArguments());
  tj::WithInsertPoint guard(body);
  for (TorchValue *value : emitBefore(emitBlock(after)))
    body->registerOutput(value);
}
