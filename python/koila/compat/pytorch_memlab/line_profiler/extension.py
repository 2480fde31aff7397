"""``%mlrun`` and ``%koila`` in IPython and notebooks, above a cell with ``%%``.

The first after pytorch_memlab by Stonesjtu (MIT). IPython is imported when the extension is
loaded: ``pip install koila[ipython]``, then ``%load_ext koila`` or
``%load_ext koila.compat.pytorch_memlab``, which are the same.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import itertools
import re
import shlex
import types
from collections.abc import Callable, Iterator
from typing import Any

from koila.compat.pytorch_memlab.line_profiler.line_profiler import DEFAULT_COLUMNS, LineProfiler
from koila.compat.pytorch_memlab.line_profiler.line_records import find_functions, get_code

__all__ = ["load_ipython_extension"]

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_runs = itertools.count(1)


class UsageError(Exception):
    """A command that cannot be run as it is written."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{self.prog[1:]}: {message}\n{self.format_usage()}")


def _make_parser(command: str) -> argparse.ArgumentParser:
    parser = _Parser(f"%{command}", add_help=False)
    parser.add_argument("-f", "--function", metavar="FUNC", action="append", default=[])
    parser.add_argument("-c", "--column", metavar="COLUMN", action="append", default=[])
    parser.add_argument("-D", "--no_default_columns", action="store_true")
    parser.add_argument("-r", "--return-profiler", action="store_true")
    parser.add_argument("-g", "--gpu", metavar="GPU_ID", type=int, default=0)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-T", "--dump-profile", metavar="OUTPUT")
    return parser


def _split(command: str, line: str) -> tuple[argparse.Namespace, str]:
    """Options, and the statement after them as it was typed."""
    parser = _make_parser(command)
    with_value = [
        option
        for action in parser._actions
        if action.nargs is None
        for option in action.option_strings
    ]
    options: list[str] = []
    rest = line.strip()
    while rest.startswith("-"):
        match = re.match(r"""((?:'[^']*'|"[^"]*"|[^\s'"])+)\s*""", rest)
        if match is None:
            break
        try:
            word = shlex.split(match[1])[0]
        except ValueError as error:
            raise UsageError(f"{command}: {error}") from None
        rest = rest[match.end() :]
        if word == "--":
            break
        options.append(word)
        if word in with_value:
            value = re.match(r"""((?:'[^']*'|"[^"]*"|[^\s'"])+)\s*""", rest)
            if value is not None:
                options.append(shlex.split(value[1])[0])
                rest = rest[value.end() :]
    return parser.parse_args(options), rest


def _find(name: str, spaces: list[dict[str, Any]]) -> Any:
    scope: dict[str, Any] = {}
    for space in reversed(spaces):
        scope.update(space)
    return eval(name, scope)


class _Runner:
    """The commands, for one shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def mlrun(
        self, line: str = "", cell: str | None = None, local_ns: dict[str, Any] | None = None
    ) -> Any:
        """Runs a statement or a cell, and shows the memory of each line of functions.

        %mlrun [options] statement        %%mlrun [options], above a cell

        -f, --function FUNC        what to profile; again for more. May be defined by the cell.
        -c, --column COLUMN        a column to show; again for more (_sources.py)
        -D, --no_default_columns   not the usual columns
        -r, --return-profiler      the profiler is the result
        -g, --gpu GPU_ID           the GPU whose memory it is; the CPU where there is none
        -q, --quiet                shows nothing
        -T, --dump-profile FILE    also writes the figures there
        """
        options, statement = _split("mlrun", line)
        return self._profile("mlrun", options, statement, cell, local_ns)

    def koila(
        self, line: str = "", cell: str | None = None, local_ns: dict[str, Any] | None = None
    ) -> Any:
        """Runs a statement or a cell, and shows the memory of each line beside what koila
        predicts of the modules that it calls.

        %koila [options] statement        %%koila [options], above a cell

        Of the statement or cell itself, and of the functions and classes of the notebook
        that it runs; with -f of these alone. The options are those of %mlrun.
        """
        options, statement = _split("koila", line)
        return self._profile("koila", options, statement, cell, local_ns)

    def _profile(
        self,
        command: str,
        options: argparse.Namespace,
        statement: str,
        cell: str | None,
        local_ns: dict[str, Any] | None,
    ) -> Any:
        code = statement if cell is None else (f"{statement}\n{cell}" if statement else cell)
        spaces = [local_ns or {}, self.shell.user_ns]
        space = self.shell.user_ns if not local_ns or local_ns is self.shell.user_ns else local_ns
        profiler = LineProfiler(target_gpu=options.gpu, predict=command == "koila")
        waiting: list[str] = []
        for name in options.function:
            try:
                profiler.add_function(_find(name, spaces))
            except (NameError, AttributeError):
                waiting.append(name)
            except SyntaxError as error:
                raise UsageError(f"{command}: {name!r} is no function: {error}") from None
        text = self.shell.transform_cell(code)
        run = ast.parse(text)
        names = {node.name for node in ast.walk(run) if isinstance(node, _DEFINITIONS)}
        for name in waiting:
            if name.split(".")[0] not in names:
                raise UsageError(f"{command}: there is no function {name!r}")
        if command == "koila" and not options.function:
            # As one program, so that its own lines are a table.
            name = self.shell.compile.cache(text, next(_runs))
            whole = compile(run, name, "exec")
            for one in (*find_functions(whole), *self._find_own()):
                profiler.add_function(one)
            with profiler:
                exec(whole, self.shell.user_ns, space)
            return self._show(options, profiler, only_called=True)
        redefined = [name for name in options.function if name.split(".")[0] in names]
        with profiler:
            self._run(run, text, space, redefined, profiler)
        return self._show(options, profiler)

    def _find_own(self) -> Iterator[types.CodeType]:
        """The functions of earlier cells, and those of classes."""
        for value in list(self.shell.user_ns.values()):
            if getattr(value, "__module__", None) != "__main__":
                continue
            members = list(vars(value).values()) if isinstance(value, type) else [value]
            for member in members:
                is_function = isinstance(member, (types.FunctionType, classmethod, staticmethod))
                code = get_code(member) if is_function else None
                if code is not None:
                    yield code

    def _run(
        self,
        tree: ast.Module,
        text: str,
        space: dict[str, Any],
        waiting: list[str],
        profiler: LineProfiler,
    ) -> None:
        # The cell under a name by which its source is found.
        name = self.shell.compile.cache(text, next(_runs))
        for node in tree.body:
            module = compile(ast.Module([node], []), name, "exec")
            exec(module, self.shell.user_ns, space)
            if not isinstance(node, _DEFINITIONS):
                continue
            # What the cell defines is profiled from then on.
            for wanted in [one for one in waiting if one.split(".")[0] == node.name]:
                with contextlib.suppress(AttributeError):
                    profiler.add_function(_find(wanted, [space, self.shell.user_ns]))

    def _show(
        self, options: argparse.Namespace, profiler: LineProfiler, only_called: bool = False
    ) -> Any:
        usual = [] if options.no_default_columns else list(DEFAULT_COLUMNS)
        columns = [*usual, *options.column]
        shown = profiler.display(columns=columns)
        if only_called:
            shown = shown.take_called()
        if options.dump_profile is not None:
            with open(options.dump_profile, "w", encoding="utf-8") as file:
                print(shown, file=file)
        if options.return_profiler:
            return profiler
        return None if options.quiet else shown


def load_ipython_extension(ipython: Any) -> None:
    """Makes ``%mlrun`` and ``%koila`` known to a shell, and both with ``%%``."""
    try:
        from IPython.core.magic import needs_local_scope
    except ImportError as error:
        raise ImportError("IPython is missing: pip install koila[ipython]") from error
    runner = _Runner(ipython)

    def register(name: str, run: Callable[..., Any]) -> None:
        def command(line: str = "", cell: str | None = None, local_ns: Any = None) -> Any:
            return run(line, cell, local_ns)

        command.__doc__ = run.__doc__
        scoped: Callable[..., Any] = needs_local_scope(command)
        assert isinstance(scoped, types.FunctionType)
        ipython.register_magic_function(scoped, magic_kind="line_cell", magic_name=name)

    register("mlrun", runner.mlrun)
    register("koila", runner.koila)
