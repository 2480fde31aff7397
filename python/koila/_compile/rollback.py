"""A step that is interrupted, or raises, leaves things as they were before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from koila._compile.staleness import Follower
from koila._interrupt import held_back

__all__ = ["Undo"]


class Undo:
    """What steps of a module change: gradients, buffers and, if it ``draws``, the
    generator.

    Copies of buffers are made once: they are no part of what a step needs. Of
    gradients none are made: where there were some before, what the tiles have added
    stays.
    """

    def __init__(self, module: nn.Module, follower: Follower, draws: bool) -> None:
        self._module = module
        self._follower = follower
        self._draws = draws
        # None before the first step shows which are written to.
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        self._is_learned = False

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """One step: Ctrl-C waits for its end, and then nothing of it is left."""
        weights = [weight for weight in self._module.parameters() if weight.grad is None]
        whole = len(weights) == sum(1 for _ in self._module.parameters())
        # Not as a tensor, which would be part of what a step holds.
        state = torch.default_generator.get_state().numpy().tobytes() if self._draws else None
        self._copy_buffers()
        assigned = self._follower.list_assigned()
        try:
            with held_back():
                yield
                self._learn()
        except BaseException:
            # With gradients that cannot be told apart the step counts.
            if whole:
                with held_back():
                    self._restore(weights, state)
                    self._follower.assign(assigned)
            raise

    def _copy_buffers(self) -> None:
        with torch.no_grad():
            if self._copies is None or not self._are_there():
                self._copies = [(item, item.detach().clone()) for item in self._buffers()]
                self._is_learned = False
                return
            for buffer, copy in self._copies:
                copy.copy_(buffer)

    def _buffers(self) -> list[torch.Tensor]:
        return [item for item in self._module.buffers() if not item.is_inference()]

    def _are_there(self) -> bool:
        there = set(map(id, self._module.buffers()))
        return all(id(buffer) in there for buffer, _ in self._copies or ())

    def _learn(self) -> None:
        """Only layers to whose buffers a step has written are copied from then on.
        Batch normalisation writes without another version."""
        if self._is_learned:
            return
        copies = {id(buffer): (buffer, copy) for buffer, copy in self._copies or ()}
        kept = []
        for part in self._module.modules():
            own = [pair for item in part._buffers.values() if (pair := copies.pop(id(item), None))]
            if not all(torch.equal(buffer, copy) for buffer, copy in own):
                kept += own
        self._copies, self._is_learned = kept, True

    def _restore(self, weights: list[nn.Parameter], state: bytes | None) -> None:
        with torch.no_grad():
            for weight in weights:
                weight.grad = None
            for buffer, copy in self._copies or ():
                if not torch.equal(buffer, copy):
                    buffer.copy_(copy)
        if state is not None:
            torch.default_generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
