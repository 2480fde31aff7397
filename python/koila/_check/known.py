"""Koila's models of an operator against runs of it on random calls."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from koila._check.asking import ask_facts
from koila._check.facts import Fact, find_batch_problem, find_shape_problem, find_storage_problem
from koila._check.findings import Finding, OperatorCheck, Unanswered
from koila._check.given import make_case
from koila._check.memory import Run, check_calls, check_steps
from koila._errors import KoilaError
from koila._generators import load_generators
from koila._generators.draw import draw, make_inputs, run
from koila._generators.generator import Case, MakeCase
from koila._generators.program import script_call
from koila._operators.calls import parse_inputs
from koila._operators.rules import (
    find_named,
    find_operator,
    get_name,
    list_overloads,
    refuse_overloads,
)
from koila._report.measurement import use_executor

__all__ = ["check_known", "find_overload"]

_SEED = 1
# Samples of the runs whose results are compared.
_SAMPLES = (7, 2, 1, 0)


def find_overload(op: Any) -> torch._ops.OpOverload:
    """The operator that is meant, in any form that ``koila.register`` takes, as ``topk``
    or as ``torch.ops.aten.topk``. Of several overloads it is the one without a name of its
    own, as schemas spell it, or else that of which calls are drawn. KoilaError if there is
    none, or there are several."""
    if isinstance(op, str):
        op = find_named(_spell_name(op))
    if isinstance(op, torch._ops.OpOverloadPacket):
        overloads = list_overloads(op)
        if len(overloads) > 1:
            drawn = load_generators()
            known = [each for each in overloads if get_name(each) in drawn]
            # Some of the others are of numbers alone.
            plain = [
                each
                for each in overloads
                if each._overloadname == "default" and "Tensor" in str(each._schema)
            ]
            if len(plain or known) != 1:
                raise refuse_overloads(op, known or overloads)
            return (plain or known)[0]
    return find_operator(op)


def _spell_name(text: str) -> str:
    """``aten::add.Tensor`` of ``add.Tensor`` and ``torch.ops.aten.add.Tensor``."""
    if text.startswith("torch.ops."):
        return text.removeprefix("torch.ops.").replace(".", "::", 1)
    return text if "::" in text else f"aten::{text}"


def check_known(
    operator: torch._ops.OpOverload, inputs: Sequence[str], calls: int, device: str
) -> OperatorCheck:
    """As ``koila.check_op``."""
    name = get_name(operator)
    make = load_generators().get(name)
    with warnings.catch_warnings(), torch.no_grad(), use_executor():
        # What PyTorch says of a call is not what is asked.
        warnings.simplefilter("ignore")
        cases = _make_given(operator, inputs) if inputs else _draw(operator, make, calls)
        made = OperatorCheck(name, list(map(str, cases)))
        made.findings += _check_rules(cases, make, name)
        made.findings.append(check_calls("forward", cases, device))
        made.findings.append(check_calls("saved", cases, device))
        made.findings.append(check_steps(cases, device))
    return made


def _draw(operator: torch._ops.OpOverload, make: MakeCase | None, calls: int) -> list[Case]:
    name = get_name(operator)
    if make is None:
        raise KoilaError(
            f"koila draws no calls of '{name}' by itself: say what it is called with, an "
            f"--input for each argument of {operator._schema}; rules of an operator of your "
            "own are told by koila.register"
        )
    cases, _ = draw(name, make, _SEED, calls)
    if not cases:
        raise KoilaError(f"of the calls of '{name}' that were drawn PyTorch takes none")
    return cases


def _make_given(operator: torch._ops.OpOverload, inputs: Sequence[str]) -> list[Case]:
    call = parse_inputs(operator, inputs)
    cases = [make_case(operator, call)]
    _check_meant(operator, cases[0])
    for other in call.vary():
        try:
            cases.append(make_case(operator, other))
        except KoilaError:
            continue  # One that the operator does not take.
    return cases


def _check_meant(operator: torch._ops.OpOverload, case: Case) -> None:
    """KoilaError if TorchScript takes the call for another overload."""
    name = operator._schema.name
    graph = script_call(case, _SAMPLES[0], grad=False).function.graph
    for node in graph.nodes():
        if node.kind() == name:
            found = node.schema().partition("(")[0]
            # Of lists of tensors and None there are twins.
            if found.removesuffix("_hacked_twin") not in (case.op, f"{name}.hacked_twin"):
                raise KoilaError(f"{case} is a call of '{found}', not of '{case.op}'")


def _check_rules(cases: Sequence[Case], make: MakeCase | None, name: str) -> list[Finding]:
    facts, refused = ask_facts(cases)
    unknown = {i for i, fact in facts.items() if fact.get("op") in (None, "koila.torch_op")}
    if unknown and len(unknown) == len(cases):
        raise KoilaError(
            f"koila has no models of '{name}': koila.register takes rules of operators that "
            "it does not know"
        )
    findings = [Finding("shape"), Finding("storage"), Finding("batch")]
    findings[2].note = "no tensor has the batch in it"
    for index, case in enumerate(cases):
        if index in refused:
            findings[0].hold(iter([f"refuses the call ({refused[index]})"]), case)
            continue
        if index in unknown:
            findings[0].hold(iter(["carries the call through without a rule"]), case)
            continue
        fact = facts[index]
        fewest = 1 if getattr(make, "needs_elements", False) else 0
        for samples in _SAMPLES if case.follows_batch() else _SAMPLES[:1]:
            if samples < fewest:
                continue
            scope = run(case, make_inputs(case, samples))
            if isinstance(scope, Exception):
                continue
            of = Run(case, samples)
            findings[0].hold(_compare_shapes(case, fact, make, samples, scope), of)
            findings[1].hold(_compare_storage(case, fact, samples, scope), of)
        if case.follows_batch() and not case.random:
            findings[2].hold(_compare_batch(case, fact), Run(case, _SAMPLES[0]))
    return findings


def _compare_shapes(
    case: Case, fact: Fact, make: MakeCase | None, samples: int, scope: dict[str, Any]
) -> Iterator[str | None]:
    notes: Counter[str] = Counter()
    yield find_shape_problem(case, fact, make, samples, scope, notes)
    if notes["data"]:
        raise Unanswered("extents that data decide")
    if notes["strides"]:
        raise Unanswered("strides that koila does not know")


def _compare_storage(
    case: Case, fact: Fact, samples: int, scope: dict[str, Any]
) -> Iterator[str | None]:
    notes: Counter[str] = Counter()
    problem = find_storage_problem(case, fact, samples, scope, notes)
    if notes["views"] and problem is None:
        raise Unanswered("koila does not know whether it is a view")
    yield problem


def _compare_batch(case: Case, fact: Fact) -> Iterator[str | None]:
    notes: Counter[str] = Counter()
    problem = find_batch_problem(case, fact, _SAMPLES[0], notes)
    if problem is None and not notes["at"] and not notes["free"]:
        kind = next(result["batch"] for result in fact["results"])
        raise Unanswered(f"koila says that it mixes samples: {kind.removeprefix('mixed: ')}")
    yield problem
