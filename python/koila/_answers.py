"""What lazy tensors answer in another way than by recording: sizes and types,
values, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from koila import _gradients, _read, _run
from koila._batch_int import BatchInt
from koila._frames import find_frames
from koila._program import Value, rebuild
from koila._record import (
    LazyTensor,
    compute,
    current,
    find_values,
    handlers,
    leaf_of,
    make_leaf,
    record,
    unwrap,
    wrap,
)

__all__: list[str] = []


def _handle(*functions: Any) -> Callable[[Any], Any]:
    def register(handler: Any) -> Any:
        for function in functions:
            handlers[function] = handler
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
    handlers[attribute.__get__] = lambda func, args, kwargs: find(args[0])


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
    tensor._value = make_leaf(_plain(tensor), tensor._value)
    return tensor


@_handle(Tensor.detach, torch.detach)
def _detach(func: Any, args: Any, kwargs: Any) -> Any:
    """Of what was read, as a loss after its backward pass, the number is left
    when weights change; what it was computed from is not needed any more."""
    number = _gradients.number_of(current(args[0]))
    return record(func, args, kwargs) if number is None else wrap(leaf_of(number))


@_handle(Tensor.data.__set__, Tensor.grad.__set__)  # type: ignore[attr-defined, union-attr]
def _set(func: Any, args: Any, kwargs: Any) -> None:
    tensor = args[0]
    if func == Tensor.data.__set__:  # type: ignore[attr-defined]
        _run.run_nodes(tensor._value.group.open_readers())
    compute(func, args, kwargs)
    tensor._value = make_leaf(_plain(tensor), tensor._value)


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
    tensor._value = make_leaf(plain, tensor._value)
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
def _show(func: Any, args: Any, kwargs: Any) -> Any:
    found: list[Value] = []
    find_values((args, kwargs), found)
    shown = iter(_read.read(found, find_frames()))

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
    _gradients.backward(
        tensor._value,
        find_frames(),
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
        gradients = _gradients.gradients(outputs[0]._value, inputs, find_frames())
        if gradients is not None:
            return gradients
    # Both ends and what is between them, with one graph.
    found: list[Value] = []
    find_values((outputs, inputs, rest, kwargs), found)
    _run.materialize(found, find_frames())
    return func(unwrap(list(outputs)), unwrap(inputs), *unwrap(rest), **unwrap(kwargs))
