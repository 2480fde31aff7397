//===- Random.cpp - Random numbers in tiled programs ----------------------===//
//
// Each device has one generator, which serves all draws, one after the other. A
// tiled program draws the same numbers if every random operator draws for the
// whole batch, in the order of the program. What it draws depends on the shape
// alone for most of them: these get new storage of that shape, so that they
// need not wait for the tensor, and run before the loops, which read slices of
// the draws. Others run whole where they stand. As effects, all keep their
// order. On a GPU a kernel draws the same if it is the same, and is given as
// many elements in the same order of memory.
//
//===----------------------------------------------------------------------===//

#include "FusedDropouts.h"
#include "PhasePlan.h"
#include "koila/Analysis/HostResults.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/Dropout.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/RandomOp.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace koila;

namespace {
/// A device of which a tensor can be made: a literal or a value; neither: the
/// CPU.
struct Place {
  Attribute literal;
  Value value;

  static Place of(Operation *op) {
    return {op->getAttr("device"), OperatorArguments(op).getDynamic("device")};
  }
};
} // namespace

/// A new tensor as `drawn` says, with the extents of `self`; null if its
/// strides cannot be had.
static Value makeStorage(OpBuilder &builder, Location loc, Value self,
                         const TensorInfo &drawn, const Place &place) {
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
  if (place.value)
    state.addOperands(place.value);
  if (place.literal)
    state.addAttribute("device", place.literal);
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
  Separation(FunctionOpInterface function, bool isOnGpu)
      : function(function), isOnGpu(isOnGpu), dims(function),
        dropouts(function, dims) {}

  /// Refuses, with an error, what would not draw what the untiled program does.
  LogicalResult check();
  void separate(RandomOpInterface draw);
  /// Whether there are masks of dropouts or storage that are right on one type
  /// of device alone.
  bool isOfDevice() const { return separated; }
  /// Removes what has been replaced, and tensors that were nothing but storage.
  void finish();

private:
  Value getOriginal(Value value) const {
    auto found = originals.find(value);
    return found == originals.end() ? value : found->second;
  }
  const ValueInfo &lookup(Value value) const {
    return dims.lookup(getOriginal(value));
  }
  LogicalResult checkFused(Operation *op);
  Place findPlace(Operation *op);
  Value drawFused(OpBuilder &builder, DropoutOp op);

  FunctionOpInterface function;
  bool isOnGpu, separated = false;
  /// A device of the other type that the program names; empty if it names none.
  StringRef other;
  DimAnalysis dims;
  FusedDropouts dropouts;
  /// Where the arguments are.
  std::optional<Place> place;
  /// What new results stand for. The old ones stay until the end, since the
  /// facts are theirs.
  llvm::DenseMap<Value, Value> originals;
  llvm::SetVector<Operation *> replaced, makers;
};
} // namespace

/// The device that `op` names; empty if it names none.
static StringRef getNamedDevice(Operation *op) {
  auto device = op->getAttrOfType<DictionaryAttr>("device");
  auto name = device ? device.getAs<StringAttr>("device") : StringAttr();
  return name ? name.getValue() : StringRef();
}

LogicalResult Separation::check() {
  function->walk([&](Operation *named) {
    StringRef name = getNamedDevice(named);
    if (!name.empty() && name.starts_with("cpu") == isOnGpu)
      other = name;
  });
  WalkResult result = function->walk([&](Operation *op) -> WalkResult {
    if (op->getNumRegions() > 0 || !mayDraw(op))
      return success();
    StringRef name = getNamedDevice(op);
    if (!name.empty() && !name.starts_with("cpu") && !name.starts_with("cuda"))
      return op->emitError()
             << "random=full-batch-masks is exact on the CPU "
                "and with CUDA, and '"
             << op->getName() << "' draws on " << name << describePlace(op);
    if (isOnGpu && !drawsByOperands(op))
      return op->emitError()
             << "random=full-batch-masks: on a GPU '" << getCallee(*op)
             << "' draws inside of a kernel, and which one runs may depend on "
                "more than its operands"
             << describePlace(op)
             << "; random=per-tile draws anew in each tile";
    return isFusedDropout(op) ? checkFused(op) : success();
  });
  return failure(result.wasInterrupted());
}

LogicalResult Separation::checkFused(Operation *op) {
  // On which device an input is where several are named nothing tells. What is
  // drawn for a GPU is exact on the CPU, too, but for half types, which are
  // rounded there before the product.
  Type type = getElementTypeOrSelf(op->getOperand(0).getType());
  bool isHalf = type.isF16() || type.isBF16();
  if (!other.empty() && !(isOnGpu && !isHalf) &&
      !function->hasAttr(kHostResultsAttr))
    return op->emitError()
           << "random=full-batch-masks: '" << getCallee(*op)
           << "' draws other masks on a GPU than on the CPU, and the program "
              "names "
           << other << ", where device=" << (isOnGpu ? "cpu" : "cuda")
           << " would be right" << describePlace(op);
  if (!isOnGpu ||
      dropouts.findSource(op->getOperand(0)) != FusedDropouts::Source::Unknown)
    return success();
  return op->emitError()
         << "random=full-batch-masks: on a GPU the mask of '" << getCallee(*op)
         << "' depends on how its input lies in memory, which is not known "
            "here: it may be a part of a tensor"
         << describePlace(op)
         << "; copy it before (clone()), or random=per-tile draws anew in each "
            "tile";
}

Place Separation::findPlace(Operation *op) {
  // On the CPU a tensor is made where none is named.
  if (op->hasAttr("device") && (isOnGpu || !getNamedDevice(op).empty()))
    return Place::of(op);
  if (!isOnGpu)
    return {};
  if (place)
    return *place;
  place.emplace();
  // Arguments may be moved to the device in parts.
  if (function->hasAttr(kHostResultsAttr)) {
    function->walk([&](ToCopyOp upload) {
      if (upload.getDevice() && isa<BlockArgument>(upload.getSelf()) &&
          !place->literal)
        *place = Place::of(upload);
    });
    return *place;
  }
  // They are on one device, as the guard sees to.
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<TensorType>(argument.getType());
    if (!type || (type.hasRank() && type.getRank() == 0))
      continue;
    auto builder = OpBuilder::atBlockBegin(argument.getOwner());
    auto read =
        DeviceOp::create(builder, op->getLoc(),
                         TorchType::get(op->getContext(), "Device"), argument);
    *place = {DynamicAttr::get(op->getContext()), read->getResult(0)};
    break;
  }
  return *place;
}

/// Null if the dropout runs whole.
Value Separation::drawFused(OpBuilder &builder, DropoutOp op) {
  Value input = op.getInput();
  Value source;
  switch (dropouts.findSource(getOriginal(input))) {
  case FusedDropouts::Source::Unknown:
  case FusedDropouts::Source::Whole:
    return {};
  case FusedDropouts::Source::Argument:
    source = dropouts.getArgument(getOriginal(input));
    break;
  case FusedDropouts::Source::New:
    source = makeStorage(builder, op.getLoc(), input, *lookup(input).tensor,
                         findPlace(op));
    break;
  }
  bool isKnown = source && isa<RankedTensorType>(source.getType());
  return isKnown ? op.getDropout().buildFused(builder, op, source) : Value();
}

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
  Value made;
  if (isOnGpu && isFusedDropout(op)) {
    made = drawFused(builder, cast<DropoutOp>(op));
  } else if (Value storage = makeStorage(builder, op->getLoc(), self, drawn,
                                         findPlace(op))) {
    made = draw.drawInto(builder, storage);
  }
  if (!made)
    return;
  separated = true;
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
  auto target = function->getAttrOfType<StringAttr>(kDrawsOnAttr);
  Separation separation(function, target && target.getValue() == "cuda");
  if (failed(separation.check()))
    return failure();
  SmallVector<RandomOpInterface> draws;
  for (auto draw : function.getFunctionBody().getOps<RandomOpInterface>())
    if (draw.drawsByShape() && !hasStorage(draw))
      draws.push_back(draw);
  for (RandomOpInterface draw : draws)
    separation.separate(draw);
  separation.finish();
  if (!separation.isOfDevice())
    function->removeAttr(kDrawsOnAttr);
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
  // The mask of a dropout on a GPU may be drawn for an argument.
  bool readsArguments = isa<NativeDropoutOp>(op);
  return random == RandomMode::FullBatch && onlyDraws(&op) &&
         llvm::all_of(op.getOperands(), [&](Value operand) {
           Operation *maker = operand.getDefiningOp();
           return !isa<TensorType>(operand.getType()) ||
                  (maker ? isStorageOfDraws(*maker) : readsArguments);
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
