"""What the tensors are that a program reads and does not make."""

from __future__ import annotations

from torch import Tensor, nn

from koila._capture.values import Value

__all__ = [
    "batch_dim",
    "is_differentiated",
    "is_expanded",
    "is_of_weight",
    "is_weight",
    "other_batch",
    "without_copies",
]


def batch_dim(
    leaf: Value, batch: int | None, guess: int, differentiates: bool = True
) -> int | None:
    """The dim with the samples. Where nothing says it, the first that is as long as the batch
    is taken for it with a ``guess`` of 2 and more, and the first dim of all with 1."""
    shape = leaf.meta.shape
    if batch is None or isinstance(leaf.tensor, nn.Parameter):
        return None
    if leaf.origin is not None and leaf.origin.batch is not None:
        return leaf.origin.batch if leaf.origin.size == batch else None
    if not leaf.meta.requires_grad:
        pass
    elif is_expanded(leaf):
        if differentiates:
            return None  # one row, made longer
    elif is_of_weight(leaf):
        return None  # part of a weight
    if leaf.copies is not None:
        return None  # it is known to have each of them more than once
    if leaf.dims is not None and batch > 1:
        return next((dim for dim in leaf.dims if shape[dim] == batch), None)
    if leaf.drawn and batch > 1:
        return shape.index(batch) if batch in shape else None
    if guess >= 2 and batch in shape:
        return shape.index(batch)
    return 0 if guess == 1 and shape and shape[0] == batch else None


def is_of_weight(leaf: Value) -> bool:
    """Whether it is a view of a weight."""
    return leaf.tensor is not None and isinstance(leaf.tensor._base, nn.Parameter)


def is_weight(leaf: Value, dim: int | None = None) -> bool:
    """Whether a leaf is a weight to the compiler: one, or what was computed of
    weights outside of the program, without the batch (``dim``)."""
    return isinstance(leaf.tensor, nn.Parameter) or (
        leaf.origin is None and leaf.meta.requires_grad and not leaf.freed and dim is None
    )


def without_copies(leaf: Value) -> Tensor:
    """The tensor, with one row where ``expand`` made the first dim longer.

    The gradient of the whole is given to this row: what made the others out of
    it are views, which add up.
    """
    tensor = leaf.tensor
    assert tensor is not None
    return tensor.select(0, 0).unsqueeze(0) if is_expanded(leaf) else tensor


def is_expanded(leaf: Value) -> bool:
    """Whether it is one row, made longer by ``expand``."""
    shape, stride = leaf.meta.shape, leaf.meta.stride
    if not shape or shape[0] < 2 or stride[0] != 0:
        return False
    tensor = leaf.tensor
    # Who has a hook on it sees the gradient of each row.
    return (
        tensor is not None
        and tensor._is_view()
        and not tensor._backward_hooks
        and not tensor.retains_grad
    )


def other_batch(leaf: Value) -> int | None:
    """The dim with the samples of a batch of another size, which is whole in each
    tile; a trace need not run all of it."""
    origin = leaf.origin
    if origin is None or origin.batch is None or (origin.size or 0) < 2:
        return None
    return origin.batch


def is_differentiated(leaf: Value) -> bool:
    """Whether there is a graph for its gradient."""
    return leaf.meta.requires_grad and not leaf.freed
