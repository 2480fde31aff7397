"""That PyTorch's backward pass of batch normalisation is wrong for one sample.

The gradient of a single image that comes back through `flatten(2)` and
`transpose(1, 2)` has strides of channels_last but for the dim of the sample,
whose stride does not matter; the gradients of weight and bias are then not the
sums that they are for two samples. Once this is mended, the trait
SingleSampleGradientUnreliable has no reason left.
"""

import torch
from torch import nn


def get_error(samples):
    """Of the gradient of the bias, which is a sum of what comes back."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8).double().eval()
    x = torch.randn(samples, 8, 4, 4, dtype=torch.float64)
    weights = torch.randn(samples, 16, 8, dtype=torch.float64)
    (norm(x).flatten(2).transpose(1, 2) * weights).sum().backward()
    return (norm.bias.grad - weights.sum((0, 1))).abs().max().item()


for samples in 1, 2, 3:
    print(f"{samples}: {'wrong' if get_error(samples) > 1e-9 else 'right'}")
