"""Running statistics that are averages over all calls, in traces.

Batch normalisation with ``momentum=None`` weighs the statistics of a call by one over the
number of calls, a number of Python that a trace takes for constant.
Source: _BatchNorm.forward in torch/nn/modules/batchnorm.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["averaging_in_tensors", "find_unfollowed", "normalise"]


def _list_cumulative(module: nn.Module) -> Iterator[tuple[str, _BatchNorm]]:
    for path, layer in module.named_modules():
        averages = isinstance(layer, _BatchNorm) and layer.momentum is None
        if averages and layer.training and layer.track_running_stats:
            yield path, layer


def _is_followed(layer: _BatchNorm) -> bool:
    return type(layer).forward is _BatchNorm.forward and "forward" not in vars(layer)


def find_unfollowed(module: nn.Module) -> str | None:
    """The path of such a layer with a forward() of its own; None if there is none."""
    return next((p for p, layer in _list_cumulative(module) if not _is_followed(layer)), None)


@contextlib.contextmanager
def averaging_in_tensors(module: nn.Module) -> Iterator[None]:
    """Where such layers are traced, the factor is a tensor, of the number of calls at each."""
    layers = [layer for _, layer in _list_cumulative(module) if _is_followed(layer)]
    for layer in layers:
        vars(layer)["forward"] = _Forward(layer)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


class _Forward:
    def __init__(self, layer: _BatchNorm) -> None:
        self._layer = layer

    def __call__(self, input: Tensor) -> Tensor:
        layer = self._layer
        layer._check_input_dim(input)  # type: ignore[no-untyped-call]
        mean, variance, count = layer.running_mean, layer.running_var, layer.num_batches_tracked
        assert mean is not None and variance is not None and count is not None
        count.add_(1)
        factor = count.to(mean.dtype).reciprocal()
        return normalise(
            input, mean, variance, layer.weight, layer.bias, momentum=factor, eps=layer.eps
        )


def normalise(
    input: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    momentum: Tensor,
    eps: float,
) -> Tensor:
    """Batch normalisation in training mode by a momentum that is a tensor of one element."""
    # With a momentum of one, those of this call. Autograd saves the tensors that are
    # given, so that nothing else may write to them.
    own = mean.clone(), variance.clone()
    result = nn.functional.batch_norm(input, own[0], own[1], weight, bias, True, 1.0, eps)
    momentum = momentum.to(mean.dtype)
    mean.copy_(torch.lerp(mean, own[0], momentum))
    variance.copy_(torch.lerp(variance, own[1], momentum))
    return result
