"""From a recorded program to TorchScript, whose parameters are the user's own."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from koila._compare import compare
from koila._errors import CompileError, Location
from koila._program import Frame, Meta, Node, Program, Value, is_direct
from koila._state import seed

__all__ = ["Traced", "explain", "location_of", "trace"]

_FILE = "koila-recording"
_PACKAGE = os.path.dirname(__file__) + os.sep


@dataclass(frozen=True)
class Traced:
    """A recorded program as TorchScript.

    ``dims`` has for each leaf that is an argument the dim with the batch, or
    None; ``parameters`` are the leaves that are weights. ``reached`` are the
    weights that the result depends on in a way that has a gradient. ``holders``
    are weights that stand for leaves with a graph or hooks of their own.
    """

    script: torch.jit.ScriptModule
    specs: tuple[str, ...]
    arguments: tuple[int, ...]
    reached: frozenset[int]
    holders: dict[int, nn.Parameter]

    def take(self, program: Program) -> list[Tensor]:
        """The arguments of a program of the same key."""
        for index, holder in self.holders.items():
            holder.data = without_copies(program.leaves[index]).detach()
        found = []
        for index, spec in zip(self.arguments, self.specs, strict=True):
            tensor = program.leaves[index].tensor
            assert tensor is not None
            tensor = tensor.detach()
            if "@" not in spec:
                tensor = tensor.contiguous()
            found.append(tensor)
        return found


def trace(program: Program, batch: int | None) -> Traced:
    """Traces the program on a few samples and compares it on another number.

    Raises CompileError, with the recorded line, where PyTorch cannot trace it
    or where it depends on the number of samples in a way that no trace follows.
    """
    error: Exception | None = None
    # What has as many rows as the batch is tried as part of it. This is never
    # wrong: the program is the one that was recorded whatever is called B,
    # and the compiler proves that tiles of what it calls so do not meet.
    for guess in (2, 1, 0) if batch else (0,):
        dims = [_batch_dim(leaf, batch, guess) for leaf in program.leaves]
        try:
            return _trace(program, dims)
        except Exception as caught:  # torch raises of every type here
            error = error or caught
    assert error is not None
    place, node = None, _failed_node(error, program)
    if node is not None:
        place = location_of(node.frames)
    lines = str(error).strip().splitlines() or [type(error).__name__]
    raise CompileError(
        f"it cannot be traced for another number of samples: {lines[0]}", place
    ) from None


def location_of(frames: tuple[Frame, Frame]) -> Location:
    return Location(*frames[1])


def explain(error: CompileError, program: Program) -> tuple[str, Location | None]:
    """The message of the compiler with the recorded lines, and the user's line."""

    def name(match: re.Match[str]) -> str:
        index = int(match[1]) - 1
        if not 0 <= index < len(program.nodes):
            return match[0]
        inner = program.nodes[index].frames[0]
        return f"{inner.file}:{inner.line}"

    pattern = re.compile(re.escape(_FILE) + r":(\d+)(?::\d+)?")
    notes = [pattern.sub(name, note) for note in error.notes]
    text = "; ".join([pattern.sub(name, error.message), *notes])
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


def _batch_dim(leaf: Value, batch: int | None, guess: int) -> int | None:
    shape = leaf.meta.shape
    if is_weight(leaf) or batch is None:
        return None
    if leaf.origin is not None and leaf.origin.batch is not None:
        return leaf.origin.batch if leaf.origin.size == batch else None
    if guess == 2 and batch in shape:
        return shape.index(batch)
    return 0 if guess == 1 and shape and shape[0] == batch else None


def is_weight(leaf: Value) -> bool:
    """Whether a leaf is a weight to the compiler: one, or what was computed of
    weights outside of the program."""
    return isinstance(leaf.tensor, nn.Parameter) or (
        leaf.origin is None and leaf.meta.requires_grad
    )


def without_copies(leaf: Value) -> Tensor:
    """The tensor, with one row where ``expand`` made the first dim longer.

    The gradient of the whole is given to this row: what made the others out of
    it are views, which add up.
    """
    tensor = leaf.tensor
    assert tensor is not None
    return tensor.select(0, 0).unsqueeze(0) if _is_expanded(leaf) else tensor


def _is_expanded(leaf: Value) -> bool:
    shape, stride = leaf.meta.shape, leaf.meta.stride
    if not shape or shape[0] < 2 or stride[0] != 0:
        return False
    return leaf.tensor is not None and leaf.tensor._is_view()


class _Recorded(nn.Module):
    """The program as a module; ``forward`` takes the leaves that are no weights."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._run: Callable[..., Any] = lambda *arguments: _replay(self, program, arguments)
        self.names: dict[int, str] = {}
        self.holders: dict[int, nn.Parameter] = {}
        # Asked for now: a trace would take the tensors for constants.
        self.expanded: list[int] = []
        # The leaf that has the batch, in which dim, and how many samples.
        self.batch: tuple[int, int, int] | None = None
        for index, leaf in enumerate(program.leaves):
            origin = leaf.origin
            if self.batch is None and origin is not None and origin.batch is not None:
                self.batch = index, origin.batch, origin.size or 0
            if is_weight(leaf):
                weight = leaf.tensor
                if not is_direct(weight):
                    weight = nn.Parameter(without_copies(leaf).detach(), leaf.meta.requires_grad)
                    self.holders[index] = weight
                    if _is_expanded(leaf):
                        self.expanded.append(index)
                self.names[index] = f"weight{len(self.names)}"
                self.register_parameter(self.names[index], weight)

    def forward(self, *arguments: Tensor) -> Any:
        return self._run(*arguments)


def _replay(module: _Recorded, program: Program, arguments: tuple[Tensor, ...]) -> Any:
    rest = iter(arguments)
    leaves = [
        getattr(module, module.names[index]) if index in module.names else next(rest)
        for index in range(len(program.leaves))
    ]
    for index in module.expanded:
        rows = program.leaves[index].meta.shape[0]
        if module.batch is not None:
            place, dim, size = module.batch
            rows = leaves[place].size(dim) if rows == size else rows
        leaves[index] = leaves[index].expand(rows, *program.leaves[index].meta.shape[1:])
    graph = any(node.call.grad for node in program.nodes)

    def invoke(node: Node, position: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with node.call.modes():
            result = _at_line(position + 1)(node.call.function, args, kwargs)
        if graph and not node.call.grad:
            # A trace does not hold in which mode it was made.
            return [tensor.detach() for tensor in node.call.flatten(result)]
        return result

    results = program.replay(leaves, invoke)
    if len(results) == 1:
        only = results[0]
        return only.reshape(()) if only.dim() and only.numel() == 1 else only
    return tuple(results)


def _at_line(line: int) -> Callable[..., Any]:
    """A call that PyTorch takes as one of line ``line`` of the recording."""
    return FunctionType(_caller.__code__.replace(co_firstlineno=line, co_filename=_FILE), {})


_caller = lambda function, args, kwargs: function(*args, **kwargs)  # noqa: E731


def _samples(program: Program, dims: list[int | None], count: int) -> list[Tensor]:
    arguments = []
    for leaf, dim in zip(program.leaves, dims, strict=True):
        tensor = leaf.tensor
        assert tensor is not None
        if is_weight(leaf):
            continue
        tensor = tensor.detach()
        if dim is not None:
            rows = torch.arange(count, device=tensor.device) % tensor.shape[dim]
            dense = tensor.index_select(dim, rows)
            if _is_channels_last(leaf.meta):
                dense = dense.contiguous(memory_format=torch.channels_last)
            tensor = dense
        else:
            tensor = tensor.clone()  # it may be written to
        arguments.append(tensor)
    return arguments


def _trace(program: Program, dims: list[int | None]) -> Traced:
    module = _Recorded(program)
    if any(
        isinstance(entry, Value) and isinstance(entry.tensor, nn.Parameter)
        for node in program.nodes
        for index, entry in enumerate(node.inputs)
        if index in node.call.writes
    ):
        raise CompileError("it writes to a weight")
    devices = {leaf.meta.device for leaf in program.leaves if leaf.meta.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices, key=str)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.enable_grad():
            script = torch.jit.trace(  # type: ignore[no-untyped-call]
                module, tuple(_samples(program, dims, 3)), check_trace=False
            )
        weights = {index: getattr(module, name) for index, name in module.names.items()}
        # Not the number that was traced, so that one that is baked in shows.
        for count in (2, 3) if any(dim is not None for dim in dims) else (3,):
            seed(devices)
            with torch.enable_grad():
                wanted = module(*_samples(program, dims, count))
            seed(devices)
            with torch.no_grad():
                found = script(*_samples(program, dims, count))
            if problem := compare(found, wanted):
                raise CompileError(f"a trace of it is wrong for {count} samples: {problem}")
        reached = _find_reached(wanted, weights)
    specs, arguments = [], []
    for index, (leaf, dim) in enumerate(zip(program.leaves, dims, strict=True)):
        if index not in module.names:
            specs.append(_spec(leaf.meta, dim))
            arguments.append(index)
    return Traced(script, tuple(specs), tuple(arguments), reached, module.holders)


def _find_reached(result: Any, weights: dict[int, Any]) -> frozenset[int]:
    if not isinstance(result, Tensor) or not result.requires_grad or result.numel() != 1:
        return frozenset()
    trained = [index for index, weight in weights.items() if weight.requires_grad]
    if not trained:
        return frozenset()
    gradients = torch.autograd.grad(
        result.sum(), [weights[index] for index in trained], allow_unused=True
    )
    return frozenset(
        index for index, gradient in zip(trained, gradients, strict=True) if gradient is not None
    )


def _is_channels_last(meta: Meta) -> bool:
    if len(meta.shape) != 4:
        return False
    fake = torch.empty(0, device="meta").as_strided(meta.shape, meta.stride)
    return bool(fake.is_contiguous(memory_format=torch.channels_last) and not fake.is_contiguous())


def _spec(meta: Meta, dim: int | None) -> str:
    extents = [str(extent) for extent in meta.shape]
    if dim is not None:
        extents[dim] = "B"
    layout = "@channels_last" if _is_channels_last(meta) else ""
    return f"{str(meta.dtype).removeprefix('torch.')}[{','.join(extents)}]{layout}"


def _failed_node(error: Exception, program: Program) -> Node | None:
    """The node whose replay raised."""
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == _FILE:
            line = frame.tb_lineno
            return program.nodes[line - 1] if line <= len(program.nodes) else None
        frame = frame.tb_next
    return None
