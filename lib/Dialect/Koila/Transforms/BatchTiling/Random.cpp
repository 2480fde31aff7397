//===- Random.cpp - Random numbers in tiled programs ----------------------===//
//
// On the CPU one generator serves all draws, one after the other. A tiled
// program draws the same numbers if every random operator draws for the whole
// batch, in the order of the program. What it draws depends on the shape alone
// for most of them: these get new storage of that shape, so that they need not
// wait for the tensor, and run before the loops, which read slices of the
// draws. Others run whole where they stand. As effects, all keep their order.
//
//===----------------------------------------------------------------------===//

#include "PhasePlan.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/RandomOp.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace koila;

/// A new tensor as `drawn` says, with the extents of `self`; null if its
/// strides cannot be had.
static Value makeStorage(OpBuilder &builder, Location loc, Value self,
                         const TensorInfo &drawn) {
  if (!llvm::all_of(*drawn.dims, [](DimExpr dim) { return !!dim; }))
    return {};
  auto order = drawn.getDenseOrder();
  auto code = getScalarTypeCode(getDTypeName(drawn.elementType));
  if (!order || !code)
    return {};
  SmallVector<int64_t> size;
  SmallVector<Value> extents;
  for (auto [index, dim] : llvm::enumerate(*drawn.dims)) {
    auto number = dim.getConstant();
    size.push_back(number.value_or(ShapedType::kDynamic));
    if (!number)
      extents.push_back(
          SizeIntOp::create(builder, loc, builder.getI64Type(), self, index));
  }
  bool isRows = llvm::is_sorted(*order);
  OperationState state(loc, isRows ? EmptyOp::getOperationName()
                                   : EmptyPermutedOp::getOperationName());
  state.addOperands(extents);
  state.addTypes(getTensorType(drawn, builder.getContext()));
  state.addAttribute("size", builder.getDenseI64ArrayAttr(size));
  state.addAttribute("dtype", builder.getI64IntegerAttr(*code));
  if (!isRows)
    state.addAttribute("physical_layout", builder.getDenseI64ArrayAttr(*order));
  return builder.create(state)->getResult(0);
}

/// Whether `op` draws in place into a tensor that numbers alone make.
static bool hasStorage(Operation *op) {
  auto isTensor = [](Type type) { return isa<TensorType>(type); };
  auto interface = dyn_cast<TorchOperatorInterface>(op);
  Operation *maker = op->getOperand(0).getDefiningOp();
  return interface && interface.isTied() && maker && maker->hasOneUse() &&
         llvm::none_of(maker->getOperandTypes(), isTensor);
}

namespace {
/// Lets draws draw into storage of their own.
class Separation {
public:
  explicit Separation(FunctionOpInterface function) : dims(function) {}

  void separate(RandomOpInterface draw);
  /// Removes what has been replaced, and tensors that were nothing but storage.
  void finish();

private:
  const ValueInfo &lookup(Value value) const {
    auto found = originals.find(value);
    return dims.lookup(found == originals.end() ? value : found->second);
  }

  DimAnalysis dims;
  /// What new results stand for. The old ones stay until the end, since the
  /// facts are theirs.
  llvm::DenseMap<Value, Value> originals;
  llvm::SetVector<Operation *> replaced, makers;
};
} // namespace

void Separation::separate(RandomOpInterface draw) {
  Operation *op = draw;
  Value self = op->getOperand(0), old = op->getResult(0);
  const ValueInfo &input = lookup(self), &result = lookup(old);
  if (!input.tensor || !input.tensor->hasRank() || !result.tensor)
    return;
  TensorInfo drawn = draw.getDrawn(*input.tensor, *result.tensor);
  if (!drawn.hasRank() || !drawn.elementType || !drawn.strides)
    return;
  OpBuilder builder(op);
  Value storage = makeStorage(builder, op->getLoc(), self, drawn);
  if (!storage)
    return;
  Value made = draw.drawInto(builder, storage);
  made.setType(old.getType());
  old.replaceAllUsesWith(made);
  originals[made] = old;
  replaced.insert(op);
  if (Operation *maker = self.getDefiningOp())
    makers.insert(maker);
}

void Separation::finish() {
  for (Operation *op : llvm::reverse(replaced))
    op->erase();
  for (Operation *op : llvm::reverse(makers))
    if (!replaced.contains(op) && isOpTriviallyDead(op))
      op->erase();
}

LogicalResult koila::separateDraws(FunctionOpInterface function) {
  for (Operation &op : function.getFunctionBody().getOps()) {
    auto device = op.getAttrOfType<DictionaryAttr>("device");
    auto name = device ? device.getAs<StringAttr>("device") : StringAttr();
    if (mayDraw(&op) && name && !name.getValue().starts_with("cpu"))
      return op.emitError()
             << "random=full-batch-masks is exact on the CPU only, and '"
             << op.getName() << "' draws on " << name << describePlace(&op);
  }
  SmallVector<RandomOpInterface> draws;
  for (auto draw : function.getFunctionBody().getOps<RandomOpInterface>())
    if (draw.drawsByShape() && !hasStorage(draw))
      draws.push_back(draw);
  Separation separation(function);
  for (RandomOpInterface draw : draws)
    separation.separate(draw);
  separation.finish();
  return success();
}

//===----------------------------------------------------------------------===//
// What the plan asks
//===----------------------------------------------------------------------===//

LogicalResult PhasePlan::checkDraws(Operation &op) {
  // What is unknown may draw as well; it is a barrier in any case.
  bool isKnown = false;
  op.walk([&](Operation *inner) { isKnown |= onlyDraws(inner); });
  if (!isKnown)
    return success();
  draws.push_back(&op);
  if (random != RandomMode::Refuse)
    return success();
  return op.emitError()
         << "cannot tile the batch: '" << getCallee(op)
         << "' draws random numbers, and tiles would draw others: random "
            "streams differ in tiles"
         << describePlace(&op)
         << "; random=full-batch-masks draws as the untiled program does, "
            "random=per-tile draws anew in each tile";
}

bool PhasePlan::mayDrawInTiles(Operation &op) const {
  return random == RandomMode::PerTile && onlyDraws(&op);
}

bool PhasePlan::drawsInTiles(Operation &op) const {
  return tiledSet.contains(&op) && onlyDraws(&op);
}

bool PhasePlan::isStorageOfDraws(Operation &op) const {
  auto isTensor = [](Type type) { return isa<TensorType>(type); };
  return random == RandomMode::FullBatch && isMemoryEffectFree(&op) &&
         !op.use_empty() && llvm::any_of(op.getResultTypes(), isTensor) &&
         llvm::none_of(op.getOperandTypes(), isTensor) &&
         llvm::all_of(op.getUsers(), onlyDraws);
}

bool PhasePlan::drawsEarly(Operation &op) const {
  return random == RandomMode::FullBatch && onlyDraws(&op) &&
         llvm::all_of(op.getOperands(), [&](Value operand) {
           Operation *maker = operand.getDefiningOp();
           return !isa<TensorType>(operand.getType()) ||
                  (maker && isStorageOfDraws(*maker));
         });
}

void koila::reportDraws(FunctionOpInterface function, const PhasePlan &plan) {
  auto options = remark::RemarkOpts::name("RandomNumbers")
                     .category("koila-tile-batch")
                     .function(function.getName());
  for (Operation *op : plan.getDraws())
    if (plan.drawsInTiles(*op))
      remark::passed(op->getLoc(), options)
          << remark::add("drawn anew in each tile");
    else
      remark::passed(op->getLoc(), options)
          << remark::add("drawn for the whole batch");
  auto inTiles = llvm::make_filter_range(
      plan.getDraws(), [&](Operation *op) { return plan.drawsInTiles(*op); });
  auto count = std::distance(inTiles.begin(), inTiles.end());
  if (count == 0)
    return;
  Operation *first = *inTiles.begin();
  InFlightDiagnostic warning = first->emitWarning();
  warning << "random streams differ: '" << getCallee(*first) << "'"
          << describePlace(first);
  if (count > 1)
    warning << " and " << count - 1 << " more";
  warning << (count > 1 ? " draw" : " draws")
          << " anew in each tile; results equal those of the untiled program "
             "in distribution only, whatever the seed";
}
