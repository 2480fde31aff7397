"""Random numbers are drawn when a call is recorded, as PyTorch would draw them:
then whatever draws before the program runs gets its own numbers, and the program
computes the same however often it runs.

What a function draws (the mask of a dropout) becomes an input of what it does
with it. Masks are bools: PyTorch draws the same of every type.
"""

from __future__ import annotations

import math
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from koila import memory
from koila._capture.frames import find_frames, location_of
from koila._capture.host import find_tile_device, keep
from koila._capture.recorder import (
    RecordedTensor,
    Unrecorded,
    assign,
    current,
    find_source,
    make_leaf,
    wrap,
)
from koila._capture.thread_recordings import recording
from koila._capture.values import Call, Meta, Value, is_open
from koila._execute import executor
from koila._lazy.dispatch import call, compute, dispatch, drawing, handle
from koila._plan.announce import Announced, announce

__all__: list[str] = []


def _draw(func: Any, args: Any, kwargs: Any, made: Unrecorded) -> Any:
    """A call that draws and that nothing below knows."""
    opened = _open(func)
    if opened is not None:
        return opened(*args, **kwargs)
    assert made.call is not None
    _announce_whole(made.call, made.inputs)
    if any(meta.requires_grad for meta in made.call.metas):
        return compute(func, args, kwargs)
    # As a sampled action: of probabilities, without their graph.
    with torch.no_grad():
        return compute(func, args, kwargs)


drawing.append(_draw)

_said: dict[int | str, Announced] = {}  # by the budget


def _announce_whole(called: Call, inputs: list[Any]) -> None:
    """What a call that draws is given and returns is there at once, and as much again inside
    of it; no plan of what is recorded knows of that."""
    source = find_source(inputs)
    if source is None:
        return
    values = {id(entry): entry.meta for entry in inputs if isinstance(entry, Value)}
    need = sum(meta.nbytes for meta in values.values()) + 2 * called.made
    budget = memory.recent_budget_bytes(source.budget, called.metas[0].device)
    if need > budget:
        name = getattr(called.function, "__name__", called.function)
        announce(
            f"'{name}' draws for the whole batch at once, which takes about "
            f"{memory.format_bytes(need)} of {memory.format_bytes(budget)}, and koila does not "
            "split it",
            location_of(find_frames()),
            _said.setdefault(source.budget, set()),
        )


_opened: dict[Any, Any] = {}


def _open(func: Any) -> Any:
    """A function of torch.nn.functional that records what it is made of in place
    of itself; None if it is no function of Python."""
    if not isinstance(func, FunctionType) or func.__module__ != "torch.nn.functional":
        return None
    if func not in _opened:
        scope = dict(func.__globals__)
        for name in list(scope):
            if name.startswith("has_torch_function"):
                scope[name] = lambda *_: False
        # What chooses between two functions, as with indices and without, keeps them
        # there; each of them would come back here by its public name.
        cells = func.__closure__ and tuple(map(_open_cell, func.__closure__))
        opened = FunctionType(func.__code__, scope, func.__name__, func.__defaults__, cells)
        opened.__kwdefaults__ = func.__kwdefaults__
        _opened[func] = opened
    return _opened[func]


def _open_cell(cell: CellType) -> CellType:
    opened = _open(cell.cell_contents)
    return cell if opened is None else CellType(opened)


@handle(F.gaussian_nll_loss)
def _look(func: Any, args: Any, kwargs: Any) -> Any:
    """It looks at its variances before it records what is made of them."""
    before, recording.writes_copies = recording.writes_copies, True
    try:
        return _open(func)(*args, **kwargs)
    finally:
        recording.writes_copies = before


def _new(meta: Meta, dtype: torch.dtype | None = None) -> Tensor:
    with executor.ordinary():
        return torch.empty_strided(
            meta.shape, meta.stride, dtype=dtype or meta.dtype, device=meta.device
        )


def _wrap_drawn(tensor: Tensor, source: Any) -> Any:
    leaf = make_leaf(tensor)
    leaf.source, leaf.drawn = source, True
    device = find_tile_device(leaf)
    if device == tensor.device:
        # It waits on the host, as the batch does.
        leaf.tensor = tensor.cpu()
        keep(leaf, device)
    return wrap(leaf)


# Numbers that depend on shapes alone.


@handle(torch.rand_like, torch.randn_like, torch.randint_like)
def _like(func: Any, args: Any, kwargs: Any) -> Any:
    value = current(args[0])
    meta = value.meta
    with executor.ordinary():
        hollow = torch.empty(0, dtype=meta.dtype, device="meta").as_strided(meta.shape, meta.stride)
        given = {"device": meta.device, **kwargs}
        # Whatever its memory format would be, of a tensor without data.
        drawn = func(hollow, *args[1:], **given)
    return _wrap_drawn(drawn, value.source)


@handle(
    Tensor.normal_,
    Tensor.uniform_,
    Tensor.exponential_,
    Tensor.random_,
    Tensor.bernoulli_,
    Tensor.cauchy_,
    Tensor.log_normal_,
    Tensor.geometric_,
)
def _fill(func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    rest = (*args[1:], *kwargs.values())
    if not isinstance(tensor, RecordedTensor) or any(isinstance(item, Tensor) for item in rest):
        return compute(func, args, kwargs)
    value = current(tensor)
    if value.group.external or value.views is not None or value.meta.requires_grad:
        if not is_open(value):
            return compute(func, args, kwargs)
        drawn = func(_new(value.meta), *args[1:], **kwargs)
        return tensor.copy_(_wrap_drawn(drawn, value.source))
    drawn = func(_new(value.meta), *args[1:], **kwargs)
    leaf = make_leaf(drawn)
    leaf.source, leaf.drawn = value.source, True
    leaf.group.external = False
    assign(tensor, leaf)
    return tensor


@handle(torch.normal)
def _normal(func: Any, args: Any, kwargs: Any) -> Any:
    names = ("mean", "std")
    given = dict(zip(names, args, strict=False), **kwargs)
    if "size" in given or len(args) > 2 or given.get("generator") or given.get("out") is not None:
        return compute(func, args, kwargs)
    mean, std = given["mean"], given.get("std", 1.0)
    tensors = [item for item in (mean, std) if isinstance(item, Tensor)]
    shape = torch.broadcast_shapes(*(item.shape for item in tensors))  # type: ignore[no-untyped-call]
    source = next(
        (current(item).source for item in tensors if isinstance(item, RecordedTensor)), None
    )
    with executor.ordinary():
        noise = torch.empty(
            [int(extent) for extent in shape], dtype=tensors[0].dtype, device=tensors[0].device
        ).normal_()
    return _wrap_drawn(noise, source) * std + mean


# Dropout.


def _scale_noise(mask: Tensor, rate: float, dtype: torch.dtype) -> Tensor:
    # Of a mask a quotient has the default type, and needs no copy; the compiler knows
    # float32 alone as that.
    is_default = dtype == torch.float32 == torch.get_default_dtype()
    own = mask if is_default else mask.to(dtype)
    return own / (1 - rate)


def _apply_mask(input: Tensor, mask: Tensor, rate: float) -> Tensor:
    return input * _scale_noise(mask, rate, input.dtype)


def _apply_alpha_mask(input: Tensor, mask: Tensor, rate: float) -> Tensor:
    alpha = 1.7580993408473766
    scale = 1 / math.sqrt((alpha * alpha * rate + 1) * (1 - rate))
    noise = mask.to(input.dtype)
    shift = (noise - 1) * (alpha * scale) + alpha * scale * rate
    # Names end where the last use is, as in the traced program.
    noise = noise * scale
    found = input * noise
    del noise
    return found + shift


def _make_mask(value: Value, rate: float, is_feature: bool) -> Any:
    meta = value.meta
    if is_feature:
        if len(meta.shape) < 2:
            raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
        shape = (*meta.shape[:2], *[1] * (len(meta.shape) - 2))
        with executor.ordinary():
            mask = torch.empty(shape, dtype=torch.bool, device=meta.device)
    else:
        mask = _new(meta, torch.bool)
    with executor.ordinary():
        mask.bernoulli_(1 - rate)
    return _wrap_drawn(mask, value.source)


def _dropout(apply: Any, is_feature: bool, is_inplace: bool) -> Any:
    def draw(func: Any, args: Any, kwargs: Any) -> Any:
        given = dict(zip(("input", "p", "train"), args, strict=False), **kwargs)
        tensor, rate, trains = given["input"], given["p"], given["train"]
        if not isinstance(tensor, RecordedTensor) or isinstance(rate, Tensor):
            return compute(func, args, kwargs)
        value = current(tensor)
        if not trains or rate in (0, 1) or 0 in value.meta.shape or not 0 < rate < 1:
            return call(func, args, kwargs)
        mask = _make_mask(value, rate, is_feature)
        if is_inplace and apply is _apply_mask:
            noise = dispatch(_scale_noise, (mask, float(rate), value.meta.dtype), {})
            return tensor.mul_(noise)
        made = dispatch(apply, (tensor, mask, float(rate)), {})
        return tensor.copy_(made) if is_inplace else made

    return draw


for _name, _apply, _feature in (
    ("dropout", _apply_mask, False),
    ("feature_dropout", _apply_mask, True),
    ("alpha_dropout", _apply_alpha_mask, False),
    ("feature_alpha_dropout", _apply_alpha_mask, True),
):
    handle(getattr(torch, _name))(_dropout(_apply, _feature, False))
    handle(getattr(torch, f"{_name}_"))(_dropout(_apply, _feature, True))


@handle(F.scaled_dot_product_attention)
def _attention(func: Any, args: Any, kwargs: Any) -> Any:
    """With dropout as PyTorch composes it, else a call like any other."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, args, strict=False), **kwargs)
    rate = given.get("dropout_p", 0.0)
    if not rate or given.get("enable_gqa"):
        return call(func, args, kwargs)
    query, key, value = given["query"], given["key"], given["value"]
    mask = given.get("attn_mask")
    scale = given.get("scale")
    if scale is None:
        scale = 1 / math.sqrt(int(query.shape[-1]))
    root = math.sqrt(scale)
    weights = torch.matmul(query * root, key.transpose(-2, -1) * root)
    if given.get("is_causal"):
        length, width = int(query.shape[-2]), int(key.shape[-2])
        mask = torch.ones(length, width, dtype=torch.bool, device=query.device).tril()
    if mask is not None:
        if mask.dtype == torch.bool:
            weights = weights.masked_fill(mask.logical_not(), -math.inf)
        else:
            weights = weights + mask
    weights = torch.softmax(weights, -1)
    return torch.matmul(torch.dropout(weights, rate, True), value)


# Dropout between the layers of a recurrent network.


def _layers(func: Any, states: int) -> Any:
    def draw(_: Any, args: Any, kwargs: Any) -> Any:
        plain = len(args) == 9 and not kwargs and isinstance(args[2], (list, tuple))
        if not plain or not args[5] or not args[6] or args[4] < 2:
            return call(func, args, kwargs)
        data, hidden, weights, biases, count, rate, _, both, batch_first = args
        if not isinstance(data, RecordedTensor):
            return compute(func, args, kwargs)
        hidden = hidden if isinstance(hidden, (list, tuple)) else [hidden]
        directions = 2 if both else 1
        each = len(weights) // count
        # The masks are drawn of tensors whose first dim is the time.
        output = data.transpose(0, 1) if batch_first else data
        last: list[list[Any]] = [[] for _ in range(states)]
        for layer in range(count):
            at = slice(layer * directions, (layer + 1) * directions)
            start = [state[at] for state in hidden]
            output, *ends = func(
                output,
                start if states > 1 else start[0],
                list(weights[layer * each : (layer + 1) * each]),
                biases,
                1,
                0.0,
                True,
                both,
                False,
            )
            for ended, state in zip(last, ends, strict=True):
                ended.append(state)
            if layer < count - 1:
                output = torch.dropout(output, rate, True)
        output = output.transpose(0, 1) if batch_first else output
        return (output, *(torch.cat(ended) for ended in last))

    return draw


for _name, _states in (("lstm", 2), ("gru", 1), ("rnn_tanh", 1), ("rnn_relu", 1)):
    _function = getattr(torch, _name)
    handle(_function)(_layers(_function, _states))
