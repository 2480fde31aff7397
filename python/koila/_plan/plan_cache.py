"""What is kept of programs that were planned, so that the next one like them is not."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from koila._capture.dispatch_cache import is_arithmetic
from koila._capture.program import Program
from koila._capture.program_trace import Traced
from koila._capture.statistics import is_momentum
from koila._capture.thread_locks import tracing
from koila._capture.values import Call, is_float
from koila._compiler import Compiled
from koila._errors import BudgetError, CompileError, explain_torch
from koila._operators import registry
from koila._out_of_memory import let_go, ran_out
from koila._plan.announce import Announced

__all__ = ["MOST_VARIANTS", "Choice", "Cut", "Plan", "bare", "find_plan", "forget", "remember"]


@dataclass(frozen=True)
class Cut:
    """The call behind which a program is cut, and the dims that are samples of each result
    that is handed on there."""

    place: int
    dims: tuple[tuple[int, ...], ...]


@dataclass
class Plan:
    """What is known of programs with one key."""

    calls: list[Call]  # which the key names by their ids
    numbers: list[Any]  # of the first such program
    varying: frozenset[int] = frozenset()  # which of them were others since
    traced: dict[Any, Traced | CompileError] = field(default_factory=dict)
    reports: dict[Any, dict[str, Any] | CompileError] = field(default_factory=dict)
    compiled: dict[Any, list[Choice]] = field(default_factory=dict)
    # By the budget that was named, if one was.
    announced: dict[int | None, Announced] = field(default_factory=dict)
    only_read: bool = False  # a loss that was read and not differentiated
    splits: bool = False  # as it is
    reads_first: bool = False  # once numbers of the whole batch are there
    # Where it is cut, since what follows is in no tiles; None where no place will do.
    cut: Cut | None = None
    is_cut_known: bool = False
    # What the step needs that followed, with the graph that it leaves.
    step_peak: int | None = None
    # By mode: samples of the largest tile that is tried, since memory ran out in a larger one
    # or in the whole batch.
    most: dict[str, int] = field(default_factory=dict)
    # It ran out of memory as a whole, and cannot run in another way.
    stays_whole: bool = False
    whole: int | None = None  # bytes of a trace that has few of what was named
    trace_bytes: int = 0  # what the last trace took, until it has been looked at
    # What the backward pass takes of what weights were computed by before the step; with
    # that of the step where this runs whole.
    before_weights: dict[bool, int] = field(default_factory=dict)
    # The thread whose programs run by it: its scripts hold their weights.
    owner: threading.Thread = field(default_factory=threading.current_thread)

    def adopt(self) -> bool:
        """Whether it is this thread's, from now on where the owner has ended."""
        thread = threading.current_thread()
        if self.owner is not thread:
            if self.owner.is_alive():
                return False
            self.owner = thread
        return True


@dataclass(frozen=True)
class Choice:
    """What compiling a trace for a budget gave, and why its figures are in doubt. It
    has the weights of its trace, which are lent to no other one."""

    traced: Traced
    budget: int
    made: Compiled | CompileError
    doubt: CompileError | None

    def holds(self, budget: int) -> bool:
        """Whether it is what compiling for another budget would give, or is
        as good. The largest tile below a budget is that below each smaller one
        which it still fits."""
        if isinstance(self.made, BudgetError):
            smallest = self.made.smallest_budget
            return budget < smallest if smallest is not None else budget == self.budget
        if isinstance(self.made, CompileError):
            return True
        peak = self.made.report["peak_bytes"]
        return (peak is None or peak <= budget) and budget <= self.budget * _SLACK


_plans: OrderedDict[Any, list[Plan]] = OrderedDict()  # one for each thread
_finding = threading.Lock()
# Those of long ago go.
_MOST_PLANS = 64
MOST_VARIANTS = 8
# A tile that was chosen for a little less memory than there is now is kept.
_SLACK = 1.25


def forget() -> None:
    """Forgets all programs: rules have changed since they were planned."""
    _plans.clear()


registry.listeners.append(forget)


_T = TypeVar("_T")


def remember(cache: dict[Any, _T | CompileError], key: Any, make: Callable[[], _T]) -> _T:
    """What ``make`` gave for this key, or the refusal that it raised."""
    if key not in cache:
        problem = ""
        try:
            with tracing:
                cache[key] = make()
        except CompileError as error:
            cache[key] = bare(error)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            problem = explain_torch(let_go(error))[0]
        if problem:
            # Another time there may be enough.
            raise CompileError(f"memory ran out while it was planned: {problem}")
        if len(cache) > MOST_VARIANTS:
            del cache[next(iter(cache))]
    found = cache[key]
    if isinstance(found, CompileError):
        raise bare(found)
    return found


_Error = TypeVar("_Error", bound=CompileError)


def bare(error: _Error) -> _Error:
    """A copy without the traceback, which holds tensors."""
    return copy.copy(error)


def find_plan(program: Program) -> Plan:
    """What is known of programs like this one, in this thread."""
    key = program.key()
    with _finding:
        plans = _plans.setdefault(key, [])
        _plans.move_to_end(key)
        plan = next((plan for plan in plans if plan.adopt()), None)
        if plan is None:
            calls = [node.call for node in program.nodes]
            plan = Plan(calls, list(program.numbers))
            plans.append(plan)
            if len(_plans) > _MOST_PLANS:
                _plans.popitem(last=False)
            return plan
    plan.varying |= _find_varying(plan, program)
    return plan


def _find_varying(plan: Plan, program: Program) -> frozenset[int]:
    """The numbers that are others now, as an annealed weight: from then on they
    are inputs, so that no value is compiled anew."""
    if plan.numbers == program.numbers:
        return frozenset()
    found = set()
    position = 0
    for node, step in zip(program.nodes, program.steps, strict=True):
        for index, entry in enumerate(step):
            if entry is not None:
                continue
            old, new = plan.numbers[position], program.numbers[position]
            if (
                is_float(old)
                and is_float(new)
                and old != new
                and (is_arithmetic(node) or is_momentum(node, index))
            ):
                found.add(position)
            position += 1
    return frozenset(found)
