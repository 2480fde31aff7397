//===- ImportRegions.cpp - Branches and loops -----------------------------===//
//
// `prim::If` becomes `scf.if`. Saved files hold two kinds of `prim::Loop`: For
// (the condition is always true) and While (no bound, and nobody reads the
// index); they become `scf.for` and `scf.while`.
//
//===----------------------------------------------------------------------===//

#include "../Boundary/DiagnosticJSON.h"
#include "../Boundary/Locations.h"
#include "Import.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <limits>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;

Value FunctionImporter::getAs(const TorchValue *value, Type type) {
  Value found = getTensor(value);
  if (found.getType() == type)
    return found;
  if (isa<TensorType>(found.getType()) && isa<TensorType>(type))
    return RefineOp::create(builder, location, type, found);
  return UpcastOp::create(builder, location, type, found);
}

void FunctionImporter::importKeptAlive(Node *node) {
  auto found = result.graph.keptAlive.find(node);
  if (found == result.graph.keptAlive.end())
    return;
  llvm::SmallVector<Value> kept;
  for (const TorchValue *value : found->second)
    if (auto it = values.find(value);
        it != values.end() && !it->second.getDefiningOp<ParamGetOp>())
      kept.push_back(it->second);
  if (!kept.empty())
    KeepAliveOp::create(builder, location, kept);
}

void FunctionImporter::importBlock(tj::Block *block, Block &body, size_t first,
                                   TypeRange types) {
  Location outer = location;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(&body);
  scopes.emplace_back();
  importKeptAlive(block->return_node());
  for (Node *node : block->nodes()) {
    location = locations.read(node);
    if (isa<UnknownLoc>(location))
      location = outer;
    importNode(node);
    importKeptAlive(node);
  }
  location = outer;
  llvm::SmallVector<Value> results;
  for (auto [output, type] :
       llvm::zip_equal(block->outputs().slice(first), types))
    results.push_back(getAs(output, type));
  scf::YieldOp::create(builder, location, results);

  // What was built inside is not there outside.
  Scope scope = scopes.pop_back_val();
  for (const std::string &name : scope.reads)
    reads.erase(name);
  for (Attribute number : scope.numbers)
    numbers.erase(number);
  for (const TorchValue *value : scope.values)
    values.erase(value);
}

void FunctionImporter::importIf(Node *node) {
  llvm::SmallVector<Type> types;
  for (const TorchValue *output : node->outputs())
    types.push_back(convertType(output->type(), context));
  Value condition = getValue(node->input(0));
  if (!condition.getType().isInteger(1))
    refuse(location, "the condition of a branch is no bool");
  auto branch = scf::IfOp::create(builder, location, types, condition,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  for (auto [block, region] :
       llvm::zip_equal(node->blocks(), branch->getRegions()))
    importBlock(block, region.front(), 0, types);
  for (size_t i = 0; i < node->outputs().size(); ++i)
    for (tj::Block *block : node->blocks())
      uniteCarried(node->outputs()[i], block->outputs()[i]);
  defineResults(node, branch, /*written=*/nullptr);
}

void FunctionImporter::uniteCarried(const TorchValue *lhs,
                                    const TorchValue *rhs) {
  if (isShared(lhs->type()) || isShared(rhs->type()))
    aliases.unite(lhs, rhs);
}

void FunctionImporter::addCarried(Node *node,
                                  llvm::SmallVectorImpl<Type> &types,
                                  llvm::SmallVectorImpl<Value> &inits) {
  tj::Block *body = node->blocks()[0];
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    types.push_back(convertType(node->outputs()[i]->type(), context));
    inits.push_back(getAs(node->inputs()[i + 2], types.back()));
    // What is carried shares storage from one iteration to the next. Before
    // the body is read: a write there must see it.
    uniteCarried(node->outputs()[i], node->inputs()[i + 2]);
    uniteCarried(node->outputs()[i], body->inputs()[i + 1]);
  }
}

void FunctionImporter::importLoopBody(Node *node, Operation *loop, Block &body,
                                      ValueRange carried, size_t first,
                                      TypeRange types) {
  tj::Block *block = node->blocks()[0];
  for (auto [input, argument] :
       llvm::zip_equal(block->inputs().slice(1), carried))
    values[input] = argument;
  importBlock(block, body, first, types);
  for (size_t i = 0; i < node->outputs().size(); ++i)
    uniteCarried(node->outputs()[i], block->outputs()[i + 1]);
  defineResults(node, loop, /*written=*/nullptr);
}

void FunctionImporter::importFor(Node *node) {
  llvm::SmallVector<Type> types;
  llvm::SmallVector<Value> inits;
  addCarried(node, types, inits);
  Value trips = getValue(node->input(0));
  if (!trips.getType().isInteger(64))
    refuse(location, "the number of iterations of a loop is no int");
  Value zero = getConstantNumber(builder.getI64IntegerAttr(0));
  Value one = getConstantNumber(builder.getI64IntegerAttr(1));
  auto loop =
      scf::ForOp::create(builder, location, zero, trips, one, inits,
                         [](OpBuilder &, Location, Value, ValueRange) {});
  values[node->blocks()[0]->inputs()[0]] = loop.getInductionVar();
  importLoopBody(node, loop, *loop.getBody(), loop.getRegionIterArgs(), 1,
                 types);
}

void FunctionImporter::importWhile(Node *node) {
  if (!node->blocks()[0]->inputs()[0]->uses().empty())
    refuse(location, "a loop with a condition reads its index");
  llvm::SmallVector<Type> types{builder.getI1Type()};
  llvm::SmallVector<Value> inits{getValue(node->input(1))};
  if (!inits[0].getType().isInteger(1))
    refuse(location, "the condition of a loop is no bool");
  addCarried(node, types, inits);
  llvm::SmallVector<Location> locations(types.size(), location);
  TypeRange carried = TypeRange(types).drop_front();
  auto loop = scf::WhileOp::create(builder, location, carried, inits);
  Block *after;
  {
    OpBuilder::InsertionGuard guard(builder);
    Block *before =
        builder.createBlock(&loop.getBefore(), {}, types, locations);
    scf::ConditionOp::create(builder, location, before->getArgument(0),
                             before->getArguments().drop_front());
    after = builder.createBlock(&loop.getAfter(), {}, carried,
                                llvm::ArrayRef(locations).drop_front());
  }
  importLoopBody(node, loop, *after, after->getArguments(), 0, types);
}

bool FunctionImporter::importRegion(Node *node) {
  if (node->kind() == prim::If) {
    importIf(node);
    return true;
  }
  if (node->kind() != prim::Loop)
    return false;
  auto isTrue = [&](const TorchValue *value) {
    std::optional<c10::IValue> literal = getLiteral(value);
    return literal && literal->isBool() && literal->toBool();
  };
  if (isTrue(node->input(1)) && isTrue(node->blocks()[0]->outputs()[0])) {
    importFor(node);
    return true;
  }
  std::optional<c10::IValue> bound = getLiteral(node->input(0));
  if (!bound || !bound->isInt() ||
      bound->toInt() != std::numeric_limits<int64_t>::max())
    refuse(location, "a loop with a bound and a condition is not supported; "
                     "save the model and load it again");
  importWhile(node);
  return true;
}
