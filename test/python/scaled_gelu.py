"""An operator of a user's own, with a gradient."""

import torch


@torch.library.custom_op("rulesof::scaled_gelu", mutates_args=())
def scaled_gelu(x: torch.Tensor, scale: float) -> torch.Tensor:
    scaled = x * scale
    return torch.nn.functional.gelu(scaled)


@scaled_gelu.register_fake
def _(x, scale):
    return torch.empty_like(x)


def _setup_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _backward(ctx, grad):
    (x,) = ctx.saved_tensors
    scaled = x * ctx.scale
    outer = grad * ctx.scale
    return torch.ops.aten.gelu_backward(outer, scaled), None


scaled_gelu.register_autograd(_backward, setup_context=_setup_context)


def multiply(trace, x):
    """A product with a number, which is a tensor of float64, and of the type of ``x``."""
    product = trace.allocate(x)
    trace.temporary(8 if x.dtype == torch.float64 else 8 + x.itemsize)
    return product


class Rules:
    """What it does to memory."""

    @staticmethod
    def forward(trace, x, scale):
        # The product is there until gelu has made the result.
        multiply(trace, x)
        trace.allocate_result()

    @staticmethod
    def saved(inputs, output):
        return [inputs[0]]

    @staticmethod
    def backward(trace, grad, inputs, output):
        multiply(trace, inputs[0])
        outer = multiply(trace, grad)
        # The gradient lies in memory as what it is made of first.
        return trace.allocate(outer.tensor), None
