"""Tensors that record what is done to them and compute it when asked."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from koila import _inspect, _plan, _run
from koila._batch_int import BatchInt
from koila._calls import find_call, meta_of
from koila._errors import KoilaError
from koila._frames import find_frames
from koila._program import (
    Group,
    Meta,
    Node,
    Origin,
    Slot,
    Value,
    append_weakly,
    rebuild,
)
from koila._trace import location_of

__all__ = [
    "BatchInfo",
    "BatchedPair",
    "Evaluation",
    "LazyTensor",
    "compute",
    "current",
    "find_values",
    "handlers",
    "leaf_of",
    "make_leaf",
    "record",
    "unwrap",
    "wrap",
]


# What is answered in another way than by recording (`_answers.py`).
handlers: dict[Any, Callable[[Any, Any, Any], Any]] = {}


class BatchInfo(NamedTuple):
    """Which dim of a tensor is the batch, and its number of samples."""

    index: int  # type: ignore[assignment]
    value: int


class BatchedPair(NamedTuple):
    """Amounts per sample, and those that do not depend on the batch."""

    batch: int
    no_batch: int


class LazyTensor(Tensor):
    """A tensor that is computed when its value is needed.

    What PyTorch does to it is recorded; ``shape``, ``dtype``, ``device`` and
    ``requires_grad`` answer at once. ``backward()``, ``item()``, ``numpy()``,
    printing, ``bool()``, ``float()`` and ``run()`` compute. ``batch`` is the
    dim with the samples; None: none is named, and the first one is tried.
    """

    _value: Value

    @staticmethod
    def __new__(cls, data: Any, batch: int | None = None, budget: int | str = "auto") -> LazyTensor:
        if isinstance(data, LazyTensor):
            return data
        if isinstance(data, Evaluation):
            return data.tensor
        if not isinstance(data, Tensor):
            raise TypeError(f"a LazyTensor is made of a tensor, not of {type(data).__name__}")
        if data.layout != torch.strided:
            raise KoilaError(f"koila.lazy takes dense tensors, not {data.layout}")
        size = None
        if batch is not None:
            if not -data.dim() <= batch < data.dim():
                raise KoilaError(
                    f"batch={batch} is no dim of a tensor of shape {tuple(data.shape)}"
                )
            batch %= data.dim()
            size = data.shape[batch]
        leaf = make_leaf(data)
        leaf.origin = leaf.source = Origin(batch, size, budget)
        return wrap(leaf)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = handlers.get(func)
        if handler is not None:
            return handler(func, args, kwargs)
        return record(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise KoilaError(
            f"{func} was reached past what koila records",
            location_of(find_frames()),
            ("give it the tensor that run() returns",),
        )

    def run(self, partial: tuple[int, int] | None = None) -> Tensor:
        """The computed tensor, with its graph if it requires a gradient; of a
        batch the samples from ``partial[0]`` to before ``partial[1]``."""
        info = None if partial is None else self.batch()
        tensor = _run.materialize([self._value], find_frames())[0]
        if partial is None or info is None:
            return tensor
        low, high, _ = slice(*partial).indices(info.value)
        return tensor.narrow(info.index, low, max(high - low, 0))

    def torch(self, partial: tuple[int, int] | None = None) -> Tensor:
        """The same as ``run``."""
        return self.run(partial)

    def batch(self) -> BatchInfo | None:
        """The dim with the samples, None if there is none."""
        found = _inspect.find_batch(self._value)
        return BatchInfo(*found) if found else None

    def buffer(self) -> dict[int, Value]:
        """Every tensor of the recorded program that leads here, by its id."""
        return {id(value): value for value in _inspect.list_values(self._value)}

    def buffer_numel(self) -> BatchedPair:
        """Elements of all these tensors."""
        return BatchedPair(*_inspect.count_buffer(self._value, False))

    def buffer_memory(self) -> BatchedPair:
        """Bytes of all these tensors."""
        return BatchedPair(*_inspect.count_buffer(self._value, True))


class Evaluation:
    """A call to record: ``func(*args, **kwargs)``. ``prepass``, which told
    koila 0.1.1 the shape of the result, is not needed and not read."""

    def __init__(self, func: Callable[..., Any], prepass: Any, *args: Any, **kwargs: Any) -> None:
        self.func, self.prepass, self.args, self.kwargs = func, prepass, args, kwargs
        self.tensor: LazyTensor = record(func, args, kwargs)

    def run(self, partial: tuple[int, int] | None = None) -> Tensor:
        """The computed tensor."""
        return self.tensor.run(partial)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def wrap(value: Value) -> LazyTensor:
    meta = value.meta
    # The wrapper requires no gradient itself: what passed koila by would
    # otherwise differentiate the wrapper, silently.
    made: LazyTensor = Tensor._make_wrapper_subclass(
        LazyTensor, meta.shape, strides=meta.stride, dtype=meta.dtype, device=meta.device
    )
    made._value = value
    return made


_leaves: weakref.WeakValueDictionary[int, Value] = weakref.WeakValueDictionary()


def make_leaf(tensor: Tensor, like: Value | None = None) -> Value:
    leaf = Value(meta_of(tensor), Group(external=True))
    if like is not None:
        leaf.origin, leaf.source = like.origin, like.source
    leaf.tensor = tensor
    leaf.version = None if tensor.is_inference() else tensor._version
    return leaf


def leaf_of(tensor: Tensor) -> Value:
    """The value of a plain tensor, anew if it was written to in between."""
    leaf = _leaves.get(id(tensor))
    if (
        leaf is None
        or leaf.tensor is not tensor
        or leaf.version != (None if tensor.is_inference() else tensor._version)
        or leaf.meta.requires_grad != tensor.requires_grad
        or leaf.meta.shape != tensor.shape
        or not leaf.is_as_hashed()
    ):
        leaf = make_leaf(tensor)
        _leaves[id(tensor)] = leaf
    return leaf


def current(tensor: LazyTensor) -> Value:
    """The value of a lazy tensor, anew if the tensor below was written to."""
    value = tensor._value
    if value.version is not None:
        plain = value.tensor
        assert plain is not None
        if plain._version != value.version or plain.requires_grad != value.meta.requires_grad:
            tensor._value = make_leaf(plain, value)
    return tensor._value


class _Flat:
    """Arguments taken apart into constants and inputs."""

    __slots__ = ("hashable", "inputs", "metas")

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.metas: list[Meta | None] = []
        self.hashable = True

    def take(self, item: Any) -> Any:
        """The key of an argument."""
        kind = type(item)
        if kind is LazyTensor:
            value = current(item)
            if value.seen is not None and (value.differentiated or not torch.is_grad_enabled()):
                value = leaf_of(value.seen)
            self.inputs.append(value)
            self.metas.append(value.meta)
            return Tensor
        if kind is int or kind is str or kind is bool or item is None:
            return kind, item
        if kind is float or kind is BatchInt:
            self.inputs.append(item)
            self.metas.append(None)
            # Shapes depend on sizes, and on no float that is not told apart.
            return (kind, int(item)) if kind is BatchInt else float
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
    if kind is float or kind is BatchInt or isinstance(item, Tensor):
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


def record(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Records a call, or makes it at once where it cannot be recorded."""
    flat = _Flat()
    try:
        key = flat.take(args), flat.take(kwargs)
    except _Unrecordable:
        return compute(func, args, kwargs)
    count = [0]
    call = find_call(
        func,
        lambda: (_template(args, count), _template(kwargs, count)),
        key,
        flat.inputs,
        flat.metas,
        flat.hashable,
    )
    if call is None:
        return compute(func, args, kwargs)
    if not call.metas and not call.writes:
        # What is no number may be of the tensor without data that was tried,
        # and what returns nothing has done something to it.
        return call.result if _is_number(call.result) else compute(func, args, kwargs)
    inputs = flat.inputs
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
        return _rewrap(call.perform(*call.fill(entries)), _find_source(inputs))
    for index in call.writes:
        if inputs[index].group.external and not _run.may_defer(call, inputs):
            # Others see what it writes, so it is written now, after what was
            # recorded to read it.
            _run.run_nodes(inputs[index].group.open_readers())
            return compute(func, args, kwargs)
    node = Node(call, tuple(inputs), find_frames())
    deps: list[Node] = []
    for index, entry in enumerate(inputs):
        if type(entry) is not Value:
            continue
        group = entry.group
        if group.last_write is not None and not group.last_write.done:
            deps.append(group.last_write)
        if index in call.writes:
            deps += group.open_readers()
            group.readers.clear()
        else:
            append_weakly(group.readers, node)
    if deps:
        node.deps = tuple(dep for dep in deps if dep is not node)
    source = _find_source(inputs)
    values = []
    for index, meta in enumerate(call.metas):
        shared = call.shares[index]
        group = Group(False) if shared is None else inputs[shared].group
        value = Value(meta, group, node, index)
        value.source = source
        if shared is not None and call.function not in _run.detaching:
            value.become_view(inputs[shared])
        values.append(value)
    for index in call.tracks:
        inputs[index].track()
    node.outputs = [weakref.ref(value) for value in values]
    for index in call.writes:
        inputs[index].group.last_write = node
    if any(inputs[index].group.external for index in call.writes):
        _plan.pending.append(node)
    made = [wrap(value) for value in values]
    for index, same in enumerate(call.same):
        if same in call.writes:
            _rebind(args, inputs[same], values[index], made, index)
    return _fill_result(call.result, made)


def _is_scalar(entry: Any) -> bool:
    """Whether it is a number, or a tensor of one that is there."""
    if type(entry) is not Value:
        return True
    return not (entry.meta.shape or entry.meta.requires_grad or _run.is_open(entry))


_NUMBERS = (int, float, complex, str, torch.dtype, torch.device, torch.memory_format)


def _is_number(result: Any) -> bool:
    if isinstance(result, (list, tuple)):
        return all(map(_is_number, result))
    return isinstance(result, _NUMBERS)


def _find_source(inputs: list[Any]) -> Origin | None:
    for entry in inputs:
        if type(entry) is Value and entry.source is not None:
            return entry.source
    return None


def _rebind(args: Any, old: Value, new: Value, made: list[LazyTensor], index: int) -> None:
    """A tensor that was written to in place has the new value under its name."""
    for item in args:
        if type(item) is LazyTensor and item._value is old:
            item._value = new
            made[index] = item
            return


def _fill_result(result: Any, made: list[LazyTensor]) -> Any:
    if type(result) is Slot:
        return made[result]
    if isinstance(result, (list, tuple)):
        return rebuild(result, [_fill_result(item, made) for item in result])
    if isinstance(result, dict):
        return {name: _fill_result(item, made) for name, item in result.items()}
    return result


def compute(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Makes a call now, on tensors with their graphs."""
    found: list[Value] = []
    find_values((args, kwargs), found)
    _run.materialize(found, find_frames())
    args, kwargs = unwrap(args), unwrap(kwargs)
    return _rewrap(func(*args, **kwargs), _find_source(found))


def find_values(item: Any, found: list[Value]) -> None:
    if isinstance(item, LazyTensor):
        found.append(current(item))
    elif isinstance(item, (list, tuple)):
        for part in item:
            find_values(part, found)
    elif isinstance(item, dict):
        for part in item.values():
            find_values(part, found)
    elif isinstance(item, slice):
        find_values((item.start, item.stop, item.step), found)


def unwrap(item: Any) -> Any:
    if isinstance(item, LazyTensor):
        return item._value.tensor
    if isinstance(item, BatchInt):
        return int(item)
    if isinstance(item, (list, tuple)):
        return rebuild(item, [unwrap(part) for part in item])
    if isinstance(item, dict):
        return {name: unwrap(part) for name, part in item.items()}
    if isinstance(item, slice):
        return slice(unwrap(item.start), unwrap(item.stop), unwrap(item.step))
    return item


def _rewrap(item: Any, source: Origin | None) -> Any:
    if isinstance(item, Tensor) and item.layout == torch.strided:
        leaf = make_leaf(item)
        leaf.source = source
        return wrap(leaf)
    if type(item) in (list, tuple) or hasattr(item, "_fields"):
        return rebuild(item, [_rewrap(part, source) for part in item])
    return item
