"""What is computed before a program goes on, though nobody has asked for it: a batch goes,
weights change."""

from __future__ import annotations

import weakref

from torch import Tensor

from koila._capture.frames import find_frames
from koila._capture.thread_recordings import recording
from koila._capture.values import Value
from koila._execute.executor import held_with, list_unseen, run_nodes
from koila._execute.gradients import read_held

__all__ = ["flush", "watch_input"]


def watch_input(tensor: Tensor) -> None:
    """When a batch has gone, what is left to compute of it without a graph need not keep it
    any longer. (What has a graph keeps it in plain PyTorch, too.) A batch that is there
    until the interpreter ends has nobody who would ask."""
    weakref.finalize(tensor, _release_input).atexit = False


def _release_input() -> None:
    if not recording.busy:
        _compute_held([value for value in list_unseen() if not value.meta.requires_grad])


def flush() -> None:
    """Computes what the program holds, and makes the writes to its tensors that
    nobody has asked for: the tensors that they are made of need not stay."""
    if recording.busy:
        return
    _compute_held(held_with([]))
    pending = recording.list_pending()
    if pending:
        run_nodes(pending)


def _compute_held(open_values: list[Value]) -> None:
    if open_values:
        frames = find_frames()
        try:
            read_held(open_values, frames)
        except Exception:
            # Of what nobody asks for now nothing is said until somebody does.
            for value in open_values:
                value.failed = True
