"""What the code of a module reads beside the module: constants and functions of
files, attributes of classes, variables of enclosing functions.

Code is not run: every name that it may read is followed. What a value decides, as
which entry of a table, is not known so, and the whole table is guarded.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Set
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

from koila._capture.guards import Guarded, Reading, is_plain, say_change
from koila._capture.structure import attributes_of

__all__ = ["CodeReads", "watch_calls"]

_TORCH = os.path.dirname(torch.__file__) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
# So much code of libraries is looked through.
_MOST_FUNCTIONS = 4096


class Function(NamedTuple):
    """Code, where it looks up names, and the class whose instance is its first
    argument."""

    code: CodeType
    scope: dict[str, Any]
    cells: dict[str, Any]
    owner: type | None


class _Place(NamedTuple):
    """A name in a file, a class or a closure; ``label`` is what people call it."""

    owner: Any
    name: Any
    label: str


class CodeReads(Guarded):
    """What the code of all parts of a module reads, and what more ``functions``,
    that were seen running, do."""

    def __init__(self, module: nn.Module, functions: Iterable[Function] = ()) -> None:
        own = {type(part).__module__.partition(".")[0] for part in module.modules()}
        self._places = _Search(own).run(module, functions)
        super().__init__()

    def _read(self, reading: Reading) -> dict[Any, Any]:
        # By number: two closures may have variables of one name.
        values = {}
        for number, place in enumerate(self._places):
            found = _look_up(place)
            if isinstance(place.owner, types.CellType):
                reading.guards.append((place.owner, found))
            else:
                reading.guards.append(((place.owner, place.name), found))
            if isinstance(found, (FunctionType, ModuleType, type)):
                values[number] = id(found)
            else:
                values[number] = reading.freeze(found)
        return values

    def _describe(self, key: Any, was: dict[Any, Any], now: dict[Any, Any]) -> str:
        return say_change(self._places[key].label, was.get(key), now.get(key))

    def leave_out_changes(self) -> tuple[list[str], list[str]]:
        """Names of numbers and texts that have changed, and of other objects, which
        are not guarded any more."""
        was, now = self._values, self._read_all()[0]
        changed = [key for key in was if was[key] != now.get(key)]
        numbers = [self._places[key].label for key in changed if is_plain(was[key])]
        objects = [self._places[key] for key in changed if not is_plain(was[key])]
        if objects:
            self._places = [
                place for place in self._places if all(place is not other for other in objects)
            ]
            self._values, self._reading = self._read_all()
            self._are_unchanged = None
        return numbers, [place.label for place in objects]


def _look_up(place: _Place) -> Any:
    """None where there is nothing any more."""
    if isinstance(place.owner, dict):
        return place.owner.get(place.name)
    if isinstance(place.owner, types.CellType):
        try:
            return place.owner.cell_contents
        except ValueError:
            return None
    for base in place.owner.__mro__:
        if place.name in vars(base):
            return vars(base)[place.name]
    return None


class _Search:
    """Follows code from ``forward`` on, in the files of the user and of the
    packages ``own``, which parts of the module come from."""

    def __init__(self, own: Set[str]) -> None:
        self._own = own
        self._seen: set[Any] = set()
        self._waiting: list[Function] = []

    def run(self, module: nn.Module, functions: Iterable[Function]) -> list[_Place]:
        """Every place that the code reads, also by the functions that it calls."""
        for part in module.modules():
            if not isinstance(part, torch.jit.ScriptModule):
                self._add_part(part)
        for function in functions:
            self._add(function)
        found: dict[tuple[int, Any], _Place] = {}
        while self._waiting and len(self._seen) < _MOST_FUNCTIONS:
            function = self._waiting.pop()
            for place in _places_in(function, self._own):
                key = id(place.owner), place.name
                if key not in found:
                    found[key] = place
                    owner = place.owner if isinstance(place.owner, type) else None
                    self._add_all(_look_up(place), owner)
            # Code of inner functions sees the same names.
            for constant in function.code.co_consts:
                if isinstance(constant, CodeType):
                    self._add(function._replace(code=constant))
        return list(found.values())

    def _add_part(self, part: nn.Module) -> None:
        hooks = [*part._forward_hooks.values(), *part._forward_pre_hooks.values()]
        # Also functions that it holds, as an activation.
        held = [value for value in vars(part).values() if isinstance(value, _FUNCTIONS)]
        for function in (*held, *hooks):
            self._add_all(function, None)
        self._add_all(type(part).forward, type(part))

    def _add(self, function: Function) -> None:
        # Closures of one code have variables of their own.
        key = function.code, function.owner, tuple(map(id, function.cells.values()))
        scope = str(function.scope.get("__name__", ""))
        if key in self._seen or scope.startswith("namedtuple_"):
            return
        if not _is_of_library(function.code.co_filename, self._own):
            self._seen.add(key)
            self._waiting.append(function)

    def _add_all(self, function: Any, owner: type | None) -> None:
        """The code of a function, of a method, of what wraps them, or of a class."""
        if isinstance(function, types.MethodType):
            self._add_all(function.__func__, type(function.__self__))
        elif isinstance(function, (staticmethod, classmethod)):
            self._add_all(function.__func__, owner)
        elif isinstance(function, property):
            self._add_all(function.fget, owner)
        elif isinstance(function, functools.partial):
            self._add_all(function.func, owner)
        elif isinstance(function, type):
            self._add_class(function)
        else:
            if isinstance(function, FunctionType):
                names = function.__code__.co_freevars
                cells = dict(zip(names, function.__closure__ or (), strict=True))
                self._add(Function(function.__code__, function.__globals__, cells, owner))
            # Also of a cache, which is no function.
            wrapped = (attributes_of(function) or {}).get("__wrapped__")
            if isinstance(wrapped, FunctionType):
                self._add_all(wrapped, owner)

    def _add_class(self, kind: type) -> None:
        if kind.__module__.partition(".")[0] in sys.stdlib_module_names - {"__main__"}:
            return
        for part in list(vars(kind).values()):
            if not isinstance(part, type):
                self._add_all(part, kind)


def _is_of_library(file: str, own: Set[str]) -> bool:
    """PyTorch, koila, Python itself, and packages that have no part of the module
    stay as they are."""
    if file.startswith((_TORCH, _PACKAGE, "<frozen ")):
        return True
    _, installed, rest = file.replace("dist-packages", "site-packages").partition("site-packages/")
    if installed:
        return rest.partition("/")[0].removesuffix(".py") not in own
    return file.startswith(_STDLIB)


_FUNCTIONS = (FunctionType, types.MethodType, functools.partial)
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME"}
_CELLS = {"LOAD_DEREF", "LOAD_CLASSDEREF"}


def _places_in(function: Function, own: Set[str]) -> Iterator[_Place]:
    """What the instructions of one code name, as ``CONFIG``, ``config.SCALE``,
    ``Net.width`` or ``self.width``."""
    code = function.code
    first = code.co_varnames[0] if code.co_argcount else None
    value: Any = None
    # Whether ``value`` is what lies on top of the stack.
    is_known = False
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in _GLOBALS:
            is_known = name in function.scope
            if is_known:
                label = f"'{name}' of {function.scope.get('__name__', 'a file')}"
                yield _Place(function.scope, name, label)
                value = function.scope[name]
        elif instruction.opname in _CELLS and name in function.cells:
            place = _Place(function.cells[name], name, f"'{name}' around {code.co_name}()")
            yield place
            value, is_known = _look_up(place), True
        elif instruction.opname.startswith("LOAD_FAST") and name == first and function.owner:
            value, is_known = function.owner, True
        elif instruction.opname in _ATTRIBUTES and is_known:
            attribute = _find_attribute(value, name, own)
            is_known = attribute is not None
            if attribute is not None:
                yield attribute
                value = _look_up(attribute)
        elif instruction.opname not in ("PUSH_NULL", "CACHE", "PRECALL", "RESUME", "NOP"):
            is_known = False


def _find_attribute(value: Any, name: str, own: Set[str]) -> _Place | None:
    """Where ``value.name`` is looked up, if that is a file, a class or an object."""
    if isinstance(value, ModuleType):
        file = getattr(value, "__file__", None)
        if name in vars(value) and not (file and _is_of_library(file, own)):
            return _Place(vars(value), name, f"'{name}' of {value.__name__}")
        return None
    kind = value if isinstance(value, type) else type(value)
    mine = None if isinstance(value, (type, nn.Module)) else attributes_of(value)
    if mine is not None and name in mine:
        return _Place(mine, name, f"'{name}' of a {kind.__name__}")
    for base in kind.__mro__:
        if name in vars(base):
            is_own = base is nn.Module or base.__module__ in ("builtins", "abc")
            if is_own or base.__module__.startswith("torch."):
                return None
            return _Place(kind, name, f"'{name}' of class {kind.__name__}")
    return None


def watch_calls(call: Callable[[], Any]) -> tuple[Any, list[Function]]:
    """What a call returns, and the functions of Python that it ran, also those that
    no name leads to."""
    seen: dict[tuple[CodeType, type | None], Function] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call":
            return
        owner = type(frame.f_locals.get(code.co_varnames[0])) if code.co_argcount else None
        seen.setdefault((code, owner), Function(code, frame.f_globals, {}, owner))

    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        result = call()
    finally:
        sys.setprofile(previous)
    return result, list(seen.values())
