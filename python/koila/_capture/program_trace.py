"""From a recorded program to TorchScript, whose parameters are the user's own."""

from __future__ import annotations

import builtins
import dataclasses
import heapq
import itertools
import os
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import batch_norm

from koila._capture.booleans import without_booleans
from koila._capture.casts import CastCache
from koila._capture.compare import compare
from koila._capture.copies import Copies, Readers, find_copies
from koila._capture.cumulative import normalise
from koila._capture.extents import Extents, find_extents, is_multiple
from koila._capture.frames import location_of
from koila._capture.global_hooks import without_hooks
from koila._capture.host import lift
from koila._capture.leaves import (
    batch_dim,
    is_differentiated,
    is_expanded,
    is_of_weight,
    is_weight,
    other_batch,
    without_copies,
)
from koila._capture.made_of_sizes import Diagonal, Positions, is_permutation
from koila._capture.module_snapshot import seed
from koila._capture.owned_traces import trace as trace_module
from koila._capture.program import Program, places_of
from koila._capture.unseen_writes import find_unseen_write
from koila._capture.values import Call, Meta, Node, Value, detaching, rebuild
from koila._errors import CompileError, Location
from koila._out_of_memory import is_out_of_memory

__all__ = [
    "TraceError",
    "Traced",
    "explain",
    "find_positions",
    "find_recorded",
    "find_sample_dims",
    "in_user_lines",
    "refuse_unseen_writes",
    "trace",
    "whole_bytes",
    "writes_past_graph",
]

_FILE = "koila-recording"
# Samples of a trace, and others that it is tried with; more, up to half of the batch, where
# a program takes no few, as topk(5) of the batch.
_FEW = ((3, 2), (6, 5), (12, 11))
# Ways that are tried to get past one call by taking some of the tensors with as many rows as
# the batch for none of it.
_MOST_GUESSED = 8
# As many get past all the calls of a program, of which each layer may have such tensors; a
# few are tried wherever it is begun anew.
_MOST_TRIED = 256
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


@dataclass(frozen=True)
class Traced:
    """A recorded program as TorchScript.

    ``arguments`` are the leaves that it takes, ``specs`` their types with the
    batch as ``B``, ``orders`` the dims of those that are given as they lie in
    memory, from the outermost on, ``copies`` those that have each sample more than once;
    ``numbers`` the places of numbers that it takes behind them.
    ``differentiated`` are the arguments whose gradients a step returns.
    ``weights`` stand for the leaves that are weights: they have their data while
    the program runs, so that no plan keeps a model. So do ``statistics`` for running
    statistics, which the program updates. ``reached`` are the weights
    that the loss depends on in a way that has a gradient, in the order in which
    they get it. ``problem`` says why nothing is a batch, where that is so.
    """

    script: torch.jit.ScriptModule
    specs: tuple[str, ...]
    arguments: tuple[int, ...]
    orders: dict[int, tuple[int, ...]]
    copies: dict[int, Copies]
    numbers: tuple[int, ...]
    differentiated: tuple[int, ...]
    reached: tuple[int, ...]
    weights: dict[int, nn.Parameter]
    statistics: dict[int, Tensor]
    problem: TraceError | None  # why nothing of it is a batch

    def take(self, program: Program) -> list[Tensor]:
        """The arguments of a program of the same key; its weights are there until
        they are released."""
        self.lend(program)
        found = []
        for tensor, spec in self._find_arguments(program):
            if "@channels_last" not in spec:
                tensor = tensor.contiguous()
            found.append(tensor.requires_grad_() if "@grad" in spec else tensor)
        for place in self.numbers:
            found.append(torch.tensor(float(program.numbers[place]), dtype=torch.float64))
        return found

    def _find_arguments(self, program: Program) -> Iterator[tuple[Tensor, str]]:
        """The leaves that are no weights, as they lie in memory, and their specs."""
        for index, spec in zip(self.arguments, self.specs, strict=False):
            tensor = program.tensor_of(program.leaves[index]).detach()
            if index in program.copied:
                tensor = tensor.clone()
            if index in self.copies:
                tensor = self.copies[index].split(tensor)
            yield tensor.permute(self.orders[index]) if index in self.orders else tensor, spec

    def copied_bytes(self, program: Program) -> int:
        """Of arguments that are given as copies, since they have gaps; copies of what waits
        on the host stay there."""
        found = zip(self.arguments, self._find_arguments(program), strict=False)
        return sum(
            tensor.numel() * tensor.itemsize
            for index, (tensor, spec) in found
            if "@channels_last" not in spec
            and not tensor.is_contiguous()
            and not program.is_on_host(index)
        )

    def list_from_host(self, program: Program) -> tuple[int, ...]:
        """The arguments that wait on the host, by their places."""
        return tuple(
            place for place, index in enumerate(self.arguments) if program.is_on_host(index)
        )

    def lend(self, program: Program) -> None:
        """Puts the weights and statistics of a program of the same key in their places."""
        for index, weight in self.weights.items():
            leaf = program.leaves[index]
            weight.data = lift(leaf, without_copies(leaf).detach())
        for index, statistic in self.statistics.items():
            statistic.data = program.tensor_of(program.leaves[index]).detach()

    def release(self) -> None:
        """Lets the tensors of the last run go."""
        _release([*self.weights.values(), *self.statistics.values()])


def _release(tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        tensor.grad = None
        tensor.data = tensor.data.new_empty(0)


def trace(
    program: Program,
    batch: int | None,
    trains: bool,
    varying: frozenset[int] = frozenset(),
    may_be_whole: bool = True,
    traces_whole: bool = False,
    has_room: Callable[[float], bool] = lambda _: True,
) -> Traced:
    """Traces the program on a few samples and compares it on another number.

    If it ``trains``, the first root is the loss. Numbers at ``varying`` are
    arguments. Where no few samples will do, all of what nobody named a batch is run,
    if there is memory for it (``may_be_whole``), and in the end of that, too, if asked for
    (``traces_whole``). More samples are tried if there is room for so many times what
    fewer have taken (``has_room``). Raises CompileError, with the
    recorded line, where PyTorch cannot trace it or where it depends on the number of
    samples in a way that no trace follows.
    """
    problem: TraceError | None = None
    ways = _list_ways(program, batch, trains, tuple(sorted(varying)), may_be_whole)
    last = _list_whole(program, trains, tuple(sorted(varying))) if batch and traces_whole else ()
    most = _FEW[0][0]  # samples that have been tried
    left = _MOST_TRIED
    for recorded in itertools.chain(ways, last):
        count = batch if batch and recorded.is_whole else recorded.few[0]
        if count > most and not has_room(count / most):
            continue
        if not recorded.is_whole:
            most = count
        ways_left, tried, reached = deque([recorded]), {recorded.guesses()}, -1
        guesses, left = 0, max(left, _MOST_GUESSED)
        while ways_left:
            way = ways_left.popleft()
            try:
                return _trace(way, problem if way.is_whole else None)
            except Exception as caught:  # torch raises of every type here
                if is_out_of_memory(caught):
                    raise  # another time there may be enough
                error = TraceError.of(caught, program)
                problem = problem or error
            if error.position is None or error.position < reached:
                continue
            if error.position > reached:
                # What this takes for samples was right so far, and others' was not.
                reached, guesses = error.position, 0
                ways_left.clear()
            for other in _list_with_fewer_guesses(way, reached, batch):
                if guesses < _MOST_GUESSED and left and other.guesses() not in tried:
                    tried.add(other.guesses())
                    ways_left.append(other)
                    guesses, left = guesses + 1, left - 1
    assert problem is not None
    try:
        raise problem
    finally:
        del problem  # which has this frame in its traceback


def _list_ways(
    program: Program, batch: int | None, trains: bool, varying: tuple[int, ...], may_be_whole: bool
) -> Iterator[_Recorded]:
    """What is taken for samples, and how many of them are traced, in the order in which it
    is tried."""
    ways = find_extents(program, batch)
    differentiates = trains or any(node.call.differentiates for node in program.nodes)
    # What has as many rows as the batch is tried as part of it. This is never
    # wrong: the program is the one that was recorded whatever is called B,
    # and the compiler proves that tiles of what it calls so do not meet.
    guesses = (2, 1, 0) if may_be_whole else (2, 1)
    statistics = _find_statistics(program)
    copies = _find_all_copies(program, batch, differentiates)
    known = {
        index for index in copies if program.leaves[index].drawn or program.leaves[index].copies
    }
    if copies.keys() - known:
        guesses = (3, *guesses)
    if batch == 1:
        guesses = (0, 1)  # many tensors have one row
    counts = ((2, 1),) if batch == 1 else _FEW if batch else _FEW[:1]
    # Positions may be those of a sequence, which is as long, or twice as long.
    known_made = (program.made, {}) if program.made else ({},)
    for found_made, few, guess in itertools.product(known_made, counts, guesses if batch else (0,)):
        dims = [
            batch_dim(leaf, batch, 0 if index in statistics else guess, differentiates)
            for index, leaf in enumerate(program.leaves)
        ]
        has_samples = any(dim is not None for dim in dims)
        if few != counts[0] and not (has_samples and 2 * few[0] <= (batch or 0)):
            continue
        # As is a size that was written as a number, as of len(x).
        for extents in (None, *(ways if guess or batch == 1 else ())):
            made = found_made if guess and has_samples else {}
            parts = {
                index: found
                for index, found in copies.items()
                if index not in made and (guess == 3 or (guess and index in known))
            }
            recorded = _Recorded(program, dims, trains, varying, extents, few, made, parts)
            if batch == 1 and guess:
                recorded.find_rows()
            yield recorded


def _list_with_fewer_guesses(
    recorded: _Recorded, position: int, batch: int | None
) -> list[_Recorded]:
    """Ways in which one tensor that the call at ``position`` depends on is none of the batch,
    though it has as many rows: weights of as many classes as there are samples. What it reads
    itself comes first, as the likeliest."""
    if recorded.is_whole:
        return []
    leaves = recorded.program.leaves
    guessed = [
        index
        for index in recorded.program.list_leaves_of(position)
        if (recorded.guessed[index] is not None and batch_dim(leaves[index], batch, 0) is None)
        or index in recorded.copies
    ]
    return [recorded.without(index) for index in guessed[:_MOST_GUESSED]]


def _list_whole(program: Program, trains: bool, varying: tuple[int, ...]) -> Iterator[_Recorded]:
    """Nothing is a batch then, and what it needs is known at least."""
    whole: list[int | None] = [None] * len(program.leaves)
    recorded = _Recorded(program, whole, trains, varying, None, _FEW[0], {}, {})
    recorded.is_whole = True
    yield recorded


def find_sample_dims(program: Program, batch: int) -> dict[tuple[int, int], tuple[int, ...]]:
    """The dims that depend on the number of samples, of each result of each call, by the
    place of the call: of those before the first that works for no other number."""
    most: dict[int, list[torch.Size]] = {}
    for recorded in _list_ways(program, batch, False, (), False):
        if recorded.few != _FEW[0]:
            break
        recorded.shapes = {}
        _traced.append(recorded)
        try:
            with without_hooks(), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numbers of samples that nobody asked for
                recorded.module(*recorded.samples(recorded.few[0]))
        except Exception:  # torch raises of every type here
            pass
        finally:
            _traced.pop()
            _release([*recorded.weights.values(), *recorded.statistics.values()])
        if len(recorded.shapes) > len(most):
            most = recorded.shapes
    found = {}
    for position, shapes in most.items():
        whole = [meta.shape for meta in program.nodes[position].call.metas]
        if [len(shape) for shape in whole] != [len(shape) for shape in shapes]:
            break  # a list with a tensor for each sample
        for index, pair in enumerate(zip(shapes, whole, strict=True)):
            extents = enumerate(zip(*pair, strict=True))
            found[position, index] = tuple(dim for dim, (few, all_) in extents if few != all_)
    return found


class TraceError(CompileError):
    """A program that works for no other number of samples. ``position`` is that of the call
    that raised."""

    position: int | None = None

    @classmethod
    def of(cls, error: Exception, program: Program) -> TraceError:
        """The error itself is not kept: its traceback holds tensors."""
        position = _failed_position(error, program)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # The interpreter says first where it was, and last what was wrong.
        is_inside = lines[0].startswith("The following operation failed")
        what = lines[-1].removeprefix("RuntimeError: ") if is_inside else lines[0]
        made = cls(
            f"it cannot be traced for another number of samples: {what}",
            None if position is None else location_of(program.nodes[position].frames),
        )
        made.position = position
        return made


def find_positions(error: CompileError, program: Program) -> list[int]:
    """The calls of the recording that an error names."""
    if isinstance(error, TraceError) and error.position is not None:
        return [error.position]
    place = error.location
    lines = [place.line] if place is not None and place.file == _FILE else []
    for text in (error.message, *error.notes):
        lines += [int(found[1]) for found in _PLACE.finditer(text)]
    return sorted({line - 1 for line in lines if 0 < line <= len(program.nodes)})


def find_recorded(places: Iterable[dict[str, Any] | None], program: Program) -> list[Node]:
    """The calls of the recording that a report names, each once."""
    lines = {place["line"] for place in places if place and place["file"] == _FILE}
    return [program.nodes[line - 1] for line in sorted(lines) if 0 < line <= len(program.nodes)]


_PLACE = re.compile(re.escape(_FILE) + r":(\d+)(?::\d+)?")
# Of what no call of the recording has made, as the results of all tiles.
_OWN_PLACE = re.compile(r",? at " + re.escape(_PACKAGE) + r"\S+?:\d+(?::\d+)?")


def in_user_lines(text: str, program: Program) -> str:
    """What the compiler says, with the lines of the user in the place of recorded ones."""

    def name(match: re.Match[str]) -> str:
        index = int(match[1]) - 1
        if not 0 <= index < len(program.nodes):
            return match[0]
        inner = program.nodes[index].frames[0]
        return f"{inner.file}:{inner.line}"

    return _PLACE.sub(name, _OWN_PLACE.sub("", text))


# What a compilation may be told, and the line of koila.lazy may not.
_OPTIONS = re.compile(
    "; give tile=N instead|, in a training step batchnorm=exact takes .*? gives other results"
)


def explain(error: CompileError, program: Program) -> tuple[str, Location | None]:
    """The message of the compiler with the recorded lines, and the user's line."""
    text = _OPTIONS.sub("", "; ".join([error.message, *error.notes]))
    text = in_user_lines(text, program)
    place = error.location
    if place is not None and place.file == _FILE:
        if 0 < place.line <= len(program.nodes):
            frames = program.nodes[place.line - 1].frames
            if frames[0] != frames[1]:
                text += f" (recorded at {frames[0].file}:{frames[0].line})"
            return text, location_of(frames)
        place = None
    if place is not None and place.file.startswith(_PACKAGE):
        place = None
    return text, place


def _find_all_copies(
    program: Program, batch: int | None, differentiates: bool
) -> dict[int, Copies]:
    """The leaves beside what was given and weights that may have each sample more than once."""
    found: dict[int, Copies] = {}
    if not batch:
        return found
    updated, readers = _find_updated(program), Readers(program)
    for index, leaf in enumerate(program.leaves):
        if leaf.origin or index in program.copied:
            continue
        if leaf.meta.requires_grad and (differentiates or not is_expanded(leaf)):
            continue
        if not isinstance(leaf.tensor, nn.Parameter) and index not in updated:
            copies = find_copies(program, index, batch, readers)
            if copies is not None:
                found[index] = copies
    return found


def whole_bytes(program: Program, batch: int | None) -> int:
    """Bytes of a trace, in both directions, in which the batches that were named
    have a few samples and all else is whole."""
    cut: set[int] = set()
    total = 0
    for index, leaf in enumerate(program.leaves):
        if batch_dim(leaf, batch, 0) is not None or other_batch(leaf) is not None:
            cut.add(index)
        elif leaf.tensor is not None:
            total += leaf.tensor.nbytes
    count = 0
    for node, step in zip(program.nodes, program.steps, strict=True):
        few = any(place in cut for entry in step for place in places_of(entry))
        total += 0 if few else node.call.made
        for meta in node.call.metas:
            count += 1
            if not few:
                continue
            if any(is_multiple(extent, batch or 0) for extent in meta.shape):
                cut.add(-count)
            else:
                total += meta.nbytes
    return 2 * total


class _Recorded:
    """A program that is traced: as a module whose ``forward`` takes the leaves
    that are no weights, and the numbers at ``varying``.

    The module itself has nothing but its weights: TorchScript keeps whatever
    else it finds in one, and here that would be a batch.
    """

    def __init__(
        self,
        program: Program,
        dims: list[int | None],
        trains: bool,
        varying: tuple[int, ...],
        extents: Extents | None,
        few: tuple[int, int],
        made: Mapping[int, Diagonal | Positions],
        copies: dict[int, Copies],
    ) -> None:
        self.program, self.trains, self.varying = program, trains, varying
        self.copies, self.guessed = copies, dims
        # Of those that are given in two, the dim of what is given.
        self.dims = [
            copies[index].batch_dim if index in copies else dim for index, dim in enumerate(dims)
        ]
        self.extents = extents  # what is so long in shapes is as long as the batch
        self.few = few
        # What is given may be written to.
        self.writes = any(node.call.writes for node in program.nodes)
        self.is_whole = False  # also of what was named a batch
        # Those of the results of each call, where they are asked for.
        self.shapes: dict[int, list[torch.Size]] | None = None
        self.made = made  # again, from the number of samples
        self.autocasts = any(node.call.autocast is not None for node in program.nodes)
        self.casts = False  # what autocast casts inside of operators is cast before them
        self.module = _Module()
        self.names: dict[int, str] = {}
        self.weights: dict[int, nn.Parameter] = {}
        self.statistics: dict[int, Tensor] = {}
        # Of tensors that are dense in another order, as a transposed batch.
        self.orders: dict[int, tuple[int, ...]] = {}
        # Asked for now: a trace would take the tensors for constants.
        self.expanded: list[int] = []
        # The leaf that has the batch, in which dim, and how many samples.
        self.batch: tuple[int, int, int] | None = None
        updated = _find_updated(program)
        for index, (leaf, dim) in enumerate(zip(program.leaves, dims, strict=True)):
            origin = leaf.origin
            if self.batch is None and origin is not None and origin.batch is not None:
                self.batch = index, origin.batch, origin.size or 0
            if index in updated:
                statistic = program.tensor_of(leaf).detach().clone()
                self.statistics[index] = statistic
                self.names[index] = f"statistic{len(self.names)}"
                self.module.register_buffer(self.names[index], statistic)
            elif isinstance(leaf.tensor, nn.Parameter) or (trains and is_weight(leaf, dim)):
                data = lift(leaf, without_copies(leaf).detach())
                weight = nn.Parameter(data, leaf.meta.requires_grad)
                self.weights[index] = weight
                if is_expanded(leaf):
                    self.expanded.append(index)
                self.names[index] = f"weight{len(self.names)}"
                self.module.register_parameter(self.names[index], weight)
            elif (order := _find_order(self.meta_of(index))) is not None:
                self.orders[index] = order
        if self.batch is None:
            # Samples that a program has made beside its batch.
            samples = ((i, dim) for i, dim in enumerate(dims) if dim is not None)
            for index, dim in itertools.islice(samples, 1):
                self.batch = index, dim, program.leaves[index].meta.shape[dim]

    def without(self, index: int) -> _Recorded:
        """The same, but that a leaf is there as a whole."""
        dims = [None if place == index else dim for place, dim in enumerate(self.guessed)]
        made = {place: found for place, found in self.made.items() if place != index}
        copies = {place: found for place, found in self.copies.items() if place != index}
        return _Recorded(
            self.program, dims, self.trains, self.varying, self.extents, self.few, made, copies
        )

    def guesses(self) -> tuple[tuple[int | None, ...], tuple[int, ...]]:
        """The dims that are taken for samples, and the leaves that have each more than once."""
        return tuple(self.guessed), tuple(self.copies)

    def meta_of(self, index: int) -> Meta:
        """What is known of a leaf as it is given."""
        meta = self.program.leaves[index].meta
        return self.copies[index].split_meta(meta) if index in self.copies else meta

    def find_rows(self) -> None:
        """Takes what a program has made of one row of a weight, for a batch of one, to be
        such a row for each sample."""
        for index, leaf in enumerate(self.program.leaves):
            if leaf.meta.requires_grad and is_of_weight(leaf) and leaf.meta.shape[:1] == (1,):
                self.expanded.append(index)

    def reset(self) -> list[Tensor]:
        """Takes updates of statistics back, and returns what they had become."""
        updated = [statistic.clone() for statistic in self.statistics.values()]
        for index, statistic in self.statistics.items():
            statistic.copy_(self.program.tensor_of(self.program.leaves[index]).detach())
        return updated

    def samples(self, count: int, first: int = 0) -> list[Tensor]:
        """Arguments with ``count`` of the samples, from ``first`` on."""
        arguments = []
        grads = self.trains or any(node.call.differentiates for node in self.program.nodes)
        for index, (leaf, dim) in enumerate(zip(self.program.leaves, self.dims, strict=True)):
            if index in self.names or index in self.made:
                continue
            tensor = self.program.tensor_of(leaf).detach()
            if index in self.copies:
                tensor = self.copies[index].split(tensor)
            if dim is None and not self.is_whole:
                dim = other_batch(leaf)
            if dim is not None:
                rows = torch.arange(first, first + count, device=tensor.device) % tensor.shape[dim]
                # (index_select() copies all of what is not contiguous.)
                dense = tensor.movedim(dim, 0)[rows].movedim(0, dim).contiguous()
                if is_permutation(tensor):
                    dense = dense.argsort().argsort()  # one of fewer
                if first and tensor.shape[dim] == 1 and tensor.is_floating_point():
                    dense = dense * 0.9375  # another sample than the one that was traced
                if _is_channels_last(self.meta_of(index)):
                    dense = dense.contiguous(memory_format=torch.channels_last)
                tensor = dense
            elif self.writes:
                tensor = tensor.clone()
            tensor = lift(leaf, tensor)
            if index in self.orders:
                tensor = tensor.permute(self.orders[index]).contiguous()
            if grads and is_differentiated(leaf):
                tensor.requires_grad_()
            arguments.append(tensor)
        for place in self.varying:
            number = float(self.program.numbers[place])
            arguments.append(torch.tensor(number, dtype=torch.float64))
        return arguments


def _find_updated(program: Program) -> set[int]:
    """The leaves that are running statistics, which calls update."""
    return {
        step[index]
        for node, step in zip(program.nodes, program.steps, strict=True)
        if node.writes_outside
        for index in node.call.writes
    }


def _find_statistics(program: Program) -> set[Any]:
    """The leaves that calls take for running statistics, which have an entry a channel: no
    samples, though there may be as many of these."""
    return {
        step[index]
        for node, step in zip(program.nodes, program.steps, strict=True)
        for index in node.call.statistics
    }


# What is traced now; a program that is traced may record another.
_traced: list[_Recorded] = []


class _Module(nn.Module):
    def forward(self, *arguments: Tensor) -> Any:
        return _replay(self, _traced[-1], arguments)


def _replay(module: nn.Module, recorded: _Recorded, arguments: tuple[Tensor, ...]) -> Any:
    program = recorded.program
    rest = iter(arguments)
    leaves: list[Any] = [
        getattr(module, recorded.names[index])
        if index in recorded.names
        else None
        if index in recorded.made
        else next(rest)
        for index in range(len(program.leaves))
    ]
    numbers = list(program.numbers)
    for place in recorded.varying:
        numbers[place] = next(rest).to(program.readers[place].call.metas[0].dtype)
    for index, order in recorded.orders.items():
        back = sorted(range(len(order)), key=order.__getitem__)
        leaves[index] = leaves[index].permute(back)
    for index, copies in recorded.copies.items():
        leaves[index] = copies.join(leaves[index])
    for index, made in recorded.made.items():
        assert recorded.batch is not None
        place, dim, _ = recorded.batch
        like = program.tensor_of(program.leaves[index])
        leaves[index] = made.make(leaves[place].size(dim), like)
    for index in recorded.expanded:
        rows = program.leaves[index].meta.shape[0]
        if recorded.batch is not None:
            place, dim, size = recorded.batch
            multiples = recorded.extents is not None and recorded.extents.multiples
            if rows == size or (multiples and is_multiple(rows, size)):
                rows = leaves[place].size(dim) * (rows // size)
        leaves[index] = leaves[index].expand(rows, *program.leaves[index].meta.shape[1:])
    graph = any(node.call.grad for node in program.nodes)

    samples: Any = None
    extents = recorded.extents
    if extents is not None and recorded.batch is not None:
        samples = leaves[recorded.batch[0]].size(recorded.batch[1])

    def invoke(node: Node, position: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if samples is not None and extents is not None and extents.are_in(node):
            args = extents.resize(node, args, samples)
        if recorded.casts and torch._C._get_tracing_state() is not None:
            args = _cast_as_inside(node.call, args)
        casts.before(node.call)
        with node.call.modes(casts=node.call.grad):
            # A trace takes what .data gives for a constant.
            function = torch.detach if node.call.function in detaching else node.call.function
            if writes_past_graph(node):
                function = _refuse_write
            if function is batch_norm and isinstance(kwargs["momentum"], Tensor):
                function = normalise
                del kwargs["training"]
            args, kwargs = without_booleans(function, args, kwargs)
            if graph and not node.call.grad and node.call.writes:
                args, kwargs = _without_graphs(node, args, kwargs)
            result = _at_line(position + 1)(function, args, kwargs)
        if recorded.shapes is not None:
            recorded.shapes[position] = [tensor.shape for tensor in node.call.flatten(result)]
        if graph and not node.call.grad:
            # A trace does not hold in which mode it was made.
            return [tensor.detach() for tensor in node.call.flatten(result)]
        return result

    with CastCache() as casts:
        results = program.replay(leaves, invoke, numbers)
    if recorded.trains:
        # The loss, and what else the program still holds.
        loss, *further = results
        loss = loss.reshape(()) if loss.dim() else loss
        return (loss, *(result.detach() for result in further)) if further else loss
    if len(results) == 1:
        only = results[0]
        return only.reshape(()) if only.dim() and only.numel() == 1 else only
    return tuple(results)


def refuse_unseen_writes(program: Program) -> None:
    """Raises CompileError for a step that writes through ``.data`` to what autograd has kept:
    of a trace autograd would refuse that."""
    place = find_unseen_write(program)
    if place is not None:
        raise CompileError(
            "it writes through '.data' to what autograd has kept before for a gradient",
            Location(_FILE, place + 1),
        )


def writes_past_graph(node: Node) -> bool:
    """Whether a call writes, without recording it, to a tensor that has a graph, as in
    ``with torch.no_grad(): variance.clamp_(min=eps)``: its gradient does not see that."""
    return not node.call.grad and any(
        isinstance(node.inputs[index], Value) and node.inputs[index].meta.requires_grad
        for index in node.call.writes
    )


def _refuse_write(*_: Any, **__: Any) -> Any:
    raise CompileError("a write under no_grad() to a tensor with a graph is in no trace")


def _without_graphs(
    node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call that writes under no_grad(): what is written gets no graph, and
    a trace does not hold the mode."""
    has_graph = [
        isinstance(entry, Value) and entry.meta.requires_grad and index not in node.call.writes
        for index, entry in enumerate(node.inputs)
    ]

    def detach(item: Any, is_with: Any) -> Any:
        if isinstance(item, (list, tuple)):
            return rebuild(item, list(map(detach, item, is_with)))
        return item.detach() if is_with is True and isinstance(item, Tensor) else item

    flags, named = node.call.fill(list(has_graph))
    return (
        tuple(map(detach, args, flags)),
        {name: detach(item, named[name]) for name, item in kwargs.items()},
    )


def _cast_as_inside(call: Call, args: Any) -> Any:
    """Arguments in the type in which autocast computes the result."""
    dtype = None if call.autocast is None else call.autocast[1]
    if call.function is batch_norm:
        return args  # whose weights and statistics stay as they are
    if all(meta.dtype != dtype for meta in call.metas):
        return args

    def cast(item: Any) -> Any:
        if isinstance(item, (list, tuple)):
            return rebuild(item, [cast(part) for part in item])
        if isinstance(item, Tensor) and item.dtype == torch.float32 and item.dim():
            return item.to(dtype)
        return item

    return cast(args)


def _at_line(line: int) -> Callable[..., Any]:
    """A call that PyTorch takes as one of line ``line`` of the recording."""
    code = _caller.__code__.replace(co_firstlineno=line, co_filename=_FILE)
    # Who imports below it, as anomaly detection does for its tracebacks, asks its frame.
    return FunctionType(code, {"__builtins__": builtins})


_caller = lambda function, args, kwargs: function(*args, **kwargs)  # noqa: E731


def _trace(recorded: _Recorded, problem: TraceError | None) -> Traced:
    _traced.append(recorded)
    try:
        with without_hooks():
            return dataclasses.replace(_trace_lightly(recorded), problem=problem)
    finally:
        _traced.pop()
        # What a trace that failed leaves are cycles.
        _release([*recorded.weights.values(), *recorded.statistics.values()])


def _trace_lightly(recorded: _Recorded) -> Traced:
    """A trace for which autograd keeps nothing: that would be in no budget. Programs that
    differentiate on the way need what it keeps."""
    if any(node.call.differentiates for node in recorded.program.nodes):
        return _trace_module(recorded)
    nothing = torch.empty(0)
    asked = False

    def refuse(_: Tensor) -> Tensor:
        nonlocal asked
        asked = True
        raise RuntimeError("what autograd has not kept is asked for")

    try:
        with saved_tensors_hooks(lambda _: nothing, refuse):
            traced = _trace_module(recorded)
        if not asked:  # else what was refused was caught inside of a call
            return traced
    except Exception as error:
        # As torch.func does, inside of a call.
        if not asked and "hooks" not in str(error):
            raise
    recorded.reset()
    return _trace_module(recorded)


def _trace_module(recorded: _Recorded) -> Traced:
    program, module = recorded.program, recorded.module
    devices = {leaf.meta.device for leaf in program.leaves if leaf.meta.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices, key=str)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = _script_of(recorded)
        # Not the number and the samples that were traced, so that what is baked in shows.
        first, count = recorded.few
        if not any(dim is not None for dim in recorded.dims):
            count = first
        try:
            seed(devices)
            given = recorded.samples(count, first)
            with torch.enable_grad():
                wanted = module(*given)
        except Exception:
            # Rows by their number, as of arange(), are only there from the first on.
            first = 0
            recorded.reset()
            seed(devices)
            given = recorded.samples(count, first)
            with torch.enable_grad():
                wanted = module(*given)
        updated = recorded.reset()
        seed(devices)
        problem = _find_problem(recorded, script, recorded.samples(count, first), wanted, updated)
        if problem and recorded.autocasts:
            # What is cast inside of an operator, as of an LSTM, is not in a trace.
            recorded.casts = True
            script = _script_of(recorded)
            seed(devices)
            given = recorded.samples(count, first)
            problem = _find_problem(recorded, script, given, wanted, updated)
        if problem:
            raise CompileError(f"a trace of it is wrong for {count} samples: {problem}")
    given_apart = {*recorded.names, *recorded.made}
    taken = [index for index in range(len(program.leaves)) if index not in given_apart]
    reached: tuple[int, ...] = ()
    if recorded.trains:
        ends = {id(getattr(module, name)): index for index, name in recorded.names.items()}
        ends |= {id(tensor): index for tensor, index in zip(given, taken, strict=False)}
        reached = _find_reached(wanted[0] if isinstance(wanted, tuple) else wanted, ends)
    specs, differentiated = [], []
    for index in taken:
        spec = spec_of(recorded.meta_of(index), recorded.dims[index], recorded.orders.get(index))
        if index in reached:
            spec += "@grad"
            differentiated.append(index)
        specs.append(spec)
    specs += ["float64[]"] * len(recorded.varying)
    return Traced(
        script,
        tuple(specs),
        tuple(taken),
        recorded.orders,
        recorded.copies,
        recorded.varying,
        tuple(differentiated),
        tuple(index for index in reached if index in recorded.names),
        recorded.weights,
        recorded.statistics,
        None,
    )


def _script_of(recorded: _Recorded) -> torch.jit.ScriptModule:
    with torch.enable_grad():
        arguments = tuple(recorded.samples(recorded.few[0]))
        script = trace_module(recorded.module, arguments, keeps_shapes=False)
    recorded.reset()
    return script


_CASTS = "it has nothing of what autocast casts inside of an operator"


def _find_problem(
    recorded: _Recorded,
    script: torch.jit.ScriptModule,
    given: list[Tensor],
    wanted: Any,
    updated: list[Tensor],
) -> str | None:
    """How a trace differs from the calls themselves, in what it returns and in the running
    statistics that it has updated."""
    # It runs once: to optimise it would take longer.
    with torch.no_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        try:
            found = script(*given)
        except RuntimeError:
            if not recorded.autocasts:
                raise
            return _CASTS  # between types that are others than those that were traced
    # The same kernels round alike, and casts that are missing may not show in a loss.
    exact = recorded.autocasts
    problem = compare(found, wanted, exact) or compare(recorded.reset(), updated, exact)
    return f"{problem} ({_CASTS})" if problem and recorded.autocasts else problem


def _find_reached(loss: Any, weights: dict[int, int]) -> tuple[int, ...]:
    """The weights at the ends of the graph, in the order in which autograd gives
    them their gradients: of nodes that are ready the one that was made last runs
    first, and what accumulates at once (torch/csrc/autograd/engine.cpp)."""
    root = getattr(loss, "grad_fn", None)
    if root is None:
        return ()
    waiting: dict[Any, int] = {root: 0}
    stack = [root]
    while stack:
        for edge, _ in stack.pop().next_functions:
            if edge is None:
                continue
            if edge not in waiting:
                waiting[edge] = 0
                stack.append(edge)
            waiting[edge] += 1
    found: dict[int, None] = {}
    count = itertools.count()
    ready: list[tuple[int, int, Any]] = [(0, 0, root)]
    while ready:
        node = heapq.heappop(ready)[2]
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) in weights:
            found[weights[id(variable)]] = None
        for edge, _ in node.next_functions:
            if edge is None:
                continue
            waiting[edge] -= 1
            if not waiting[edge]:
                is_end = hasattr(edge, "variable")
                first = -(1 << 63) if is_end else -edge._sequence_nr()
                heapq.heappush(ready, (first, next(count), edge))
    return tuple(found)


def _is_channels_last(meta: Meta) -> bool:
    if len(meta.shape) != 4:
        return False
    fake = torch.empty(0, device="meta").as_strided(meta.shape, meta.stride)
    return bool(fake.is_contiguous(memory_format=torch.channels_last) and not fake.is_contiguous())


def _find_order(meta: Meta) -> tuple[int, ...] | None:
    """The dims from the outermost in memory on; None of a tensor that is
    contiguous, channels-last, or not dense."""
    if len(meta.shape) < 2 or 0 in meta.shape or _is_channels_last(meta):
        return None
    order = tuple(sorted(range(len(meta.shape)), key=lambda dim: -meta.stride[dim]))
    extent = 1
    for dim in reversed(order):
        if meta.shape[dim] > 1 and meta.stride[dim] != extent:
            return None
        extent *= meta.shape[dim]
    return None if order == tuple(range(len(order))) else order


def spec_of(meta: Meta, dim: int | None = None, order: tuple[int, ...] | None = None) -> str:
    """The spec of a tensor with ``dim`` as the batch, its dims in an ``order``."""
    extents = [str(extent) for extent in meta.shape]
    if dim is not None:
        extents[dim] = "B"
    if order is not None:
        extents = [extents[place] for place in order]
    layout = "@channels_last" if _is_channels_last(meta) else ""
    return f"{str(meta.dtype).removeprefix('torch.')}[{','.join(extents)}]{layout}"


def _failed_position(error: Exception, program: Program) -> int | None:
    """The call whose replay raised."""
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == _FILE:
            line = frame.tb_lineno
            return line - 1 if line <= len(program.nodes) else None
        frame = frame.tb_next
    return None
