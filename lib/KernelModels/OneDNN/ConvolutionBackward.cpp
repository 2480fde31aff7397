//===- ConvolutionBackward.cpp - Gradients of convolutions ----------------===//
//
// Source: convolution_backward in native/Convolution.cpp, and
// lib/KernelModels/OneDNN/ConvWorkspaceBackward.cpp for what its kernels hold.
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/BackwardReplay.h"
#include "../BackwardRules.h"
#include "../WorkspaceRules.h"
#include "ConvolutionCall.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"

using namespace koila;
using namespace koila::kernels;

/// Bytes held at the worst moment, the new gradients included.
static int64_t holdGradients(WorkspaceRule &rule, const conv::Call &call,
                             const ConcreteTensor &gradient, bool wantsInput,
                             bool wantsWeight, bool wantsBias) {
  int64_t copied = call.shape.isChannelsLast()
                       ? getChannelsLastCopyBytes(gradient)
                       : getCopyBytes(gradient);
  Workspace found = convolutionBackwardWorkspace(
      call.shape, call.target, wantsInput, wantsWeight || wantsBias, copied);
  // Slices of a channels-last gradient are copied as such, and then again.
  ConcreteTensor image =
      gradient.dims.size() == 3 ? unsqueeze(gradient, 2) : gradient;
  bool isCopiedTwice = copied > 0 && call.shape.groups > 1 &&
                       !call.shape.isChannelsLast() &&
                       suggestsChannelsLast(image);
  if (isCopiedTwice)
    found.bytes += copied / call.shape.groups;
  // An image of one dim is made contiguous first, and stays to the end.
  bool isKnown = found.exact && !isCopiedTwice && !call.isPadded &&
                 (!call.shape.hasBias || wantsBias == wantsWeight);
  if (!isKnown)
    rule.setBound("the gradients of this convolution are an upper bound on '" +
                  call.target.isa + "'");
  return found.bytes + llvm::sum_of(call.copies);
}

void rules::describeConvolutionBackward(BackwardRule &rule,
                                        ConvolutionKind kind) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  const ConcreteTensor &gradient = steps.getGradient();
  bool wantsBias = rule.getOp()->getNumOperands() > 2 && steps.wants(2);
  auto call = conv::readCall(rule, kind);
  bool channelsLast = call && call->shape.isChannelsLast();
  if (channelsLast && steps.read(0).dims.size() < steps.read(1).dims.size())
    return rule.setInexact(
        "the gradient of a single channels-last image without a batch");
  // Both come back in the layout that either operand suggests.
  bool isView = gradient.dims.size() == 3;
  for (unsigned operand = 0; operand < rule.getOp()->getNumOperands();
       ++operand)
    if (steps.wants(operand)) {
      ConcreteTensor like = steps.read(operand);
      like.contiguous = true;
      like.strides.reset();
      if (channelsLast && operand < 2)
        like = toChannelsLast(like);
      steps.give(operand, like, isView && operand < 2);
    }
  if (!call || !gradient.getStrides())
    return koila::detail::describeUnknownBackward(rule);
  rule.setPeak(holdGradients(rule, *call, gradient, steps.wants(0),
                             steps.wants(1), wantsBias));
}

void rules::describeConvolutionBackwardWorkspace(WorkspaceRule &rule) {
  auto op = cast<ConvolutionBackwardOp>(rule.getOp());
  llvm::ArrayRef<bool> mask = op.getOutputMask();
  auto call =
      conv::readCall(rule, {0, false}, op.getInput(), op.getWeight(), mask[2]);
  auto gradient = rule.tensor(op.getGradOutput());
  if (!call || !gradient || !gradient->getStrides())
    return rule.setInexact("a shape of the convolution is unknown");
  // oneDNN makes that of the weight as well, which is gone at once where
  // nothing reads it.
  if (mask[2] && !mask[1] &&
      !llvm::all_of(op.getGradWeight().getUsers(), llvm::IsaPred<KeepAliveOp>))
    return rule.setInexact("a gradient of a weight that is read although the "
                           "mask leaves it out");
  int64_t peak =
      holdGradients(rule, *call, *gradient, mask[0], mask[1], mask[2]);
  for (auto [result, isMade] : llvm::zip_equal(op->getResults(), mask))
    if (auto tensor = isMade ? rule.tensor(result) : std::nullopt)
      peak -= tensor->numBytes();
  rule.setTransient(std::max<int64_t>(peak, 0));
}
