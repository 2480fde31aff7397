"""What stands in for ``koila.lazy`` while a script runs.

    plain(values...)          the arguments back: plain PyTorch
    drop(values..., batch=0)  the arguments without their last sample: a control
    within(budget)            the real koila.lazy with this budget
    Rounding(seed)            plain PyTorch that rounds in another way

Each run also wants a koila that knows nothing yet: forget_plans().
"""

from __future__ import annotations

import contextlib
import functools
import gc
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

import koila
from koila import memory
from koila._capture import differentiation, dispatch_cache
from koila._capture.thread_recordings import recording
from koila._plan import announce, plan_cache, planner

_real = koila.lazy
# One step of float32's last digit.
ROUNDING = 2.0**-23

# Frames of this file are passed over: by koila, since it lies in its folder, and
# by warnings.warn(stacklevel=...), since Python takes it for its own importlib.
# Otherwise koila's warnings would name a line here, and not one of the script.
_UNSEEN = str(pathlib.Path(koila.__file__).parent / "importlib._bootstrap (variants.py)")
_WRAPPER = """
def lazy(*values, **options):
    mark()
    return call(*values, **options)
"""


def wrap(call: Callable[..., Any], mark: Callable[[], None]) -> Callable[..., Any]:
    """A function that marks a window and then is ``call``."""
    space = {"call": call, "mark": mark}
    exec(compile(_WRAPPER, _UNSEEN, "exec"), space)
    return space["lazy"]


def plain(*values: Any, batch: int | None = None, budget: Any = "auto") -> Any:
    return values[0] if len(values) == 1 else values


def drop(*values: Any, batch: int | None = None, budget: Any = "auto") -> Any:
    """A koila that loses samples: whoever judges it right is blind."""
    made = tuple(_drop(value, batch or 0) for value in values)
    return made[0] if len(made) == 1 else made


def _drop(value: Any, dim: int) -> Any:
    if isinstance(value, torch.Tensor):
        if not -value.dim() <= dim < value.dim() or value.shape[dim] < 2:
            return value
        return value.narrow(dim, 0, value.shape[dim] - 1)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_drop(item, dim) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_drop(item, dim) for item in value)
    if isinstance(value, Mapping):
        return type(value)((key, _drop(item, dim)) for key, item in value.items())  # type: ignore[call-arg]
    return value


def within(budget: int) -> Callable[..., Any]:
    """The real one. ``partial`` is written in C and adds no frame."""
    return functools.partial(_real, budget=budget)


def find_weights() -> list[torch.Tensor]:
    """All tensors that are trained or frozen weights, whoever holds them."""
    # By type(): isinstance() asks proxies, which may do anything.
    tensors = (item for item in gc.get_objects() if issubclass(type(item), torch.Tensor))
    return [
        tensor
        for tensor in tensors
        if tensor.is_floating_point()
        and (type(tensor) is torch.nn.Parameter or (tensor.requires_grad and tensor.is_leaf))
    ]


class Rounding:
    """What rounding alone does to the results of a script.

    Moves every weight by at most one rounding, at every call of lazy: some
    scripts make models on their way. Every second one also runs without oneDNN:
    PyTorch's own kernels add up the same sums in another order, as tiles do. Of
    a gradient of a bias, a sum over samples and pixels, that changes ten times
    more than rounded weights do.
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)  # the script's is left alone
        self.kernels = seed % 2 == 0
        self._others: list[torch.Tensor] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While the script runs. What is there before is not the script's."""
        self._others = find_weights()
        with torch.backends.mkldnn.flags(enabled=self.kernels):
            yield
        self._others = []

    def move(self) -> None:
        known = set(map(id, self._others))
        for weight in find_weights():
            if id(weight) not in known:
                step = torch.randint(-1, 2, weight.shape, generator=self.generator)
                weight.data.mul_(1 + step.to(torch.float64).mul_(ROUNDING).to(weight.dtype))


def forget_plans() -> None:
    """Each run begins as in a new process: koila knows no program, and nothing
    of an earlier script waits."""
    plan_cache.forget()
    for cache in (
        memory._recent,
        dispatch_cache._calls,
        dispatch_cache._alike,
        differentiation._calls,
        recording.leaves,
        recording.pending,
        recording.reads,
        recording._held,
        # Of this thread: how its last program ran.
        vars(announce._state),
    ):
        cache.clear()


@contextlib.contextmanager
def watch_tiles() -> Iterator[set[int]]:
    """The sizes of tiles in which koila runs what."""
    tiles: set[int] = set()
    note = planner.Run.note

    @functools.wraps(note)
    def watched(*args: Any, **kwargs: Any) -> None:
        note(*args, **kwargs)
        last = koila.last()
        if last is not None and last.tile is not None:
            tiles.add(last.tile)

    planner.Run.note = watched
    try:
        yield tiles
    finally:
        planner.Run.note = note
