//===- Factory.cpp - What making a tensor holds inside --------------------===//
//
// Sources: torch/csrc/jit/runtime/register_special_ops.cpp (torch.tensor),
// native/TensorFactories.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Models.h"
#include "OpReplay.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// The element type of torch.tensor without `dtype`; null: unknown.
static Type getOwnType(Operation *op) {
  MLIRContext *context = op->getContext();
  Type integer = IntegerType::get(context, 64);
  Type floating = Float32Type::get(context),
       boolean = IntegerType::get(context, 1);
  Attribute data = op->getAttr("data");
  if (isa_and_nonnull<DenseI64ArrayAttr>(data))
    return integer;
  if (isa_and_nonnull<DenseF64ArrayAttr>(data))
    return floating;
  if (isa_and_nonnull<DenseBoolArrayAttr>(data))
    return boolean;
  Type type;
  if (auto number = dyn_cast_or_null<TypedAttr>(op->getAttr("t")))
    type = number.getType();
  if (!type)
    return {};
  return isa<FloatType>(type) ? floating
         : type.isInteger(1)  ? boolean
                              : integer;
}

/// A tensor of the numbers' own type, cast to `dtype`.
static void describeNumberTensor(WorkspaceRule &rule) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  Type own = getOwnType(rule.getOp());
  if (!result || !own)
    return rule.setInexact("the type of the numbers is unknown");
  if (own != result->elementType)
    rule.setTransient(countBytes(*result, own));
}

/// Weights are checked by their extremes and sums, which stay; then each is
/// divided by a draw. With replacement they are added up.
/// Source: multinomial_out in native/Distributions.cpp.
static void describeMultinomial(WorkspaceRule &rule) {
  auto op = cast<MultinomialOp>(rule.getOp());
  using Number = OpReplay::Number;
  auto weights = rule.tensor(op.getSelf());
  auto result = rule.tensor(op.getResult());
  if (!weights || !result || weights->dims.empty() || !weights->getStrides())
    return rule.setInexact("a shape of the operator is unknown");
  Type type = weights->elementType;
  int64_t draws = result->dims.back();
  OpReplay steps(rule);
  steps.allocate(*result);
  if (op.getReplacement() && draws != 1) {
    Type sum = isHalf(type) ? Float32Type::get(type.getContext()) : type;
    steps.free(steps.allocate({{weights->dims.back()}, sum}));
    return steps.finish(result->numBytes());
  }
  ConcreteTensor extreme{{}, type};
  steps.allocate(extreme);
  steps.allocate(extreme);
  steps.allocateTemporary(getCopyBytes(*weights) + getBlockBytes(*weights));
  using rules::Elementwise;
  ConcreteTensor least =
      steps.compute(extreme, Elementwise::Bool, Number::Integer);
  ConcreteTensor most =
      steps.compute(extreme, Elementwise::Bool, Number::Float);
  steps.compute({most, least});
  steps.free({most, least});
  bool isMatrix = weights->dims.size() == 2;
  ConcreteTensor sum = isMatrix ? steps.sum(*weights, 1) : steps.sum(*weights);
  ConcreteTensor zero = steps.compute(sum, Elementwise::Bool, Number::Integer);
  if (isMatrix) {
    steps.allocate(least);
    steps.allocateTemporary(getPartialBytes(rule, zero, least));
    steps.free(zero);
  }
  steps.free(sum);
  steps.allocate(*weights);
  if (draws != 1)
    steps.allocate(countBytes(*result, type));
  steps.finish(result->numBytes());
  // Only the most there is of it has been looked at.
  rule.setTransient(rule.getTransient());
}

/// std.min().ge(0)
static void checkDeviations(OpReplay &steps, const ConcreteTensor &std) {
  if (std.numElements() == 0)
    return;
  MadeTensor least = steps.allocate(ConcreteTensor{{}, std.elementType});
  steps.AllocationTrace::free(allocateContiguous(steps, std));
  steps.free(
      steps.compute(least, OpReplay::Result::Bool, OpReplay::Number::Integer));
  steps.free(least);
}

/// Draws, to which the means are added. A tensor like them is there for its
/// shape alone. Source: normal_out_impl in native/DistributionTemplates.h.
static void describeNormalAroundTensor(WorkspaceRule &rule) {
  auto mean = getRealTensors(rule, rule.getOp()->getOperand(0));
  if (!mean)
    return;
  OpReplay steps(rule);
  MadeTensor draws = steps.allocate(mean->front());
  MadeTensor shape = steps.allocate(mean->front());
  steps.write({draws, mean->front()});
  steps.free(shape);
  steps.finish(draws.numBytes());
}

/// Draws times the deviations, which are checked twice, and the means. One that
/// is a number becomes a 0-dim tensor. Source: normal_out_impl, as above.
static void describeNormal(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  bool hasMean = isa<NormalTensorTensorOp>(op);
  auto operands =
      getRealTensors(rule, op->getOperands().take_front(hasMean ? 2 : 1));
  auto result = rule.tensor(op->getResult(0));
  if (!operands)
    return;
  if (!result)
    return rule.setInexact("a shape of the operator is unknown");
  const ConcreteTensor &std = operands->back();
  OpReplay steps(rule);
  checkDeviations(steps, std);
  MadeTensor draws = steps.allocate(*result);
  checkDeviations(steps, std);
  MadeTensor mean;
  if (!hasMean)
    mean = steps.allocate(ConcreteTensor{{}, result->elementType});
  steps.write({draws, std});
  if (hasMean)
    steps.write({draws, operands->front()});
  steps.free(mean);
  steps.finish(draws.numBytes());
}

/// Whether the type can count so far is asked of a 0-dim tensor.
static void describePermutation(WorkspaceRule &rule) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result)
    return rule.setInexact("a shape of the operator is unknown");
  rule.setTransient(getElementBytes(result->elementType));
}

/// Numbers from zero on, written step by step; of a periodic window the last
/// one is cut off. Source: native/TensorFactories.cpp.
static void describeWindow(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto result = rule.tensor(op->getResult(0));
  auto periodic = op->getAttrOfType<BoolAttr>("periodic");
  bool isKaiser =
      isa<KaiserWindowOp, KaiserWindowPeriodicOp, KaiserWindowBetaOp>(op);
  bool isBlackman = isa<BlackmanWindowOp, BlackmanWindowPeriodicOp>(op);
  bool isBartlett = isa<BartlettWindowOp, BartlettWindowPeriodicOp>(op);
  if (!result ||
      !(result->elementType.isF32() || result->elementType.isF64()) ||
      result->numElements() < 2 || isKaiser || isBartlett || isBlackman)
    return rule.setInexact("a window of this kind, type or length");
  int64_t more = !periodic || periodic.getValue()
                     ? getElementBytes(result->elementType)
                     : 0;
  int64_t kept = result->numBytes() + more;
  rule.setStorageBytes(op->getResult(0), kept);
  rule.setTransient(getFloatBytes(result->elementType));
}

/// The storage reaches to the last element, whatever lies between.
static void allocateStrided(WorkspaceRule &rule) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result || !result->contiguous)
    rule.setInexact("the storage of other strides has another size");
}

void kernels::addFilledModels(KernelLibrary &library) {
  library.add<ArangeEndOp, ArangeStartOp, ArangeStartStepOp, EmptyLikeOp,
              EmptyOp, EmptyPermutedOp, EyeMOp, EyeSquareOp, FullLikeOp, FullOp,
              LinspaceOp, LogspaceOp, NewEmptyOp, NewFullOp, NewOnesOp,
              NewZerosOp, NormalFloatFloatOp, OnesLikeOp, OnesOp, RandLikeOp,
              RandOp, RandintLikeLowOp, RandintLikeOp, RandintLowOp, RandintOp,
              RandnLikeOp, RandnOp, ScalarTensorOp, TrilIndicesOp,
              TriuIndicesOp, ZerosLikeOp, ZerosOp>(
      {.forward = allocateNothing});
  library.add<BernoulliOp, BernoulliPOp, BernoulliTensorOp, CauchyOp,
              ExponentialOp, GeometricOp, LogNormalOp, NormalOp, PoissonOp,
              RandomFromOp, RandomOp, RandomToOp, UniformOp>(
      {.forward = allocateNothing});
  library.add<EmptyStridedOp, NewEmptyStridedOp>({.forward = allocateStrided});
}

void kernels::addFactoryModels(KernelLibrary &library) {
  addFilledModels(library);
  library.add<AsTensorBoolOp, AsTensorFloatOp, AsTensorIntOp, AsTensorListOp,
              TensorBoolOp, TensorFloatOp, TensorIntOp, TensorListOp>(
      {.forward = describeNumberTensor});
  library.add<BartlettWindowOp, BartlettWindowPeriodicOp, BlackmanWindowOp,
              BlackmanWindowPeriodicOp, HammingWindowAlphaBetaOp,
              HammingWindowAlphaOp, HammingWindowOp, HammingWindowPeriodicOp,
              HannWindowOp, HannWindowPeriodicOp, KaiserWindowBetaOp,
              KaiserWindowOp, KaiserWindowPeriodicOp>(
      {.forward = describeWindow});
  library.add<MultinomialOp>({.forward = describeMultinomial});
  library.add<NormalFloatTensorOp, NormalTensorTensorOp>(
      {.forward = describeNormal});
  library.add<NormalTensorFloatOp>({.forward = describeNormalAroundTensor});
  library.add<RandpermOp>({.forward = describePermutation});
}
