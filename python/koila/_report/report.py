"""Reports on memory."""

from __future__ import annotations

import copy
import html
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from koila._errors import KoilaError
from koila._report.measurement import describe_difference, measure_call, place_steps
from koila._report.source_lines import make_heat_map
from koila._temporary import write_text
from koila.memory import budget_bytes, format_bytes

__all__ = ["Report", "ReportDiff"]

# The report again, for another batch, with the largest batch within a budget, or with a file
# for a snapshot, all optional.
Analyze = Callable[[int | None, int | None, str | None], dict[str, Any]]


# Of a saved report, what everything else reads.
_FIELDS: dict[str, Any] = {
    "function": str,
    "mode": str,
    "device": str,
    "threads": int,
    "exact": bool,
    "batch": dict,
    "peak_bytes": (int, type(None)),
    **dict.fromkeys(
        ["timeline", "by_line", "by_module", "live_at_peak", "batch_pieces", "inexact"], list
    ),
}

# What differs between the plans of a program.
_OF_PLANS = ("by_tile", "replan_bytes", "recompute", "recomputed_share")


class Report:
    """What a call of a program needs, and where.

    All sizes are bytes. ``data`` is the whole report as docs/user/Reports.md has it;
    a figure that depends on a symbol without value is None.
    """

    def __init__(
        self,
        data: dict[str, Any],
        analyze: Analyze | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.data = data
        self._analyze = analyze
        # Where the tensors are that were analysed; None of a target that was named.
        is_here = device is None and data["device"] == "cpu"
        self._device = torch.device("cpu") if is_here else device

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """A report that was saved as JSON."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise KoilaError(f"'{path}' is no report: {error}") from None
        if not isinstance(data, dict) or data.get("schema") != 1:
            raise KoilaError(f"'{path}' is no report of schema 1")
        missing = [key for key, kind in _FIELDS.items() if not isinstance(data.get(key), kind)]
        if missing:
            raise KoilaError(f"'{path}' is no whole report: '{missing[0]}' is not as it should be")
        return cls(data)

    def __copy__(self) -> Report:
        return Report(self.data, self._analyze, self._device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Report:
        return Report(copy.deepcopy(self.data, memo), self._analyze, self._device)

    def __getstate__(self) -> dict[str, Any]:
        # The program is not part of a pickle: what was loaded knows what is in data.
        return {"data": self.data, "_analyze": None, "_device": self._device}

    @property
    def peak(self) -> int | None:
        """The most bytes that the call holds at once. Parameters, inputs, and
        gradients that were there before do not count."""
        return _optional_int(self.data["peak_bytes"])

    @property
    def batch(self) -> int | None:
        """The batch that the figures are for."""
        return _optional_int(self.data["batch"]["value"])

    @property
    def exact(self) -> bool:
        """Whether every operator had a rule; else see ``data["inexact"]``."""
        return bool(self.data["exact"])

    @property
    def location(self) -> str | None:
        """``file:line`` of the peak."""
        return _place(self.data.get("peak_location"))

    @property
    def timeline(self) -> list[dict[str, Any]]:
        """An entry per operation: ``op``, ``location``, ``live_bytes`` and
        ``transient_bytes``, which it holds inside."""
        return list(self.data["timeline"])

    @property
    def by_line(self) -> dict[str, int]:
        """Bytes alive at the peak by the line that made them, most first."""
        return _groups(self.data["by_line"])

    @property
    def by_module(self) -> dict[str, int]:
        """Bytes alive at the peak by the module that made them, most first."""
        return _groups(self.data["by_module"])

    def max_batch(self, budget: int | str = "auto") -> int | None:
        """The largest batch that the program, as it is, runs within ``budget``
        bytes: 0 if not even one sample does, None if there is no limit.
        """
        if budget == "auto" and self._device is None:
            raise KoilaError(
                f"the report is of '{self.data['device']}', and no tensor is there to ask what is "
                "free: give the bytes"
            )
        limit = budget_bytes(budget, self._device or "cpu")
        if self._analyze is None:
            return self._max_batch_of_pieces(limit)
        found = self._analyze(None, limit, None)["max_batch"]
        if found is None:
            raise KoilaError("the largest batch is not known: the peak depends on more than it")
        return None if found == "unbounded" else int(found)

    def _max_batch_of_pieces(self, limit: int) -> int:
        best = 0
        last = 0
        for batch, peak in self._peaks():
            last = batch
            if peak <= limit:
                best = batch
        if best == last:
            raise KoilaError(
                f"the report ends at a batch of {last}, which fits; analyse the program again"
            )
        return best

    def _peaks(self) -> list[tuple[int, int]]:
        return [
            (batch, sum(c * batch**power for power, c in enumerate(piece["coefficients"])))
            for piece in self.data["batch_pieces"]
            for batch in range(piece["from"], piece["to"] + 1)
        ]

    def min_budget(self, batch: int) -> int:
        """The least bytes within which the program, as it is, runs ``batch``
        samples. In tiles it needs less: ``data["floor_bytes"]`` at least."""
        if isinstance(batch, bool) or not isinstance(batch, int):
            raise KoilaError(f"batch={batch!r} is no number of samples")
        if batch < 1:
            raise KoilaError(f"a batch of {batch} has no samples")
        for known, peak in self._peaks():
            if known == batch:
                return peak
        if batch == self.batch and self.peak is not None:
            return self.peak
        if self._analyze is None:
            raise KoilaError(f"the report says nothing of a batch of {batch}")
        peak_bytes = self._analyze(batch, None, None)["peak_bytes"]
        if peak_bytes is None:
            raise KoilaError("the peak is not known: it depends on more than the batch")
        return int(peak_bytes)

    def at_tile(
        self, row: dict[str, Any], budget: int, plan: dict[str, Any] | None = None
    ) -> Report:
        """What is known of the same program in other tiles, from a row of ``by_tile``: its
        peak, and no more, but where that is what the report is of. Of several plans it is
        a row of ``plan``."""
        data = copy.deepcopy(self.data)
        is_other = plan is not None and plan["by_tile"] != data["by_tile"]
        if plan is not None:
            for key in _OF_PLANS:
                data.pop(key, None)
            data.update({key: plan[key] for key in _OF_PLANS if key in plan})
        if is_other or row["peak_bytes"] != self.peak:
            lists = ("live_at_peak", "by_line", "by_module", "by_kind", "timeline", "storages")
            data.update({key: [] for key in (*lists, "batch_pieces")})
            data.update(peak_bytes=row["peak_bytes"], peak_location=None, max_batch=None)
        before = data["promise"] or {"holds_from": 1, "holds_to": self.batch}
        if budget < before.get("budget_bytes", budget):
            # Of no samples another program runs, which fitted what was promised before.
            before["holds_from"] = max(before["holds_from"], 1)
        data["promise"] = {**before, "budget_bytes": budget, "tile": row["tile"]}
        return Report(data, device=self._device)

    def with_promise(self, promise: dict[str, Any] | None) -> Report:
        """The same with another promise."""
        return Report({**self.data, "promise": promise}, device=self._device)

    def diff(self, other: Report) -> ReportDiff:
        """What ``other`` needs more or less than this."""
        if not isinstance(other, Report):
            raise KoilaError(f"a report is compared with a report, not a {type(other).__name__}")
        return ReportDiff(self, other)

    def save(self, path: str | Path) -> None:
        """Writes the page (``.html``), or the JSON report under any other name."""
        is_page = Path(path).suffix in (".html", ".htm")
        write_text(os.fspath(path), self.to_html() if is_page else self.to_json())

    def save_snapshot(self, path: str | Path) -> None:
        """Writes what PyTorch's allocator of CUDA does in the calls that ``data["cuda"]``
        is of, as ``torch.cuda.memory._dump_snapshot()`` writes what it has done:
        https://docs.pytorch.org/memory_viz shows it, and ``torch.cuda._memory_viz``.
        Each block has its operation and line; where its size is not known to the byte,
        that says so.

        Raises KoilaError for a report of the CPU, of a batch without value, or that was
        loaded.
        """
        if self._analyze is None:
            raise KoilaError("the program is no part of a report that was loaded: analyse it again")
        self._analyze(None, None, os.fspath(path))

    def to_json(self) -> str:
        return json.dumps(self.data, indent=2)

    def measure(
        self, module: nn.Module | str | os.PathLike[str], *inputs: Any, **named: Any
    ) -> Report:
        """Calls ``module``, or that of a TorchScript file, and keeps what it allocates,
        operator by operator, beside what is predicted: in ``data["measured"]``, in the
        text, the page and ``plot()``. Returns the report itself.

        ``inputs`` and ``named`` are values for the call that the report is of, of the same
        sizes. The module runs twice, in the report's mode and threads; its buffers and
        random numbers are afterwards what they were. An ``nn.Module`` runs in Python,
        which may hold more than the program that the report is of.

        Raises KoilaError for a report of a training step, of another batch, or on a GPU.
        """
        self.data["measured"] = measure_call(module, inputs, named, self.data)
        return self

    def to_html(self) -> str:
        """One page that needs nothing else: the timeline by storage, with what was
        measured, what is alive at the peak, the source with the bytes of each line, where
        it can be read, and the peak by batch."""
        page = Path(__file__).parents[1].joinpath("ReportPage.html").read_text(encoding="utf-8")
        if self.data["timeline"]:
            page = page.replace("<!-- KOILA_SOURCES -->", make_heat_map(self.data), 1)
        # A name such as `</script>` must not end the element.
        return page.replace("KOILA_REPORT_JSON", json.dumps(self.data).replace("<", "\\u003c"), 1)

    def _repr_html_(self) -> str:
        source = html.escape(self.to_html(), quote=True)
        return (
            f'<iframe srcdoc="{source}" sandbox="allow-scripts" title="koila: memory" '
            'style="width:100%;height:40rem;border:0"></iframe>'
        )

    def plot(self, ax: Any = None) -> Any:
        """Draws the timeline, with what ``measure`` found; returns the axes. Needs
        matplotlib."""
        try:
            from matplotlib import pyplot
        except ImportError:
            raise KoilaError(
                "plot() needs matplotlib (pip install 'koila[plot]'); to_html() needs nothing"
            ) from None
        if ax is None:
            _, ax = pyplot.subplots(figsize=(8, 3))
        steps = range(len(self.timeline))
        live = [entry["live_bytes"] / 2**20 for entry in self.timeline]
        total = [
            (entry["live_bytes"] + entry["transient_bytes"]) / 2**20 for entry in self.timeline
        ]
        ax.fill_between(steps, total, step="mid", alpha=0.35, label="inside of operators")
        ax.fill_between(steps, live, step="mid", label="tensors")
        if measured := self.data.get("measured"):
            found = measured["timeline"]
            ax.plot(
                place_steps(measured, len(self.timeline)),
                [(one["live_bytes"] + one["transient_bytes"]) / 2**20 for one in found],
                color="black",
                drawstyle="steps-mid",
                label="measured",
            )
        ax.set(xlabel="operation", ylabel="MiB", title=_title(self.data))
        ax.legend(loc="upper right")
        return ax

    def __str__(self) -> str:
        data = self.data
        rows = [_title(data)]
        batch = data["batch"]
        if batch["symbol"]:
            rows.append(f"  batch        {batch['value'] if batch['value'] else 'any'}")
        if self.peak is None:
            rows.append("  peak         depends on the batch; give one")
        else:
            rows.append(f"  peak         {_bytes(self.peak)}")
        if self.location:
            rows.append(f"  at           {self.location}")
        if (measured := data.get("measured")) and self.peak is not None:
            text = describe_difference(data, _place)
            rows.append(f"  measured     {_bytes(measured['peak_bytes'])}, {text}")
        for key, label, note in (
            ("parameter_bytes", "parameters", "not in the peak"),
            ("input_bytes", "inputs", "not in the peak"),
            ("output_bytes", "outputs", ""),
            ("gradient_bytes", "gradients", ""),
            ("optimizer_bytes", "optimizer", ""),
            ("floor_bytes", "in tiles", "the least that any tile needs"),
        ):
            if data.get(key):
                rows.append(f"  {label:<12} {_bytes(data[key])}{f' ({note})' if note else ''}")
        if cuda := data.get("cuda"):
            rows += _describe_cuda(cuda)
        if promise := data.get("promise"):
            rows.append(
                f"  promise      within {_bytes(promise['budget_bytes'])} "
                f"for batches of {promise['holds_from']} to {promise['holds_to']}"
            )
        if data["live_at_peak"]:
            rows.append("alive at the peak:")
        for tensor in data["live_at_peak"][:10]:
            rows.append(
                f"  {format_bytes(tensor['bytes']):>12}  {tensor['kind']:<10} "
                f"{tensor['name']} {tensor['type']}  {_place(tensor['location']) or ''}".rstrip()
            )
        if len(data["live_at_peak"]) > 10:
            rows.append(f"  and {len(data['live_at_peak']) - 10} more")
        if data["inexact"]:
            rows.append("not exact:")
        for reason in data["inexact"][:10]:
            where = _place(reason["location"])
            source = f" ({reason['source']})" if reason.get("source") else ""
            place = f", at {where}" if where else ""
            rows.append(f"  {reason['op']}: {reason['reason']}{source}{place}")
        return "\n".join(rows)

    def __repr__(self) -> str:
        peak = "unknown" if self.peak is None else format_bytes(self.peak)
        return f"<koila.Report: peak {peak}, batch {self.batch}>"


class ReportDiff:
    """Two reports side by side. ``peak`` is the second peak less the first;
    ``by_line`` and ``by_module`` are that of what is alive at the peak, most
    change first, without what is equal."""

    def __init__(self, before: Report, after: Report) -> None:
        self.before, self.after = before, after

    @property
    def peak(self) -> int | None:
        if self.before.peak is None or self.after.peak is None:
            return None
        return self.after.peak - self.before.peak

    @property
    def by_line(self) -> dict[str, int]:
        return _difference(self.before.by_line, self.after.by_line)

    @property
    def by_module(self) -> dict[str, int]:
        return _difference(self.before.by_module, self.after.by_module)

    def __str__(self) -> str:
        def show(count: int) -> str:
            return f"{'+' if count > 0 else '-' if count < 0 else ''}{format_bytes(abs(count))}"

        rows = ["peak         unknown" if self.peak is None else f"peak         {show(self.peak)}"]
        rows += [f"  {show(count):>13}  {name}" for name, count in self.by_line.items()]
        return "\n".join(rows)


def _describe_cuda(cuda: dict[str, Any]) -> list[str]:
    rows = [
        f"  allocated    {_bytes(cuda['allocated_peak'])} at most, with weights and inputs",
        f"  reserved     {_bytes(cuda['reserved_peak'])} at most",
    ]
    if cuda["device_total_bytes"] is not None:
        rows.append(
            f"  device       {_bytes(cuda['device_total_bytes'])}, with "
            f"{format_bytes(cuda['context_bytes'])} outside of the allocator"
        )
    trust = cuda["bytes_by_trust"]
    if trust["bound"] or trust["unknown"]:
        rows.append(
            f"               {format_bytes(trust['exact'])} of what is allocated are exact, "
            f"{format_bytes(trust['bound'])} a bound, {format_bytes(trust['unknown'])} not known"
        )
    return rows


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)


def _place(location: dict[str, Any] | None) -> str | None:
    if not location or not location.get("file"):
        return None
    module = f" ({location['module']})" if location.get("module") else ""
    return f"{location['file']}:{location['line']}{module}"


def _groups(groups: list[dict[str, Any]]) -> dict[str, int]:
    return {group["name"]: int(group["bytes"]) for group in groups}


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    names = dict.fromkeys([*before, *after])
    changes = {name: after.get(name, 0) - before.get(name, 0) for name in names}
    ordered = sorted(changes.items(), key=lambda item: -abs(item[1]))
    return {name: count for name, count in ordered if count}


def _title(data: dict[str, Any]) -> str:
    threads = f"{data['threads']} thread" + ("s" if data["threads"] != 1 else "")
    return f"memory of '{data['function']}', {data['mode']}, {data['device']}, {threads}" + (
        ""
        if data["exact"]
        else ", not exact, an upper bound"
        if data["inexact"] and all(reason["bound"] for reason in data["inexact"])
        else ", not exact"
    )


def _bytes(count: int) -> str:
    text = format_bytes(count)
    return text if text.endswith("bytes") else f"{text} ({count:,} bytes)"
