"""What koila predicts of the calls of modules that a profiler sees.

A call is analysed when it starts, in a fork of the process (``_isolated.py``): there its
arguments, buffers and settings are those that it is made with, also where the program drops
the module at once, and nothing that the analysis runs, draws or allocates is the program's.
Only figures are kept, no tensor and no module.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import warnings
import weakref
from collections.abc import Hashable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from koila import _capture
from koila._capture.inputs import Arguments, Signature
from koila._capture.thread_locks import tracing
from koila._compile.call_report import report_call
from koila._compiler import count_rule_changes
from koila._errors import KoilaError, KoilaWarning, explain_torch
from koila._isolated import isolated

__all__ = ["Figures", "Kind", "Predictions"]

#: Kinds of calls of a function that are analysed at any rate, and at most: after the first
#: ones only those with more bytes of arguments than all before.
_FIRST, _MOST = 4, 16
#: After so many seconds an analysis is given up.
_PATIENCE = 120.0

#: Where the files are that run a module to trace it.
_TRACER = os.path.dirname(_capture.__file__) + os.sep
#: Of a function that starts again where it was.
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_serials: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
_next_serial = itertools.count()


class Figures(NamedTuple):
    """Bytes above what was live when the call began."""

    current: int
    peak: int
    increment: int


class Kind:
    """Calls of one module with the same settings, and arguments of the same shapes; either
    with a report or with a reason why there is none."""

    def __init__(self, name: str, text: str, size: int) -> None:
        self.name, self.text, self.size = name, text, size
        self.report: dict[str, Any] | None = None
        self.reason = ""
        #: Beside the reason, what is another one for each call.
        self.details = ""
        #: Whether there are enough others of which it is one.
        self.is_left_out = False
        self.notes: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """Of the call as a whole."""
        assert self.report is not None
        return int(self.report["peak_bytes"])

    @functools.cached_property
    def total(self) -> Figures:
        """Of the line that makes the call."""
        left = self._after[-1] if self._after else 0
        return Figures(left, self.peak, left)

    @functools.cached_property
    def _after(self) -> list[int]:
        """What is live after each entry of the timeline."""
        assert self.report is not None
        after = [entry["live_bytes"] for entry in self.report["timeline"]]
        for storage in self.report["storages"]:
            if storage["freed_by"] is not None:
                after[storage["to"]] -= storage["bytes"]
        return after

    def get_lines(self, code: CodeType) -> dict[int, Figures]:
        """By line of the function that the call runs. What it does in others counts in the
        line that calls them; empty if no place of it is known."""
        if self.report is None:
            return {}
        first, last = _get_range(code)
        entries = self.report["timeline"]
        places: list[int | None] = []
        for entry in entries:
            # A trace was taken inside of the call: its own frames are around koila's.
            frames = itertools.takewhile(
                lambda frame: not frame["file"].startswith(_TRACER), entry.get("frames") or ()
            )
            # The outermost: a module may run a part of its own class.
            inside = [
                frame["line"]
                for frame in frames
                if first <= frame["line"] <= last and _is_same(frame["file"], code.co_filename)
            ]
            places.append(inside[-1] if inside else places[-1] if places else None)
        known = next((place for place in places if place is not None), None)
        if known is None:
            return {}
        figures: dict[int, Figures] = {}
        before = 0
        for entry, place, after in zip(entries, places, self._after, strict=True):
            line = known if place is None else place
            _, peak, increment = figures.get(line, (0, 0, 0))
            total = entry["live_bytes"] + entry["transient_bytes"]
            figures[line] = Figures(after, max(peak, total), increment + after - before)
            before = after
        return figures


def _get_range(code: CodeType) -> tuple[int, int]:
    lines = [line for _, _, line in code.co_lines() if line is not None]
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            lines.append(_get_range(inner)[1])
    return code.co_firstlineno, max([code.co_firstlineno, *lines])


@functools.lru_cache(maxsize=4096)
def _is_same(left: str, right: str) -> bool:
    return left == right or os.path.abspath(left) == os.path.abspath(right)


def _get_forward_call(frame: FrameType) -> tuple[nn.Module, Arguments] | None:
    """The module and the arguments, where a function that starts is the ``forward`` of one."""
    code, values = frame.f_code, frame.f_locals
    if not code.co_argcount or code.co_flags & _RESUMED:
        return None
    names = iter(code.co_varnames)
    args = [values.get(name) for name in itertools.islice(names, code.co_argcount)]
    kwargs = {name: values.get(name) for name in itertools.islice(names, code.co_kwonlyargcount)}
    if code.co_flags & inspect.CO_VARARGS:
        args += values.get(next(names)) or ()
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(values.get(next(names)) or {})
    if not args or not isinstance(args[0], nn.Module):
        return None
    forward: Any = getattr(args[0], "forward", None)
    while hasattr(forward, "__wrapped__"):
        forward = forward.__wrapped__
    if getattr(forward, "__code__", None) is not code:
        return None
    return args[0], Arguments(tuple(args[1:]), kwargs)


class Predictions:
    """Those of one profiler."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, Kind] = {}
        self._of_owner: dict[Hashable, list[Kind]] = {}
        self._left_out: dict[Hashable, int] = {}

    def clear(self) -> None:
        self._kinds.clear()
        self._of_owner.clear()
        self._left_out.clear()

    def count_left_out(self, owner: Hashable) -> int:
        """Kinds of calls that were not analysed."""
        return self._left_out.get(owner, 0)

    def find_forward(self, frame: FrameType, owner: Hashable) -> Kind | None:
        """As ``find``; None also where what starts is no ``forward`` of a module."""
        try:
            found = _get_forward_call(frame)
            return None if found is None else self.find(*found, owner)
        except Exception as error:
            return self._refuse(frame, error)

    def find_call(self, frame: FrameType, owner: Hashable) -> Kind | None:
        """As ``find``, of a module that ``nn.Module.__call__`` runs."""
        values = frame.f_locals
        try:
            module = values["self"]
            try:
                arguments = Signature(module).bind(values["args"], values["kwargs"])
            except TypeError:
                return None  # The call is about to raise this.
            return self.find(module, arguments, owner)
        except Exception as error:
            return self._refuse(frame, error)

    def _refuse(self, frame: FrameType, error: Exception) -> Kind:
        """What asking a module or its arguments raises is not the program's."""
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        reason = f"what it is called with cannot be read: {type(error).__name__}: {error}"
        return self._get_refused(name, reason)

    def _get_refused(self, name: str, reason: str) -> Kind:
        kind = self._kinds.setdefault((name, reason), Kind(name, name, 0))
        kind.reason = reason
        return kind

    def find(self, module: nn.Module, arguments: Arguments, owner: Hashable) -> Kind | None:
        """The kind of a call that is about to run; analysed if it is new, unless ``owner``,
        what it is shown with, has enough. None for a run of koila's own."""
        if tracing.is_mine():
            return None
        tensors = arguments.tensors()
        name = type(module).__name__
        # Before anything is asked of a tensor: a trace would record it.
        if obstacle := _find_obstacle(module, tensors):
            return self._get_refused(name, obstacle)
        grad = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in itertools.chain(module.parameters(), tensors)
        )
        mode = "forward-with-grad" if grad else "inference"
        threads = torch.get_num_threads()
        key = (
            _get_serial(module),
            _describe_state(module),
            _freeze(arguments.all),
            tuple(arguments.kwargs),
            (mode, threads),
            count_rule_changes(),
        )
        if key in self._kinds:
            return self._kinds[key]
        known = self._of_owner.setdefault(owner, [])
        size = sum(tensor.nbytes for tensor in tensors)
        is_larger = all(size > kind.size for kind in known)
        if len(known) > 1 and not any(kind.report for kind in known):
            # The sizes are not what is in the way.
            return self._kinds.setdefault(key, known[0])
        if len(known) >= _FIRST and not (is_larger and len(known) < _MOST):
            self._left_out[owner] = self._left_out.get(owner, 0) + 1
            kind = self._kinds[key] = Kind(name, name, size)
            kind.is_left_out = True
            return kind
        text = f"{_describe_call(module, arguments)}, {mode}"
        kind = Kind(name, text, size)
        _analyse(kind, module, arguments, mode, threads)
        self._kinds[key] = kind
        known.append(kind)
        return kind


def _get_serial(module: nn.Module) -> int:
    """Unlike ``id()`` never that of another one."""
    serial = _serials.get(module)
    if serial is None:
        serial = _serials[module] = next(_next_serial)
    return serial


def _find_obstacle(module: nn.Module, tensors: list[torch.Tensor]) -> str:
    """Why koila has no figures of what is about to run."""
    if torch._C._get_tracing_state() is not None or torch.compiler.is_compiling():
        return "PyTorch traces it"
    for tensor in tensors:
        if type(tensor) not in (torch.Tensor, nn.Parameter):
            return f"an argument is a {type(tensor).__name__}"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func transforms it"
    functions: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    modes = [*functions, *_get_current_dispatch_mode_stack()]
    if modes:
        return f"a {type(modes[-1]).__name__} changes what functions do"
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return "hooks pack what autograd saves"
    if torch.is_autocast_enabled("cpu"):
        return "it runs under autocast"
    devices = {t.device.type for t in itertools.chain(tensors, module.parameters())} - {"cpu"}
    if devices:
        return f"it runs on {min(devices)}, and koila knows what programs need on the CPU only"
    return ""


_PLAIN = (int, float, bool, str, type(None), torch.dtype)


def _freeze(value: Any) -> Hashable:
    """Equal for arguments that koila takes for the same."""
    if isinstance(value, torch.Tensor):
        is_last = value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)
        return "tensor", tuple(value.shape), value.dtype, value.requires_grad, is_last
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_freeze, value))
    if isinstance(value, Mapping):
        return type(value), tuple((str(key), _freeze(item)) for key, item in value.items())
    kind: type = type(value)
    return (kind, value) if kind in _PLAIN else kind


def _describe_state(module: nn.Module) -> Hashable:
    """What of a module decides what a call of it needs, and may change."""
    return tuple(
        (
            part.training,
            tuple(map(_freeze, _get_tensors(part))),
            tuple((key, value) for key, value in vars(part).items() if type(value) in _PLAIN),
        )
        for part in module.modules()
    )


def _get_tensors(part: nn.Module) -> Iterator[torch.Tensor]:
    for tensors in (vars(part).get("_parameters"), vars(part).get("_buffers")):
        for tensor in (tensors or {}).values():
            if tensor is not None and not nn.parameter.is_lazy(tensor):
                yield tensor


def _describe_call(module: nn.Module, arguments: Arguments) -> str:
    parts = [_describe(value) for value in arguments.args]
    parts += [f"{name}={_describe(value)}" for name, value in arguments.kwargs.items()]
    while parts and parts[-1] == "None":
        parts.pop()
    return f"{type(module).__name__}({', '.join(parts)})"


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}".replace(" ", "")
    if type(value) in (list, tuple) and len(value) <= 4:
        text = ", ".join(map(_describe, value))
        return f"[{text}]" if isinstance(value, list) else f"({text})"
    text = repr(value) if type(value) in _PLAIN else ""
    return text if 0 < len(text) <= 40 else type(value).__name__


def _analyse(kind: Kind, module: nn.Module, arguments: Arguments, mode: str, threads: int) -> None:
    work = functools.partial(_report, module, arguments, mode, threads)
    try:
        report, warned = isolated(work, _PATIENCE)
    except OSError as error:
        kind.reason = f"there is no process for the analysis ({error.strerror})"
        return
    except KoilaError as error:
        where = f" ({error.location.file}:{error.location.line})" if error.location else ""
        kind.reason = f"{error.message}{where}"
        kind.details = "".join(f"; {note}" for note in error.notes[:1])
        return
    doubts = [doubt for doubt in report["inexact"] if not doubt["bound"]]
    for doubt in (doubts or report["inexact"])[:1]:
        place = doubt["location"] or {}
        where = f", at {place['file']}:{place['line']}" if place.get("file") else ""
        what = f"{doubt['op']}: {doubt['reason']}{where}"
        if doubts or report["peak_bytes"] is None:
            kind.reason = f"it is not known exactly: {what}"
            return
        warned.append(f"an upper bound, not exact: {what}")
    if report["peak_bytes"] is None:
        kind.reason = "the peak depends on more than the sizes of the arguments"
        return
    kind.report, kind.notes = report, tuple(warned)


def _report(
    module: nn.Module, arguments: Arguments, mode: str, threads: int
) -> tuple[dict[str, Any], list[str]]:
    """In the fork."""
    try:
        recorded = warnings.catch_warnings(record=True)
        with torch.inference_mode(False), torch.enable_grad(), recorded as caught:
            warnings.simplefilter("always")
            data = report_call(module, arguments, mode=mode, threads=threads)
    except KoilaError:
        raise
    except Exception as error:  # torch raises of every type here
        raise KoilaError(explain_torch(error)[0]) from None
    keys = ("peak_bytes", "inexact", "timeline", "storages")
    said = [str(each.message) for each in caught if issubclass(each.category, KoilaWarning)]
    return {key: data[key] for key in keys}, said
