"""What is known of a call before it runs: found once with tensors without
data, and kept for calls of the same function on tensors of the same shapes."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from koila._batch_int import BatchInt
from koila._program import Call, Meta, Slot, collect, rebuild

__all__ = ["find_call", "meta_of", "modes"]

_calls: dict[Any, Call | None] = {}
# Those of one key that differ by what a float decides, as a size or whether
# dropout draws at all.
_alike: dict[Any, list[Call]] = {}
# Of these no float decides anything.
_arithmetic = frozenset(
    getattr(owner, name)
    for owner in (torch, torch.Tensor)
    for plain in ("add", "sub", "mul", "div", "true_divide", "pow", "rsub", "lerp", "clamp")
    for name in (plain, f"{plain}_", f"__{plain}__", f"__r{plain}__", f"__i{plain}__")
    if hasattr(owner, name)
) | {torch.Tensor.__truediv__, torch.Tensor.__rtruediv__, torch.Tensor.__itruediv__}
# More than any program has; a loop over ever new constants must not fill memory.
_MOST_CALLS = 100_000


class _Fakes:
    """A FakeTensorMode, made when it is first entered: that loads all of
    torch.compile, for which no import should wait. What fails there is not
    logged: it fails again, on tensors, where the user sees it."""

    _log = logging.getLogger("torch._subclasses.fake_tensor")

    @functools.cached_property
    def _mode(self) -> FakeTensorMode:
        return FakeTensorMode(allow_non_fake_inputs=False)

    def __enter__(self) -> FakeTensorMode:
        self._was_disabled = self._log.disabled
        self._log.disabled = True
        return self._mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)
        self._log.disabled = self._was_disabled


_fakes = _Fakes()


def meta_of(tensor: torch.Tensor) -> Meta:
    return Meta(
        tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad
    )


def modes() -> tuple[Any, ...]:
    """What a call depends on beside its arguments: grad mode and autocast."""
    grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    if not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda"):
        return grad, None
    device = "cuda" if torch.is_autocast_enabled("cuda") else "cpu"
    return grad, (device, torch.get_autocast_dtype(device))


def find_call(
    function: Callable[..., Any],
    arguments: Callable[[], Any],
    key: Any,
    inputs: list[Any],
    metas: list[Meta | None],
    hashable: bool,
) -> Call | None:
    """The call, or None if what it returns depends on the values of tensors.

    ``arguments`` makes the args and kwargs with a ``Slot`` in the place of each
    of ``inputs``, whose ``metas`` are None for numbers; ``key`` stands for all
    of it. Must be called in the modes that the call is recorded in.
    """
    grad, autocast = modes()
    whole = (function, key, tuple(metas), grad, autocast)
    floats: tuple[float, ...] = ()
    if function not in _arithmetic:
        floats = tuple([entry for entry in inputs if type(entry) is float])
    if not hashable:
        return _propagate(function, arguments(), inputs, metas, grad, autocast)
    try:
        return _calls[whole, floats]
    except KeyError:
        pass
    call = _propagate(function, arguments(), inputs, metas, grad, autocast)
    if len(_calls) >= _MOST_CALLS:
        _calls.clear()
        _alike.clear()
    # Programs are told apart by their calls, and mostly a float is a number
    # like any other: a rate that changes makes no other program.
    known = _alike.setdefault(whole, [])
    call = next((other for other in known if _is_alike(call, other)), call)
    if call is not None and call not in known:
        known.append(call)
    _calls[whole, floats] = call
    return call


def _is_alike(call: Call | None, other: Call) -> bool:
    return call is not None and all(
        getattr(call, name) == getattr(other, name)
        for name in ("result", "metas", "same", "shares", "writes", "tracks", "random")
    )


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices operators that draw random numbers, and those that write to
    running statistics, which their schemas do not say; adds up the bytes of
    all results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.random = False
        self.written: list[torch.Tensor] = []
        self.made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.random |= torch.Tag.nondeterministic_seeded in func.tags
        names = [argument.name for argument in func._schema.arguments]
        if "running_mean" in names:
            given = dict(zip(names, args, strict=False), **(kwargs or {}))
            if given.get("training", given.get("train", True)):
                self.written += [given["running_mean"], given["running_var"]]
        result = func(*args, **(kwargs or {}))
        found: list[torch.Tensor] = []
        collect(result, found)
        self.made += sum(tensor.numel() * tensor.itemsize for tensor in found)
        return result


def _propagate(
    function: Callable[..., Any],
    arguments: Any,
    inputs: list[Any],
    metas: list[Meta | None],
    grad: bool,
    autocast: tuple[Any, ...] | None,
) -> Call | None:
    fill = _filler(arguments)
    try:
        with _fakes:
            entries = [
                _make_fake(meta)
                if meta is not None
                else int(entry)
                if isinstance(entry, BatchInt)
                else entry
                for entry, meta in zip(inputs, metas, strict=True)
            ]
        versions = [_version(entry) for entry in entries]
        args, kwargs = fill(list(entries))
        watch = _Watch()
        with torch.set_grad_enabled(grad), _fakes, watch:
            result = function(*args, **kwargs)
        found: list[torch.Tensor] = []
        structure = collect(result, found)
        after = [_make_meta(tensor) for tensor in found]
    except Exception:
        # It needs values, cannot run without data, or fails: so it runs on
        # tensors, which shows what it returns or raises.
        return None
    same = tuple(
        next((i for i, entry in enumerate(entries) if entry is tensor), None) for tensor in found
    )
    storages = [
        entry.untyped_storage()._cdata if isinstance(entry, torch.Tensor) else None
        for entry in entries
    ]
    shares = tuple(
        storages.index(cdata) if (cdata := tensor.untyped_storage()._cdata) in storages else None
        for tensor in found
    )
    writes = frozenset(
        i
        for i, entry in enumerate(entries)
        if _version(entry) != versions[i] or any(entry is written for written in watch.written)
    )
    tracks = frozenset(
        i
        for i in writes
        if entries[i].requires_grad and not metas[i].requires_grad  # type: ignore[union-attr]
    )
    return Call(
        function,
        fill,
        structure,
        tuple(after),
        same,
        shares,
        writes,
        tracks,
        watch.random,
        watch.made,
        grad,
        autocast,
    )


def _version(entry: Any) -> int | None:
    return entry._version if isinstance(entry, torch.Tensor) else None


def _make_meta(tensor: torch.Tensor) -> Meta:
    if tensor.layout != torch.strided:
        raise NotImplementedError("no metadata of sparse tensors")
    return meta_of(tensor)


def _make_fake(meta: Meta) -> torch.Tensor:
    """A tensor without data that is no leaf, so that it can be written to."""
    extent = 1 + sum((n - 1) * s for n, s in zip(meta.shape, meta.stride, strict=True))
    if 0 in meta.shape:
        extent = 0
    base = torch.empty(extent, dtype=meta.dtype, device=meta.device)
    if meta.requires_grad:
        with torch.enable_grad():
            base = base.requires_grad_().clone()
            return base.as_strided(meta.shape, meta.stride)
    return base.as_strided(meta.shape, meta.stride)


def _filler(arguments: Any) -> Callable[[list[Any]], tuple[tuple[Any, ...], dict[str, Any]]]:
    args, kwargs = arguments
    if all(isinstance(item, Slot) for item in args) and not kwargs:
        count = len(args)
        if list(args) == list(range(count)):
            return lambda entries: (tuple(entries), {})

    def fill(entries: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (
            tuple(_put(item, entries) for item in args),
            {name: _put(item, entries) for name, item in kwargs.items()},
        )

    return fill


def _put(item: Any, entries: list[Any]) -> Any:
    kind = type(item)
    if kind is Slot:
        return entries[item]
    if isinstance(item, (list, tuple)):
        return rebuild(item, [_put(part, entries) for part in item])
    if kind is dict:
        return {name: _put(part, entries) for name, part in item.items()}
    if kind is slice:
        return slice(_put(item.start, entries), _put(item.stop, entries), _put(item.step, entries))
    return item
