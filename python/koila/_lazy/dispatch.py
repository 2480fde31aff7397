"""What becomes of a call on lazy tensors: it is answered, recorded, or made now."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodWrapperType
from typing import Any

import torch
from torch import Tensor

from koila._capture.batch_int import BatchInt
from koila._capture.frames import find_frames, location_of
from koila._capture.host import find_tile_device, is_on_host, lift
from koila._capture.recorder import (
    RecordedTensor,
    Unrecorded,
    current,
    find_source,
    find_values,
    known,
    record,
    rewrap,
)
from koila._capture.structure import map_tensors
from koila._capture.values import Value, rebuild
from koila._capture.written_tensors import adopt
from koila._errors import KoilaError
from koila._execute import executor
from koila._execute.overwritten import settle_readers
from koila._lazy.scripts import check_script
from koila._lazy.temporaries import writes_temporary
from koila._lazy.unknown_calls import check_call

__all__ = [
    "aliases",
    "call",
    "compute",
    "compute_on_host",
    "dispatch",
    "drawing",
    "handle",
    "handlers",
    "replace",
    "unwrap",
]

# What is answered in another way than by recording (`materialize.py`).
handlers: dict[Any, Callable[[Any, Any, Any], Any]] = {}
# Who makes calls that draw random numbers (`draws.py`).
drawing: list[Callable[[Any, Any, Any, Unrecorded], Any]] = []


def handle(*functions: Any) -> Callable[[Any], Any]:
    def register(handler: Any) -> Any:
        for function in functions:
            handlers[function] = handler
        return handler

    return register


# Attributes that koila has put something in front of (`functions.py`).
aliases: dict[Any, Any] = {}


def dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    if type(func) is MethodWrapperType:
        func = aliases.get(func, func)
    handler = handlers.get(func)
    if handler is not None:
        return handler(func, args, kwargs)
    return call(func, args, kwargs)


def call(func: Any, args: Any, kwargs: Any) -> Any:
    """Records a call, or makes it now."""
    if type(func) is torch._C.ScriptMethod:
        check_script(func, args, kwargs)
        return compute(func, args, kwargs)
    adopt(func, args, kwargs)
    is_temporary = writes_temporary(func, args)
    made = record(func, args, kwargs)
    if type(made) is not Unrecorded:
        return made
    if made.call is not None and made.call.random:
        return drawing[0](func, args, kwargs, made)
    if made.call is not None:
        # Others see what it writes, so it is written now, after what was
        # recorded to read it.
        for index in made.call.writes:
            group = made.inputs[index].group
            if any(is_on_host(each, each.tensor) for each in group.list_members()):
                raise _refuse_write(getattr(func, "__name__", str(func)))
            executor.settle_lent(made.inputs[index])
            settle_readers(made.inputs[index])
            executor.expose_memory(made.inputs[index])
        if is_temporary and made.call.writes == made.call.tracks == {0}:
            with torch.no_grad():
                return compute(func, args, kwargs)
        return compute(func, args, kwargs)
    return compute(check_call(func, args, kwargs), args, kwargs)


def compute(func: Any, args: Any, kwargs: Any) -> Any:
    """Makes a call now, on tensors; with their graphs if it is to have one."""
    found: list[Value] = []
    find_values((args, kwargs), found)
    name = str(getattr(func, "__name__", func))
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        executor.materialize(found, find_frames(), f"'{name}'")
        with _Lifts(name) as lifts:
            plain, named = _map_lazy(args, lifts.known), _map_lazy(kwargs, lifts.known)
            made = func(*plain, **named)
        if _is_first(made, args, plain):
            return args[0]
        graphs = frozenset(graph for value in found for graph in value.graphs)
        return rewrap(made, find_source(found), graphs)
    read = executor.read(found, find_frames())
    with _Lifts(name) as lifts:
        tensors = map(lifts.lift, found, read)
        plain, named = replace(args, tensors), replace(kwargs, tensors)
        made = func(*plain, **named)
    return args[0] if _is_first(made, args, plain) else rewrap(made, find_source(found))


def compute_on_host(func: Any, args: Any, kwargs: Any) -> Any:
    """Makes a call now that picks samples, of a batch that may wait on the host."""
    value = current(args[0])
    if find_tile_device(value) is None:
        return compute(func, args, kwargs)
    found: list[Value] = []
    find_values((args, kwargs), found)
    tensors = iter(executor.read(found, find_frames()))
    if known(value).device.type != "cpu":  # type: ignore[union-attr]
        return compute(func, args, kwargs)
    args, kwargs = replace(args, tensors), replace(kwargs, tensors)
    with torch.no_grad():
        made = func(*map_tensors(Tensor.cpu, args), **map_tensors(Tensor.cpu, kwargs))
    return rewrap(made, value.source, device=find_tile_device(value))


def _refuse_write(name: str) -> KoilaError:
    """What is on the host is on the device by tiles: a write to its memory there has to be
    part of the program, as one to a copy is that nobody has read."""
    return KoilaError(
        f"'{name}' writes in place to a tensor that koila.lazy(device=...) keeps on the host",
        location_of(find_frames()),
        ("write to a copy of it, as of x.clone(), before that is read",),
    )


class _Lifts:
    """What waits on the host, as a whole on the device, for a call that is made now. What that
    writes there nobody would see."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lifted: list[tuple[Tensor, int]] = []

    def __enter__(self) -> _Lifts:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None and any(tensor._version != before for tensor, before in self._lifted):
            raise _refuse_write(self._name)

    def known(self, tensor: RecordedTensor) -> Tensor | None:
        value = current(tensor)
        plain = known(value)
        return None if plain is None else self.lift(value, plain)

    def lift(self, value: Value, plain: Tensor) -> Tensor:
        there = lift(value, plain)
        if there is not plain and not there.is_inference():
            self._lifted.append((there, there._version))
        return there


def _is_first(made: Any, args: Any, plain: Any) -> bool:
    """Whether a call has returned its first argument, which it has written to."""
    return bool(args) and isinstance(args[0], RecordedTensor) and made is plain[0]


def replace(item: Any, tensors: Any) -> Any:
    """The arguments with the next of ``tensors`` for each lazy one."""
    return _map_lazy(item, lambda _: next(tensors))


def unwrap(item: Any) -> Any:
    """The arguments with what was computed of lazy tensors."""
    return _map_lazy(item, lambda tensor: known(current(tensor)))


def _map_lazy(item: Any, function: Callable[[RecordedTensor], Any]) -> Any:
    if isinstance(item, RecordedTensor):
        return function(item)
    if isinstance(item, BatchInt):
        return int(item)
    if isinstance(item, (list, tuple)):
        return rebuild(item, [_map_lazy(part, function) for part in item])
    if isinstance(item, dict):
        return {name: _map_lazy(part, function) for name, part in item.items()}
    if isinstance(item, slice):
        return slice(*(_map_lazy(x, function) for x in (item.start, item.stop, item.step)))
    return item
