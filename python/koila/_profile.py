"""A script under a profiler of lines."""

from __future__ import annotations

import contextlib
import html
import os
import sys
import traceback
import types
from collections.abc import Iterator, Sequence

from koila._errors import KoilaError
from koila.compat.pytorch_memlab import LineProfiler
from koila.compat.pytorch_memlab.line_profiler.line_records import find_functions

__all__ = ["make_page", "run_script"]


def run_script(
    path: str, arguments: Sequence[str], *, predict: bool = True
) -> tuple[LineProfiler, int]:
    """Runs a script as ``python PATH ARGUMENTS`` does, and profiles the lines of it and
    of the functions in it. The profiler, and the script's exit code: what ends it is
    written to stderr as Python does. ``predict`` is the profiler's. KoilaError where the
    script cannot be read or compiled."""
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise KoilaError(f"cannot run '{path}': {reason}") from None
    profiler = LineProfiler(*find_functions(code), predict=predict)
    status = 0
    with _as_main(path, arguments) as module:
        try:
            with profiler:
                exec(code, vars(module))
        except SystemExit as stop:
            status = _get_status(stop)
        except BaseException as error:
            # Without koila's own frame.
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code is not code:
                trace = trace.tb_next
            traceback.print_exception(type(error), error, trace)
            status = 1
    return profiler, status


@contextlib.contextmanager
def _as_main(path: str, arguments: Sequence[str]) -> Iterator[types.ModuleType]:
    module = types.ModuleType("__main__")
    vars(module).update(__file__=path, __builtins__=__builtins__)
    before = sys.modules["__main__"], sys.argv, sys.path[:]
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    try:
        yield module
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before


def _get_status(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def make_page(profiler: LineProfiler, title: str) -> str:
    """The source, each line the warmer the more memory there was while it ran."""
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<title>{html.escape(title)}</title></head>\n<body style='font-family:sans-serif'>"
        f"<h1>{html.escape(title)}</h1>\n{profiler.display()._repr_html_()}\n</body></html>\n"
    )
