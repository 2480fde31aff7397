"""A step that is interrupted, or raises, leaves things as they were before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from koila._compile.staleness import Follower
from koila._execute.undo import Copies, RandomState
from koila._interrupt import held_back

__all__ = ["Undo"]

_CPU = torch.device("cpu")


class Undo:
    """What steps of a module change: gradients, buffers and, if it ``draws``, the
    generators of the host and of ``device``.

    Copies are no part of what a step needs: those of buffers are made once, those of
    gradients that are there in memory that PyTorch's allocator does not count. Without
    memory for these, what the tiles have added stays.
    """

    def __init__(
        self,
        module: nn.Module,
        follower: Follower,
        draws: bool,
        device: torch.device = _CPU,
    ) -> None:
        self._module = module
        self._follower = follower
        self._draws = draws
        self._device = device
        # None before the first step shows which are written to.
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        self._is_learned = False
        # Whether nothing of the last step that raised is left.
        self.is_undone = False

    @contextlib.contextmanager
    def step(self, adds: bool) -> Iterator[None]:
        """One step, which ``adds`` to gradients: Ctrl-C waits for its end, and then nothing of
        it is left."""
        self.is_undone = True
        weights = [weight for weight in self._module.parameters() if weight.grad is None]
        there = (
            [] if not adds else [w.grad for w in self._module.parameters() if w.grad is not None]
        )
        gradients = Copies.make(there)
        random = RandomState(self._device) if self._draws else None
        self._copy_buffers()
        assigned = self._follower.list_assigned()
        self.is_undone = False
        try:
            with held_back():
                yield
                self._learn()
        except BaseException:
            if gradients is not None:
                with held_back():
                    self._restore(weights, gradients, random)
                    self._follower.assign(assigned)
                    self.is_undone = True
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

    def _restore(
        self, weights: list[nn.Parameter], gradients: Copies, random: RandomState | None
    ) -> None:
        for weight in weights:
            weight.grad = None
        gradients.restore()
        with torch.no_grad():
            for buffer, copy in self._copies or ():
                if not torch.equal(buffer, copy):
                    buffer.copy_(copy)
        if random is not None:
            random.restore()
