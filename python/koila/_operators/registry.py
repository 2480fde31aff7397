"""``koila.register``: rules for operators that koila does not know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from koila import _compiler
from koila._errors import KoilaError
from koila._operators.answers import answer
from koila._operators.functions import find_function, make_operator
from koila._operators.rules import OperatorRules, Rule, check_callable, find_operator, get_name

__all__ = ["find_rules", "get_rules", "listeners", "register"]

_registered: dict[str, OperatorRules] = {}
_lock = threading.Lock()
#: Called whenever an operator has been registered.
listeners: list[Callable[[], None]] = []


def register(
    op: Any,
    *,
    shape: Rule | None = None,
    batch: Rule | int | None = None,
    storage: Sequence[str | None] | Mapping[int, str] | None = None,
    forward: Rule | None = None,
    saved: Rule | None = None,
    backward: Rule | None = None,
    device: str = "cpu",
) -> None:
    """Tells koila what an operator of a library, or of the program itself, does, so that
    what it needs is predicted and its batch runs in tiles.

    ``op`` is ``torch.ops.mylib.op``, what ``torch.library.custom_op`` made, a name as
    ``"mylib::op"``, or a subclass of ``torch.autograd.Function``. It reads its arguments
    and makes its results: one that writes to them, draws random numbers, or takes or
    gives lists of tensors is refused.

    Rules see tensors of the meta device. What is left out is asked of the operator's
    fake kernel (``shape``), of its schema (``storage``), or is not known, which reports say.

    * ``shape(*args)``: tensors like the results, as ``torch.library.register_fake`` takes it
    * ``batch(*args)``: where the samples of the batch are in the results, from where they
      are in the arguments. Of a tensor it gets a ``koila.BatchArgument`` (``batch``: the
      dim, or None; ``ndim``). For each result it gives the dim, None if the result has
      nothing to do with the batch, or a text that says why it mixes samples. A number is the
      rule of an operator that works on each sample alone, along that dim of its arguments
      and its results.
    * ``storage``: for each result None (a new tensor), or the argument that it is a view of
    * ``forward(trace, *args)``: what the kernel allocates and frees (``koila.KernelTrace``),
      in bytes; results are there from the start, unless ``trace.allocate_result()`` says when
    * ``saved(inputs, output)``: what autograd keeps of one call: those of the ``inputs`` and
      of the ``output`` that it does, and for what else it does tensors or bytes
    * ``backward(trace, grad, inputs, output)``: the backward pass, with ``grad`` of the
      output (of each, if there are several). For each of the inputs it gives None, ``grad``
      itself, a view of it, or what ``trace.allocate(tensor)`` returned. Of an output that
      nothing reads ``grad`` has zeros, as autograd makes them.

    ``device`` is where ``forward``, ``saved`` and ``backward`` hold: so far ``"cpu"``. A
    second call for an operator replaces what the first one said, for what is analysed or
    compiled afterwards. ``koila check-op`` compares rules with runs.

    Raises KoilaError for what is no operator, and for what is no such rule.
    """
    if device != "cpu":
        raise KoilaError(f'device="{device}": koila has figures for the CPU so far: device="cpu"')
    if isinstance(op, type) and issubclass(op, torch.autograd.Function):
        operator = make_operator(op)
    else:
        operator = find_operator(op)
    _check_schema(operator)
    arguments = operator._schema.arguments
    names = [argument.name for argument in arguments if not argument.kwarg_only]
    keywords = [argument.name for argument in arguments if argument.kwarg_only]
    for kind, rule, wanted, named in (
        ("shape", shape, names, keywords),
        ("forward", forward, ["trace", *names], keywords),
        ("saved", saved, ["inputs", "output"], []),
        ("backward", backward, ["trace", "grad", "inputs", "output"], []),
    ):
        if rule is not None:
            check_callable(kind, rule, wanted, named)
    if isinstance(batch, bool) or (isinstance(batch, int) and batch < 0):
        raise KoilaError(f"batch={batch!r}: the dim of the samples, from 0 on, or a function")
    if batch is not None and not isinstance(batch, int):
        check_callable("batch", batch, names, keywords)
    views = _find_views(operator, storage)
    rules = OperatorRules(operator, shape, batch, views, forward, saved, backward)
    with _lock:
        _registered[rules.name] = rules
        # An analysis that runs goes on with the rules that it began with.
        known = dict(_registered)
        _compiler.set_custom_operators(
            {
                name: (each.get_kinds(), [-1 if v is None else v for v in each.storage])
                for name, each in known.items()
            },
            lambda request: answer(known[request["callee"]], request),
        )
    for listener in listeners:
        listener()


def find_rules(function: type[torch.autograd.Function]) -> OperatorRules:
    """What was registered for an autograd function. KoilaError if nothing was."""
    operator = find_function(function)
    rules = None if operator is None else get_rules(operator)
    if rules is None:
        raise KoilaError(
            f"no rules are registered for '{function.__qualname__}': call koila.register first"
        )
    return rules


def get_rules(operator: torch._ops.OpOverload) -> OperatorRules | None:
    """What was registered for an operator; None if nothing was."""
    return _registered.get(get_name(operator))


def _check_schema(operator: torch._ops.OpOverload) -> None:
    schema = operator._schema
    name = get_name(operator)
    if schema.is_mutable:
        raise KoilaError(
            f"'{name}' writes to its arguments ({schema}): koila takes operators that only "
            "read them; register one that returns a new tensor"
        )
    if torch.Tag.nondeterministic_seeded in operator.tags:
        raise KoilaError(
            f"'{name}' draws random numbers (its tag says so): in tiles it would draw others"
        )
    for item in (*schema.arguments, *schema.returns):
        if "Tensor" in str(item.type) and str(item.type) not in ("Tensor", "Optional[Tensor]"):
            raise KoilaError(
                f"'{name}' has a {item.type} ({schema}): koila takes operators whose tensors are "
                "arguments and results of their own"
            )
    if not schema.returns or any(str(result.type) != "Tensor" for result in schema.returns):
        raise KoilaError(f"'{name}' gives no tensor, or not only tensors ({schema})")


def _find_views(
    operator: torch._ops.OpOverload, storage: Sequence[str | None] | Mapping[int, str] | None
) -> tuple[int | None, ...]:
    schema = operator._schema
    arguments = [argument.name for argument in schema.arguments]
    said = tuple(_find_alias(schema, result) for result in schema.returns)
    if storage is None:
        return said
    if isinstance(storage, str):
        raise KoilaError(
            f'storage="{storage}": one entry for each result, as storage=["{storage}"]'
        )
    if isinstance(storage, Mapping):
        if not all(isinstance(at, int) and 0 <= at < len(said) for at in storage):
            raise KoilaError(f"storage={dict(storage)!r}: the operator has {len(said)} results")
        entries = [storage.get(at) for at in range(len(said))]
    else:
        entries = list(storage)
    if len(entries) != len(said):
        raise KoilaError(
            f"storage={entries!r} has {len(entries)} entries, and the operator {len(said)} results"
        )
    for entry in entries:
        if entry is not None and entry not in arguments:
            raise KoilaError(f"storage={entries!r}: the operator has no argument {entry!r}")
    views = tuple(None if entry is None else arguments.index(entry) for entry in entries)
    for view, alias, result in zip(views, said, range(len(said)), strict=True):
        if alias is not None and view != alias:
            raise KoilaError(
                f"storage={entries!r}: by its schema result {result} is a view of "
                f"'{arguments[alias]}' ({schema})"
            )
    return views


def _find_alias(schema: torch.FunctionSchema, result: Any) -> int | None:
    if result.alias_info is None:
        return None
    for at, argument in enumerate(schema.arguments):
        own = argument.alias_info
        if own is not None and own.before_set & result.alias_info.before_set:
            return at
    return None
