"""Which line runs: one trace function for all profilers of the process.

A trace function that was there, a debugger's or that of a coverage tool, is called as
ever, and is put back when the last profiler ends. A debugger that is started by a
profiled function takes over: lines that it steps through are not measured.

Threads that start while a profiler is enabled are traced; others are not (Python has no
way to), but what they allocate on the CPU counts in the line that ends next.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from koila.compat.pytorch_memlab._sources import LAST, MOST, SUM, Source

if TYPE_CHECKING:
    from _typeshed import TraceFunction

    from koila.compat.pytorch_memlab.line_profiler._predictions import Kind, Predictions

_K = TypeVar("_K")

#: What Python runs where a module is called.
_CALL_OF_MODULE: CodeType = nn.Module._call_impl.__code__

#: Of a watched call: live when the line ended, the most meanwhile, the difference.
_WATCHED = tuple(f"active_bytes.all.{part}" for part in ("current", "peak", "allocated", "freed"))


class Line:
    """The figures of a line, all its runs together."""

    __slots__ = ("figures", "runs")

    def __init__(self, figures: Sequence[int]) -> None:
        self.figures = list(figures)
        self.runs = 0


class Record:
    """What is known of a function: the figures of its lines, by line and source.

    A byte that its lines allocate counts in one of them: while it calls itself, in the
    line of the innermost call. All lines together are what the function changed, from
    its call to its return (what its variables hold is freed after that)."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.lines: dict[tuple[int, Source], Line] = {}
        self.calls = 0
        self.source: Source | None = None
        #: None: nothing is predicted.
        self.predictions: Predictions | None = None
        #: Of calls of the function itself, where it is the forward of a module: by kind
        #: and line, what was measured in bytes above what was live at its start.
        self.watched: dict[Kind, dict[int, list[int]]] = {}
        #: The same of lines that call a module, by line and kind.
        self.called: dict[int, dict[Kind, list[int]]] = {}
        self.watched_source: Source | None = None

    def forget(self) -> None:
        self.lines.clear()
        self.watched.clear()
        self.called.clear()
        self.calls = 0

    def get_line(self, number: int, source: Source) -> Line:
        line = self.lines.get((number, source))
        if line is None:
            line = self.lines[number, source] = Line([0] * len(source.fields))
        return line

    def add(self, number: int, source: Source, figures: Sequence[int]) -> None:
        own = self.get_line(number, source).figures
        for index, how in enumerate(source.how):
            if how == SUM:
                own[index] += figures[index]
            elif how == LAST or figures[index] > own[index]:
                own[index] = figures[index]

    def add_peaks(self, number: int, source: Source, figures: Sequence[int]) -> None:
        """What a call of the function itself had at most, for the line that called it."""
        own = self.get_line(number, source).figures
        for index, how in enumerate(source.how):
            if how == MOST and figures[index] > own[index]:
                own[index] = figures[index]


class Watch:
    """A call that is measured beside its prediction, line by line: bytes live when the
    line ended, the most meanwhile, and the difference that it made."""

    __slots__ = ("_base", "_indices", "kind", "lines", "source")

    def __init__(self, kind: Kind, source: Source, live: Sequence[int]) -> None:
        self.kind, self.source = kind, source
        self._indices = [source.fields.index(name) for name in _WATCHED]
        self._base = live[self._indices[0]]
        self.lines: dict[int, list[int]] = {}

    def add(self, line: int, figures: Sequence[int]) -> None:
        current, peak, allocated, freed = [figures[index] for index in self._indices]
        own = self.lines.setdefault(line, [0, 0, 0])
        own[0] = current - self._base
        own[1] = max(own[1], peak - self._base)
        own[2] += allocated - freed


def _merge(into: dict[_K, list[int]], key: _K, figures: list[int]) -> None:
    """Of several calls of a kind: the last, but for the peak."""
    peak = into[key][1] if key in into else 0
    into[key] = [figures[0], max(peak, figures[1]), figures[2]]


class _Call:
    """A profiled function that runs."""

    __slots__ = (
        "active",
        "calls_module",
        "frame",
        "is_left_out",
        "line",
        "peaks",
        "records",
        "watches",
    )

    def __init__(self, frame: FrameType, records: tuple[Record, ...]) -> None:
        self.frame: FrameType | None = frame
        self.records = records
        self.line = frame.f_lineno
        self.active = True
        #: The most of each source, kept where the function runs below itself.
        self.peaks: dict[Source, list[int]] = {}
        #: Where something is predicted: of the call, and of the module that it calls.
        self.is_left_out = False
        self.watches: list[tuple[Record, Watch]] = []
        self.calls_module: list[tuple[Record, int, Watch | None]] = []

    @property
    def is_watched(self) -> bool:
        """Whether there are predictions of what runs below it, or enough of them."""
        watches = [watch for _, watch in self.watches]
        watches += [watch for _, _, watch in self.calls_module if watch is not None]
        return self.is_left_out or any(watch.kind.report is not None for watch in watches)


class _Thread(threading.local):
    """The profiled calls of a thread, and the innermost of each function."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.innermost: dict[Record, list[_Call]] = {}


class Tracer:
    def __init__(self) -> None:
        self._codes: dict[int, tuple[Record, ...]] = {}
        self._owners: dict[object, list[Record]] = {}
        self._sources: tuple[Source, ...] = ()
        self._thread = _Thread()
        self._installed: TraceFunction | None = None
        self._previous: TraceFunction | None = None
        self._previous_of_threads: TraceFunction | None = None
        self._of_threads: TraceFunction | None = None

    # What is traced

    def set_records(self, owner: object, records: list[Record]) -> None:
        """Traces the functions of an owner; those with a source only. None: no more."""
        self.end_lap()
        self._owners[owner] = records
        if not records:
            del self._owners[owner]
        codes: dict[int, tuple[Record, ...]] = {}
        sources: dict[Source, None] = {}
        for record in itertools.chain.from_iterable(self._owners.values()):
            codes[id(record.code)] = (*codes.get(id(record.code), ()), record)
            if record.source is not None:
                sources[record.source] = None
        self._codes, self._sources = codes, tuple(sources)
        self._start_lap()
        if codes and self._installed is None:
            self._install()
        elif not codes and self._installed is not None:
            self._remove()

    def _start_lap(self) -> None:
        for source in self._sources:
            source.lap()

    def _install(self) -> None:
        self._previous = sys.gettrace()
        self._installed = self._make(self._previous)
        self._previous_of_threads = threading.gettrace()
        self._of_threads = self._make(self._previous_of_threads)
        # So that threads have the debugger's, too, where it has said so.
        threading.settrace(self._of_threads)
        sys.settrace(self._installed)

    def put_back(self) -> None:
        """Traces again where another has replaced the trace function."""
        current = sys.gettrace()
        if self._installed is not None and current is not self._installed:
            self._previous = current
            self._installed = self._make(current)
            sys.settrace(self._installed)

    def _remove(self) -> None:
        if sys.gettrace() is self._installed:
            sys.settrace(self._previous)
        if threading.gettrace() is self._of_threads:
            if self._previous_of_threads is None:
                threading.settrace(None)
            else:
                threading.settrace(self._previous_of_threads)
        self._installed = self._previous = None
        self._of_threads = self._previous_of_threads = None
        self._thread.calls.clear()
        self._thread.innermost.clear()

    # What happens

    def _make(self, previous: TraceFunction | None) -> TraceFunction:
        def trace(frame: FrameType, event: Any, argument: Any) -> TraceFunction | None:
            chained: TraceFunction | None = None
            if previous is not None:
                chained = previous(frame, event, argument)
                # Tracers in C put themselves back when they are called by Python.
                if sys.gettrace() is previous:
                    sys.settrace(trace)
            records = self._codes.get(id(frame.f_code))
            if records is None:
                if frame.f_code is _CALL_OF_MODULE and self._thread.calls:
                    return self._trace_module(frame, chained)
                return chained
            return self._trace_call(self._enter(frame, records), chained)

        return trace

    def _trace_call(self, call: _Call, chained: TraceFunction | None) -> TraceFunction:
        def trace(frame: FrameType, event: Any, argument: Any) -> TraceFunction:
            nonlocal chained
            if event == "line":
                self._move(call, frame.f_lineno)
            elif event == "return":
                self._leave(call)
            if chained is not None:
                chained = chained(frame, event, argument) or chained
            return trace

        return trace

    def _trace_module(
        self, frame: FrameType, chained: TraceFunction | None
    ) -> TraceFunction | None:
        """Watches a call of a module by a line that is profiled, unless what it is part
        of is watched already."""
        call = self._thread.calls[-1]
        records = [r for r in call.records if r.predictions is not None and r.source is not None]
        if not records or call.calls_module or any(c.is_watched for c in self._thread.calls):
            return chained
        watches = call.calls_module
        for record in records:
            assert record.predictions is not None
            kind = record.predictions.find_call(frame, (id(record), call.line))
            watches.append((record, call.line, self._watch(record, kind)))

        if chained is None:
            frame.f_trace_lines = False

        def trace(frame: FrameType, event: Any, argument: Any) -> TraceFunction:
            nonlocal chained
            if event == "return" and call.calls_module is watches:
                self.end_lap()
                call.calls_module = []
                for record, line, watch in watches:
                    if watch is not None:
                        record.watched_source = watch.source
                        kinds = record.called.setdefault(line, {})
                        _merge(kinds, watch.kind, watch.lines.get(0, [0, 0, 0]))
            if chained is not None:
                chained = chained(frame, event, argument) or chained
            return trace

        return trace

    def _watch(self, record: Record, kind: Kind | None) -> Watch | None:
        """From now on; None where there is nothing to compare with."""
        if kind is None or kind.is_left_out or record.source is None:
            return None
        # What came before belongs to the line that called.
        return Watch(kind, record.source, self.end_lap()[record.source])

    def _enter(self, frame: FrameType, records: tuple[Record, ...]) -> _Call:
        self.end_lap()
        thread = self._thread
        # Calls whose end nobody told of: their frames are not below this one.
        if thread.calls:
            below = set()
            at: FrameType | None = frame.f_back
            while at is not None:
                below.add(at)
                at = at.f_back
            while thread.calls and thread.calls[-1].frame not in below:
                self._pop()
        call = _Call(frame, records)
        for record in records:
            if record.predictions is not None and record.source is not None:
                kind = record.predictions.find_forward(frame, id(record))
                call.is_left_out |= kind is not None and kind.is_left_out
                watch = self._watch(record, kind)
                if watch is not None:
                    call.watches.append((record, watch))
        thread.calls.append(call)
        for record in records:
            thread.innermost.setdefault(record, []).append(call)
            record.calls += 1
        return call

    def _move(self, call: _Call, line: int) -> None:
        self.end_lap()
        call.line = line
        for record in call.records:
            if record.source is not None:
                record.get_line(line, record.source).runs += 1

    def _leave(self, call: _Call) -> None:
        self.end_lap()
        if call.active and call in self._thread.calls:
            while self._thread.calls[-1] is not call:
                self._pop()
            self._pop()

    def _pop(self) -> None:
        call = self._thread.calls.pop()
        call.active, call.frame = False, None
        for record, watch in call.watches:
            record.watched_source = watch.source
            lines = record.watched.setdefault(watch.kind, {})
            for line, figures in watch.lines.items():
                _merge(lines, line, figures)
        for record in call.records:
            calls = self._thread.innermost[record]
            calls.remove(call)
            if not calls:
                del self._thread.innermost[record]
            elif call.peaks:
                for source, peaks in call.peaks.items():
                    record.add_peaks(calls[-1].line, source, peaks)
                    _raise(calls[-1], source, peaks)

    def end_lap(self) -> dict[Source, Sequence[int]]:
        """Charges what happened on this thread to the lines that it is in. What happened."""
        innermost = self._thread.innermost
        found: dict[Source, Sequence[int]] = {}
        for source in self._sources:
            figures = found[source] = source.lap()
            for record, calls in innermost.items():
                if record.source is source:
                    record.add(calls[-1].line, source, figures)
                    if len(calls) > 1:
                        _raise(calls[-1], source, figures)
            for call in self._thread.calls:
                for _, watch in call.watches:
                    if watch.source is source:
                        watch.add(call.line, figures)
                for _, _, module_watch in call.calls_module:
                    if module_watch is not None and module_watch.source is source:
                        module_watch.add(0, figures)
        return found


def _raise(call: _Call, source: Source, figures: Sequence[int]) -> None:
    peaks = call.peaks.get(source)
    call.peaks[source] = list(figures) if peaks is None else list(map(max, peaks, figures))
