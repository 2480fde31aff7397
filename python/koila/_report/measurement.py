"""What a call allocates, operator by operator."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from koila import _compiler, memory
from koila._capture.module_snapshot import Snapshot, tensors_of
from koila._errors import KoilaError

__all__ = [
    "Difference",
    "describe_difference",
    "find_difference",
    "measure_call",
    "place_steps",
    "use_executor",
    "use_threads",
]


def measure_call(
    module: nn.Module | str | os.PathLike[str], args: Any, kwargs: Any, data: dict[str, Any]
) -> dict[str, Any]:
    """What docs/user/Reports.md has as ``measured``, of the second of two calls.

    In the mode, and with the threads, of the report ``data``. The module, random numbers
    and gradients are afterwards what they were. KoilaError where the report is not of such
    a call.
    """
    program: nn.Module = (
        module if isinstance(module, nn.Module) else _compiler.load_archive(os.fspath(module))
    )
    _check(program, args, kwargs, data)
    records = data["mode"] != "inference"

    def call() -> Any:
        with torch.set_grad_enabled(records):
            return program(*args, **kwargs)

    is_script = isinstance(program, torch.jit.ScriptModule)
    snapshot = Snapshot(program)
    with snapshot.preserved(), use_threads(data["threads"]), use_executor():
        result = call()
        del result
        result, steps, peak = memory.log_operators(call)
        del result
    entries = _match([entry["op"] for entry in data["timeline"]], [step.name for step in steps])
    return {
        "peak_bytes": peak,
        "program": "TorchScript" if is_script else "Python",
        "timeline": [
            {
                "index": index,
                "op": step.name,
                "entry": entry,
                "live_bytes": step.live,
                "transient_bytes": step.peak - step.live,
            }
            for index, (step, entry) in enumerate(zip(steps, entries, strict=True))
        ],
    }


def _check(module: nn.Module, args: Any, kwargs: Any, data: dict[str, Any]) -> None:
    if data["mode"] == "train":
        raise KoilaError(
            "measure() runs a call, and the report is of a training step: koila run --mode train "
            "measures a step that koila has written"
        )
    if data["peak_bytes"] is None:
        raise KoilaError("the report has no figures to compare with; give a batch to analyze()")
    if data["device"] != "cpu":
        raise KoilaError(
            f"the report is of '{data['device']}', and measure() counts what the CPU allocates"
        )
    tensors = list(tensors_of([*args, *kwargs.values()]))
    devices = {t.device.type for t in (*tensors, *module.parameters())} - {"cpu"}
    if devices:
        raise KoilaError(f"measure() counts what the CPU allocates, not {min(devices)}")
    found = sum(tensor.nbytes for tensor in tensors)
    if found != data["input_bytes"]:
        raise KoilaError(
            f"the report is of a call with inputs of {data['input_bytes']:,} bytes"
            f"{_say_batch(data)}, and these have {found:,}"
        )


def _say_batch(data: dict[str, Any]) -> str:
    batch = data["batch"]
    return f" ({batch['symbol']} = {batch['value']})" if batch["value"] is not None else ""


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Workspaces depend on them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def use_executor() -> Iterator[None]:
    """The one of TorchScript for which figures hold."""
    before = torch._C._jit_set_profiling_mode(False)
    try:
        yield
    finally:
        torch._C._jit_set_profiling_mode(before)


def _match(predicted: Sequence[str], measured: Sequence[str]) -> list[int | None]:
    """The entries of the timeline that measured operators are."""
    names = [[_get_name(op) for op in ops] for ops in (predicted, measured)]
    entries: list[int | None] = [None] * len(measured)
    matcher = difflib.SequenceMatcher(None, names[0], names[1], autojunk=False)
    for kind, start, end, first, last in matcher.get_opcodes():
        # Where as many are called otherwise, they are the same.
        if kind == "equal" or (kind == "replace" and end - start == last - first):
            entries[first:last] = range(start, end)
    return entries


def _get_name(op: str) -> str:
    return op.rpartition(".")[2].rpartition("::")[2].rstrip("_")


def place_steps(measured: dict[str, Any], count: int) -> list[float]:
    """Where measured operators are over a timeline of ``count`` entries: at their own
    entry, others between their neighbours."""
    steps = measured["timeline"]
    known = [(index, step["entry"]) for index, step in enumerate(steps)]
    anchors: list[tuple[int, float]] = [(-1, -0.5)]
    anchors += [(index, float(entry)) for index, entry in known if entry is not None]
    anchors.append((len(steps), max(count - 0.5, 0.5)))
    places = []
    at = 0
    for index in range(len(steps)):
        while anchors[at + 1][0] <= index:
            at += 1
        (left, x), (right, y) = anchors[at], anchors[at + 1]
        places.append(x + (y - x) * (index - left) / (right - left))
    return places


class Difference(NamedTuple):
    """Where measured and predicted bytes differ most."""

    bytes: int  # measured less predicted
    entry: int | None


def _get_total(step: dict[str, Any]) -> int:
    return int(step["live_bytes"]) + int(step["transient_bytes"])


def find_difference(data: dict[str, Any]) -> Difference:
    """Of the operators that both have, and of the peak."""
    measured, timeline = data["measured"], data["timeline"]
    found = Difference(measured["peak_bytes"] - data["peak_bytes"], None)
    for step in measured["timeline"]:
        if step["entry"] is None:
            continue
        difference = _get_total(step) - _get_total(timeline[step["entry"]])
        # Of equal ones the operator, whose place is known.
        is_first = found.entry is None and difference and abs(difference) == abs(found.bytes)
        if abs(difference) > abs(found.bytes) or is_first:
            found = Difference(difference, step["entry"])
    return found


def describe_difference(data: dict[str, Any], place: Callable[[Any], str | None]) -> str:
    """In words, after the measured peak."""
    found = find_difference(data)
    if not found.bytes:
        text = "as predicted at every operation"
    else:
        how = "more" if found.bytes > 0 else "less"
        text = f"at most {memory.format_bytes(abs(found.bytes))} {how} than predicted"
        if found.entry is None:
            text += ", at the peak"
        else:
            entry = data["timeline"][found.entry]
            where = place(entry["location"])
            text += f", by {entry['op']}{f' at {where}' if where else ''}"
    others = sum(step["entry"] is None for step in data["measured"]["timeline"])
    return text + (f"; {others} operations are not in the report" if others else "")
