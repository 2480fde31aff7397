"""Tensors that record what is done to them and compute it when asked."""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Callable, MutableMapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules._functions import BackwardHookFunction

from koila import _inspect, _plan, _run
from koila._batch_int import BatchInt
from koila._calls import find_call, meta_of
from koila._errors import KoilaError
from koila._program import (
    Frame,
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

__all__ = ["BatchInfo", "BatchedPair", "LazyTensor", "lazy", "run"]


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
    dim with the samples; None: the tensor is taken whole.
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
        leaf = _make_leaf(data)
        leaf.origin = leaf.source = Origin(batch, size, budget)
        return _wrap(leaf)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = _handlers.get(func)
        if handler is not None:
            return handler(func, args, kwargs)
        return record(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise KoilaError(
            f"{func} was reached past what koila records",
            _place(_frames()),
            ("give it the tensor that run() returns",),
        )

    def run(self, partial: tuple[int, int] | None = None) -> Tensor:
        """The computed tensor, with its graph if it requires a gradient; of a
        batch the samples from ``partial[0]`` to before ``partial[1]``."""
        info = None if partial is None else self.batch()
        tensor = _run.materialize([self._value], _frames())[0]
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

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """As ``torch.Tensor.backward``, within the budget."""
        _backward(self, gradient, retain_graph, create_graph, inputs)


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


class LazyFunction:
    """A function whose calls are recorded. ``prepass_func`` is not needed and
    not called."""

    def __init__(self, func: Callable[..., Any], prepass_func: Any = None) -> None:
        self.func, self.prepass_func = func, prepass_func

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = tuple(
            LazyTensor(arg) if isinstance(arg, (Tensor, Evaluation)) else arg for arg in args
        )
        return record(self.func, made, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., Any]:
        if instance is None:
            return self
        return lambda *args, **kwargs: self(instance, *args, **kwargs)


def lazy(*values: Any, batch: int | None = None, budget: int | str = "auto") -> Any:
    """Makes tensors lazy: PyTorch code on them is recorded, and computed
    within ``budget`` when a value is needed.

    ``batch`` is the dim with the samples of every tensor. ``budget`` is a
    number of bytes, a size as ``"64MiB"``, or ``"auto"``: what is free on the
    tensor's device when it runs (the environment variable ``KOILA_BUDGET``
    replaces it). Tensors in lists, tuples and dicts are made lazy too; numbers
    and text pass through, and so do other objects, after a warning. One value
    gives one, several a tuple. Raises KoilaError if ``batch`` is no dim of a
    tensor.
    """
    _plan.check_budget(budget)
    _run.flush()
    _watch_functions()
    made = tuple(_lazy(value, batch, budget) for value in values)
    for old, new in zip(values, made, strict=True):
        if new is old and not isinstance(old, _PLAIN):
            _plan.announce(
                f"koila.lazy splits tensors, also in lists, tuples and dicts; "
                f"this {type(old).__name__} stays as it is, and unprotected",
                stacklevel=3,
            )
    return made[0] if len(made) == 1 else made


def run(value: Any, partial: tuple[int, int] | None = None) -> Any:
    """The tensors of lazy ones, in nested lists, tuples and dicts too; anything
    else as it is."""
    if isinstance(value, (LazyTensor, Evaluation)):
        return value.run(partial)
    if isinstance(value, (list, tuple)):
        return rebuild(value, [run(item, partial) for item in value])
    if isinstance(value, dict):
        return {key: run(item, partial) for key, item in value.items()}
    return value


# Whatever of these holds no tensor has nothing to protect.
_PLAIN = (int, float, complex, str, bytes, list, tuple, type(None), Tensor)


def _lazy(value: Any, batch: int | None, budget: int | str) -> Any:
    if isinstance(value, (Tensor, Evaluation)):
        return LazyTensor(value, batch, budget)
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        raise KoilaError("koila.lazy takes dense tensors, and packs what is made of them")
    if isinstance(value, (list, tuple)):
        items = [_lazy(item, batch, budget) for item in value]
        changed = any(new is not old for new, old in zip(items, value, strict=True))
        return rebuild(value, items) if changed else value
    if isinstance(value, MutableMapping):
        mapping = copy.copy(value)
        for key, item in value.items():
            mapping[key] = _lazy(item, batch, budget)
        return mapping
    return value


def _wrap(value: Value) -> LazyTensor:
    meta = value.meta
    # The wrapper requires no gradient itself: what passed koila by would
    # otherwise differentiate the wrapper, silently.
    made: LazyTensor = Tensor._make_wrapper_subclass(
        LazyTensor, meta.shape, strides=meta.stride, dtype=meta.dtype, device=meta.device
    )
    made._value = value
    return made


# Where something was recorded.

_kinds: dict[CodeType, int] = {}
_PACKAGE = __file__.rsplit("/", 1)[0] + "/"
_TORCH = torch.__file__.rsplit("/", 1)[0] + "/"
_LIBRARY = tuple(
    {path for path in (sys.prefix, sys.base_prefix) if path not in ("/", "/usr")}
    | {"/usr/lib/python"}
)


def _kind(code: CodeType) -> int:
    """0: koila or PyTorch; 1: another library; 2: the user's."""
    file = code.co_filename
    kind = 2
    if file.startswith((_PACKAGE, _TORCH)):
        kind = 0
    elif (
        "/site-packages/" in file
        or "/dist-packages/" in file
        or (file.startswith(_LIBRARY) and "/lib/python" in file)
    ):
        kind = 1
    _kinds[code] = kind
    return kind


def _frames() -> tuple[Frame, Frame]:
    """The innermost line outside of PyTorch, and the innermost of the user."""
    frame: FrameType | None = sys._getframe(1)
    inner: Frame | None = None
    while frame is not None:
        code = frame.f_code
        kind = _kinds.get(code)
        if kind is None:
            kind = _kind(code)
        if kind:
            if inner is None:
                inner = Frame(code.co_filename, frame.f_lineno)
            if kind == 2:
                return inner, Frame(code.co_filename, frame.f_lineno)
        frame = frame.f_back
    inner = inner or Frame("", 0)
    return inner, inner


def _place(frames: tuple[Frame, Frame]) -> Any:
    return location_of(frames)


# Recording.

_leaves: weakref.WeakValueDictionary[int, Value] = weakref.WeakValueDictionary()


def _make_leaf(tensor: Tensor, like: Value | None = None) -> Value:
    leaf = Value(meta_of(tensor), Group(external=True))
    if like is not None:
        leaf.origin, leaf.source = like.origin, like.source
    leaf.tensor = tensor
    leaf.version = None if tensor.is_inference() else tensor._version
    return leaf


def _leaf_of(tensor: Tensor) -> Value:
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
        leaf = _make_leaf(tensor)
        _leaves[id(tensor)] = leaf
    return leaf


def current(tensor: LazyTensor) -> Value:
    """The value of a lazy tensor, anew if the tensor below was written to."""
    value = tensor._value
    if value.version is not None:
        plain = value.tensor
        assert plain is not None
        if plain._version != value.version or plain.requires_grad != value.meta.requires_grad:
            tensor._value = _make_leaf(plain, value)
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
                value = _leaf_of(value.seen)
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
            value = _leaf_of(item)
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
    node = Node(call, tuple(inputs), _frames())
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
    made = [_wrap(value) for value in values]
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
    _find_values((args, kwargs), found)
    _run.materialize(found, _frames())
    args, kwargs = _unwrap(args), _unwrap(kwargs)
    return _rewrap(func(*args, **kwargs), _find_source(found))


def _find_values(item: Any, found: list[Value]) -> None:
    if isinstance(item, LazyTensor):
        found.append(current(item))
    elif isinstance(item, (list, tuple)):
        for part in item:
            _find_values(part, found)
    elif isinstance(item, dict):
        for part in item.values():
            _find_values(part, found)
    elif isinstance(item, slice):
        _find_values((item.start, item.stop, item.step), found)


def _unwrap(item: Any) -> Any:
    if isinstance(item, LazyTensor):
        return item._value.tensor
    if isinstance(item, BatchInt):
        return int(item)
    if isinstance(item, (list, tuple)):
        return rebuild(item, [_unwrap(part) for part in item])
    if isinstance(item, dict):
        return {name: _unwrap(part) for name, part in item.items()}
    if isinstance(item, slice):
        return slice(_unwrap(item.start), _unwrap(item.stop), _unwrap(item.step))
    return item


def _rewrap(item: Any, source: Origin | None) -> Any:
    if isinstance(item, Tensor) and item.layout == torch.strided:
        leaf = _make_leaf(item)
        leaf.source = source
        return _wrap(leaf)
    if type(item) in (list, tuple) or hasattr(item, "_fields"):
        return rebuild(item, [_rewrap(part, source) for part in item])
    return item


# What is answered in another way than by recording.

_handlers: dict[Any, Callable[[Any, Any, Any], Any]] = {}


def _handle(*functions: Any) -> Callable[[Any], Any]:
    def register(handler: Any) -> Any:
        for function in functions:
            _handlers[function] = handler
        return handler

    return register


def _size(tensor: LazyTensor, dim: int) -> int:
    value = tensor._value
    return BatchInt(value.meta.shape[dim], ("size", value, dim % len(value.meta.shape)))


@_handle(Tensor.shape.__get__, Tensor.size)  # type: ignore[attr-defined]
def _shape(func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    meta = tensor._value.meta
    if dim is not None:
        if not -len(meta.shape) <= dim < len(meta.shape):
            raise IndexError(f"dim {dim} is none of a tensor with {len(meta.shape)} dims")
        return _size(tensor, dim)
    return torch.Size([_size(tensor, index) for index in range(len(meta.shape))])


@_handle(Tensor.__len__)
def _len(func: Any, args: Any, kwargs: Any) -> int:
    shape = args[0]._value.meta.shape
    if not shape:
        raise TypeError("len() of a 0-d tensor")
    return int(shape[0])


@_handle(Tensor.numel, Tensor.nelement, torch.numel)
def _numel(func: Any, args: Any, kwargs: Any) -> int:
    total: int = 1
    for dim in range(len(args[0]._value.meta.shape)):
        total = total * _size(args[0], dim)
    return total


@_handle(Tensor.dim, Tensor.ndimension, Tensor.ndim.__get__)  # type: ignore[attr-defined]
def _dim(func: Any, args: Any, kwargs: Any) -> int:
    return len(args[0]._value.meta.shape)


@_handle(Tensor.stride)
def _stride(func: Any, args: Any, kwargs: Any) -> Any:
    strides = args[0]._value.meta.stride
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return strides if dim is None else strides[dim]


def _answer(attribute: Any, find: Callable[[LazyTensor], Any]) -> None:
    _handlers[attribute.__get__] = lambda func, args, kwargs: find(args[0])


_answer(Tensor.dtype, lambda x: x._value.meta.dtype)
_answer(Tensor.device, lambda x: x._value.meta.device)
_answer(Tensor.layout, lambda x: torch.strided)
_answer(Tensor.is_cuda, lambda x: x._value.meta.device.type == "cuda")
_answer(Tensor.itemsize, lambda x: x._value.meta.dtype.itemsize)
_answer(Tensor.requires_grad, lambda x: x._value.meta.requires_grad)
_answer(
    Tensor.is_leaf,
    lambda x: _plain(x).is_leaf if _is_computed(x) else not x._value.meta.requires_grad,
)
_answer(Tensor.grad, lambda x: _plain(x).grad if _is_computed(x) else None)
_answer(Tensor.grad_fn, lambda x: _grad_fn(x))
for _name in (
    "is_sparse",
    "is_quantized",
    "is_mkldnn",
    "is_meta",
    "is_nested",
    "is_mps",
    "is_xpu",
    "is_sparse_csr",
):
    _answer(getattr(Tensor, _name), lambda x: False)


def _is_computed(tensor: LazyTensor) -> bool:
    return tensor._value.tensor is not None


def _plain(tensor: LazyTensor) -> Tensor:
    plain = tensor._value.tensor
    assert plain is not None
    return plain


def _grad_fn(tensor: LazyTensor) -> Any:
    if _is_computed(tensor):
        return _plain(tensor).grad_fn
    node = tensor._value.node
    if not tensor._value.meta.requires_grad or node is None:
        return None
    return f"<recorded {getattr(node.call.function, '__name__', node.call.function)}>"


@_handle(Tensor.is_floating_point, torch.is_floating_point)
def _is_floating_point(func: Any, args: Any, kwargs: Any) -> bool:
    return bool(args[0]._value.meta.dtype.is_floating_point)


@_handle(Tensor.is_complex, torch.is_complex)
def _is_complex(func: Any, args: Any, kwargs: Any) -> bool:
    return bool(args[0]._value.meta.dtype.is_complex)


@_handle(
    Tensor.requires_grad_,
    Tensor.requires_grad.__set__,  # type: ignore[attr-defined]
    Tensor.retain_grad,
)
def _require(func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    plain = compute(lambda x: x, args[:1], {})
    func(plain._value.tensor, *args[1:], **kwargs)
    tensor._value = _make_leaf(_plain(tensor), tensor._value)
    return tensor


@_handle(Tensor.detach, torch.detach)
def _detach(func: Any, args: Any, kwargs: Any) -> Any:
    """Of what was read, as a loss after its backward pass, the number is left
    when weights change; what it was computed from is not needed any more."""
    number = _run.number_of(current(args[0]))
    return record(func, args, kwargs) if number is None else _wrap(_leaf_of(number))


@_handle(Tensor.data.__set__, Tensor.grad.__set__)  # type: ignore[attr-defined, union-attr]
def _set(func: Any, args: Any, kwargs: Any) -> None:
    tensor = args[0]
    if func == Tensor.data.__set__:  # type: ignore[attr-defined]
        _run.run_nodes(tensor._value.group.open_readers())
    compute(func, args, kwargs)
    tensor._value = _make_leaf(_plain(tensor), tensor._value)


@_handle(
    Tensor.untyped_storage,
    Tensor.storage,
    Tensor.storage_offset,
    Tensor.__dlpack__,
    Tensor.__dlpack_device__,
    Tensor._base.__get__,  # type: ignore[union-attr]
    Tensor._version.__get__,  # type: ignore[attr-defined]
    Tensor._is_view,
    Tensor.is_pinned,
    Tensor.is_shared,
    Tensor.is_inference,
    Tensor.share_memory_,
)
def _ask(func: Any, args: Any, kwargs: Any) -> Any:
    """Of the memory of the tensor itself."""
    return compute(func, args, kwargs)


@_handle(Tensor.register_hook)
def _hook(func: Any, args: Any, kwargs: Any) -> Any:
    """The hook is of the graph, so the tensor is computed with one."""
    tensor = args[0]
    plain = _plain(compute(lambda x: x, args[:1], {}))
    handle = func(plain, *args[1:], **kwargs)
    tensor._value = _make_leaf(plain, tensor._value)
    return handle


@_handle(
    Tensor.item,
    Tensor.tolist,
    Tensor.numpy,
    Tensor.__bool__,
    Tensor.__int__,
    Tensor.__float__,
    Tensor.__index__,
    Tensor.__complex__,
    Tensor.__repr__,
    Tensor.__format__,
    Tensor.__array__,
    Tensor.__contains__,
    Tensor.__deepcopy__,
    Tensor.__reduce_ex__,
    Tensor.data_ptr,
    torch.equal,
    Tensor.equal,
    torch.allclose,
    Tensor.allclose,
    torch.is_nonzero,
    Tensor.is_nonzero,
)
def _read(func: Any, args: Any, kwargs: Any) -> Any:
    found: list[Value] = []
    _find_values((args, kwargs), found)
    shown = iter(_run.read(found, _frames()))

    def show(item: Any) -> Any:
        if isinstance(item, LazyTensor):
            return next(shown)
        if isinstance(item, (list, tuple)):
            return rebuild(item, [show(part) for part in item])
        return item

    args = show(args)
    kwargs = {name: show(item) for name, item in kwargs.items()}
    if func is Tensor.__repr__ and found[0].meta.requires_grad and not args[0].requires_grad:
        return repr(args[0])[:-1] + ", requires_grad=True)"
    if func is Tensor.numpy and found[0].meta.requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    return func(*args, **kwargs)


@_handle(torch.autograd.backward)
def _autograd_backward(func: Any, args: Any, kwargs: Any) -> None:
    names = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
    given = dict(zip(names, args, strict=False), **kwargs)
    tensors = given["tensors"]
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    gradients = given.get("grad_tensors")
    if gradients is None or isinstance(gradients, Tensor):
        gradients = [gradients] * len(tensors) if gradients is None else [gradients]
    # One pass over the sum, which is what autograd computes.
    total: Any = None
    for tensor, gradient in zip(tensors, gradients, strict=True):
        if gradient is not None:
            tensor = (tensor * gradient).sum()
        elif tensor.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        total = tensor if total is None else total + tensor
    _backward(
        total,
        None,
        given.get("retain_graph"),
        given.get("create_graph", False),
        given.get("inputs"),
    )


@_handle(Tensor.backward)
def _tensor_backward(func: Any, args: Any, kwargs: Any) -> None:
    _backward(*args, **kwargs)


def _backward(
    tensor: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    if gradient is not None:
        tensor = (tensor * gradient).sum()
    if not isinstance(tensor, LazyTensor):
        tensor.backward(  # type: ignore[no-untyped-call]
            None, retain_graph, create_graph, _unwrap_inputs(inputs)
        )
        return
    if not tensor._value.meta.requires_grad:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    if tensor.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    _run.backward(
        tensor._value,
        _frames(),
        bool(retain_graph if retain_graph is not None else create_graph),
        create_graph,
        _unwrap_inputs(inputs),
    )


def _unwrap_inputs(inputs: Any) -> Any:
    if inputs is None:
        return None
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return [
        compute(lambda x: x, (item,), {})._value.tensor if isinstance(item, LazyTensor) else item
        for item in inputs
    ]


@_handle(torch.autograd.grad)
def _autograd_grad(func: Any, args: Any, kwargs: Any) -> Any:
    outputs, inputs, *rest = args
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if isinstance(outputs, LazyTensor):
        outputs = [outputs]
    if len(outputs) == 1 and not rest and not kwargs and type(outputs[0]) is LazyTensor:
        gradients = _run.gradients(outputs[0]._value, inputs, _frames())
        if gradients is not None:
            return gradients
    # Both ends and what is between them, with one graph.
    found: list[Value] = []
    _find_values((outputs, inputs, rest, kwargs), found)
    _run.materialize(found, _frames())
    return func(_unwrap(list(outputs)), _unwrap(inputs), *_unwrap(rest), **_unwrap(kwargs))


_apply = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]


def _watch_functions() -> None:
    """Calls of the user's own autograd functions are recorded whole: PyTorch
    offers them to nobody, and inside of them gradients are off."""
    if torch.autograd.Function.apply.__func__ is not _apply:  # type: ignore[attr-defined]
        return

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(item, LazyTensor) for item in (*args, *kwargs.values())):
            # Modules with backward hooks look for its node in the graph.
            make = compute if cls is BackwardHookFunction else record
            return make(_applier(cls), args, kwargs)
        return _apply(cls, *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]


_appliers: dict[Any, Callable[..., Any]] = {}


def _applier(cls: Any) -> Callable[..., Any]:
    if cls not in _appliers:

        def call(*args: Any, **kwargs: Any) -> Any:
            return _apply(cls, *args, **kwargs)

        call.__name__ = cls.__name__
        _appliers[cls] = call
    return _appliers[cls]
