"""What lazy tensors answer in another way than by recording: sizes and types,
values, gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from koila._capture.batch_int import BatchInt
from koila._capture.differentiation import record_gradient
from koila._capture.frames import Frames, find_frames, location_of
from koila._capture.host import find_tile_device, is_on_host, keep, lift
from koila._capture.recorder import (
    RecordedTensor,
    assign,
    current,
    find_values,
    make_leaf,
    wrap,
)
from koila._capture.values import GradientHook, Value, append_weakly, is_open, unnoticed
from koila._errors import KoilaError
from koila._execute import executor, gradients
from koila._execute.numpy_memory import lend
from koila._execute.views import find_held_base
from koila._lazy.dispatch import call, compute, compute_on_host, handle, handlers, replace, unwrap
from koila._lazy.recorded_node import find_node
from koila._lazy.rows import become_batch, is_over_samples, take_rows
from koila._lazy.selections import select

__all__: list[str] = []

# What constructors of tensors do to one, as `torch.tensor(x)`, `torch.Tensor(x)` and
# `torch.full(shape, x)`, without asking for `__torch_function__`
# (torch/csrc/utils/tensor_new.cpp, python_arg_parser.cpp).
_DETACH, _ALIAS = torch.ops.aten.detach.default, torch.ops.aten.alias.default
_SCALAR = torch.ops.aten._local_scalar_dense.default
_COMPARING = (torch.equal, Tensor.equal, torch.allclose, Tensor.allclose, Tensor.__contains__)
# What gives the program memory of a tensor.
_SHARING = (Tensor.numpy, Tensor.__array__, _DETACH, _ALIAS)


def _size(tensor: RecordedTensor, dim: int) -> int:
    value = tensor._value
    if value.meta.decided:
        # Of the whole: how many a mask selects of a tile's samples is no part of it.
        return value.meta.shape[dim]
    call = value.source.call if value.source is not None else None
    return BatchInt.of_size(value.meta.shape[dim], value, dim % len(value.meta.shape), call)


@handle(Tensor.shape.__get__, Tensor.size)  # type: ignore[attr-defined]
def _shape(func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    meta = tensor._value.meta
    if dim is not None:
        if not -len(meta.shape) <= dim < len(meta.shape):
            raise IndexError(f"dim {dim} is none of a tensor with {len(meta.shape)} dims")
        return _size(tensor, dim)
    return torch.Size([_size(tensor, index) for index in range(len(meta.shape))])


@handle(Tensor.__len__)
def _len(func: Any, args: Any, kwargs: Any) -> int:
    shape = args[0]._value.meta.shape
    if not shape:
        raise TypeError("len() of a 0-d tensor")
    return int(shape[0])


@handle(Tensor.numel, Tensor.nelement, torch.numel)
def _numel(func: Any, args: Any, kwargs: Any) -> int:
    total: int = 1
    for dim in range(len(args[0]._value.meta.shape)):
        total = total * _size(args[0], dim)
    return total


@handle(Tensor.dim, Tensor.ndimension, Tensor.ndim.__get__)  # type: ignore[attr-defined]
def _dim(func: Any, args: Any, kwargs: Any) -> int:
    return len(args[0]._value.meta.shape)


@handle(Tensor.stride)
def _stride(func: Any, args: Any, kwargs: Any) -> Any:
    strides = args[0]._value.meta.stride
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return strides if dim is None else strides[dim]


def _answer(attribute: Any, find: Callable[[RecordedTensor], Any]) -> None:
    handlers[attribute.__get__] = lambda func, args, kwargs: find(args[0])


_answer(Tensor.dtype, lambda x: x._value.meta.dtype)
_answer(Tensor.device, lambda x: x._value.meta.device)
_answer(Tensor.layout, lambda x: torch.strided)
_answer(Tensor.is_cuda, lambda x: x._value.meta.device.type == "cuda")
_answer(Tensor.itemsize, lambda x: x._value.meta.dtype.itemsize)
_answer(Tensor.requires_grad, lambda x: current(x).meta.requires_grad)
_answer(
    Tensor.is_leaf,
    lambda x: _plain(x).is_leaf if _is_computed(x) else not x._value.meta.requires_grad,
)
_answer(Tensor.grad, lambda x: _grad(x))
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


def _is_computed(tensor: RecordedTensor) -> bool:
    return tensor._value.tensor is not None


def _plain(tensor: RecordedTensor) -> Tensor:
    plain = tensor._value.tensor
    assert plain is not None
    return plain


def _grad(tensor: RecordedTensor) -> Tensor | None:
    value = tensor._value
    if value.retained is not None or value.tensor is None:
        return value.retained
    return value.tensor.grad


def _grad_fn(tensor: RecordedTensor) -> Any:
    if _is_computed(tensor):
        return _plain(tensor).grad_fn
    return find_node(tensor._value)


@handle(Tensor.is_floating_point, torch.is_floating_point)
def _is_floating_point(func: Any, args: Any, kwargs: Any) -> bool:
    return bool(args[0]._value.meta.dtype.is_floating_point)


@handle(Tensor.is_complex, torch.is_complex)
def _is_complex(func: Any, args: Any, kwargs: Any) -> bool:
    return bool(args[0]._value.meta.dtype.is_complex)


@handle(
    Tensor.requires_grad_,
    Tensor.requires_grad.__set__,  # type: ignore[attr-defined]
)
def _require(func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    plain = _with_graph(tensor, f"{func.__name__}()")
    func(plain, *args[1:], **kwargs)
    _become(tensor, plain)
    return tensor


def _with_graph(tensor: RecordedTensor, what: str) -> Tensor:
    return executor.materialize([current(tensor)], find_frames(), what)[0]


def _become(tensor: RecordedTensor, plain: Tensor) -> None:
    """The tensor below is another one to what is recorded from now on."""
    assign(tensor, make_leaf(plain, tensor._value))


@handle(
    Tensor.__getitem__,
    torch.index_select,
    Tensor.index_select,
)
def _index(func: Any, args: Any, kwargs: Any) -> Any:
    """Samples that are picked by number, as by a permutation, are no samples of
    a tile: of what has no graph they are picked now."""
    target = args[0]
    if func is Tensor.__getitem__:
        args = target, _without_bounds(target, _as_tensors(args[1]))
        selected = select(args, kwargs)
        if selected is not None:
            return selected
    value = current(target, by_bits=False) if isinstance(target, RecordedTensor) else None
    if value is not None and not value.meta.requires_grad:
        dim = value.origin.batch if value.origin is not None else 0
        if _picks_samples(func, args, kwargs, dim or 0):
            return become_batch(value, compute_on_host(func, args, kwargs), dim or 0)
        if (
            func is Tensor.__getitem__
            and _picks_one(value, args[1])
            and not value.group.has_graph()
        ):
            return take_rows(func, args, kwargs)
    return call(func, args, kwargs)


def _as_tensors(index: Any) -> Any:
    """An index in which positions and masks from NumPy, and positions in lists and ranges, are
    tensors: what they are is no part of the program then."""
    if isinstance(index, tuple):
        return tuple([item if isinstance(item, tuple) else _as_tensors(item) for item in index])
    if isinstance(index, np.ndarray) and index.ndim and index.dtype.kind in "bi":
        kind = torch.bool if index.dtype.kind == "b" else torch.int64
        return torch.from_numpy(index).to(kind, copy=True)
    if isinstance(index, (list, range)) and index and all(type(item) is int for item in index):
        return torch.tensor(index)
    return index


def _without_bounds(target: Any, index: Any) -> Any:
    """An index in which slices that take all say so, as of x[: len(x)]: any other number of
    samples is taken as a whole, too."""
    if not isinstance(target, RecordedTensor):
        return index
    items = list(index) if isinstance(index, tuple) else [index]
    for dim, (item, extent) in enumerate(zip(items, target._value.meta.shape, strict=False)):
        if not isinstance(item, (int, slice)) or isinstance(item, bool):
            break  # what is behind it is an index of another dim
        takes_all = (
            isinstance(item, slice)
            and isinstance(item.stop, int)
            and item.stop >= extent
            and (item.start is None or (isinstance(item.start, int) and item.start == 0))
            and (item.step is None or (isinstance(item.step, int) and item.step == 1))
        )
        if takes_all:
            items[dim] = slice(None)
    return tuple(items) if isinstance(index, tuple) else items[0]


def _picks_samples(func: Any, args: Any, kwargs: Any, dim: int) -> bool:
    rank = len(current(args[0]).meta.shape)
    if func is not Tensor.__getitem__:
        given = dict(zip(("input", "dim", "index"), args, strict=False), **kwargs)
        return isinstance(given["dim"], int) and rank > 0 and given["dim"] % rank == dim
    index = args[1]
    if not isinstance(index, tuple):
        return dim == 0 and _is_list_of_numbers(index)
    if len(index) <= dim or any(item is None or item is Ellipsis for item in index[:dim]):
        return False
    # One row of each sample is its own: x[arange(n), choice].
    others = [item for place, item in enumerate(index) if place != dim]
    return _is_list_of_numbers(index[dim]) and not any(isinstance(item, Tensor) for item in others)


def _picks_one(value: Value, index: Any) -> bool:
    """Whether it is one sample, by a number, or one number of what is there."""
    items = index if isinstance(index, tuple) else (index,)
    shape = value.meta.shape
    if not is_open(value) and len(items) == len(shape) and all(type(i) is int for i in items):
        return all(-extent <= i < extent for i, extent in zip(items, shape, strict=True))
    first = index[0] if isinstance(index, tuple) and index else index
    if type(first) is not int or not is_over_samples(value, 0):
        return False
    rest = index[1:] if isinstance(index, tuple) else ()
    plain = all(item is Ellipsis or isinstance(item, (int, slice)) for item in rest)
    return plain and -value.meta.shape[0] <= first < value.meta.shape[0]


def _is_list_of_numbers(index: Any) -> bool:
    if isinstance(index, list):
        return bool(index) and all(isinstance(item, int) for item in index)
    return (
        isinstance(index, Tensor)
        and not index.dtype.is_floating_point
        and index.dtype not in (torch.bool, torch.uint8)
        and index.dim() > 0
    )


@handle(Tensor.detach, torch.detach, Tensor.data.__get__)  # type: ignore[attr-defined]
def _detach(func: Any, args: Any, kwargs: Any) -> Any:
    """Of what is there its memory is left, without what it was computed from."""
    value = current(args[0])
    if is_open(value):
        return call(func, args, kwargs)
    assert value.tensor is not None
    # (Autograd notices no write to what is made by .data.)
    plain = unnoticed(value.tensor) if func == unnoticed else value.tensor.detach()
    leaf = make_leaf(plain)
    leaf.source = value.source
    # Whoever writes to one of both writes to the other.
    if is_on_host(value, value.tensor):
        keep(leaf, find_tile_device(value))
    else:
        value.group.external = True
    leaf.group = value.group
    append_weakly(value.group.members, leaf)
    return wrap(leaf)


_assign_data = Tensor.data.__set__  # type: ignore[attr-defined]


@handle(_assign_data, Tensor.grad.__set__)  # type: ignore[union-attr]
def _set(func: Any, args: Any, kwargs: Any) -> None:
    tensor = args[0]
    if func == _assign_data:
        executor.run_nodes(tensor._value.group.open_readers())
    plain = _with_graph(tensor, "the assignment")
    func(plain, *_values_of(args[1:]), **kwargs)
    _become(tensor, plain)


def _values_of(args: Any) -> list[Any]:
    return [
        executor.read([current(item)], find_frames())[0]
        if isinstance(item, RecordedTensor)
        else item
        for item in args
    ]


@handle(Tensor.cpu, Tensor.to)
def _move(func: Any, args: Any, kwargs: Any) -> Any:
    """Of what is made of a batch on the host, and has no graph, the program gets a copy there:
    tiles bring it down."""
    if not isinstance(args[0], RecordedTensor):
        return call(func, args, kwargs)
    value = current(args[0])
    has_graph = value.meta.requires_grad and torch.is_grad_enabled()
    if find_tile_device(value) is None or has_graph or not _goes_to_host(func, args, kwargs):
        return call(func, args, kwargs)
    tensor = gradients.look([value], find_frames())[0].detach().to("cpu", copy=True)
    # The arguments may say more, as a type.
    return func(tensor, *args[1:], **kwargs)


def _goes_to_host(func: Any, args: Any, kwargs: Any) -> bool:
    if func is Tensor.cpu:
        return True
    given = kwargs.get("device", args[1] if len(args) > 1 else None)
    return isinstance(given, (str, torch.device)) and torch.device(given).type == "cpu"


@handle(
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


class _Handle:
    """Removes a hook of a recorded tensor, as PyTorch's handles do."""

    def __init__(self, value: Value, hook: GradientHook) -> None:
        self._value, self._hook = weakref.ref(value), hook

    def remove(self) -> None:
        value = self._value()
        if value is not None and self._hook in value.hooks:
            value.hooks.remove(self._hook)
        if self._hook.handle is not None:
            self._hook.handle.remove()

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


@handle(Tensor.register_hook, Tensor.retain_grad)
def _hook(func: Any, args: Any, kwargs: Any) -> Any:
    """A recorded tensor has its hooks when it is computed; where tiles compute
    it, they see the gradient of the whole."""
    value = current(args[0])
    if not is_open(value) or value.node is None:
        plain = _with_graph(args[0], f"{func.__name__}()")
        handle = func(plain, *args[1:], **kwargs)
        _become(args[0], plain)
        return handle
    if not value.meta.requires_grad:
        raise RuntimeError(
            "cannot register a hook on a tensor that doesn't require gradient"
            if func is Tensor.register_hook
            else "can't retain_grad on Tensor that has requires_grad=False"
        )
    if func is Tensor.retain_grad:
        value.hooks.append(GradientHook(None))
        return None
    hook = GradientHook(*args[1:], **({"function": kwargs["hook"]} if kwargs else {}))
    value.hooks.append(hook)
    return _Handle(value, hook)


@handle(
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
    _DETACH,
    _ALIAS,
    _SCALAR,
)
def _show(func: Any, args: Any, kwargs: Any) -> Any:
    found: list[Value] = []
    find_values((args, kwargs), found)
    is_array = func in (Tensor.numpy, Tensor.__array__)
    is_shared = func in _SHARING
    has_graph = found[0].meta.requires_grad and torch.is_grad_enabled()
    if is_array and has_graph and not kwargs.get("force"):
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if func is _SCALAR and has_graph:
        raise TypeError("a number is taken here, and not a tensor with a graph; take its .item()")
    if func is _ALIAS and has_graph:
        raise KoilaError(
            "a tensor with a graph was given to a constructor that keeps the graph",
            location_of(find_frames()),
            ("take the tensor itself, or its .detach()",),
        )
    frames = find_frames()
    if is_shared:
        _finish_write(found[0], frames)
        gradients.look([find_held_base(found[0])], frames)
    read = gradients.look(found, frames)
    # What is compared with other tensors is where the program has it.
    tensors = map(lift, found, read) if func in _COMPARING else iter(read)
    args, kwargs = replace(args, tensors), replace(kwargs, tensors)
    if func is Tensor.__repr__ and found[0].meta.requires_grad and not args[0].requires_grad:
        name = found[0].graph_name
        return f"{repr(args[0])[:-1]}, " + (f"grad_fn=<{name}>)" if name else "requires_grad=True)")
    made = func(*args, **kwargs)
    if is_shared:
        lend(found[0], args[0], made, frames)
    return made


def _finish_write(value: Value, frames: Frames) -> None:
    """An array is memory, in which a write that waits, and runs again with a step, would be
    made twice."""
    write = value.group.open_write()
    if write is None or write.writes_outside:
        return
    members = value.group.list_members()
    written = [each for each in members if each.meta.requires_grad and each.is_held()]
    if written:
        executor.materialize(written, frames, "numpy() of what was written to in place")
    else:
        executor.run_nodes([write])


@handle(torch.autograd.backward)
def _autograd_backward(func: Any, args: Any, kwargs: Any) -> None:
    names = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
    given = dict(zip(names, args, strict=False), **kwargs)
    _backward(
        _listed(given["tensors"]),
        given.get("grad_tensors"),
        given.get("retain_graph"),
        given.get("create_graph", False),
        given.get("inputs"),
    )


@handle(Tensor.backward)
def _tensor_backward(func: Any, args: Any, kwargs: Any) -> None:
    names = ("self", "gradient", "retain_graph", "create_graph", "inputs")
    given = dict(zip(names, args, strict=False), **kwargs)
    _backward(
        [given["self"]],
        given.get("gradient"),
        given.get("retain_graph"),
        given.get("create_graph", False),
        given.get("inputs"),
    )


def _backward(
    tensors: list[Tensor],
    gradients_of_tensors: Any,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Any,
) -> None:
    total = _weigh(tensors, gradients_of_tensors)
    if not isinstance(total, RecordedTensor):
        total.backward(  # type: ignore[no-untyped-call]
            None, retain_graph, create_graph, _unwrap_inputs(inputs)
        )
        return
    gradients.backward(
        current(total),
        find_frames(),
        bool(retain_graph if retain_graph is not None else create_graph),
        create_graph,
        _unwrap_inputs(inputs),
    )


def _weigh(tensors: list[Tensor], weights: Any) -> Tensor:
    """What has the gradients that autograd finds for these tensors with these
    gradients of their own, in one pass: the sum of the products. It has a graph also
    where whoever asks records none, as a checkpoint that computes its part again."""
    weights = [None] * len(tensors) if weights is None else _listed(weights)
    _check_weights(tensors, weights)
    for index, tensor in enumerate(tensors):
        if not tensor.requires_grad:
            raise RuntimeError(
                f"element {index} of tensors does not require grad and does not have a grad_fn"
            )
    total: Any = None
    with torch.inference_mode(False), torch.enable_grad():
        for tensor, weight in zip(tensors, weights, strict=False):
            product = tensor if weight is None else (tensor * _as_ordinary(weight)).sum()
            total = product if total is None else total + product
    return total  # type: ignore[no-any-return]


def _check_weights(tensors: list[Tensor], weights: list[Any]) -> None:
    """Raises what autograd raises of gradients that are none of these tensors; a
    product takes every shape that it can expand."""
    for index, (tensor, weight) in enumerate(zip(tensors, weights, strict=False)):
        if weight is None:
            if tensor.requires_grad and tensor.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            continue
        if not isinstance(weight, Tensor):
            raise TypeError(
                f"gradients can be either Tensors or None, but got {type(weight).__name__}"
            )
        if weight.shape != tensor.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{index}] has a shape of "
                f"{_shape_of(weight)} and output[{index}] has a shape of {_shape_of(tensor)}."
            )
        if weight.dtype.is_complex != tensor.dtype.is_complex:
            raise RuntimeError(
                "For complex Tensors, both grad_output and output are required to have the same "
                f"dtype. Mismatch in dtype: grad_output[{index}] has a dtype of {weight.dtype} "
                f"and output[{index}] has a dtype of {tensor.dtype}."
            )
    if len(tensors) > len(weights):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(weights)} gradients")


def _as_ordinary(weight: Tensor) -> Tensor:
    """What a product with a graph may keep, as of a weight that was made in inference
    mode."""
    plain = not isinstance(weight, RecordedTensor)
    return weight.clone() if plain and weight.is_inference() else weight


def _shape_of(tensor: Tensor) -> torch.Size:
    return torch.Size([int(extent) for extent in tensor.shape])


def _unwrap_inputs(inputs: Any) -> Any:
    if inputs is None:
        return None
    inputs = list(inputs.values()) if type(inputs) is dict else _listed(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    return [
        _with_graph(item, "backward(inputs=...)") if isinstance(item, RecordedTensor) else item
        for item in inputs
    ]


@handle(torch.autograd.grad)
def _autograd_grad(func: Any, args: Any, kwargs: Any) -> Any:
    names = (
        "outputs",
        "inputs",
        "grad_outputs",
        "retain_graph",
        "create_graph",
        "only_inputs",
        "allow_unused",
        "is_grads_batched",
        "materialize_grads",
    )
    given = dict(zip(names, args, strict=False), **kwargs)
    outputs = _listed(given["outputs"])
    inputs = _listed(given["inputs"])
    grad_outputs = given.get("grad_outputs")
    keeps = bool(given.get("retain_graph") or given.get("create_graph"))
    if keeps:
        read_before: list[Value] = []
        find_values(outputs, read_before)
        gradients.announce_retained(read_before, find_frames())
    if grad_outputs is not None and not given.get("is_grads_batched"):
        _check_weights(outputs, _listed(grad_outputs))
    plain = not (given.get("is_grads_batched") or given.get("materialize_grads"))
    lazy = [item for item in outputs if isinstance(item, RecordedTensor)]
    if plain and lazy and given.get("create_graph") and not given.get("allow_unused"):
        made = record_gradient(outputs, inputs, _listed(grad_outputs))
        if made is not None:
            return made
    if plain and len(outputs) == len(lazy) == 1 and not given.get("create_graph"):
        output = lazy[0]
        weight = _listed(grad_outputs)[0] if grad_outputs is not None else None
        if weight is not None and output.requires_grad:
            output = _weigh([output], weight)  # type: ignore[assignment]
        leaves = [leaf for item in inputs if (leaf := _leaf_tensor(item)) is not None]
        if len(leaves) == len(inputs):
            return gradients.gradients(
                current(output),
                leaves,
                find_frames(),
                bool(given.get("allow_unused")),
                keeps,
                lambda: _differentiate(func, given, keeps),
            )
    return _differentiate(func, given, keeps)


def _differentiate(func: Any, given: dict[str, Any], keeps: bool) -> Any:
    """What PyTorch makes of tensors: both ends and what is between them, with one graph."""
    parts = {name: given.get(name) for name in ("outputs", "inputs", "grad_outputs")}
    ends: list[Value] = []
    find_values(tuple(parts.values()), ends)
    executor.materialize(ends, find_frames(), "torch.autograd.grad")
    plain = {name: unwrap(part) for name, part in parts.items()}
    plain |= {name: _listed(plain[name]) for name in ("outputs", "inputs")}
    found = func(**(given | plain))
    if not given.get("is_grads_batched"):
        gradients.remember_gradients(plain["inputs"], found)
    if not keeps:
        gradients.free_graphs(ends)
    return found


def _listed(item: Any) -> list[Any]:
    if item is None:
        return []
    return [item] if isinstance(item, Tensor) else list(item)


def _leaf_tensor(item: Any) -> Tensor | None:
    """The leaf of autograd that an input of ``grad`` is, if it is one."""
    if not isinstance(item, RecordedTensor):
        return item  # type: ignore[no-any-return]
    value = current(item)
    return value.tensor if value.node is None and value.tensor is not None else None


@handle(torch._is_all_true)
def _is_all_true(func: Any, args: Any, kwargs: Any) -> Any:
    """As torch.distributions checks its arguments: ``all()``, and nobody's own."""
    return call(torch.all, args, kwargs)


@handle(Tensor.new)
def _new(func: Any, args: Any, kwargs: Any) -> Any:
    """As programs have it from before PyTorch 0.4: of sizes it makes a tensor that has still to
    be filled, anything else is data."""
    like, *sizes = args
    if len(sizes) == 1 and isinstance(sizes[0], torch.Size):
        sizes = list(sizes[0])
    if sizes and all(isinstance(size, int) for size in sizes):
        return call(Tensor.new_empty, (like, tuple(sizes)), kwargs)
    return call(func, args, kwargs)
