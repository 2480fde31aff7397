"""Records calls: arguments are taken apart, and what is returned is known
without running anything."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from koila._capture.batch_int import BatchInt
from koila._capture.dispatch_cache import find_call, meta_of, takes_float
from koila._capture.frames import find_frames, location_of
from koila._capture.graphs import Graph
from koila._capture.host import find_tile_device, is_on_host, keep
from koila._capture.memory import Aliases
from koila._capture.thread_recordings import recording
from koila._capture.values import (
    Call,
    Group,
    Meta,
    Node,
    Origin,
    Slot,
    Value,
    append_weakly,
    checksum_of_tensor,
    detaching,
    hash_of,
    is_float,
    is_open,
    rebuild,
)
from koila._errors import KoilaError

__all__ = [
    "RecordedTensor",
    "Unrecorded",
    "append_made",
    "assign",
    "become_lazy",
    "current",
    "find_source",
    "find_values",
    "holders_of",
    "is_lent",
    "known",
    "leaf_of",
    "make_leaf",
    "make_watched_leaf",
    "record",
    "rewrap",
    "wrap",
    "wrap_results",
]


class RecordedTensor(Tensor):
    """A tensor whose value is one of a recorded program; ``LazyTensor`` is its
    face to the user."""

    _value: Value


class Unrecorded(NamedTuple):
    """Why a call was not recorded: nothing is known of what it returns (``call``
    is None), it draws random numbers, or others see what it writes."""

    call: Call | None
    inputs: list[Any]


_face: type[RecordedTensor] = RecordedTensor


def set_face(face: type[RecordedTensor]) -> None:
    """From now on recorded values come as tensors of this class."""
    global _face
    _face = face


def wrap(value: Value) -> Any:
    meta = value.meta
    # The wrapper requires no gradient itself: what passed koila by would
    # otherwise differentiate the wrapper, silently.
    made: RecordedTensor = Tensor._make_wrapper_subclass(
        _face, meta.shape, strides=meta.stride, dtype=meta.dtype, device=meta.device
    )
    assign(made, value)
    return made


def become_lazy(tensor: Tensor) -> RecordedTensor:
    """The same object, with a value to come."""
    tensor.__class__ = _face
    return tensor  # type: ignore[return-value]


def assign(tensor: RecordedTensor, value: Value) -> None:
    """From now on the tensor has this value."""
    tensor._value = value
    append_weakly(value.holders, tensor)
    recording.hold(tensor)


def make_leaf(tensor: Tensor, like: Value | None = None) -> Value:
    leaf = Value(meta_of(tensor), Group(external=True))
    if like is not None:
        leaf.origin, leaf.source, leaf.graphs = like.origin, like.source, like.graphs
        leaf.is_renamed = like.is_renamed
    leaf.tensor = tensor
    if like is not None and is_on_host(like, like.tensor):
        keep(leaf, find_tile_device(like))
    if tensor.is_inference():
        leaf.hash = _hash_if_any(tensor)
    else:
        leaf.version = tensor._version
    if _is_borrowed(tensor):
        leaf.checksum = checksum_of_tensor(tensor)
    return leaf


def _hash_if_any(tensor: Tensor) -> Tensor | None:
    """Of a tensor that counts no writes at all."""
    is_there = tensor.layout is torch.strided and tensor.device.type != "meta"
    return hash_of(tensor) if is_there else None


def _is_borrowed(tensor: Tensor) -> bool:
    """Whether the memory is not PyTorch's, as a NumPy array's: writes to it have no
    version. (Nor has that of weights in a file, which is not to be written to.)"""
    return (
        not tensor.requires_grad
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.untyped_storage().resizable()
    )


def leaf_of(tensor: Tensor) -> Value:
    """The value of a plain tensor, anew if it was written to in between."""
    leaf = recording.leaves.get(id(tensor))
    if (
        leaf is None
        or leaf.tensor is not tensor
        or _has_changed(leaf, tensor)
        or leaf.meta.shape != tensor.shape
    ):
        leaf = recording.leaves[id(tensor)] = make_watched_leaf(tensor)
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):
                leaf.alias = tensor.detach()
        else:
            leaf.alias = tensor.detach()
    elif recording.exposed.has(tensor):
        leaf.watch()
    return leaf


def make_watched_leaf(tensor: Tensor, like: Value | None = None) -> Value:
    """A leaf that is found by its memory, to which others may write."""
    leaf = make_leaf(tensor, like)
    recording.watched.add(tensor, leaf)
    if recording.exposed.has(tensor):
        leaf.watch()
    return leaf


def _has_changed(value: Value, tensor: Tensor, by_bits: bool = True) -> bool:
    """Whether a tensor is another one than when it was recorded."""
    version = None if tensor.is_inference() else tensor._version
    return (
        value.version != version
        or value.meta.requires_grad != tensor.requires_grad
        or value.is_replaced()
        or (by_bits and not value.is_as_hashed())
    )


def current(tensor: RecordedTensor, by_bits: bool = True) -> Value:
    """The value of a lazy tensor, anew if the tensor below was written to; without
    ``by_bits``, which reads all of it, only if that has a version."""
    value = tensor._value
    plain = value.tensor
    if plain is not None and not value.freed and value.is_watched():
        if _has_changed(value, plain, by_bits):
            if value.origin is not None and is_on_host(value, plain):
                raise KoilaError(
                    "a batch that waits on the host was written to since koila.lazy(device=), "
                    "where the script would have a copy on the device",
                    location_of(find_frames()),
                    ("write before that line, or give it a copy, as of .clone()",),
                )
            assign(tensor, make_watched_leaf(plain, value))
        elif by_bits and value.origin is not None and recording.exposed.has(plain):
            value.watch()
    return tensor._value


def known(value: Value) -> Tensor | None:
    """The value without its graph, if it was computed."""
    if not is_open(value):
        assert value.tensor is not None
        return value.tensor
    return value.seen


def _as_number(value: Value) -> Value:
    """A leaf with what was seen of a value, for calls that need no graph of it."""
    seen = value.seen
    assert seen is not None
    if is_on_host(value, seen):
        leaf = make_watched_leaf(seen)
        keep(leaf, find_tile_device(value))
    else:
        leaf = leaf_of(seen)
    leaf.source = value.source
    return leaf


class _Arguments:
    """Arguments taken apart into constants and inputs."""

    __slots__ = ("hashable", "inputs", "metas", "numbers", "used")

    def __init__(self, numbers: bool) -> None:
        self.inputs: list[Any] = []
        self.metas: list[Meta | None] = []
        self.hashable = True
        self.numbers, self.used = numbers, False

    def take(self, item: Any) -> Any:
        """The key of an argument."""
        kind = type(item)
        if kind is _face:
            value = current(item)
            is_seen = value.node is not None and value.seen is not None
            if self.numbers and is_seen and not value.lent:
                value, self.used = _as_number(value), True
            self.inputs.append(value)
            self.metas.append(value.meta)
            return Tensor
        if kind is int or kind is str or kind is bool or item is None:
            return kind, item
        if is_float(item) or kind is BatchInt:
            self.inputs.append(item)
            self.metas.append(None)
            # Shapes depend on sizes, and on no float that is not told apart.
            return (kind, int(item)) if kind is BatchInt else kind
        if kind is tuple or kind is list or kind is torch.Size:
            return kind, tuple([self.take(part) for part in item])
        if isinstance(item, torch.Generator):
            raise _Unrecordable  # it must be drawn from once, and in order
        if isinstance(item, Tensor):
            if item.layout != torch.strided or isinstance(item, torch._subclasses.FakeTensor):
                raise _Unrecordable
            value = leaf_of(item)
            self.inputs.append(value)
            self.metas.append(value.meta)
            return Tensor
        if kind is dict:
            return kind, tuple([(name, self.take(part)) for name, part in item.items()])
        if kind is slice:
            return kind, self.take(item.start), self.take(item.stop), self.take(item.step)
        if isinstance(item, (list, tuple)):
            return kind, tuple([self.take(part) for part in item])
        try:
            hash(item)
        except TypeError:
            self.hashable = False
            return None
        return kind, item


class _Unrecordable(Exception):
    pass


def _template(item: Any, count: list[int]) -> Any:
    """The arguments with a Slot for each input, in the order of ``take``."""
    kind = type(item)
    if is_float(item) or kind is BatchInt or isinstance(item, Tensor):
        count[0] += 1
        return Slot(count[0] - 1)
    if isinstance(item, (list, tuple)):
        return rebuild(item, [_template(part, count) for part in item])
    if kind is dict:
        return {name: _template(part, count) for name, part in item.items()}
    if kind is slice:
        return slice(
            _template(item.start, count), _template(item.stop, count), _template(item.step, count)
        )
    return item


def _find(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], numbers: bool
) -> tuple[Call | None, list[Any], bool]:
    """What is known of a call, its inputs, and whether some of them are ``numbers``
    in the place of values that have a graph."""
    flat = _Arguments(numbers)
    key = flat.take(args), flat.take(kwargs)
    count = [0]
    call = find_call(
        func,
        lambda: (_template(args, count), _template(kwargs, count)),
        key,
        flat.inputs,
        flat.metas,
        flat.hashable,
    )
    return call, flat.inputs, flat.used


def record(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call returns, recorded; or Unrecorded. Raises what PyTorch raises
    of arguments of these shapes and types."""
    numbers = not torch.is_grad_enabled()
    if len(args) == 2 and _is_int(args[1]) and type(args[0]) is _face and not kwargs:
        tensor, number = args[0], int(args[1])
        if takes_float(func, tensor._value.meta, number):
            args = tensor, float(number)
    try:
        call, inputs, used = _find(func, args, kwargs, numbers)
        if used and call is not None and (call.writes or any(s is not None for s in call.shares)):
            # A number that was seen is not the memory that others look at.
            call, inputs, _ = _find(func, args, kwargs, False)
    except _Unrecordable:
        return Unrecorded(None, [])
    if call is None or call.random or (numbers and _is_left_of_a_graph(call, inputs)):
        return Unrecorded(call, inputs)
    if not call.metas and not call.writes:
        # What is no number may be of the tensor without data that was tried,
        # and what returns nothing has done something to it.
        return call.result if _is_number(call.result) else Unrecorded(None, inputs)
    if call.metas and all(map(_is_scalar, inputs)) and not any(meta.shape for meta in call.metas):
        # A total over many steps is no program of as many calls.
        entries = [
            entry.tensor
            if type(entry) is Value
            else int(entry)
            if type(entry) is BatchInt
            else entry
            for entry in inputs
        ]
        made = rewrap(call.perform(*call.fill(entries)), find_source(inputs))
        if any(meta.requires_grad for meta in call.metas):
            _free_graphs(made)
        return made
    is_same = call.same == (0,) and type(call.result) is Slot and not call.writes
    if is_same and args and type(args[0]) is _face:
        return args[0]  # as contiguous() returns what is contiguous
    external = [inputs[index] for index in call.writes if inputs[index].group.external]
    if external and not _may_defer(call, external):
        return Unrecorded(call, inputs)
    if recording.lent and any(is_lent(inputs[index]) for index in call.writes):
        return Unrecorded(call, inputs)
    if call.writes:
        for write in (_write_anew, _write_past_graph):
            replaced = write(func, args, kwargs, call, inputs)
            if replaced is not None:
                return replaced
        groups = [inputs[index].group for index in call.writes]
        if any(group.is_there and not group.external for group in groups):
            return Unrecorded(call, inputs)
    return _append(call, inputs)


def _is_left_of_a_graph(call: Call, inputs: list[Any]) -> bool:
    """Whether it makes a view of a view whose base was detached in place: without a graph
    PyTorch asks the base whether that requires a gradient."""
    viewed = (inputs[place].tensor for place in call.shares if place is not None)
    return any(
        tensor is not None
        and tensor.requires_grad
        and tensor._base is not None
        and not tensor._base.requires_grad
        for tensor in viewed
    )


def _is_int(item: Any) -> bool:
    return type(item) is int or isinstance(item, numpy.integer)


def is_lent(value: Value) -> bool:
    """Whether the program has a NumPy array of this memory, in which it looks for
    what is written."""
    memory = Aliases().of(value)
    return isinstance(memory, tuple) and any(lent.is_of(memory[0]) for lent in recording.lent)


def _append(call: Call, inputs: list[Any]) -> Any:
    node = Node(call, tuple(inputs), find_frames())
    deps: list[Node] = []
    for index, entry in enumerate(inputs):
        if type(entry) is not Value:
            continue
        group = entry.group
        if (write := group.open_write()) is not None:
            deps.append(write)
        if index in call.writes:
            deps += group.open_readers()
            group.readers.clear()
        else:
            append_weakly(group.readers, node)
    if deps:
        node.deps = tuple(dep for dep in deps if dep is not node)
    source = find_source(inputs)
    written = {
        group: group if group.external else Group(False, node)
        for group in (inputs[index].group for index in call.writes)
    }
    values = []
    for index, meta in enumerate(call.metas):
        shared = call.shares[index]
        group = Group(False) if shared is None else inputs[shared].group
        value = Value(meta, written.get(group, group), node, index)
        value.source = source
        value.graph_name = call.graph_names[index]
        if shared is not None and call.function not in detaching:
            value.become_view(inputs[shared])
        values.append(value)
    for index in call.tracks:
        inputs[index].track()
    node.outputs = [weakref.ref(value) for value in values]
    if node.writes_outside:
        recording.pending.append(node)
        for index in call.writes:
            _show_pending(inputs[index])
    made = [wrap(value) for value in values]
    if any(shared is not None for shared in call.shares) and not call.writes:
        _show_views(call, inputs, values)
    for index, same in enumerate(call.same):
        if same in call.writes:
            _rebind(inputs[same], values[index], made, index)
    for group, new in written.items():
        if group is new:
            group.last_write = node
        else:
            group.is_past = True
            _renew_held(group, new)
    return wrap_results(call.result, made)


def _show_views(call: Call, inputs: list[Any], values: list[Value]) -> None:
    """Views of what was seen are seen, too."""
    places = set(call.shares)
    place = places.pop()
    if places or place is None or type(call.function) is FunctionType:
        return
    base = inputs[place].seen
    if base is None or any(type(entry) is Value for i, entry in enumerate(inputs) if i != place):
        return
    entries = [int(entry) if type(entry) is BatchInt else entry for entry in inputs]
    entries[place] = base
    args, kwargs = call.fill(entries)
    with torch.no_grad():
        tensors = call.flatten(call.function(*args, **kwargs))
    for value, tensor in zip(values, tensors, strict=True):
        value.show(tensor)


def append_made(call: Call, inputs: list[Any]) -> Any:
    """Records a call that is known without trying it."""
    return _append(call, inputs)


def _show_pending(value: Value) -> None:
    """A tensor of the user that a recorded call is to update becomes a lazy one until
    then: whoever looks at it makes the call run."""
    tensor = value.tensor
    if type(tensor) is Tensor and value.alias is not None and tensor is not value.alias:
        value.tensor = value.alias
        assign(become_lazy(tensor), value)
        recording.updated.append(weakref.ref(tensor))


def _may_defer(call: Call, written: list[Value]) -> bool:
    """Whether a write to tensors of the user may wait: running statistics of
    layers in training, whose results do not depend on them. Whoever looks at them has to be
    noticed (``_show_pending``), as it is not of parameters and other subclasses."""
    name = getattr(call.function, "__name__", "")
    is_seen = all(type(value.tensor) is Tensor for value in written)
    return is_seen and name in ("batch_norm", "instance_norm")


def _write_anew(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call, inputs: list[Any]
) -> Any:
    """Of a tensor that is there, as a total over batches, what is written in
    place is a new value under its name: so what is added to it can be computed
    again, and in tiles."""
    target = args[0] if args else None
    if type(target) is not _face or call.writes != {0} or call.same != (0,):
        return None
    old = target._value
    if old is not inputs[0] or old.node is not None or is_open(old) or _is_seen_by_others(old):
        return None
    if old.meta.requires_grad and not torch.is_grad_enabled():
        return None  # it keeps its graph
    made = _record_plainly(func, args, kwargs)
    if made is None:
        return None
    assign(target, made._value)
    return target


def _record_plainly(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call that writes to its first argument would return if it did not write; None
    where there is no such call, or the result would be another tensor."""
    name = getattr(func, "__name__", "")
    if name.startswith("__i") and name.endswith("__"):
        plain = getattr(Tensor, f"__{name[3:]}", None)
    elif name.endswith("_") and not name.endswith("__"):
        plain = getattr(Tensor, name[:-1], None)
    else:
        plain = None
    if plain is None:
        return None
    made = record(plain, args, kwargs)
    if type(made) is not _face:
        return None
    old, new = args[0]._value.meta, made._value.meta
    return made if (new.shape, new.dtype) == (old.shape, old.dtype) else None


def _write_past_graph(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call, inputs: list[Any]
) -> Any:
    """Of a copy that a function of PyTorch has made for itself, as gaussian_nll_loss clamps it:
    the elements are others, and the gradient goes on as if they were not. A new value under
    its name has those elements, and is zero beside them times the old one. What programs write
    so may be infinite, or read, hooked and differentiated before: that is a write."""
    target = args[0] if args else None
    if (
        not recording.writes_copies
        or torch.is_grad_enabled()
        or type(target) is not _face
        or call.writes != {0}
        or target._value is not inputs[0]
        or not inputs[0].meta.requires_grad
    ):
        return None
    elements = _record_plainly(func, args, kwargs)
    if elements is None:
        return None
    with torch.enable_grad():
        nothing = record(Tensor.sub, (target, record(Tensor.detach, (target,), {})), {})
        # Of what is infinite, too.
        nothing = record(torch.nan_to_num, (nothing,), {})
        made = record(Tensor.add, (elements, nothing), {})
    assign(target, made._value)
    return target


def _is_seen_by_others(value: Value) -> bool:
    """Whether the program has other tensors of its memory, which see what is written."""
    views = (reference() for reference in value.views or ())
    return any(
        other is not None and other is not value and other.is_held()
        for other in (*value.group.list_members(), *views)
    )


def _is_scalar(entry: Any) -> bool:
    """Whether it is a number, or a tensor of one that is there."""
    if type(entry) is not Value:
        return True
    has_graph = entry.meta.requires_grad and not entry.freed
    return not (entry.meta.shape or has_graph or is_open(entry))


def _free_graphs(made: Any) -> None:
    """Of what was made of numbers whose graph is gone the graph is gone, too."""
    found: list[Value] = []
    find_values(made, found)
    for value in found:
        value.meta = value.meta._replace(requires_grad=True)
        value.freed = True


_NUMBERS = (int, float, complex, str, torch.dtype, torch.device, torch.memory_format)


def _is_number(result: Any) -> bool:
    if isinstance(result, (list, tuple)):
        return all(map(_is_number, result))
    return isinstance(result, _NUMBERS)


def find_source(inputs: list[Any]) -> Origin | None:
    for entry in inputs:
        if type(entry) is Value and entry.source is not None:
            return entry.source
    return None


def _rebind(old: Value, new: Value, made: list[Any], index: int) -> None:
    """Tensors that were written to in place have the new value, and the gradient that
    they have kept."""
    new.retained, new.is_renamed = old.retained, old.is_renamed
    for tensor in holders_of(old):
        assign(tensor, new)
        made[index] = tensor


def _renew_held(group: Group, new: Group) -> None:
    """Whoever holds memory that was written to holds another value from now on.
    What was there before is read by calls that were recorded before; they need
    not lead to the write, which leads back to them: that would be a cycle."""
    for reference in group.members:
        value = reference()
        if value is None or value.group is not group:
            continue
        if holders := holders_of(value):
            renewed = value.renew(new)
            for tensor in holders:
                assign(tensor, renewed)


def holders_of(value: Value) -> list[RecordedTensor]:
    """The tensors by which the program has it."""
    found = [reference() for reference in value.holders]
    return [tensor for tensor in found if tensor is not None and tensor._value is value]


def wrap_results(result: Any, made: list[Any]) -> Any:
    if type(result) is Slot:
        return made[result]
    if isinstance(result, (list, tuple)):
        return rebuild(result, [wrap_results(item, made) for item in result])
    if isinstance(result, dict):
        return {name: wrap_results(item, made) for name, item in result.items()}
    return result


def find_values(item: Any, found: list[Value]) -> None:
    if isinstance(item, RecordedTensor):
        found.append(current(item))
    elif isinstance(item, (list, tuple)):
        for part in item:
            find_values(part, found)
    elif isinstance(item, dict):
        for part in item.values():
            find_values(part, found)
    elif isinstance(item, slice):
        find_values((item.start, item.stop, item.step), found)


def rewrap(
    item: Any,
    source: Origin | None,
    graphs: frozenset[Graph] = frozenset(),
    device: torch.device | None = None,
) -> Any:
    """Tensors that were computed outside of a program, as lazy ones; those on the host are
    of a batch that goes to ``device``."""
    if isinstance(item, Tensor) and item.layout == torch.strided:
        leaf = make_watched_leaf(item)
        leaf.source = source
        keep(leaf, device)
        if item.requires_grad:
            leaf.graphs = graphs
            for graph in graphs:
                graph.end_in(item)
        return wrap(leaf)
    if type(item) in (list, tuple) or hasattr(item, "_fields"):
        return rebuild(item, [rewrap(part, source, graphs, device) for part in item])
    return item
