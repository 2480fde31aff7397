//===- ViewBackward.cpp - Gradients of views and copies -------------------===//
//
// The gradient of a view of all elements is a view of the gradient, or a copy
// where its strides allow none; that of a part is a tensor of zeros with the
// part written. Source: FunctionsManual.cpp in torch/csrc/autograd.
//
//===----------------------------------------------------------------------===//

#include "BackwardModels.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// Tensor::reshape to the shape of the operand.
static void reshapeBack(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0);
  bool isCopy = false;
  ConcreteTensor back = steps.reshape(steps.getGradient(), self.dims, isCopy);
  if (isCopy)
    return steps.give(0, back);
  rule.setView(0, back);
}

/// Of operators that make no node where nothing changes.
static void reshapeIfChanged(BackwardRule &rule, BackwardReplay &steps) {
  if (steps.read(0).dims == steps.getGradient().dims)
    return rule.forwardGrad(0);
  reshapeBack(rule, steps);
}

/// Tensor::permute with the inverse of `dims`.
static void permuteBack(BackwardRule &rule, BackwardReplay &steps,
                        ArrayRef<int64_t> dims) {
  const ConcreteTensor &gradient = steps.getGradient();
  int64_t rank = dims.size();
  if (gradient.dims.size() != dims.size())
    return koila::detail::describeUnknownBackward(rule);
  auto strides = gradient.getStrides();
  ConcreteTensor back = gradient;
  SmallVector<int64_t> moved(rank);
  for (auto [place, dim] : llvm::enumerate(dims)) {
    int64_t source = dim < 0 ? dim + rank : dim;
    back.dims[source] = gradient.dims[place];
    if (strides)
      moved[source] = (*strides)[place];
  }
  if (strides)
    strides = moved;
  rule.setView(0, withStrides(std::move(back), strides));
}

/// Where Tensor::movedim takes each dim from. None where a list is computed.
static SmallVector<int64_t> getMoved(Operation *op, int64_t rank) {
  auto read = [&](StringRef name) {
    SmallVector<int64_t> dims;
    Attribute attr = op->getAttr(name);
    if (auto one = dyn_cast_if_present<IntegerAttr>(attr))
      dims.push_back(one.getInt());
    else if (auto list = dyn_cast_if_present<DenseI64ArrayAttr>(attr))
      dims.append(list.asArrayRef().begin(), list.asArrayRef().end());
    for (int64_t &dim : dims)
      dim += dim < 0 ? rank : 0;
    return dims;
  };
  SmallVector<int64_t> from = read("source"), to = read("destination");
  SmallVector<int64_t> order(rank, -1), rest;
  if (from.size() != to.size())
    return {};
  for (auto [source, destination] : llvm::zip(from, to)) {
    if (source < 0 || source >= rank || destination < 0 || destination >= rank)
      return {};
    order[destination] = source;
  }
  for (int64_t dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(from, dim))
      rest.push_back(dim);
  auto *next = rest.begin();
  for (int64_t &dim : order)
    if (dim < 0 && next != rest.end())
      dim = *next++;
  return order;
}

/// The tensor as one of real or of complex numbers, of which each is two.
static ConcreteTensor viewParts(ConcreteTensor tensor) {
  auto type = dyn_cast<ComplexType>(tensor.elementType);
  if (type)
    tensor.dims.push_back(2);
  else
    tensor.dims.pop_back();
  tensor.elementType =
      type ? type.getElementType() : ComplexType::get(tensor.elementType);
  tensor.contiguous = true;
  tensor.strides.reset();
  return tensor;
}

/// The gradient as numbers of the other kind, of a contiguous copy.
static void viewPartsBack(BackwardRule &rule, BackwardReplay &steps) {
  const ConcreteTensor &gradient = steps.getGradient();
  if (gradient.contiguous)
    return rule.setView(0, viewParts(gradient));
  steps.give(0, viewParts(steps.contiguous(gradient)), /*isViewed=*/true);
}

/// A cast, and copies of other strides.
static void copyBack(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0);
  const ConcreteTensor &gradient = steps.getGradient();
  if (self.elementType == gradient.elementType)
    return rule.forwardGrad(0);
  if (isa<ComplexType>(self.elementType) ||
      isa<ComplexType>(gradient.elementType))
    return rule.setInexact("gradients that are complex numbers");
  ConcreteTensor cast = gradient;
  cast.elementType = self.elementType;
  steps.give(0, steps.makeLike(cast));
}

/// What is no copy has no node; whether it is one, storages tell.
static void copyIfNeeded(BackwardRule &rule, BackwardReplay &steps) {
  if (steps.read(0).elementType == steps.getGradient().elementType)
    return rule.setAbsent(0);
  copyBack(rule, steps);
}

/// The parts joined; of those without a gradient zeros are made first.
static void joinParts(BackwardRule &rule, BackwardReplay &steps) {
  SmallVector<MadeTensor> zeros;
  for (OpResult part : rule.getOp()->getResults())
    if (!rule.getGradient(part.getResultNumber())) {
      auto tensor = rule.tensor(part);
      if (!tensor)
        return koila::detail::describeUnknownBackward(rule);
      zeros.push_back(steps.allocate(*tensor));
    }
  steps.giveContiguous(0);
  // A vector destroys the first first.
  for (const MadeTensor &zero : zeros)
    steps.free(zero);
}

/// Of parts along a dim that goes: zeros are one number, which is expanded.
static void stackParts(BackwardRule &rule, BackwardReplay &steps) {
  SmallVector<MadeTensor> zeros;
  ConcreteTensor self = steps.read(0);
  for (OpResult part : rule.getOp()->getResults())
    if (!rule.getGradient(part.getResultNumber()))
      zeros.push_back(steps.makeNumber(self));
  steps.giveContiguous(0);
  for (const MadeTensor &zero : zeros)
    steps.free(zero);
}

/// Sums over what was repeated are the engine's. A tensor of the common shape
/// is given back and has no node: its gradient goes when it arrives. Source:
/// expand_outplace in ExpandUtils.h.
static void broadcastBack(BackwardRule &rule, BackwardReplay &steps) {
  Operation *op = rule.getOp();
  auto hasGradient = [&](unsigned index) { return rule.getGradient(index); };
  auto indices = llvm::seq<unsigned>(op->getNumOperands());
  bool hasSeveral = llvm::count_if(indices, hasGradient) > 1;
  for (unsigned index : indices) {
    const ConcreteTensor *gradient = rule.getGradient(index);
    if (!gradient) {
      // Each is expanded by itself.
      rule.setUnread(index);
      continue;
    }
    if (!steps.wants(index))
      continue;
    rule.forwardGrad(index, index);
    if (!hasSeveral || steps.read(index).dims != gradient->dims)
      continue;
    if (rule.isAccumulated(index))
      rule.setBound("a gradient of broadcast_tensors that is added early");
    else if (!kernels::isDense(*gradient))
      rule.setInexact("a gradient of broadcast_tensors that is copied early");
  }
}

/// The dims in reverse.
static void reverseBack(BackwardRule &rule, BackwardReplay &steps) {
  int64_t rank = steps.getGradient().dims.size();
  permuteBack(rule, steps, llvm::to_vector(llvm::reverse(llvm::seq(rank))));
}

static void moveBack(BackwardRule &rule, BackwardReplay &steps) {
  permuteBack(rule, steps,
              getMoved(rule.getOp(), steps.getGradient().dims.size()));
}

static void permuteBack(BackwardRule &rule, BackwardReplay &steps) {
  permuteBack(rule, steps, cast<PermuteOp>(rule.getOp()).getDims());
}

/// Zeros of both parts, into one of which it is written.
static void writePart(BackwardRule &rule, BackwardReplay &steps) {
  if (!isa<ComplexType>(steps.read(0).elementType))
    return rule.forwardGrad(0);
  steps.give(0, steps.allocate(steps.read(0)), /*isViewed=*/true);
}

static void exchangeBack(BackwardRule &rule, int64_t first, int64_t second) {
  rule.setView(0, transposeDims(*rule.getGradient(), first, second));
}

template <typename OpT>
static void exchangeDims(BackwardRule &rule, BackwardReplay &) {
  auto op = cast<OpT>(rule.getOp());
  exchangeBack(rule, op.getDim0(), op.getDim1());
}

static void exchangeAxes(BackwardRule &rule, BackwardReplay &) {
  auto op = cast<SwapAxesOp>(rule.getOp());
  exchangeBack(rule, op.getAxis0(), op.getAxis1());
}

static void transposeBack(BackwardRule &rule, BackwardReplay &steps) {
  if (steps.getGradient().dims.size() < 2)
    return rule.setView(0, steps.getGradient());
  exchangeBack(rule, -1, -2);
}

static void adjoinBack(BackwardRule &rule, BackwardReplay &steps) {
  if (isa<ComplexType>(steps.getGradient().elementType))
    return rule.setInexact("gradients that are complex numbers");
  transposeBack(rule, steps);
}

/// Sums over what was repeated are the engine's.
static void handOn(BackwardRule &rule, BackwardReplay &) {
  rule.forwardGrad(0);
}

/// Into zeros.
static void writeBack(BackwardRule &, BackwardReplay &steps) {
  steps.giveContiguous(0);
}

/// The places along the dim beside it, if parts overlap. Source:
/// unfold_backward in native/UnfoldBackward.cpp.
static void foldBack(BackwardRule &rule, BackwardReplay &steps) {
  auto view = cast<UnfoldOp>(rule.getOp());
  ConcreteTensor self = steps.read(0);
  int64_t rank = self.dims.size(), dim = view.getDimension();
  dim += dim < 0 ? rank : 0;
  if (dim < 0 || dim >= rank)
    return koila::detail::describeUnknownBackward(rule);
  steps.giveContiguous(0);
  if (view.getStep() < view.getSize())
    steps.allocateBriefly(self.dims[dim] * int64_t(sizeof(int64_t)));
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Of the parts of a tensor, or of several tensors.
template <BackwardSteps Steps>
static void ofParts(BackwardRule &rule) {
  if (!rule.tensor(rule.getOp()->getOperand(0)))
    return rule.setInexact("the shape of an operand is unknown");
  BackwardReplay steps(rule);
  Steps(rule, steps);
  steps.finish();
}

/// Of one tensor.
template <BackwardSteps Steps>
static void ofView(BackwardRule &rule) {
  if (!rule.tensor(rule.getOp()->getOperand(0)))
    return rule.setInexact("the shape of an operand is unknown");
  ofGradient<Steps>(rule);
}

/// Of one that a second one gives its shape or type.
template <BackwardSteps Steps>
static void ofViewLike(BackwardRule &rule) {
  rule.setUnread(1);
  ofView<Steps>(rule);
}

void kernels::addViewGradients(KernelLibrary &library) {
  library.add<AliasOperatorOp, AtLeast1DOp, AtLeast2DOp, AtLeast3DOp, FlattenOp,
              SqueezeDimOp, SqueezeDimsOp, SqueezeOp>(
      {.backward = ofView<reshapeIfChanged>});
  library.add<BroadcastTensorsOp>({.backward = ofParts<broadcastBack>});
  library.add<BroadcastToOp, ExpandOp>({.backward = ofView<handOn>});
  library.add<ChunkOp, SplitListOp, SplitOp, SplitSizesListOp, SplitWithSizesOp,
              UnsafeChunkOp, UnsafeSplitOp, UnsafeSplitWithSizesOp>(
      {.backward = ofParts<joinParts>});
  library.add<DiagonalOp, NarrowOp, SelectOp, SliceOp>(
      {.backward = ofView<writeBack>});
  library.add<ExpandAsOp>({.backward = ofViewLike<handOn>});
  library.add<ImagOp, RealOp>({.backward = ofView<writePart>});
  library.add<MHOp>({.backward = ofView<adjoinBack>});
  library.add<MTOp, TOp>({.backward = ofView<transposeBack>});
  library.add<MoveAxisListOp, MoveAxisOp, MoveDimListOp, MoveDimOp>(
      {.backward = ofView<moveBack>});
  library.add<NumpyTOp>({.backward = ofView<reverseBack>});
  library.add<PermuteOp>({.backward = ofView<permuteBack>});
  library
      .add<RavelOp, ReshapeOp, UnflattenOp, UnsafeViewOp, UnsqueezeOp, ViewOp>(
          {.backward = ofView<reshapeBack>});
  library.add<ReshapeAsOp, ViewAsOp>({.backward = ofViewLike<reshapeBack>});
  library.add<SwapAxesOp>({.backward = ofView<exchangeAxes>});
  library.add<SwapDimsOp>({.backward = ofView<exchangeDims<SwapDimsOp>>});
  library.add<TransposeOp>({.backward = ofView<exchangeDims<TransposeOp>>});
  library.add<UnbindOp>({.backward = ofParts<stackParts>});
  library.add<UnfoldOp>({.backward = ofView<foldBack>});
  library.add<ViewAsComplexOp, ViewAsRealOp>(
      {.backward = ofView<viewPartsBack>});
}

void kernels::addCopyGradients(KernelLibrary &library) {
  library.add<CloneTensorOp, ToCopyOp>({.backward = ofView<copyBack>});
  library.add<ContiguousOp, CpuOp, ToDeviceOp, ToDtypeLayoutOp, ToDtypeOp,
              ToPrimDeviceOp, ToPrimDtypeOp, ToPrimOtherOp>(
      {.backward = ofView<copyIfNeeded>});
  library.add<ToOtherOp, TypeAsOp>({.backward = ofViewLike<copyIfNeeded>});
}

//===----------------------------------------------------------------------===//
// Joins
//===----------------------------------------------------------------------===//

/// Each operand gets its part of the gradient, a view.
static void takeParts(BackwardRule &rule, BackwardReplay &steps) {
  Operation *op = rule.getOp();
  const ConcreteTensor &gradient = steps.getGradient();
  auto strides = gradient.getStrides();
  auto attr = op->getAttrOfType<IntegerAttr>("dim");
  // Of those without the attribute only tensors of two dims or more are joined
  // as they are; of these no place is needed.
  int64_t dim = attr ? attr.getInt() : 0;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (!steps.wants(index))
      continue;
    ConcreteTensor self = steps.read(index);
    if (self.elementType != gradient.elementType ||
        (!attr && self.dims.size() < 2))
      return koila::detail::describeUnknownBackward(rule);
    auto own = strides;
    // A stack's part lacks the dim.
    if (own && self.dims.size() < own->size())
      own->erase(own->begin() +
                 (dim < 0 ? dim + static_cast<int64_t>(own->size()) : dim));
    rule.setView(index, withStrides(self, own));
  }
}

void kernels::addJoinGradients(KernelLibrary &library) {
  library.add<CatOp, ConcatOp, ConcatenateOp, HstackOp, RowStackOp, StackOp,
              VstackOp>({.backward = ofGradient<takeParts>});
}
