//===- ConvolutionBackward.cpp - Gradients of convolutions ----------------===//
//
// Source: convolution_backward in native/Convolution.cpp, and
// lib/KernelModels/OneDNN/ConvWorkspaceBackward.cpp for what its kernels hold.
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/BackwardReplay.h"
#include "../BackwardRules.h"
#include "ConvolutionCall.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"

using namespace koila;
using namespace koila::kernels;

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
  Workspace found = convolutionBackwardWorkspace(
      call->shape, call->target, steps.wants(0), steps.wants(1) || wantsBias);
  rule.setPeak(found.bytes + call->copyBytes +
               (channelsLast ? getChannelsLastCopyBytes(gradient)
                             : getCopyBytes(gradient)));
  bool isKnown = found.exact && !call->isPadded &&
                 (!call->shape.hasBias || wantsBias == steps.wants(1)) &&
                 (call->copyBytes == 0);
  if (!isKnown)
    rule.setBound("the gradients of this convolution are an upper bound on '" +
                  call->target.isa + "'");
}
