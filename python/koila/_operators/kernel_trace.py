"""What a kernel allocates and frees, told in the order in which it does."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from koila.memory import AllocatorEvent

__all__ = ["Block", "KernelTrace"]


def count_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the storage of a tensor that is new, on the meta device too."""
    return tensor.untyped_storage().nbytes()


class Block:
    """One allocation: ``bytes``, and the meta ``tensor`` that it was made for, if any."""

    def __init__(self, trace: KernelTrace, size: int, tensor: torch.Tensor | None) -> None:
        self.bytes = size
        self.tensor = tensor
        self._trace = trace
        self._number = trace._allocate(size)
        self.is_live = True

    def free(self) -> None:
        """The kernel lets go of it. RuntimeError if it has already."""
        if not self.is_live:
            raise RuntimeError("a block is freed twice")
        self.is_live = False
        self._trace._free(self._number, self.bytes)


class KernelTrace:
    """What a rule tells of one run of an operator.

    ``threads`` are those that the operator may use; ``results`` meta tensors like its
    results (in a backward rule there are none). A result is there from the start of the
    kernel, unless ``allocate_result`` says when it is made.
    """

    def __init__(self, threads: int, results: Sequence[torch.Tensor | None]) -> None:
        self.threads = threads
        self.results = tuple(results)
        self._result_bytes = [0 if r is None else count_bytes(r) for r in self.results]
        self._told: set[int] = set()
        self._live = 0
        # Of each moment: what there was beside results, and which results were told.
        self._moments: list[tuple[int, frozenset[int]]] = [(0, frozenset())]
        # Numbers of blocks with bytes, below zero for frees; results are told apart.
        self._events: list[tuple[int, int]] = []
        self._of_results: set[int] = set()
        self._count = 0

    def allocate(self, what: int | torch.Tensor) -> Block:
        """A block of so many bytes, or for a new tensor like ``what``: as large as
        its elements, in their order in memory."""
        if isinstance(what, torch.Tensor):
            what = torch.empty_like(what)
            block = Block(self, count_bytes(what), what)
        elif isinstance(what, int) and not isinstance(what, bool) and what >= 0:
            block = Block(self, what, None)
        else:
            raise TypeError(f"a block has a number of bytes or a tensor, not {what!r}")
        return block

    def temporary(self, what: int | torch.Tensor) -> None:
        """A block that is gone before the next one is asked for."""
        self.allocate(what).free()

    def allocate_result(self, index: int = 0) -> None:
        """From now on result ``index`` is there."""
        if not 0 <= index < len(self.results) or index in self._told:
            raise IndexError(f"result {index} is not there, or was allocated before")
        self._told.add(index)
        self._note(0)
        number = self._take_number()
        self._of_results.add(number)
        self._events.append((number, self._result_bytes[index]))

    def _take_number(self) -> int:
        self._count += 1
        return self._count - 1

    def _allocate(self, size: int) -> int:
        self._note(size)
        number = self._take_number()
        self._events.append((number, size))
        return number

    def _free(self, number: int, size: int) -> None:
        self._note(-size)
        self._events.append((number, -size))

    def _note(self, change: int) -> None:
        self._live += change
        self._moments.append((self._live, frozenset(self._told)))

    def get_events(self) -> list[AllocatorEvent]:
        """Each block as it comes and goes, results that were not told first; what is left
        and is no result goes at the end."""
        first = [
            (-1 - at, size)
            for at, size in enumerate(self._result_bytes)
            if at not in self._told and size > 0
        ]
        numbers: dict[int, int] = {}
        live: dict[int, int] = {}
        events = []
        for number, size in [*first, *self._events]:
            if size > 0:
                numbers[number] = len(numbers)
                live[number] = size
                events.append(AllocatorEvent(False, numbers[number], size))
            elif size < 0:
                del live[number]
                events.append(AllocatorEvent(True, numbers[number], -size))
        for number, size in reversed(live.items()):
            if number >= 0 and number not in self._of_results:
                events.append(AllocatorEvent(True, numbers[number], size))
        return events

    def get_peak(self) -> int:
        """Bytes at the worst moment, results not counted."""
        return max(live for live, _ in self._moments)

    def get_transient(self) -> int:
        """Bytes beyond all results at the worst moment."""
        late = self._told
        everything = sum(self._result_bytes)
        # Relative to what is left at the end.
        return (
            max(
                live + everything - sum(self._result_bytes[i] for i in late - there)
                for live, there in self._moments
            )
            - everything
        )
