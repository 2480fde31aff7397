"""What is known of a call before it runs: found once with tensors without
data, and kept for calls of the same function on tensors of the same shapes."""

from __future__ import annotations

import contextlib
import functools
import logging
import mmap
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.autograd.graph import saved_tensors_hooks

from koila._capture.batch_int import BatchInt
from koila._capture.dispatch_mode import DispatchMode, call_operator
from koila._capture.result_strides import correct_strides
from koila._capture.stand_ins import find_stand_in, is_selection
from koila._capture.values import Call, Meta, Node, Slot, Value, collect, is_float, rebuild
from koila._interrupt import import_whole

__all__ = [
    "fakes",
    "find_call",
    "find_saved",
    "is_arithmetic",
    "is_saved",
    "make_fake",
    "meta_of",
    "modes",
    "takes_float",
]

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


# Of these a number may as well be a tensor of one element, of the type of the
# result; not of those that take it by name, as alpha.
_EXCHANGEABLE = frozenset(
    getattr(torch.Tensor, name)
    for plain in ("add", "sub", "mul", "div", "truediv", "pow")
    for name in (f"__{plain}__", f"__r{plain}__", f"__i{plain}__", f"{plain}_")
    if hasattr(torch.Tensor, name)
) | frozenset(
    getattr(owner, name) for owner in (torch, torch.Tensor) for name in ("add", "sub", "mul", "div")
)


# Of others, a tensor of one element is rounded to the type of the result, and a number is not.
_KEEPS_NUMBERS = (torch.float32, torch.float64)


def is_arithmetic(node: Node) -> bool:
    """Whether a float among its inputs may as well be a tensor of one element: one of two
    operands, and nothing that is given by name."""
    call = node.call
    if call.function not in _EXCHANGEABLE or len(call.metas) != 1:
        return False
    args, kwargs = call.fill([None] * len(node.inputs))
    return len(args) == 2 and not kwargs and call.metas[0].dtype in _KEEPS_NUMBERS


# Of these an integer may as well be a float; a power has cases of its own for integers.
_TAKES_FLOAT = frozenset(
    function for function in _EXCHANGEABLE if "pow" not in getattr(function, "__name__", "")
)
# The integers that are floats of any type.
_LARGEST_EXACT = 1 << 24


def takes_float(function: Callable[..., Any], meta: Meta, number: int) -> bool:
    """Whether the call of a tensor and an integer gives the same for a float: that it is
    another one in each step, as of what a loss is divided by, makes no other program."""
    return (
        function in _TAKES_FLOAT and meta.dtype in _KEEPS_NUMBERS and abs(number) <= _LARGEST_EXACT
    )


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


fakes = _Fakes()


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
        floats = tuple([entry for entry in inputs if is_float(entry)])
    if not hashable:
        with torch.inference_mode(False):
            return _note_decided(
                _propagate(function, arguments(), inputs, metas, grad, autocast), metas, None
            )
    try:
        return _calls[whole, floats]
    except KeyError:
        pass
    with torch.inference_mode(False):
        call = _propagate(function, arguments(), inputs, metas, grad, autocast)
    call = _note_decided(call, metas, (key, floats))
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


_kinds: dict[Any, object] = {}


def _note_decided(call: Call | None, metas: list[Meta | None], key: Any) -> Call | None:
    """Notes of a call whose results have extents that data have decided which
    others make the same program: those with the same arguments (``key``)."""
    if call is None or not (
        is_selection(call.function) or any(meta is not None and meta.decided for meta in metas)
    ):
        return call
    call.metas = tuple([meta._replace(decided=bool(meta.shape)) for meta in call.metas])
    if key is not None:
        function = call.function.func if is_selection(call.function) else call.function  # type: ignore[attr-defined]
        same = (function, key, call.grad, call.autocast, call.graph_names, call.same, call.shares)
        further = (call.writes, call.tracks, call.random, len(call.metas))
        call.kind = _kinds.setdefault((same, further), object())
    return call


def _is_alike(call: Call | None, other: Call) -> bool:
    return call is not None and all(
        getattr(call, name) == getattr(other, name)
        for name in ("result", "metas", "same", "shares", "writes", "tracks", "random")
    )


class _Watch(DispatchMode):
    """Notices operators that draw random numbers, running statistics, and operators that
    write to these, which their schemas do not say; adds up the bytes of all results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.random = False
        self.statistics: list[torch.Tensor] = []
        self.written: list[torch.Tensor] = []
        self.made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = {argument.name: argument for argument in func._schema.arguments}
        given = dict(zip(arguments, args, strict=False), **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            # Attention may draw, and does so with dropout alone.
            rate = arguments.get("dropout_p")
            self.random |= rate is None or bool(given.get("dropout_p", rate.default_value))
        if "running_mean" in arguments:
            statistics = [given["running_mean"], given["running_var"]]
            self.statistics += statistics
            if given.get("training", given.get("train", True)):
                self.written += statistics
        for name, argument in arguments.items():
            # Of lists, as of _foreach_add_(), versions of stand-ins do not tell.
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            if is_written and isinstance(given.get(name), (list, tuple)):
                self.written += given[name]
        result = call_operator(func, args, kwargs)
        found: list[torch.Tensor] = []
        collect(result, found)
        self.made += sum(tensor.numel() * tensor.itemsize for tensor in found)
        return result


# Products of tensors of several types raise, but not without data.
_ONE_TYPE = frozenset(
    function
    for owner in (torch, torch.Tensor, torch.nn.functional)
    for name in (
        "matmul",
        "__matmul__",
        "mm",
        "bmm",
        "mv",
        "addmm",
        "baddbmm",
        "linear",
        "bilinear",
        *(f"conv{rank}d" for rank in (1, 2, 3)),
        *(f"conv_transpose{rank}d" for rank in (1, 2, 3)),
    )
    if (function := getattr(owner, name, None)) is not None
)


def _mixes_types(metas: list[Meta | None]) -> bool:
    return len({meta.dtype for meta in metas if meta is not None}) > 1


# What an operator that cannot run without data says of that.
_NEEDS_VALUES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

# What PyTorch says of an operator that reads data itself, as a recurrent network reads
# how many sequences of a packed batch go on.
_READS_DATA = "its data is not allocated yet"


def _needs_values(error: Exception) -> bool:
    """Whether a call on tensors without data failed for that, and not for what the user
    gave it: of zeros in the place of its data it would fail as well."""
    return isinstance(error, _NEEDS_VALUES) or _READS_DATA in str(error)


def _try_without_data(
    function: Callable[..., Any],
    fill: Callable[[list[Any]], tuple[tuple[Any, ...], dict[str, Any]]],
    inputs: list[Any],
    metas: list[Meta | None],
    grad: bool,
    autocast: tuple[Any, ...] | None,
) -> None:
    """Raises what PyTorch raises of these shapes and types, whatever the values:
    of its own functions, on tensors of zeros that take no memory."""
    module = getattr(function, "__module__", None) or "torch"
    if not module.startswith("torch") or module.startswith("torch.ops"):
        return
    if any(meta is not None and meta.device.type != "cpu" for meta in metas):
        return
    entries = [
        _make_hollow(meta)
        if meta is not None
        else int(entry)
        if isinstance(entry, BatchInt)
        else entry
        for entry, meta in zip(inputs, metas, strict=True)
    ]
    args, kwargs = fill(entries)
    with torch.set_grad_enabled(grad), contextlib.ExitStack() as stack:
        if autocast is not None:
            stack.enter_context(torch.autocast(autocast[0], dtype=autocast[1], cache_enabled=False))
        function(*args, **kwargs)


def _make_hollow(meta: Meta) -> torch.Tensor:
    """Zeros whose pages nothing has touched."""
    extent = 1 + sum((n - 1) * s for n, s in zip(meta.shape, meta.stride, strict=True))
    if 0 in meta.shape:
        return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype)
    pages = mmap.mmap(-1, extent * meta.dtype.itemsize)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = torch.frombuffer(pages, dtype=meta.dtype).as_strided(meta.shape, meta.stride)
    if meta.requires_grad:
        # No leaf, so that it can be written to.
        return tensor.requires_grad_().view_as(tensor)
    return tensor


def _propagate(
    function: Callable[..., Any],
    arguments: Any,
    inputs: list[Any],
    metas: list[Meta | None],
    grad: bool,
    autocast: tuple[Any, ...] | None,
) -> Call | None:
    fill = _filler(arguments)
    if function in _ONE_TYPE and autocast is None and _mixes_types(metas):
        _try_without_data(function, fill, inputs, metas, grad, autocast)
    call: Call | None = None
    try:
        if autocast is None and _suits_meta(function, metas):
            # What is wrong in a call, tensors that know their device say.
            with contextlib.suppress(Exception):
                call = _observe(function, fill, inputs, metas, grad, autocast, on_meta=True)
        return call or _observe(function, fill, inputs, metas, grad, autocast)
    except Exception as error:
        if _needs_values(error):
            return None
        # What is wrong in a call is said where it stands.
        _try_without_data(function, fill, inputs, metas, grad, autocast)
        return None


def _find_functions(names: str, *owners: Any) -> frozenset[Any]:
    found = (getattr(owner, name, None) for owner in owners for name in names.split())
    return frozenset(function for function in found if function is not None)


# Of these PyTorch's own device without data knows the same results as a
# FakeTensorMode, in a tenth of the time, which is a millisecond for each operator.
_ON_META = _find_functions(
    "add sub mul div __add__ __radd__ __iadd__ __sub__ __rsub__ __mul__ __rmul__ __imul__ "
    "__truediv__ __neg__ add_ sub_ mul_ div_ relu relu_ sigmoid tanh exp log sqrt square "
    "softmax log_softmax matmul __matmul__ bmm mm addmm cat concat stack masked_fill flatten "
    "reshape view permute transpose t unsqueeze squeeze unflatten expand chunk split unbind "
    "narrow select contiguous clone detach mean sum __getitem__ __setitem__",
    torch,
    torch.Tensor,
)
# Of these only where each tensor is a matrix or lies in the order of its dims:
# they lay out their results in their own ways where images are channels-last.
_ON_META_IN_ORDER = _find_functions(
    "batch_norm layer_norm group_norm relu relu6 gelu silu hardswish hardsigmoid hardtanh roll "
    "leaky_relu elu softplus softmax log_softmax linear conv1d conv2d conv3d max_pool1d "
    "max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d cross_entropy "
    "mse_loss l1_loss smooth_l1_loss binary_cross_entropy_with_logits embedding pad",
    torch,
    torch.nn.functional,
)


def _suits_meta(function: Callable[..., Any], metas: list[Meta | None]) -> bool:
    known = [meta for meta in metas if meta is not None]
    if any(meta.device.type != "cpu" or meta.dtype.is_complex for meta in known):
        return False
    return function in _ON_META or (
        function in _ON_META_IN_ORDER
        and all(len(meta.shape) == 2 or _is_in_order(meta) for meta in known)
    )


def _is_in_order(meta: Meta) -> bool:
    extent = 1
    for size, stride in zip(meta.shape[::-1], meta.stride[::-1], strict=True):
        if size != 1 and stride != extent:
            return False
        extent *= size
    return True


def _observe(
    function: Callable[..., Any],
    fill: Callable[[list[Any]], tuple[tuple[Any, ...], dict[str, Any]]],
    inputs: list[Any],
    metas: list[Meta | None],
    grad: bool,
    autocast: tuple[Any, ...] | None,
    *,
    on_meta: bool = False,
) -> Call:
    """Calls the function on tensors without data."""
    device = torch.device("meta") if on_meta else None
    if not on_meta:
        import_whole("torch._dynamo")  # for the fakes
    mode = contextlib.nullcontext() if on_meta else fakes
    with mode:
        entries = [
            make_fake(meta, device)
            if meta is not None
            else int(entry)
            if isinstance(entry, BatchInt)
            else entry
            for entry, meta in zip(inputs, metas, strict=True)
        ]
    versions = [_version(entry) for entry in entries]
    args, kwargs = fill(list(entries))
    watch = _Watch()
    with torch.set_grad_enabled(grad), mode, watch:
        result = find_stand_in(function)(*args, **kwargs)
    found: list[torch.Tensor] = []
    structure = collect(result, found)
    after = [_make_meta(tensor) for tensor in found]
    if on_meta:
        after = [meta._replace(device=torch.device("cpu")) for meta in after]
    after = correct_strides(function, entries, after)
    names = tuple(
        None if tensor.grad_fn is None else str(tensor.grad_fn.name()) for tensor in found
    )
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
        names,
        statistics=frozenset(
            i
            for i, entry in enumerate(entries)
            if any(entry is statistic for statistic in watch.statistics)
        ),
    )


def is_saved(call: Call, inputs: tuple[Any, ...], index: int) -> bool:
    """Whether autograd keeps an input of a call for its gradient, or may."""
    return index in find_saved(call, inputs)[0]


def find_saved(call: Call, inputs: tuple[Any, ...]) -> tuple[set[int], set[int]]:
    """The inputs and the results of a call that autograd keeps for its gradient; all of them
    where that cannot be tried."""
    if not any(meta.requires_grad for meta in call.metas):
        return set(), set()
    storages: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storages.append(tensor.untyped_storage()._cdata)
        return tensor

    def list_noted(tensors: list[Any]) -> set[int]:
        return {
            index
            for index, tensor in enumerate(tensors)
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata in storages
        }

    with contextlib.suppress(Exception), torch.inference_mode(False):
        with fakes:
            entries = [
                make_fake(entry.meta)
                if isinstance(entry, Value)
                else int(entry)
                if isinstance(entry, BatchInt)
                else entry
                for entry in inputs
            ]
        args, kwargs = call.fill(list(entries))
        with fakes, saved_tensors_hooks(note, lambda tensor: tensor):
            made = call.flatten(call.perform(args, kwargs))
        return list_noted(entries), list_noted(made)
    return set(range(len(inputs))), set(range(len(call.metas)))


def _version(entry: Any) -> int | None:
    return entry._version if isinstance(entry, torch.Tensor) else None


def _make_meta(tensor: torch.Tensor) -> Meta:
    if tensor.layout != torch.strided:
        raise NotImplementedError("no metadata of sparse tensors")
    return meta_of(tensor)


def make_fake(meta: Meta, device: torch.device | None = None) -> torch.Tensor:
    """A tensor without data that is no leaf, so that it can be written to."""
    extent = 1 + sum((n - 1) * s for n, s in zip(meta.shape, meta.stride, strict=True))
    if 0 in meta.shape:
        extent = 0
    base = torch.empty(extent, dtype=meta.dtype, device=device or meta.device)
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
