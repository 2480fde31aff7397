"""Programs of which only the first part can be in tiles: a loss that picks what a mask of
labels selects, that takes positions from NumPy, or that no file can carry.

What the first part hands on is computed in tiles; what follows runs whole on it, as PyTorch
runs it, and gives its gradient, with which the first part is differentiated in tiles. So is
a loss over embeddings whose gradient is cached: Gao et al. 2021, arXiv:2101.06983.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from koila._capture.batch_int import BatchInt
from koila._capture.host import find_tile_device, keep
from koila._capture.memory import Aliases
from koila._capture.program import Program
from koila._capture.program_trace import find_positions, find_sample_dims, writes_past_graph
from koila._capture.recorder import make_leaf, wrap
from koila._capture.values import Node, Value, read_sizes
from koila._errors import BudgetError, CompileError
from koila._plan.plan_cache import Cut
from koila._plan.planner import Run

__all__ = ["find_cut", "make_gradients", "weigh"]

# Of fewer samples a few tell nothing.
_FEWEST = 4
# So many places are tried.
_MOST_TRIED = 4
# What runs whole is to be less than such a part of all.
_LEAST_GAIN = 2


def find_cut(
    run: Run,
    problem: CompileError,
    start_first: Callable[[list[Value]], Run],
    ends: frozenset[Value],
) -> list[Value]:
    """What the calls that can be in tiles hand on to the others, none where no place will
    do. ``problem`` says why the whole is in no tiles; ``start_first`` gives the run of the
    first part. Of a part that was cut at ``ends`` itself, its place is before them. The answer
    is remembered in the plan."""
    plan = run.plan
    if plan.is_cut_known and plan.cut is None:
        return []
    places = _Places(run.program)
    if plan.cut is None:
        plan.is_cut_known = True
        plan.cut = _find_cut(run, problem, start_first, ends, places)
        if plan.cut is None:
            return []
    values = places.list_handed_on(plan.cut.place)
    for value, dims in zip(values, plan.cut.dims, strict=True):
        value.dims = dims
    places.detach_sizes(plan.cut.place)
    return values


def _find_cut(
    run: Run,
    problem: CompileError,
    start_first: Callable[[list[Value]], Run],
    ends: frozenset[Value],
    places: _Places,
) -> Cut | None:
    if run.batch is None or run.batch < _FEWEST:
        return None
    if any(map(writes_past_graph, run.program.nodes)):
        return None  # what is written has to be in the memory that others have
    is_step = run.mode == "train"
    sample_dims = run.measure_trace(find_sample_dims, run.program, run.batch)
    places.refuse(sample_dims, is_step)
    limit = places.find_limit(_find_named(problem, run), ends)
    for _ in range(_MOST_TRIED):
        position = places.find_best(limit)
        if position is None:
            break
        values = places.list_handed_on(position)
        keys = [(places.positions[value.node], value.index) for value in values if value.node]
        dims = tuple(sample_dims[key] for key in keys)
        for value, found in zip(values, dims, strict=True):
            value.dims = found
        first = start_first(values)
        error = _find_problem(first)
        if error is None:
            return Cut(position, dims)
        limit = min(places.find_limit(_find_named(error, first), ends), position)
    return None


def _find_named(error: CompileError, run: Run) -> Node | None:
    """The last call that an error names; of one that names none, the first that runs
    Python of the user's."""
    nodes = run.program.nodes
    if positions := find_positions(error, run.program):
        return nodes[positions[-1]]
    own = (node for node in nodes if getattr(node.call.function, "runs_python", False))
    return next(own, None)


def weigh(lazy: list[Any], gradients: list[Tensor]) -> Value:
    """What has the gradients that recorded tensors give to what they are made of, with
    these of their own: the sum of the products."""
    total: Any = None
    with torch.enable_grad():
        for tensor, gradient in zip(lazy, gradients, strict=True):
            own = make_leaf(gradient)
            # It is there beside what the part takes.
            own.drawn, own.source = True, tensor._value.source
            own.dims = tensor._value.dims
            keep(own, find_tile_device(own))
            product = (tensor * wrap(own)).sum()
            total = product if total is None else total + product
    return total._value  # type: ignore[no-any-return]


def make_gradients(lazy: list[Any]) -> list[Tensor]:
    """Gradients of recorded tensors, as good as any: neither zero nor equal."""
    metas = [tensor._value.meta for tensor in lazy]
    return [
        torch.linspace(0.5, 1.5, math.prod(meta.shape), dtype=meta.dtype, device=meta.device).view(
            meta.shape
        )
        for meta in metas
    ]


def _find_problem(run: Run) -> CompileError | None:
    """Why a program is not to be had in tiles; None of one that fits, too."""
    unknown = run.find_unknown()
    if unknown is not None:
        return unknown
    if run.fits():
        return None
    try:
        run.compile()
    except BudgetError:
        return None  # what takes the least is said
    except CompileError as error:
        return error
    return None


class _Places:
    """The places between two calls of a program, each with what it would take to run all
    behind it whole."""

    def __init__(self, program: Program) -> None:
        nodes = program.nodes
        self.positions: dict[Node, int] = {node: index for index, node in enumerate(nodes)}
        self._count = len(nodes)
        # By what makes it: the values that are read, and the last call that reads one.
        self._read: dict[tuple[int, int], tuple[list[Value], int]] = {}
        heavy = self._find_heavy(nodes)
        for position, node in enumerate(nodes):
            for entry in node.inputs:
                if type(entry) is not Value or entry.node not in heavy:
                    continue
                key = self.positions[entry.node], entry.index
                values = self._read[key][0] if key in self._read else []
                if entry not in values:
                    values.append(entry)
                self._read[key] = values, position
        self._nodes = nodes
        self._aliases = Aliases()
        self._writes = {
            memory: [self.positions[node] for node in writes if not node.writes_outside]
            for memory, writes in self._aliases.find_writes(nodes).items()
        }
        self._costs = self._weigh(nodes)
        self._refused = self._find_refused()

    def _find_heavy(self, nodes: list[Node]) -> set[Node]:
        """The calls that weights take part in: all else is not handed on, but made again."""
        heavy: set[Node] = set()
        for node in nodes:
            for entry in node.inputs:
                if type(entry) is Value and (
                    entry.node in heavy
                    or entry.meta.requires_grad
                    or isinstance(entry.tensor, nn.Parameter)
                ):
                    heavy.add(node)
        return heavy

    def _weigh(self, nodes: list[Node]) -> list[int]:
        """Of each place the bytes of what is handed on, with its gradient, and of what is
        made behind it."""
        changes = [0] * (self._count + 1)
        for (position, _), (values, last) in self._read.items():
            changes[position] += values[0].meta.nbytes
            changes[last] -= values[0].meta.nbytes
        handed_on = list(itertools.accumulate(changes))
        total = sum(node.call.made for node in nodes)
        made = itertools.accumulate(node.call.made for node in nodes)
        return [2 * held + total - sum_ for held, sum_ in zip(handed_on, made, strict=False)]

    def _find_refused(self) -> set[int]:
        """The places behind which something is written that was handed on there, or is
        differentiated, which needs the graph of what comes before."""
        differs = (place for place, node in enumerate(self._nodes) if node.call.differentiates)
        spans = [(0, max(differs, default=0))]
        for (position, _), (values, end) in self._read.items():
            for value in values:
                writes = self._writes.get(self._aliases.of(value), ())
                spans.append((position, min(max(writes, default=-1), end)))
        return self._list_covered(spans)

    def _list_covered(self, spans: list[tuple[int, int]]) -> set[int]:
        """The places within any of the spans, each without its end."""
        changes = [0] * (self._count + 1)
        for start, end in spans:
            if start < end:
                changes[start] += 1
                changes[end] -= 1
        return {place for place, open_ in enumerate(itertools.accumulate(changes)) if open_}

    def refuse(self, sample_dims: dict[tuple[int, int], tuple[int, ...]], is_step: bool) -> None:
        """Refuses the places at which something is handed on of which it is not known how it
        is made of samples. Of a step that are pairs of samples, too, which have no gradient
        in tiles, and places at which nothing has one."""
        unknown, useful = [], []
        for key, (values, end) in self._read.items():
            dims = sample_dims.get(key)
            has_gradient = values[0].meta.requires_grad
            if dims is None or (is_step and has_gradient and len(dims) > 1):
                unknown.append((key[0], end))
            if has_gradient or not is_step:
                useful.append((key[0], end))
        self._refused |= self._list_covered(unknown)
        self._refused |= set(range(self._count + 1)) - self._list_covered(useful)

    def detach_sizes(self, place: int) -> None:
        """Takes sizes of what is made before a place for numbers in the calls behind it: they
        are no reason to make it again."""
        for node in self._nodes[place + 1 :]:
            node.inputs = tuple(
                int(entry)
                if isinstance(entry, BatchInt)
                and any(
                    self.positions.get(value.node, place + 1) <= place  # type: ignore[arg-type]
                    for value in read_sizes(entry)
                )
                else entry
                for entry in node.inputs
            )

    def find_limit(self, named: Node | None, ends: frozenset[Value]) -> int:
        """The call before which the place is: one that was ``named``, and the first that
        writes to what that reads."""
        limit = self._count - 1
        if named is not None:
            limit = self.positions.get(named, limit)
            for entry in named.inputs:
                if type(entry) is Value:
                    limit = min([limit, *self._writes.get(self._aliases.of(entry), ())])
        made = [self.positions[end.node] for end in ends if end.node in self.positions]
        return min([limit, *made])

    def find_best(self, limit: int) -> int | None:
        """The place before the call at ``limit`` that costs the least."""
        places = (place for place in range(limit) if place not in self._refused)
        best = min(places, key=self._costs.__getitem__, default=None)
        if best is None or _LEAST_GAIN * self._costs[best] > self._costs[0] + 1:
            return None
        return best

    def list_handed_on(self, place: int) -> list[Value]:
        """What is made before a place and read behind it, the last first."""
        found = [
            (position, values[-1])
            for (position, _), (values, last) in self._read.items()
            if position <= place < last
        ]
        return [value for _, value in sorted(found, key=lambda item: -item[0])]
