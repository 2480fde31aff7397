"""Construction and capture of programs on meta tensors: nothing is computed, and weights
of any size take no memory."""

import concurrent.futures
import functools

import torch
from torch import _meta_registrations as meta_kernels
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext


class _OnMeta(DeviceContext):
    """Tensors are made on the meta device, but for sequences: models read theirs as
    numbers while they are built, rates of dropped paths for instance."""

    def __init__(self):
        super().__init__(torch.device("meta"))

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.linspace, torch.arange):
            return function(*args, **(kwargs or {}))
        return super().__torch_function__(function, types, args, kwargs)


def construct(make):
    """What ``make`` gives, whose weights are on the meta device where that can be. Models
    that compute with tensors while they are built, as RegNet its widths, are on the CPU."""
    try:
        with _OnMeta():
            return make()
    except NotImplementedError:
        return make()


#: Of the inputs of a capture. A prime that no other size is a multiple of.
BATCH = 1009
_SHAPE = torch.Tensor.shape.__get__  # type: ignore[attr-defined]
_DIMS = {functional.conv1d: 1, functional.conv2d: 2, functional.conv3d: 3}


class _Traced(TorchFunctionMode):
    """The convolution of meta tensors is Python. It never comes to the operator which the
    tracer records, and asks for sizes, which are tensors while PyTorch traces: that
    operator is called at once. Sizes are numbers where the batch has no part in them:
    models compute paddings from them, which a program would not know."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in _DIMS:
            return _convolve(_DIMS[function], *args, **(kwargs or {}))
        given = function(*args, **(kwargs or {}))
        if function == _SHAPE or (function is torch.Tensor.size and isinstance(given, tuple)):
            return tuple(map(_fix, given))
        return _fix(given) if function is torch.Tensor.size else given


def _fix(size):
    number = int(size)
    return size if number % BATCH == 0 else number


def _convolve(dims, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    def spread(value):
        if isinstance(value, str):
            raise RuntimeError(f"a convolution with padding='{value}' is not captured")
        return [value] * dims if isinstance(value, int) else list(value)

    flags = torch.backends.cudnn
    # The flags are those of a GPU as a script finds it.
    return torch._convolution(
        input, weight, bias, spread(stride), spread(padding), spread(dilation), False,
        [0] * dims, groups, flags.benchmark, flags.deterministic, True, flags.allow_tf32,
    )  # fmt: skip


@functools.cache
def _declare_convolution():
    # Sizes are numbers in a thread that traces nothing.
    thread = concurrent.futures.ThreadPoolExecutor(1)

    def convolve(*args):
        return thread.submit(torch.no_grad()(meta_kernels.meta_conv), *args[:9]).result()

    library = torch.library.Library("aten", "IMPL")
    library.impl("_convolution", convolve, "Meta")
    return library


def trace(module, inputs):
    """The module in TorchScript; it and its inputs are on the meta device."""
    _declare_convolution()
    # PyTorch's own unit keeps each program that it has had.
    unit = torch._C.CompilationUnit()
    with _Traced():
        script = torch.jit.trace(module, inputs, check_trace=False, _compilation_unit=unit)
    called = [part for part in script.modules() if part._c._has_method("forward")]
    for part in called:
        for node in part.graph.nodes():
            # The one of the weights is named like the CPU: meta tensors are of none.
            if node.kind() == "prim::Constant" and str(node.output().type()) == "Device":
                node.s_("value", "cpu")
    return script


@functools.cache
def declare_torchvision():
    """The compiled operators of torchvision do not load beside a PyTorch without CUDA;
    its models need their schemas alone."""
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
