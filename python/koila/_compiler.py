"""The compiler on TorchScript modules of this process.

Everything else in the package goes through here. Modules pass to C++ and back
without a file, so that parameters stay the caller's own tensors.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from koila._costs import find_table
from koila._device import find_target
from koila._errors import (
    BudgetError,
    CompileError,
    KoilaError,
    KoilaWarning,
    Location,
    RuleError,
    UnpromisedError,
)
from koila._interrupt import let_through
from koila._temporary import explain_write, temporary_folder, write_bytes

if TYPE_CHECKING:
    from koila import _C

__all__ = [
    "CompileOptions",
    "Compiled",
    "Remark",
    "analyze_script",
    "check_archive",
    "check_output",
    "compile_file",
    "compile_script",
    "count_rule_changes",
    "describe_values",
    "find_card",
    "is_count",
    "list_events",
    "load_archive",
    "load_extension",
    "make_guards",
    "make_module",
    "parse_size",
    "save_script",
    "set_custom_operators",
]


#: Where the tensors of a program are; or, by its name, the target whose kernels run.
Device = torch.device | str


@dataclass(frozen=True)
class Remark:
    """Something that the compiler decided or saw.

    ``kind`` is ``Passed``, ``Missed``, ``Analysis``, or ``Note`` for a remark
    in words alone; ``arguments`` are its figures, as texts.
    """

    kind: str
    name: str
    message: str
    location: Location | None
    arguments: Mapping[str, str]


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of a module.

    ``module`` shares every tensor with the module that it was made of and has
    its methods: ``forward``, which runs in tiles; ``forward_untiled``, if facts
    are checked at entry; in ``mode="train"`` ``train_step`` and ``grads``.
    ``report`` is the report (docs/user/Reports.md); ``tile`` the samples per tile,
    None if the batch is not split.
    """

    module: torch.jit.ScriptModule
    report: dict[str, Any]
    tile: int | None
    remarks: tuple[Remark, ...] = field(default=())


def compile_script(
    script: torch.jit.ScriptModule,
    inputs: Sequence[str],
    *,
    batch: Mapping[str, int],
    mode: str = "inference",
    loss: str | None = None,
    budget: int | str | None = None,
    tile: int | None = None,
    grads: str = "present",
    optimizer: str | None = None,
    random: str = "refuse",
    batchnorm: str = "exact",
    recompute: str = "auto",
    plans: int = 1,
    guard: str = "warn",
    threads: int | None = None,
    device: Device = "cpu",
    from_host: Sequence[int] = (),
    method: str = "forward",
    name: str | None = None,
) -> Compiled:
    """Rewrites a method so that its batch runs in tiles.

    ``inputs`` are specs of the arguments (``float32[B,3,224,224]``), with a
    loss also of its target; ``batch`` gives symbols values for the analysis.
    Give either ``tile``, a power of two, or ``budget``, bytes or a size as
    ``"64MiB"``. With ``mode="train"`` ``loss`` is a loss by its name in
    ``torch.nn.functional``, or empty or None if the method returns the loss.
    ``device`` is where its tensors are, or the name of a target; arguments that are
    ``from_host``, by their places, are on the CPU and go there in tiles, and results of
    tiles come back. The other options are those of ``--koila-compile``. ``name`` is what
    errors call the module.

    Raises BudgetError where no tile fits, and CompileError where the program
    cannot be rewritten; both name the place.
    """
    options = CompileOptions(
        mode,
        loss,
        budget,
        tile,
        grads,
        optimizer,
        random,
        batchnorm,
        recompute,
        plans,
        guard,
        threads,
        device,
        tuple(from_host),
    )
    result, report, remarks = _compile(script, inputs, batch, options, method, name, None)
    if options.from_host:
        report["transfers"] = describe_transfers(inputs, options, batch, result["tile"])
    wrap = torch.jit._recursive.wrap_cpp_module
    module = wrap(result["module"])  # type: ignore[no-untyped-call]
    return Compiled(module, report, result["tile"], remarks)


# So many tiles wait in pinned memory: one that is copied, and the next.
_PINNED_TILES = 2


def describe_transfers(
    inputs: Sequence[str], options: CompileOptions, batch: Mapping[str, int], tile: int | None
) -> dict[str, Any]:
    """What goes to the device of arguments on the host: bytes at once there, which are part
    of the peak, and in pinned memory of the host."""
    total: int | None = 0
    sizes = batch if tile is None else dict.fromkeys(batch, tile)
    for place in options.from_host:
        # Without what else a spec says, as a range of numbers.
        name, _, dims = re.split("[@{]", inputs[place])[0].removesuffix("]").partition("[")
        factors = [factor.strip() for factor in re.split("[,*]", dims) if factor.strip()]
        if total is None or not all(factor.isdigit() or factor in sizes for factor in factors):
            total = None  # of another symbol nobody has said how long it is
            continue
        count = math.prod(sizes.get(factor) or int(factor) for factor in factors)
        total += count * torch.empty(0, dtype=getattr(torch, name)).itemsize
    is_pinned = tile is not None and torch.device(options.device).type == "cuda"
    return {
        "device": str(options.device),
        "arguments": list(options.from_host),
        "device_bytes": total,
        "pinned_bytes": None if total is None else _PINNED_TILES * total * is_pinned,
    }


@dataclass(frozen=True)
class CompileOptions:
    """The options of ``compile_script``."""

    mode: str = "inference"
    loss: str | None = None
    budget: int | str | None = None
    tile: int | None = None
    grads: str = "present"
    optimizer: str | None = None
    random: str = "refuse"
    batchnorm: str = "exact"
    recompute: str = "auto"
    plans: int = 1
    guard: str = "warn"
    threads: int | None = None
    device: Device = "cpu"
    from_host: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_analysis(self.mode, self.loss, self.grads, self.optimizer, self.threads)
        _check_choice("random", self.random, "refuse", "full-batch-masks", "per-tile")
        _check_choice("batchnorm", self.batchnorm, "exact", "refuse", "per-tile")
        _check_choice("recompute", self.recompute, "auto", "never")
        _check_choice("guard", self.guard, "warn", "raise")
        tile = self.tile
        if tile is not None and (not is_count(tile) or tile < 1 or tile & (tile - 1)):
            raise CompileError(f"tile={tile!r} is no power of two, as 8")
        if not is_count(self.plans):
            raise CompileError(f"plans={self.plans!r} is no number of plans")
        if self.plans > 1 and tile is not None:
            raise CompileError(
                f"plans={self.plans} belongs to a budget, and tile={tile} is given: leave one out"
            )


# More have no core to run on; LibTorch itself takes any number, and then fails.
_MOST_THREADS = 4096


def is_count(value: object) -> bool:
    """Whether it is an integer; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _check_analysis(
    mode: object, loss: object, grads: object, optimizer: object, threads: object
) -> None:
    _check_choice("mode", mode, "inference", "forward-with-grad", "train")
    _check_choice("grads", grads, "present", "absent")
    for key, value, example in (
        ("loss", loss, "cross_entropy"),
        ("optimizer", optimizer, "adamw(lr=1e-3)"),
    ):
        if value is None or isinstance(value, str):
            continue
        name = getattr(value, "__name__", "")
        if key == "loss" and name and getattr(functional, name, None) is value:
            example = name
        raise CompileError(f'{key}= is a text, as "{example}", not {_kind(value)}')
    if threads is not None:
        is_number = is_count(threads) and isinstance(threads, int)
        if not (is_number and 1 <= threads <= _MOST_THREADS):  # type: ignore[operator]
            raise CompileError(f"threads={threads!r} is no number from 1 to {_MOST_THREADS}")


def _kind(value: object) -> str:
    name = getattr(value, "__name__", None)
    return f"{name}()" if isinstance(name, str) else f"a {type(value).__name__}"


def _check_choice(key: str, value: object, *choices: str) -> None:
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(f'"{choice}"' for choice in choices)
        raise CompileError(f"{key}={value!r}: it is one of {known}")


def compile_file(
    path: str,
    output: str,
    inputs: Sequence[str],
    *,
    batch: Mapping[str, int],
    options: CompileOptions,
    method: str = "forward",
) -> dict[str, Any]:
    """As ``compile_script``, from a TorchScript file to another, which is read
    back and compared before it is at ``output``. Returns the report."""
    if not output or output == "-":
        raise CompileError("give the name of a file to write")
    _, report, _ = _compile(path, inputs, batch, options, method, None, output)
    return report


def _compile(
    script: torch.jit.ScriptModule | str,
    inputs: Sequence[str],
    batch: Mapping[str, int],
    options: CompileOptions,
    method: str,
    name: str | None,
    output: str | None,
) -> tuple[_C.Result, dict[str, Any], tuple[Remark, ...]]:
    values = {
        **_analysis_options(
            options.mode,
            options.loss,
            options.grads,
            options.optimizer,
            options.threads,
            options.device,
        ),
        "budget": options.budget,
        "tile": options.tile,
        "random": options.random,
        "batchnorm": options.batchnorm,
        "recompute": options.recompute,
        "plans": options.plans if options.plans != 1 else None,
        "guard": options.guard,
    }
    if options.mode == "train" and options.recompute == "auto" and "device" not in values:
        # Times are those of this machine's processor.
        values["costs"] = find_table(options.threads or torch.get_num_threads())
    result, remarks = _run(
        script,
        _make_pass("koila-compile", values),
        inputs=inputs,
        batch=batch,
        loss=_step_loss(options.mode, options.loss),
        method=method,
        name=name,
        emit=True,
        output=output,
        device=options.device,
        from_host=options.from_host,
    )
    report: dict[str, Any] = json.loads(result["report"])
    return result, report, remarks


def analyze_script(
    script: torch.jit.ScriptModule | str,
    inputs: Sequence[str],
    *,
    batch: Mapping[str, int] | None = None,
    mode: str = "inference",
    loss: str | None = None,
    budget: int | str | None = None,
    grads: str = "present",
    optimizer: str | None = None,
    threads: int | None = None,
    device: Device = "cpu",
    allocator: str = "exact",
    snapshot: str | None = None,
    remarks: list[Remark] | None = None,
    from_host: Sequence[int] = (),
    floor: bool = True,
    batches: int = 64,
    frames: bool = False,
    method: str = "forward",
    name: str | None = None,
) -> dict[str, Any]:
    """The report (docs/user/Reports.md) on a method of a module or of a file.

    Arguments are those of ``compile_script``; ``batch`` may lack symbols, and
    then figures that need them are None. With ``budget``, bytes or ``"auto"`` for what is
    free on the device now, ``max_batch`` of the report is the largest batch that fits; no
    error is raised where the peak does not. With ``allocator="auto"`` the report has
    ``cuda`` where that is known, and ``snapshot`` names a file for its trace. ``remarks``
    gets those of the compiler. ``floor``, ``batches`` and ``frames`` are as in
    docs/user/Reports.md.
    """
    options = {
        **_analysis_options(mode, loss, grads, optimizer, threads, device),
        "format": "attribute",
        "allocator": allocator,
        "budget": budget,
        "floor": floor,
        "batches": batches,
        "frames": frames,
    }
    with contextlib.ExitStack() as scratch:
        if snapshot is not None:
            # Options of passes cannot have every name that a file may have.
            folder = scratch.enter_context(temporary_folder())
            options["snapshot"] = os.path.join(folder, "snapshot.pickle")
        result, said = _run(
            script,
            "koila-infer-shapes," + _make_pass("koila-peak-memory", options),
            inputs=inputs,
            batch=batch or {},
            loss=_step_loss(mode, loss),
            method=method,
            name=name,
            emit=False,
            output=None,
            device=device,
            from_host=from_host,
        )
        if snapshot is not None:
            with open(str(options["snapshot"]), "rb") as file:
                write_bytes(snapshot, file.read())
    if remarks is not None:
        remarks.extend(said)
    report: dict[str, Any] = json.loads(result["report"])
    return report


def list_events(
    script: torch.jit.ScriptModule,
    inputs: Sequence[str],
    *,
    batch: Mapping[str, int],
    mode: str = "inference",
    loss: str | None = None,
    grads: str = "present",
    optimizer: str | None = None,
    threads: int | None = None,
    device: Device = "cpu",
    samples: Sequence[int] = (),
    report: bool = True,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The report on ``forward`` of a module, empty without ``report``, and its events, both
    as in docs/user/Reports.md; with ``samples`` those of several batches. With
    ``mode="train"`` and no ``loss`` the method returns the loss. CompileError for a
    ``device`` of which there are no kernel models."""
    options = _analysis_options(mode, loss, grads, optimizer, threads, device)
    figures = {**options, "format": "attribute", "floor": False, "batches": 0}
    with temporary_folder() as folder:
        path = os.path.join(folder, "events.json")
        events = {**options, "format": "events", "floor": False, "output": path}
        if samples:
            events["samples"] = ",".join(map(str, samples))
        passes = ["koila-infer-shapes", _make_pass("koila-peak-memory", events)]
        if report:
            passes.append(_make_pass("koila-peak-memory", figures))
        result, _ = _run(
            script,
            ",".join(passes),
            inputs=inputs,
            batch=batch,
            loss=_step_loss(mode, loss),
            method="forward",
            name=None,
            emit=False,
            output=None,
            device=device,
        )
        found: dict[str, Any] = json.loads(result["report"]) if report else {}
        with open(path, encoding="utf-8") as file:
            listed: dict[str, Any] = json.load(file)
    return found, listed


def describe_values(script: torch.jit.ScriptModule, inputs: Sequence[str]) -> list[dict[str, Any]]:
    """Of each operation of ``forward`` that has results what ``--koila-print-facts``
    says: dims and strides as expressions over the symbols of ``inputs``, where the batch
    is, and whose storage it is (docs/reference/Passes.md)."""
    with temporary_folder() as folder:
        path = os.path.join(folder, "facts.json")
        result, _ = _run(
            script,
            _make_pass("koila-print-facts", {"output": path}),
            inputs=inputs,
            batch={},
            loss=None,
            method="forward",
            name=None,
            emit=False,
            output=None,
        )
        assert result["succeeded"]
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]


#: How often what koila knows of operators has changed.
_rule_changes = 0


class _Raised(threading.local):
    """What rules of operators raised in the run of this thread: operator, rule, error."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str, BaseException]] = []


_raised = _Raised()


def set_custom_operators(
    operators: Mapping[str, tuple[list[str], list[int]]],
    answer: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """From now on programs know these operators, by their names: the rules that there
    are for each, and per result the argument that it is a view of, or -1. ``answer`` is
    asked what a rule says (include/koila/Interfaces/CustomOperators.h)."""
    global _rule_changes
    from koila import _C

    def ask(request: str) -> str:
        question = json.loads(request)
        try:
            return json.dumps(answer(question))
        except BaseException as error:
            # Some sizes no operator takes; shapes are asked for more than one.
            is_refusal = isinstance(error, RuntimeError | ValueError | AssertionError)
            if question["rule"] != "shape" or not is_refusal:
                _raised.errors.append((question["callee"], question["rule"], error))
            return json.dumps({"error": f"raises {type(error).__name__}: {error}"})

    _C.set_custom_operators(dict(operators), ask)
    _rule_changes += 1


def _raise_errors() -> None:
    """What a rule raised ends the run that asked it."""
    if not _raised.errors:
        return
    name, rule, error = _raised.errors[0]
    _raised.errors = []
    if not isinstance(error, Exception):
        raise error
    raise RuleError(
        f"the {rule} rule of '{name}' raised {type(error).__name__}: {error}"
    ) from error


def make_guards(guards: list[tuple[object, object]]) -> Callable[[], bool]:
    """A quick question whether everything that is guarded is what it was, by
    identity: pairs of a container and its items, and more (`python/src/Guards.h`)."""
    from koila import _C

    made = _C.Guards(guards)

    def hold() -> bool:
        # What is guarded lives as long as the question.
        return bool(guards is not None and made.hold())

    return hold


def load_extension(path: str) -> None:
    """Loads operators of others into every compilation from now on; KoilaError, with
    the path, for what is no extension of this koila."""
    global _rule_changes
    from koila import _C

    _check_path(path)
    if problem := _C.load_extension(path):
        raise KoilaError(problem)
    _rule_changes += 1


def count_rule_changes() -> int:
    """How often an extension was loaded or an operator registered: what was refused at
    another count may be known now."""
    return _rule_changes


def has_accumulation_hooks(tensor: torch.Tensor) -> bool:
    """Whether the node that adds to ``.grad`` of a weight has hooks, as those of
    ``torch.autograd.graph.register_multi_grad_hook``. PyTorch lists them nowhere."""
    from koila import _C

    return _C.has_accumulation_hooks(tensor)


def find_card(name: str, major: int, minor: int, multiprocessors: int) -> str:
    """The target of what the driver calls ``name``: a card that koila has a profile of, if
    its compute capability and multiprocessors are those of the profile, else ``"cuda"``."""
    from koila import _C

    return _C.find_card(name, major, minor, multiprocessors)


def check_output(path: str) -> None:
    """ValueError for a name that no TorchScript file is written to."""
    from koila import _C

    _C.check_output(path)


def parse_size(text: str) -> int:
    """Bytes of ``512``, ``64KiB``, ``1.5GiB`` or ``2GB``; ValueError if none."""
    from koila import _C

    return _C.parse_size(text)


def _analysis_options(
    mode: str,
    loss: str | None,
    grads: str,
    optimizer: str | None,
    threads: int | None,
    device: Device = "cpu",
) -> dict[str, object]:
    # What torch will use, whatever the environment said at its start.
    used = torch.get_num_threads() if threads is None else threads
    _check_analysis(mode, loss, grads, optimizer, threads)
    options: dict[str, object] = {
        "mode": mode,
        "loss": loss or None,
        "grads": grads,
        "optimizer": optimizer,
        "threads": used,
    }
    target = find_target(device)
    if target != "cpu":
        options["device"] = target
    return options


def _step_loss(mode: str, loss: str | None) -> str | None:
    if mode == "train":
        return loss or ""
    if loss:
        raise CompileError(f'loss="{loss}" belongs to mode="train"')
    return None


def _make_pass(name: str, options: Mapping[str, object]) -> str:
    parts = []
    for key, value in options.items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if re.search(r"[{}]", text) or "'" in text or '"' in text:
            raise CompileError(f"{key}={text}: braces and quotes cannot be part of it")
        # A comma or blank would end a value without braces.
        parts.append(f"{key}={{{text}}}" if re.search(r"[\s,()]", text) else f"{key}={text}")
    return f"{name}{{{' '.join(parts)}}}"


def _run(
    script: torch.jit.ScriptModule | str,
    pipeline: str,
    *,
    inputs: Sequence[str],
    batch: Mapping[str, int],
    loss: str | None,
    method: str,
    name: str | None,
    emit: bool,
    output: str | None,
    device: Device = "cpu",
    from_host: Sequence[int] = (),
) -> tuple[_C.Result, tuple[Remark, ...]]:
    from koila import _C

    for path in (script, output):
        if isinstance(path, str):
            _check_path(path)
    if name is None:
        name = script if isinstance(script, str) else _class_name(script)
    options = _C.Options(
        name=name,
        method=method,
        loss=loss,
        inputs=list(inputs),
        batch=[f"{symbol}={value}" for symbol, value in batch.items()],
        batch_symbol="",
        pipeline=pipeline,
        device=str(device) if isinstance(device, torch.device) else "cpu",
        from_host=list(from_host),
    )
    # A rule may itself ask for an analysis.
    outer, _raised.errors = _raised.errors, []
    with let_through():
        if isinstance(script, str):
            result = _C.run_on_archive(script, options, output or "")
        elif isinstance(script, (torch.jit.ScriptModule, torch._C.ScriptModule)):
            result = _C.run_on_module(script, options, emit)
        else:
            raise TypeError(f"expected a torch.jit.ScriptModule, not {type(script).__name__}")
    try:
        _raise_errors()
    finally:
        _raised.errors = outer
    messages = _parse_messages(result["messages"])
    # The peak was found where that it is above the budget is what failed.
    if not result["succeeded"] and (emit or output or not result["report"]):
        raise _make_error(messages, name)
    for message in messages:
        if message["severity"] == "warning":
            _warn(message, name)
    remarks = tuple(_make_remark(m, name) for m in messages if m["severity"] == "remark")
    return result, remarks


def make_module(
    name: str,
    unit: torch._C.CompilationUnit,
    parameters: Mapping[str, torch.Tensor],
    buffers: Mapping[str, torch.Tensor],
    modules: Mapping[str, torch._C.ScriptModule],
) -> Any:
    """A torch._C.ScriptModule without methods, whose class is freed with ``unit``."""
    from koila import _C

    return _C.make_module(
        name, unit, list(parameters.items()), list(buffers.items()), list(modules.items())
    )


def save_script(script: torch.jit.ScriptModule, path: str) -> None:
    """As ``torch.jit.save``, to a temporary file; KoilaError where it has no room."""
    from koila import _C

    code, size = _C.save_module(script, path)
    if code:
        error = OSError(code, os.strerror(code))
        raise explain_write(error, path, size, "the program that is compiled")


def check_archive(path: str) -> None:
    """Raises CompileError for a file that is no TorchScript archive, runs code
    when it is loaded, or is made to overwhelm LibTorch."""
    from koila import _C

    _check_path(path)
    messages = _parse_messages(_C.check_archive(path))
    if messages:
        raise _make_error(messages, path)


def load_archive(path: str) -> torch.jit.ScriptModule:
    """The module of an archive: on the CPU where the device that it was saved on is not
    there, and without what tracing wrote down of that device. Raises CompileError as
    ``check_archive``."""
    from koila import _C

    check_archive(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return torch.jit.load(path)  # type: ignore[no-any-return, no-untyped-call]
        except RuntimeError:
            # Another reason shows again.
            loaded: torch.jit.ScriptModule = torch.jit.load(  # type: ignore[no-untyped-call]
                path, map_location="cpu"
            )
    _C.follow_device_of_archive(loaded, path)
    return loaded


def _check_path(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise CompileError(f"{path!r}: names of files are UTF-8; rename it") from None


def _parse_messages(lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.decode("utf-8", "replace").splitlines()]


def _class_name(script: torch.jit.ScriptModule) -> str:
    name = getattr(script, "original_name", None)
    return str(name) if name else type(script).__name__


def _place(message: Mapping[str, Any], name: str) -> Location | None:
    """None where the message is about the module as a whole."""
    if not message.get("line") or message.get("file") in (None, "", name):
        return None
    return Location(message["file"], int(message["line"]))


def _make_error(messages: Sequence[Mapping[str, Any]], name: str) -> CompileError:
    errors = [m for m in messages if m["severity"] == "error"]
    if not errors:
        return CompileError(f"{name}: the compiler failed and did not say why")
    first = errors[0]
    notes = []
    # Notes belong to the error before them; remarks are no part of it.
    for message in messages[messages.index(first) + 1 :]:
        if message["severity"] not in ("note", "error"):
            continue
        place = _place(message, name)
        where = f"{place.file}:{place.line}: " if place else ""
        notes.append(f"{where}{message['message']}")
    text = first["message"]
    if (smallest := first.get("smallest_budget")) is not None:
        return BudgetError(text, _place(first, name), tuple(notes), int(smallest))
    kind = UnpromisedError if first.get("is_unpromised") else CompileError
    return kind(text, _place(first, name), tuple(notes))


def _warn(message: Mapping[str, Any], name: str) -> None:
    place = _place(message, name)
    if place is None:
        warnings.warn(f"{name}: {message['message']}", KoilaWarning, stacklevel=4)
    else:
        warnings.warn_explicit(message["message"], KoilaWarning, place.file, place.line)


def _make_remark(message: Mapping[str, Any], name: str) -> Remark:
    return Remark(
        message.get("kind", "Note"),
        message.get("name", ""),
        message["message"],
        _place(message, name),
        dict(message.get("arguments", {})),
    )
