"""The least of a script that still does something.

    text = minimise(text, fails)      # fails(text) -> bool

Statements go, blocks give way to what is in them, and expressions to a part of
themselves, as long as ``fails`` says that the fault is still there.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

Fails = Callable[[str], bool]
_BODIES = ("body", "orelse", "finalbody")


def minimise(text: str, fails: Fails) -> str:
    tree = ast.parse(text)
    tried: dict[str, bool] = {}

    def still(candidate: ast.Module) -> bool:
        new = ast.unparse(ast.fix_missing_locations(candidate))
        if new not in tried:
            tried[new] = _is_program(new) and fails(new)
        return tried[new]

    if not still(tree):
        return text  # without its comments it does something else
    before = ""
    while before != (before := ast.unparse(tree)):
        for reduce in (_drop_statements, _open_blocks, _reduce_expressions):
            tree = reduce(tree, still)
        if ast.unparse(tree) == before:
            break
    return ast.unparse(tree)


def _is_program(text: str) -> bool:
    try:
        compile(text, "script.py", "exec")
    except SyntaxError:
        return False
    return True


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Lists of statements, the outer ones first."""
    for node in ast.walk(tree):
        for name in _BODIES:
            body = getattr(node, name, None)
            if isinstance(body, list) and body:
                yield body


def _drop_statements(tree: ast.Module, still: Callable[[ast.Module], bool]) -> ast.Module:
    """Long rows of them first, then one at a time; the last ones first, on which
    nothing depends."""
    number = 0
    while number < len(bodies := list(_bodies(tree))):
        size = len(bodies[number])
        while size:
            end = len(list(_bodies(tree))[number])
            while end > 0:
                candidate = copy.deepcopy(tree)
                body = list(_bodies(candidate))[number]
                if _drop(body, max(end - size, 0), end) and still(candidate):
                    tree = candidate
                end -= size
            size //= 2
        number += 1
    return tree


def _drop(body: list[ast.stmt], begin: int, end: int) -> bool:
    if all(isinstance(statement, ast.Pass) for statement in body[begin:end]):
        return False
    body[begin:end] = []
    if not body:
        body.append(ast.Pass())
    return True


def _open_blocks(tree: ast.Module, still: Callable[[ast.Module], bool]) -> ast.Module:
    """``with``, ``if`` and ``try`` give way to their first body, loops to one turn."""
    number = 0
    while number < len(list(_bodies(tree))):
        index = 0
        while index < len(list(_bodies(tree))[number]):
            candidate = copy.deepcopy(tree)
            body = list(_bodies(candidate))[number]
            statement = body[index]
            if isinstance(statement, (ast.With, ast.If, ast.Try)):
                body[index : index + 1] = statement.body
                if still(candidate):
                    tree = candidate
                    continue
            index += 1
        number += 1
    return tree


def _reduce_expressions(tree: ast.Module, still: Callable[[ast.Module], bool]) -> ast.Module:
    number = 0
    while True:
        places = list(_expressions(tree))
        if number >= len(places):
            return tree
        for choice in range(len(_parts(_get(places[number])))):
            candidate = copy.deepcopy(tree)
            place = list(_expressions(candidate))[number]
            old = ast.dump(_get(place))
            _set(place, _parts(_get(place))[choice])
            if ast.dump(_get(place)) != old and still(candidate):
                tree = candidate
                break
        else:
            number += 1


# Where an expression stands: a node, the name of its field, an index or None.
_Place = tuple[ast.AST, str, "int | None"]


def _expressions(tree: ast.Module) -> Iterator[_Place]:
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if name in ("targets", "target", "func", "decorator_list"):
                continue
            if isinstance(value, ast.expr):
                yield node, name, None
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        yield node, name, index


def _get(place: _Place) -> ast.expr:
    node, name, index = place
    value = getattr(node, name)
    found: ast.expr = value if index is None else value[index]
    return found


def _set(place: _Place, new: ast.expr) -> None:
    node, name, index = place
    if index is None:
        setattr(node, name, new)
    else:
        getattr(node, name)[index] = new


def _parts(expression: ast.expr) -> list[ast.expr]:
    """What may stand in the place of an expression, shorter."""
    if isinstance(expression, ast.BinOp):
        return [expression.left, expression.right]
    if isinstance(expression, ast.UnaryOp):
        return [expression.operand]
    if isinstance(expression, ast.IfExp):
        return [expression.body, expression.orelse]
    if isinstance(expression, ast.Subscript):
        return [expression.value]
    if isinstance(expression, ast.Call):
        return _parts_of_call(expression)
    return []


def _parts_of_call(call: ast.Call) -> list[ast.expr]:
    """The object of a method, an argument, and the call with fewer arguments."""
    if ast.unparse(call.func) == "koila.lazy":
        return []
    parts: list[ast.expr] = []
    function = call.func
    # Of F.relu(x) the F is no part.
    if isinstance(function, ast.Attribute) and not (
        call.args and isinstance(function.value, ast.Name)
    ):
        parts.append(function.value)
    parts += [argument for argument in call.args if not isinstance(argument, ast.Constant)][:1]
    for index in reversed(range(len(call.args))):
        rest = call.args[:index] + call.args[index + 1 :]
        parts.append(ast.Call(call.func, rest, call.keywords))
    for index in range(len(call.keywords)):
        rest_of_keywords = call.keywords[:index] + call.keywords[index + 1 :]
        parts.append(ast.Call(call.func, call.args, rest_of_keywords))
    return parts
