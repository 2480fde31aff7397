"""Runs recorded programs: whole where memory is enough, else in tiles.

Whatever the program still holds of what was recorded is computed in the same
pass and kept, as plain PyTorch keeps it: then nothing has to run again.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from koila._capture.closure import closure
from koila._capture.copies import copies_of
from koila._capture.frames import Frames, find_frames, location_of
from koila._capture.host import take_down
from koila._capture.memory import Aliases, is_view, written_by
from koila._capture.program import Program
from koila._capture.recorder import is_lent, known, wrap
from koila._capture.rewind import Rewind
from koila._capture.statistics import list_readers, settle_updates
from koila._capture.thread_recordings import recording
from koila._capture.values import Call, Group, Meta, Node, Value, is_open
from koila._compiler import Compiled
from koila._errors import BudgetError, CompileError, KoilaError
from koila._execute.batch_parts import find_parts, take_parts
from koila._execute.cuts import find_cut, make_gradients, weigh
from koila._execute.errors import as_eager
from koila._execute.numpy_memory import check_lent, is_lent_whole
from koila._execute.smaller_tiles import begin, in_smaller_tiles, in_tiles, spoil
from koila._execute.views import find_shared, has_base_in, settle_views
from koila._interrupt import held_back
from koila._out_of_memory import ran_out
from koila._plan.planner import Run, start

__all__ = [
    "by_step",
    "check_split",
    "expose_memory",
    "held_with",
    "is_as_recorded",
    "lay_out",
    "list_unseen",
    "materialize",
    "ordinary",
    "outside",
    "prepare",
    "read",
    "read_each",
    "read_first_part",
    "run_for_good",
    "run_nodes",
    "settle_lent",
    "settle_results",
    "verify",
]

# So often a program is cut, for one read.
_MOST_CUTS = 6
# So many reads before a step are remembered.
_MOST_READS = 64

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextlib.contextmanager
def ordinary() -> Iterator[None]:
    """Without the inference mode of whoever asks, whose results would be no
    tensors for later runs."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


# What torch.tensor([loss, ...]) leaves out while it asks for the number.
_DISPATCH = (
    "AutogradFunctionality",
    "AutogradOther",
    "ADInplaceOrView",
    "Python",
    "PythonTLSSnapshot",
    "Tracer",
)


@contextlib.contextmanager
def _dispatching() -> Iterator[None]:
    """With autograd, where the caller is a part of PyTorch below it."""
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    if not excluded(_DISPATCH[0]):
        yield
        return
    put = torch._C._dispatch_tls_set_dispatch_key_excluded
    keys: list[Any] = [key for key in _DISPATCH if excluded(key)]
    for key in keys:
        put(key, False)
    try:
        yield
    finally:
        for key in keys:
            put(key, True)


def outside(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Runs without the modes of whoever asks for a value: each call has those
    that it was recorded in."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
        was_busy, recording.busy = recording.busy, True
        try:
            with held_back(), contextlib.ExitStack() as stack:
                stack.enter_context(_dispatching())
                if torch.is_inference_mode_enabled():
                    stack.enter_context(torch.inference_mode(False))
                if not torch.is_grad_enabled():
                    stack.enter_context(torch.enable_grad())
                for device in devices:
                    stack.enter_context(torch.autocast(device, enabled=False))
                return function(*args, **kwargs)
        finally:
            recording.busy = was_busy

    return call


# Programs.


def prepare(values: list[Value], *, graph: bool = True) -> Program:
    """The program of the values, after what was recorded before it and writes
    to tensors that others see."""
    last_seq = max((value.node.seq for value in values if value.node is not None), default=-1)
    earlier = [node for node in recording.list_pending() if node.seq < last_seq]
    nodes = closure(values, earlier, graph=graph)
    while parts := find_parts(nodes):
        verify(parts)
        take_parts(parts)
        nodes = closure(values, earlier, graph=graph)
    verify(nodes)
    return Program(nodes, values if graph else [*values, *_find_unread(nodes, values)], graph)


def _find_unread(nodes: list[Node], values: list[Value]) -> list[Value]:
    """The results of calls that update statistics, where nothing reads them: PyTorch's
    executor would leave such a call out."""
    updating = [node for node in nodes if node.writes_outside]
    if not updating:
        return []
    reads = itertools.chain(values, *(node.inputs for node in nodes))
    read_nodes = {entry.node for entry in reads if isinstance(entry, Value)}
    unread = [node for node in updating if node not in read_nodes]
    return [Value(node.call.metas[0], Group(False), node) for node in unread]


def list_unseen() -> list[Value]:
    """What the program holds and does not know yet."""
    return [value for value in recording.list_held() if value.seen is None and not value.failed]


def held_with(values: list[Value]) -> list[Value]:
    """What else the program holds and does not know yet; without views of what
    is computed, which are made of it then."""
    held = [value for value in list_unseen() if value not in values]
    computed = {*values, *held}
    return [value for value in held if not has_base_in(value, computed)]


def verify(nodes: list[Node]) -> None:
    """Raises if a tensor is not any more what it was when it was recorded. One
    that was frozen since, or no longer is, is as it was."""
    check_lent(nodes)
    for node in nodes:
        if node.is_stale:
            raise KoilaError(
                f"running statistics that '{_name(node.call)}' reads were updated after this was "
                "recorded and before it was computed",
                location_of(node.frames),
                ("read the value, or call koila.run() on it, before the update",),
            )
    changed: dict[Value, Value] = {}
    hashed: set[Value] = set()
    for node in nodes:
        for index, entry in enumerate(node.inputs):
            if (
                not isinstance(entry, Value)
                or entry.tensor is None
                or not entry.is_watched()
                or entry.freed
                or index in node.call.writes
            ):
                continue
            counted = entry.version is None or entry.tensor._version == entry.version
            same = counted and not entry.is_replaced()
            has_bits = entry.hash is not None or entry.checksum is not None
            if same and has_bits and entry not in hashed:
                hashed.add(entry)
                same = entry.is_as_hashed()
            if not same:
                raise _written_since(node, entry)
            if entry.tensor.requires_grad != entry.meta.requires_grad:
                changed[entry] = _as_recorded(entry)
    if changed:
        for node in nodes:
            node.inputs = tuple(
                changed.get(entry, entry) if isinstance(entry, Value) else entry
                for entry in node.inputs
            )


def _written_since(node: Node, entry: Value) -> KoilaError:
    """The error of a call of which an input is another one by now."""
    return KoilaError(
        f"a tensor of shape {entry.meta.shape} that '{_name(node.call)}' reads was "
        "written to after this was recorded and before it was computed",
        location_of(node.frames),
        ("read the value, or call koila.run() on it, before the write",),
    )


def is_as_recorded(value: Value) -> bool:
    """Whether it can be computed again: a step may have changed its weights."""
    try:
        verify(closure([value]))
    except KoilaError:
        return False
    return True


def _as_recorded(leaf: Value) -> Value:
    """A tensor in the place of one whose ``requires_grad`` has changed. It
    takes the gradient that autograd, too, would not give to a frozen weight."""
    assert leaf.tensor is not None
    same = Value(leaf.meta, leaf.group)
    same.tensor = leaf.tensor.detach().requires_grad_(leaf.meta.requires_grad)
    same.version, same.origin, same.source = leaf.version, leaf.origin, leaf.source
    return same


def _name(call: Call) -> str:
    return str(getattr(call.function, "__name__", call.function))


def check_split(run: Run, is_step: bool = False) -> None:
    """Raises CompileError for a program that is not one to compile. The backward pass
    of a training step can run in parts, of one sample, too."""
    if run.batch is None:
        raise CompileError("no tensor of it was given to koila.lazy with its batch")
    if run.batch < (1 if is_step else 2):
        raise CompileError("the batch is one sample" if run.batch else "the batch is empty")
    if run.program.writes(statistics=False):
        raise CompileError("it writes in place to what is there")
    if not run.has_batch():
        if (problem := run.traced().problem) is not None:
            raise copy.copy(problem)
        raise CompileError("what it computes is not made of samples")


# Writes that others see.


@outside
def run_nodes(nodes: Iterable[Node]) -> None:
    """Runs what has to run before something else is written."""
    nodes = [node for node in nodes if not node.done]
    found = closure((), nodes)
    if not found:
        return
    verify(found)
    program = Program(found, [])
    updates = all(node.writes_outside for node in nodes)
    ends = [] if updates else _list_ends(program)
    run = _start_with_graph(program, ends, found[-1].frames)
    if not run.fits():
        if updates and not program.writes(statistics=False):
            _read_alone(_list_updated(found), found[-1].frames)
            return
        run.run_whole("others see what it writes")
    run.note(None)
    run_for_good(program)


def _list_ends(program: Program) -> list[Value]:
    """What the user's program holds of this one, or has recorded calls of, which may be
    differentiated."""
    made, held = set(program.nodes), recording.list_held()
    later = (node for node in closure(held) if node not in made)
    read = (entry for node in later for entry in node.inputs if isinstance(entry, Value))
    return [value for value in dict.fromkeys([*held, *read]) if value.node in made]


def _list_updated(nodes: list[Node]) -> list[Value]:
    """The running statistics that calls are to update."""
    updated = (written_by(node) for node in nodes if node.writes_outside)
    return list(dict.fromkeys(itertools.chain.from_iterable(updated)))


def _graph_mode(program: Program) -> str:
    graph = any(meta.requires_grad for node in program.nodes for meta in node.call.metas)
    return "forward-with-grad" if graph else "inference"


# Values with their graphs.


@outside
def materialize(values: list[Value], frames: Frames, what: str) -> list[Tensor]:
    """The tensors, with the graph that plain PyTorch would have built, for
    ``what`` to do with them what it likes."""
    unknown = [value for value in values if is_open(value)]
    if any(value.meta.requires_grad or _is_written(value) for value in unknown):
        program = prepare(unknown)
        run = _start_with_graph(program, unknown, frames)
        if not run.fits():
            run.run_whole(f"{what} needs it with its graph and its memory")
        run.note(None)
        run_for_good(program)
    elif unseen := [value for value in unknown if value.seen is None]:
        _read(unseen, frames)
    for value in values:
        if value.tensor is not None:
            _expose(value)
    # What shares memory with a graph that is not there yet is a number until then.
    return [known(value) for value in values]  # type: ignore[misc]


def settle_lent(value: Value) -> None:
    """What an array has the memory of is written to: from now on that is the memory
    of the tensor, which has no graph any more where its weights have changed."""
    if not (is_open(value) and is_lent(value)):
        return
    if value.seen is not None and not is_as_recorded(value):
        value.free_graph()
        return
    frames = find_frames()
    if not is_lent_whole(value):
        raise KoilaError(
            "the program has a NumPy array of a part of a tensor that is written to, and the "
            "tensor has to be computed again",
            location_of(frames),
            ("take the array of a copy, as of .clone()",),
        )
    materialize([value], frames, "a write that a NumPy array sees")


def _start_with_graph(program: Program, values: list[Value], frames: Frames) -> Run:
    """A run of values with their graphs. The backward pass that is to follow needs
    more than the graphs, and koila may not be asked then."""
    total: Any = None
    with torch.enable_grad():
        for value in values:
            if value.meta.requires_grad and not value.meta.dtype.is_complex:
                part = wrap(value).sum()
                total = part if total is None else total + part
    if total is not None:
        run = start(prepare([total._value]), "train", frames)
        with contextlib.suppress(CompileError):
            run.report()
            return run
    return start(program, _graph_mode(program), frames)


def _expose(value: Value) -> None:
    """From now on others may write to the tensor."""
    tensor = value.tensor
    assert tensor is not None
    if not value.freed:
        if value.version is None:
            recording.watched.add(tensor, value)
        value.version = None if tensor.is_inference() else tensor._version
    value.group.external = True


def expose_memory(written: Value) -> None:
    """What the program holds of memory that is about to be written to is another tensor
    afterwards, which may have a graph then."""
    for value in written.group.list_members():
        if value.tensor is not None and not is_open(value):
            _expose(value)


# Values without graphs.


@outside
def read(values: list[Value], frames: Frames) -> list[Tensor]:
    """What the values are, without a promise of a graph."""
    unknown = [value for value in values if is_open(value) and value.seen is None]
    if unknown:
        _read(list(dict.fromkeys(unknown)), frames)
    found = [known(value) for value in values]
    assert all(tensor is not None for tensor in found)
    return found  # type: ignore[return-value]


@outside
def read_alone(value: Value, frames: Frames) -> Tensor:
    """What a value is, which the recording itself has to know: what else the
    program holds is computed with it only if it is made of weights, too."""
    if known(value) is None:
        program = prepare([value], graph=False)
        if program.writes() or any(leaf.meta.requires_grad for leaf in program.leaves):
            _read([value], frames)
        else:
            _read_alone([value], frames)
    tensor = known(value)
    assert tensor is not None
    return tensor


def read_first_part(
    run: Run, problem: CompileError, ends: frozenset[Value] = frozenset(), depth: int = 0
) -> list[Any]:
    """Computes what the calls of a program that can be in tiles hand on to the others, where
    it is not in tiles as a whole; what is returned holds it. Empty where no place will do.
    ``ends`` are where the program was cut before, ``depth`` how often."""
    if depth == _MOST_CUTS:
        return []
    start_first = _start_first_step if run.mode == "train" else _start_first_read
    values = find_cut(run, problem, lambda found: start_first(found, run.frames), ends)
    held = [wrap(value) for value in values]
    unknown = [value for value in values if is_open(value) and value.seen is None]
    if unknown:
        # What the program holds of it would be computed again for what follows.
        place = 0 if run.plan.cut is None else run.plan.cut.place
        before = set(run.program.nodes[: place + 1])
        beside = [value for value in held_with(unknown) if value.node in before]
        if not {*unknown, *beside}.issuperset(run.program.roots):
            _read_alone([*unknown, *beside], run.frames, depth + 1)
        elif run.mode != "train":
            return []  # it is all that is asked for
        else:
            _read_alone(unknown, run.frames, depth + 1)
    elif run.mode != "train":
        return []  # nothing is left to be computed before
    return held


def _start_first_read(values: list[Value], frames: Frames) -> Run:
    return start(prepare(values, graph=False), "inference", frames)


def _start_first_step(values: list[Value], frames: Frames) -> Run:
    """A run that is to differentiate values with the gradients that they get."""
    lazy = [wrap(value) for value in values if value.meta.requires_grad]
    with ordinary():
        gradients = make_gradients(lazy)
    return start(prepare([weigh(lazy, gradients)]), "train", frames)


# Who computes values by the training step that they may be part of.
by_step: list[Callable[[list[Value], Frames], bool]] = []


def _compile_forward(run: Run, values: list[Value]) -> Compiled | None:
    """The tiles of a forward pass; None where it fits no budget, and a step has found the
    values in less, which makes again what it needs."""
    check_split(run)
    try:
        return run.compile(or_raise=True)
    except BudgetError:
        if any(read_in(values, run.frames) for read_in in by_step):
            return None
    return run.compile()


def _read(asked: list[Value], frames: Frames) -> None:
    """Computes values, and with them what else the program holds. The recording
    stays where a backward pass may follow."""
    in_smaller_tiles(lambda: _read_with_held(asked, frames))


def _read_with_held(asked: list[Value], frames: Frames) -> None:
    asked = list(dict.fromkeys(map(find_shared, asked)))
    held = [value for value in map(find_shared, held_with(asked)) if value not in asked]
    held = list(dict.fromkeys(held))
    computed = {*asked, *held}
    # A view has the memory of what it was made of.
    values = [value for value in asked if not has_base_in(value, computed)]
    try:
        program = prepare([*values, *held], graph=False)
    except KoilaError:
        # Something else that is held may not be computed any more.
        _read_alone(asked, frames)
        return
    if not program.nodes:
        settle_results([], [])  # all are views of what is there
        return
    if program.writes():
        # What is written must run once, with all that follows from it.
        whole = prepare([*values, *held])
        run = start(whole, _graph_mode(whole), frames)
        outside = whole.writes(statistics=False)
        fits = (outside or run.find_unknown() is None) and run.fits()
        if fits and not outside:
            # A backward pass may follow, and need more.
            fits = _start_with_graph(whole, [*values, *held], frames).fits()
        if fits or outside:
            if not fits:
                run.run_whole("it writes to tensors that are there")
            rewind = begin(run, whole)
            run.note(None)
            run_for_good(whole, rewind)
            return
    run = _start_read(program, [*values, *held], frames)
    program = run.program
    if (problem := run.find_unknown()) is not None:
        if len(program.roots) > len(values):
            # What is held beside it may be the reason.
            _read_alone(asked, frames)
            return
        if first := read_first_part(run, problem):
            _read(asked, frames)
            del first
            return
    graph = any(value.meta.requires_grad for value in program.roots) or any(
        leaf.meta.requires_grad for leaf in program.leaves
    )
    if graph and run.plan.step_peak is not None and _fits_step(run):
        # The step that followed the last time ran whole: its forward pass is
        # not made twice.
        whole = prepare([*values, *held])
        rewind = begin(run, whole)
        run.note(None)
        run_for_good(whole, rewind)
        return
    if graph:
        del recording.reads[:-_MOST_READS]
        made = [weakref.ref(root.node) for root in program.roots if root.node is not None]
        recording.reads.append((run.plan, made))
    if run.fits():
        results, compiled = _evaluate(run), None
    else:
        more = len(program.roots) > len(values)
        try:
            if more:
                check_split(run)
            compiled = run.compile(or_raise=True) if more else _compile_forward(run, values)
            if compiled is None:
                return
        except CompileError as error:
            if more:
                # What is held beside it may be the reason.
                _read_alone(asked, frames)
                return
            if isinstance(error, BudgetError):
                raise
            if first := read_first_part(run, error):
                _read(asked, frames)
                del first
                return
            run.run_whole(error)
            results, compiled = _evaluate(run), None
        else:
            results, compiled = call_forward(run, compiled)
    settle_results(program.roots, results)
    run.note(compiled, is_read=graph)


def _start_read(program: Program, values: list[Value], frames: Frames) -> Run:
    """A run of the program of values without their graphs. It begins with copies of what was
    seen before writes if there is room for them, and else computes it again."""
    run = start(program, "inference", frames)
    if not program.copied or run.find_unknown() is not None or run.fits():
        return run
    if not all(map(is_as_recorded, values)):
        return run
    for node in program.nodes:
        node.forget_written()
    return start(prepare(values, graph=False), "inference", frames)


def _fits_step(run: Run) -> bool:
    peak = run.plan.step_peak
    return peak is not None and peak <= run.budget


@outside
def read_each(values: list[Value], frames: Frames) -> None:
    """Computes values without what else the program holds."""
    unknown = [value for value in values if is_open(value) and value.seen is None]
    if unknown:
        _read_alone(unknown, frames)


def _read_alone(values: list[Value], frames: Frames, depth: int = 0) -> None:
    in_smaller_tiles(lambda: _read_without_held(values, frames, depth))


def _read_without_held(values: list[Value], frames: Frames, depth: int) -> None:
    values = list(dict.fromkeys(map(find_shared, values)))
    program = prepare(values, graph=False)
    if waiting := _list_waiting(program, values):
        _read_alone(waiting, frames, depth + 1)
        program = prepare(values, graph=False)
    run = _start_read(program, values, frames)
    program = run.program
    unknown = run.find_unknown()
    problem = unknown
    compiled: Compiled | None = None
    if unknown is None and not run.fits():
        try:
            compiled = _compile_forward(run, values)
            if compiled is None:
                return
        except BudgetError:
            raise  # strictly, no tile fits
        except CompileError as error:
            problem = copy.copy(error)
    if problem is not None and (first := read_first_part(run, problem, depth=depth)):
        _read_alone(values, frames, depth + 1)
        del first
        return
    if compiled is not None:
        results, compiled = call_forward(run, compiled)
    else:
        if unknown is not None:
            run.fits()  # says that nothing protects it
        elif problem is not None:
            run.run_whole(problem)
        results = _evaluate(run)
    settle_results(program.roots, results)
    run.note(compiled, is_read=True)


def _list_waiting(program: Program, values: list[Value]) -> list[Value]:
    """What else the program holds that is made of running statistics as they are before
    this program updates them."""
    readers = set(list_readers(program.nodes))
    if not readers:
        return []
    return [
        held
        for held in held_with(values)
        if is_as_recorded(held) and not readers.isdisjoint(closure([held], graph=False))
    ]


def _evaluate(run: Run) -> list[Tensor]:
    begin(run)
    program = run.program
    try:
        found = [
            tensor if root.is_leaf() else lay_out(tensor, root.meta)
            for tensor, root in zip(program.evaluate(), program.roots, strict=True)
        ]
    except BaseException as error:
        if not ran_out(error):
            settle_updates(program.nodes)
        raise
    settle_updates(program.nodes)
    spoil()
    return found


def call_forward(run: Run, compiled: Compiled) -> tuple[list[Tensor], Compiled]:
    """The results of a program in tiles, and what it ran as."""

    def attempt(compiled: Compiled) -> list[Tensor]:
        with torch.no_grad():
            result = as_eager(run, lambda: compiled.module.forward(*run.take()))
        results = list(result) if isinstance(result, tuple) else [result]
        return [
            # Statistics that were asked for themselves were lent, and have gone back.
            tensor if root.is_leaf() else lay_out(tensor.reshape(root.meta.shape), root.meta)
            for tensor, root in zip(results, run.program.roots, strict=True)
        ]

    found = in_tiles(run, compiled, attempt)
    run.traced().release()
    return found


def _is_written(value: Value) -> bool:
    """Whether a write to its memory has not run yet, which other tensors see."""
    group = value.group
    if group.open_write() is None:
        return False
    others = (other for other in group.list_members() if other is not value)
    return group.external or any(other.is_held() for other in others)


def settle_results(values: list[Value], results: list[Tensor]) -> None:
    """Keeps what was computed of values without their graphs, and the views of it
    that the program holds."""
    for value, tensor in zip(values, results, strict=True):
        if not value.is_leaf():
            _settle(value, lay_out(take_down(value, tensor), value.meta))
    settle_views(_settle)


def _settle(value: Value, tensor: Tensor) -> None:
    value.copies = value.copies or copies_of(value)
    if value.meta.requires_grad or _is_written(value) or value.group.has_graph():
        value.show(tensor)
        return
    if value.group.open_write() is not None:
        # The write is in what was computed, and nobody else looks at the memory.
        value.part()
    if tensor._is_view() and not (value.is_renamed or is_view(value)):
        tensor = tensor.data  # which can be detached in place
    value.settle(tensor)


def run_for_good(program: Program, rewind: Rewind | None = None) -> None:
    """Runs the calls whole, and what writes to the memory that they make: others would make
    such a write again."""
    later = _find_later_writes(program.nodes)
    if later:
        spoil()
    program.run(rewind)
    settle_views(_settle, anew=True)
    run_nodes(later)


def _find_later_writes(nodes: list[Node]) -> list[Node]:
    """The calls that are left to write to what these make."""
    made = set(nodes)

    def is_left(value: Value) -> bool:
        write = value.group.open_write()
        return value.node not in made or (write is not None and write not in made)

    held = [value for value in recording.list_held() if is_left(value)]
    if not held:
        return []
    aliases = Aliases()
    return [
        node
        for node in closure(held)
        if node not in made
        and not node.writes_outside
        and any(
            isinstance(memory := aliases.of(value), tuple) and memory[0] in made
            for value in written_by(node)
        )
    ]


def lay_out(tensor: Tensor, meta: Meta) -> Tensor:
    """The tensor in memory as PyTorch would have it: tiles are written row by row."""
    pairs = zip(meta.shape, tensor.stride(), meta.stride, strict=True)
    if all(extent < 2 or mine == wanted for extent, mine, wanted in pairs) or 0 in meta.shape:
        return tensor
    if 0 in meta.stride:
        return tensor  # made longer by expand()
    return torch.empty_strided(
        meta.shape, meta.stride, dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)
