"""Gradients of what a step recorded, added to ``.grad`` through the graphs before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from koila import memory
from koila._capture.frames import Frames, location_of
from koila._capture.leaves import is_weight, without_copies
from koila._capture.program import Program
from koila._capture.values import Value, has_gradient_hooks, is_direct
from koila._plan.announce import Announced, announce
from koila._plan.plan_cache import Plan
from koila._plan.planner import Run

__all__ = ["Room", "deliver"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Room:
    """What there is for the backward pass of what weights were computed by before the step,
    as by a parametrization: ``taken`` bytes of ``budget`` are not free."""

    plan: Plan
    frames: Frames
    device: torch.device
    taken: int
    budget: int
    announced: Announced
    is_whole: bool  # with the pass of the step itself

    @staticmethod
    def of(run: Run, taken: int, *, is_whole: bool) -> Room:
        return Room(run.plan, run.frames, run.device, taken, run.budget, run.announced, is_whole)

    @staticmethod
    def beside(run: Run) -> Room:
        return Room.of(run, run.resident + run.beside, is_whole=False)

    def run(self, differentiate: Callable[[], _T], given: int = 0) -> _T:
        """Nobody knows what operators such a pass consists of, so that the first one is
        measured, and said to take too much with the bytes of the gradients that it is
        ``given``."""
        plan = self.plan
        if self.is_whole not in plan.before_weights:
            with memory.count_memory(self.device) as counted:
                found = differentiate()
            plan.before_weights[self.is_whole] = counted.get_peak()
        else:
            found = differentiate()
        need = self.taken + given + plan.before_weights[self.is_whole]
        if need > self.budget:
            announce(
                "the backward pass of what weights are computed by before the step takes "
                f"{memory.format_bytes(need)} of {memory.format_bytes(self.budget)} with what is "
                "there, and koila does not split it",
                location_of(self.frames),
                self.announced,
            )
        return found


def deliver(
    program: Program,
    gradients: dict[int, Tensor],
    retain_graph: bool,
    room: Room,
    *,
    are_kept: bool = False,
) -> None:
    """Adds gradients of leaves to ``.grad``, through the graphs before them; they are
    there for another time if they ``are_kept``."""
    ends: list[tuple[Tensor, Tensor]] = []
    apart: list[tuple[Tensor, Tensor]] = []
    # A hook on a weight sees what comes through them, too, and is called once.
    joined = any(
        leaf.tensor is not None and leaf.tensor.grad_fn is not None
        for leaf in (program.leaves[index] for index in gradients)
    )
    for index, gradient in gradients.items():
        leaf = program.leaves[index]
        tensor = leaf.tensor
        assert tensor is not None
        end = without_copies(leaf) if is_weight(leaf) else tensor
        # Autograd, too, takes the first gradient and adds the others to it.
        if is_direct(tensor) and tensor.grad is not None:
            tensor.grad += gradient
        elif is_direct(tensor) or _may_take(leaf, tensor, gradient):
            tensor.grad = gradient.clone() if are_kept else gradient
        elif end.grad_fn is None and not joined:
            apart.append((end, gradient.clone() if are_kept else gradient))
        else:
            ends.append((end, gradient))
    _differentiate(apart)
    if ends:
        given = sum(gradient.nbytes for _, gradient in ends)
        room.run(lambda: _differentiate(ends, retain_graph), given)


def _differentiate(gradients: list[tuple[Tensor, Tensor]], retain_graph: bool = False) -> None:
    """Gives tensors their gradients in one backward pass, for which a hook on several of
    them waits, and in their order, since hooks see it."""
    if not gradients:
        return
    # The node that was made last runs first, and then at once what it gives a gradient to.
    # (The first of a pass is none of those that such a hook counts.)
    with torch.enable_grad():
        views = [tensor.view_as(tensor) for tensor, _ in reversed(gradients)]
    given = [gradient for _, gradient in reversed(gradients)]
    torch.autograd.backward(views, given, retain_graph=retain_graph)


def _may_take(leaf: Value, tensor: Tensor, gradient: Tensor) -> bool:
    """Whether a gradient becomes that of a leaf as it is: of what was recorded and stands
    as one for a while, on whose accumulation nobody has a hook."""
    return (
        leaf.graph_name is not None
        and tensor.is_leaf
        and tensor.grad is None
        and not has_gradient_hooks(tensor)
        and gradient.dtype == tensor.dtype
        and gradient.stride() == tensor.stride()
    )
