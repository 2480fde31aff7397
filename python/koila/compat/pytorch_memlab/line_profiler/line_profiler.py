"""Memory of each line of some functions, after pytorch_memlab by Stonesjtu (MIT)."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import torch

from koila.compat.pytorch_memlab._sources import Source, get_source
from koila.compat.pytorch_memlab.line_profiler._compared import COMPARED, compare
from koila.compat.pytorch_memlab.line_profiler._tracer import Record, Tracer
from koila.compat.pytorch_memlab.line_profiler.line_records import (
    DEFAULT_COLUMNS,
    Function,
    LineRecords,
    RecordsDisplay,
    get_code,
)

if TYPE_CHECKING:
    from koila.compat.pytorch_memlab.line_profiler._predictions import Predictions

__all__ = ["DEFAULT_COLUMNS", "LineProfiler"]

_tracer = Tracer()


class LineProfiler:
    """Memory of each line of ``functions`` while the profiler is enabled.

    For each line, all its runs together: what it added to what is live (``increment``,
    ``allocated``, ``freed``), and the most that was live at once (``peak``), in bytes.
    The increments of a function's lines add up to what changed from its call to its
    return. Calls count in the line that calls. Several profilers, decorators and a
    debugger may be at work at once, and threads that start meanwhile are profiled, too.

    ``predict``: beside the figures of a ``forward`` of a module, and of a line that calls a
    module, stands what koila predicts of the call (docs/user/Memlab.md), or why it cannot.
    Each kind of call is analysed once, in a fork of the process.

    ``target_gpu``: a GPU's number or a ``torch.device``. Where there is no GPU, or for
    ``torch.device("cpu")``, the figures are the CPU's (``_sources.py``).
    """

    def __init__(
        self,
        *functions: Callable[..., Any] | CodeType,
        target_gpu: int | str | torch.device = 0,
        predict: bool = False,
    ) -> None:
        self._predictions: Predictions | None = None
        if predict:
            # The compiler, which the figures of lines do not need.
            from koila.compat.pytorch_memlab.line_profiler._predictions import Predictions

            self._predictions = Predictions()
        self._records: dict[int, Record] = {}
        self._functions: dict[int, object] = {}
        self._target = target_gpu
        self._source: Source | None = None
        self.enabled = False
        for function in functions:
            self.add_function(function)

    @property
    def target_gpu(self) -> int | str | torch.device:
        """The device whose memory is profiled; may be set while a function runs."""
        return self._target

    @target_gpu.setter
    def target_gpu(self, target: int | str | torch.device) -> None:
        source = get_source(target)
        self._target = target
        if self.enabled:
            _tracer.end_lap()
            self._source = source
            self._trace()

    def add_function(self, func: Callable[..., Any] | CodeType) -> None:
        """Profiles a function, a method, what a decorator wraps, a module's forward; also
        code itself."""
        code = get_code(func)
        if code is None:
            warnings.warn(f"{func!r} has no lines in Python: not profiled", stacklevel=2)
            return
        if id(code) not in self._records:
            self._records[id(code)] = Record(code)
            self._records[id(code)].predictions = self._predictions
            # The code, not the function: that may hold tensors.
            name = getattr(code, "co_qualname", code.co_name)
            self._functions[id(code)] = getattr(func, "__qualname__", name)
        if self.enabled:
            self._trace()

    def _trace(self) -> None:
        for record in self._records.values():
            record.source = self._source
        _tracer.set_records(self, list(self._records.values()))

    def enable(self) -> None:
        """Starts, or goes on. Functions that run already are measured from their next
        call on."""
        if not self.enabled:
            self._source = get_source(self._target)
            self.enabled = True
            self._trace()
        self.register_callback()

    def register_callback(self) -> None:
        """Traces again, where something else has replaced the trace function."""
        if self.enabled and self._records:
            _tracer.put_back()

    def disable(self) -> None:
        """Ends; a trace function that was there before is back."""
        if self.enabled:
            self.enabled = False
            _tracer.set_records(self, [])
            for record in self._records.values():
                record.source = None

    def clear(self) -> None:
        """Forgets functions and figures."""
        if self.enabled:
            _tracer.set_records(self, [])
        for record in self._records.values():
            record.source = None
        self._records, self._functions = {}, {}

    def forget_figures(self) -> None:
        """Forgets figures; what runs goes on to be measured."""
        _tracer.end_lap()
        for record in self._records.values():
            record.forget()

    def __enter__(self) -> LineProfiler:
        self.enable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.disable()

    def display(
        self, func: Function | None = None, columns: Sequence[str] = DEFAULT_COLUMNS
    ) -> RecordsDisplay:
        """The figures, as text (``print``) or as a notebook shows them.

        ``func``: a function, its qualified name or a list of them; all without it.
        ``columns``: see ``_sources.py``; ValueError for one that the device has not.
        """
        told: set[tuple[str, str]] = set()
        compared = {key: compare(record, told) for key, record in self._records.items()}
        raw = [
            {
                "code_hash": key,
                "line": number,
                "device": str(source.device),
                "runs": line.runs,
                **{
                    column: line.figures[index] - (line.figures[less] if less >= 0 else 0)
                    for column, (index, less) in source.get_columns().items()
                },
                **compared[key].take(number, source),
            }
            for key, record in self._records.items()
            for (number, source), line in list(record.lines.items())
        ]
        # Places that Python does not tell of, as the second line of an expression.
        raw += [
            {"code_hash": key, "line": number, "device": str(source.device), "runs": 0, **figures}
            for key, found in compared.items()
            for number, source, figures in found.rest()
        ]
        infos = {
            key: {
                "func": record.code,
                "name": self._functions[key],
                "first_line": record.code.co_firstlineno,
                "notes": compared[key].notes,
            }
            for key, record in self._records.items()
        }
        source = self._source or get_source(self._target)
        options = (*source.get_columns(), *(COMPARED if self._predictions is not None else ()))
        return LineRecords(raw, infos, options).display(func, columns)

    def print_stats(
        self,
        func: Function | None = None,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        stream: TextIO | None = None,
    ) -> None:
        """Writes the figures to ``stream``, standard output without it."""
        print(self.display(func, columns), file=stream or sys.stdout)
