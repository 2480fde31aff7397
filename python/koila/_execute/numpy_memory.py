"""Memory that the program has as NumPy arrays, of tensors that may be computed again.

Plain PyTorch gives the memory of the tensor itself, so that what is written to the
array is in the tensor. Here the array has numbers that were read; a write to it is
noticed when the tensor is computed again. A write to the tensor is made at once, in
the memory of the array.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from koila._capture.frames import Frames, location_of
from koila._capture.memory import Aliases
from koila._capture.thread_recordings import recording
from koila._capture.values import Node, Value, checksum_of_tensor, is_open
from koila._errors import KoilaError

__all__ = ["check_lent", "is_lent_whole", "lend"]


class _Lent:
    """An array, its bits when it was given, and the call that makes its memory
    again. What was written is also known once the array has gone."""

    def __init__(self, maker: Node, tensor: Tensor, array: Any, frames: Frames) -> None:
        self.maker, self.frames, self.shape = weakref.ref(maker), frames, tuple(array.shape)
        # As long as the array lives: it has the memory, too.
        self._memory: Tensor | None = tensor.detach()
        self._checksum = checksum_of_tensor(self._memory)
        self._was_written = False
        self.name = "a tensor" if isinstance(array, Tensor) else "a NumPy array"
        weakref.finalize(array, _Lent._close, self).atexit = False

    def is_of(self, maker: Node) -> bool:
        """Whether the array is there, and has the memory that a call makes."""
        return self._memory is not None and self.maker() is maker

    def is_written(self) -> bool:
        if self._memory is not None and not self._was_written:
            self._was_written = checksum_of_tensor(self._memory) != self._checksum
        return self._was_written

    def _close(self) -> None:
        self.is_written()
        self._memory = None


def _is_writable(array: Any) -> bool:
    return isinstance(array, Tensor) or bool(array.flags.writeable)


def lend(value: Value, tensor: Tensor, array: Any, frames: Frames) -> None:
    """The program gets an array, or another tensor, with the memory of ``tensor``, which a
    value is."""
    if not is_open(value):
        value.group.external = True  # writes to it are seen in the array
        _watch(value, tensor)
        return
    memory = Aliases().of(value)
    if isinstance(memory, tuple) and tensor.numel() and _is_writable(array):
        for reference in memory[0].outputs:
            base = reference()
            if base is not None and base.index == memory[1]:
                base.lent = base.group.is_lent = True  # it will be computed into the same memory
        value.group.is_lent = True
        recording.lent.append(_Lent(memory[0], tensor, array, frames))


def _watch(value: Value, tensor: Tensor) -> None:
    """Writes to the array have no version: calls that read this memory, and have run before
    them in plain PyTorch, know them by its bits."""
    recording.exposed.add(tensor)
    for each in {*value.group.list_members(), *recording.watched.list_at(tensor)}:
        own = each.tensor
        if own is not None and not is_open(each) and not own.is_inference():
            each.version = own._version if each.version is None else each.version
            each.watch()


def is_lent_whole(value: Value) -> bool:
    """Whether all of the memory is known that arrays have a part of, so that what makes it
    again can put it there."""
    memory = Aliases().of(value)
    if not isinstance(memory, tuple):
        return True
    bases = [base for reference in memory[0].outputs if (base := reference()) is not None]
    return any(base.index == memory[1] and base.lent and base.seen is not None for base in bases)


def check_lent(nodes: Iterable[Node]) -> None:
    """Raises if an array was written to whose tensor one of the nodes makes again."""
    if not recording.lent:
        return
    again = set(nodes)
    for lent in list(recording.lent):
        maker = lent.maker()
        if maker is None or maker.done:
            recording.lent.remove(lent)
        elif maker in again and lent.is_written():
            raise KoilaError(
                f"{lent.name} of shape {lent.shape} was written to, and its tensor is needed again",
                location_of(lent.frames),
                ("take the array of a copy, as of .clone(), or of what run() returns",),
            )
