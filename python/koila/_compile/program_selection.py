"""Which program of a module stands for a call, and when another one is made."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from torch import nn

from koila import memory
from koila._capture.frames import find_frames, location_of, warn_user
from koila._capture.inputs import Inputs
from koila._capture.thread_locks import exclusive
from koila._compile.call_kind import Call, Expected
from koila._compile.specialize_call import Recipe, specialize
from koila._compile.specialized_module import Specialization
from koila._compiler import count_rule_changes
from koila._errors import (
    BudgetError,
    CompileError,
    Location,
    OutOfMemoryError,
    explain_torch,
)
from koila._interrupt import uninterrupted
from koila._plan.planner import half_of, in_figures

__all__ = ["Selection"]

# So many programs are kept, and so often the module is compiled anew: one that
# changes with each call is not worth it.
_MOST_KEPT = 8
_MOST_COMPILED = 32


class Selection:
    """The programs of a module, each for one kind of call, the last used first.

    Threads may call it at once: lists are replaced, not changed.
    """

    def __init__(self, original: nn.Module, recipe: Recipe, first: Specialization) -> None:
        self._original = original
        self._recipe = recipe
        self.main = first
        self._kept = [first]
        # Kinds of calls that nothing could be compiled for, with the reason.
        self._refused: list[tuple[Expected, tuple[int, ...], str]] = []
        self._compiled = 0
        self._is_warned = False
        # Of steps and of other calls: samples of the largest tile that is tried, since memory
        # ran out in a larger one; and the lines that were told so.
        self._most: dict[bool, int] = {}
        self._told: set[Location] = set()
        self._lock = threading.RLock()

    def find(self, method: str, call: Call) -> Specialization | str:
        """The program for a call, compiled if need be; why there is none."""
        trains = method != "forward"
        found = self._find(trains, call)
        if isinstance(found, Specialization):
            return found
        with self._lock:
            # Another thread may have made it.
            found = self._find(trains, call)
            if isinstance(found, Specialization):
                return found
            return self._make(trains, call, *found)

    def _find(
        self, trains: bool, call: Call
    ) -> Specialization | tuple[str, Specialization | None, bool]:
        """A program for a call; else why there is none, one that would do but for
        the size of the batch, and whether the module has changed."""
        reason, beyond, is_changed = "it was not compiled for such calls", None, False
        for item in self._kept:
            if item.trains != trains:
                continue
            is_unchanged = item.follower.is_unchanged()
            mode = None if is_unchanged else item.follower.find_mode()
            if difference := mode or item.find_difference(call):
                reason = difference
                continue
            if not is_unchanged and (change := item.follower.update()):
                reason, is_changed = change, True
                self.drop(item)
                continue
            if not item.holds(call) or not self._is_free(item, call):
                beyond = beyond or item
                continue
            if item is not self._kept[0]:
                self._kept = [item, *(other for other in self._kept if other is not item)]
            return item
        return reason, beyond, is_changed

    def drop(self, item: Specialization) -> None:
        """A program is not for the calls that it is chosen for."""
        self._kept = [other for other in self._kept if other is not item]

    def _is_free(self, item: Specialization, call: Call) -> bool:
        """Whether what a program needs is still free, where the budget is that."""
        if self._recipe.budget != "auto" or item.peak is None or not call.tensors:
            return True
        return item.peak <= memory.recent_budget_bytes(
            "auto", self._recipe.device or call.tensors[0].device
        )

    def _make(
        self, trains: bool, call: Call, reason: str, beyond: Specialization | None, changed: bool
    ) -> Specialization | str:
        if self._recipe.options.guard == "raise" and beyond is None and not changed:
            return reason
        if self._compiled >= _MOST_COMPILED:
            return f"{reason}; it was compiled {self._compiled} times before"
        modes = tuple(part.training for part in self._original.modules())
        state = (count_rule_changes(), *modes)
        if not changed:
            for expected, known, why in self._refused:
                if known == state and expected.find_difference(call) is None:
                    return self._settle(beyond, call, why)
        self._compiled += 1
        recipe = self._recipe if trains else self._recipe.for_calls()
        try:
            made = self._compile(recipe, call, beyond, changed)
        except CompileError as error:
            problem = "; ".join([error.message, *error.notes[:1]])
            why = f"{reason}, and it cannot be compiled for that: {problem}"
            refused = Expected(call, trains), state, why
            self._refused = [*self._refused[-_MOST_KEPT:], refused]
            return self._settle(beyond, call, why)
        if (most := self._most.get(trains)) is not None and (made.tile or most + 1) > most:
            with contextlib.suppress(CompileError):
                made = self._with_tile(made, most)
        if beyond is not None:
            self.drop(beyond)
        self._kept = [made, *self._kept[: _MOST_KEPT - 1]]
        if trains == self._recipe.trains:
            self.main = made
        return made

    def shrink(self, item: Specialization, call: Call, error: Exception) -> Specialization:
        """The program in half of the tiles in which memory ran out, also for later calls; said
        with the sizes. Raises OutOfMemoryError where there are none."""
        samples = item.tile or call.size or 0
        count = "one sample" if samples == 1 else f"{samples} samples"
        text = f"memory ran out with {count} at once, {in_figures(error, item.peak)}"
        half = half_of(samples)
        try:
            with self._lock:
                made = self._with_tile(item, half)
        except CompileError as problem:
            raise OutOfMemoryError(
                f"{self._recipe.name}: {text}, and {problem.message}: {explain_torch(error)[0]}"
            ) from error
        if half is not None:
            self._most[item.trains] = half
        self._kept = [made, *(other for other in self._kept if other is not item)]
        if self.main is item:
            self.main = made
        place = location_of(find_frames())
        if place not in self._told:
            self._told.add(place)
            warn_user(
                f"{self._recipe.name}: {text}; this runs again with {made.tile} at once, or fewer, "
                "and so do later calls"
            )
        return made

    def refit(
        self,
        recipe: Recipe,
        limit: int,
        row: dict[str, Any] | None,
        plan: dict[str, Any] | None,
    ) -> None:
        """Another budget, for which the main program has tile and plan already, if it has
        any."""
        with self._lock:
            self._recipe = recipe
            self.main = self.main.fitted(limit, row, plan)
            self._kept, self._refused, self._most = [self.main], [], {}

    @exclusive
    @uninterrupted
    def _with_tile(self, item: Specialization, tile: int | None) -> Specialization:
        return item.with_tile(tile, self._recipe.name)

    def _settle(self, beyond: Specialization | None, call: Call, why: str) -> Specialization | str:
        """Of a call that nothing can be compiled for: where there is a program but
        for the size of the batch, that is better than none."""
        if beyond is None:
            return why
        self._warn(f"a batch of {call.size} does not fit the budget: {why}")
        return beyond

    def _compile(
        self, recipe: Recipe, call: Call, beyond: Specialization | None, is_changed: bool
    ) -> Specialization:
        may_script = not is_changed
        if beyond is not None and call.size is not None:
            # Batches that grow are not to compile it each time.
            inputs = Inputs.of_call(
                call.arguments, call.batch_dim, _next_power(call.size), self._recipe.device
            )
            with contextlib.suppress(BudgetError):
                return specialize(self._original, inputs, recipe, may_script=may_script)
        inputs = Inputs.of_call(call.arguments, call.batch_dim, None, self._recipe.device)
        try:
            return specialize(self._original, inputs, recipe, may_script=may_script)
        except BudgetError as caught:
            error, limit = caught, caught.smallest_budget
            if limit is None or beyond is None:
                raise
        made = specialize(self._original, inputs, recipe, limit=limit, may_script=may_script)
        budget = memory.budget_bytes(recipe.budget or 0, inputs.device)
        tiles = "whole" if made.tile is None else f"in tiles of {made.tile}"
        self._warn(
            f"a batch of {call.size} needs {memory.format_bytes(limit)} {tiles}, and there are "
            f"{memory.format_bytes(budget)}: {'; '.join([error.message, *error.notes[:1]])}"
        )
        return made

    def _warn(self, text: str) -> None:
        """Once: a larger batch says nothing new."""
        if not self._is_warned:
            warn_user(f"{self._recipe.name}: {text}")
            self._is_warned = True

    def renew(self) -> None:
        """Raises CompileError if the module has changed since it was compiled."""
        if not self.main.follower.is_unchanged() and (change := self.main.follower.update()):
            raise CompileError(f"{change}; compile it again")

    def call_original(self, call: Callable[[], Any]) -> Any:
        """What the module returns; what it changes itself is as it should be."""
        for item in self._kept:
            call = _keeping(item, call)
        return call()


def _next_power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _keeping(item: Specialization, call: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: item.follower.call_original(call)
