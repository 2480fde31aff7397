"""Hooks on recorded tensors, and gradients that they keep, where tiles run.

The program is cut at such a tensor: what follows gives the gradient of the whole
of it, which the hook sees and may replace; what comes before is differentiated
with that gradient, in tiles of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from koila._capture.closure import closure, gradient_closure
from koila._capture.frames import Frames
from koila._capture.graphs import walk
from koila._capture.recorder import current, known, wrap
from koila._capture.thread_recordings import recording
from koila._capture.values import GradientHook, Node, Value, has_gradient_hooks
from koila._compiler import has_accumulation_hooks
from koila._execute.cuts import weigh
from koila._execute.executor import read

__all__ = ["apply_hooks", "differentiate_at_cut", "differentiate_at_hooks", "find_hooked"]


def find_hooked(value: Value) -> list[Value]:
    """The tensors on the way of the gradient that have hooks, the last one first."""
    found = {
        output: node.seq
        for node in gradient_closure(value)[0]
        for reference in node.outputs
        if (output := reference()) is not None and output.hooks and output.node is node
    }
    return sorted(found, key=lambda output: -found[output])


@dataclass
class _Cut:
    """A value that stands as a leaf of autograd for a while."""

    value: Value
    node: Node
    leaf: Tensor
    hooks: list[GradientHook]

    def restore(self) -> None:
        self.value.node, self.value.tensor = self.node, None


def differentiate_at_hooks(
    value: Value,
    hooked: list[Value],
    frames: Frames,
    differentiate: Callable[[Value, bool, int], None],
) -> bool:
    """Adds the gradients of a loss to ``.grad`` and calls the hooks on the way;
    ``differentiate`` does the same for a loss without any, of which the graph stays
    if asked for, and before which hooks have let go of so many bytes. False if hooks of
    weights are to see what several parts give."""
    held = [wrap(cut) for cut in hooked]
    tensors = read(hooked, frames)
    recording.reads.clear()  # no step of the whole follows
    if any(place.node is None for place in hooked):
        # They fit with their graphs, and have their hooks.
        differentiate(value, False, 0)
        return True
    cuts: list[_Cut] = []
    try:
        for place, tensor in zip(hooked, tensors, strict=True):
            assert place.node is not None  # as was asked above
            leaf = tensor.detach().requires_grad_()
            cuts.append(_Cut(place, place.node, leaf, place.hooks))
            place.node, place.tensor, place.hooks = None, leaf, []
        # What comes before a cut may be shared with what bypasses it, or with others.
        parts = [gradient_closure(value)[0], *map(_nodes_before, cuts)]
        if _are_seen_together(parts):
            for cut in cuts:
                cut.value.hooks = cut.hooks
            return False
        later: set[Node] = set()
        stays = []
        for part in reversed(parts):
            stays.append(not later.isdisjoint(part))
            later.update(part)
        differentiate(value, stays.pop(), 0)
        for cut, lazy in zip(list(cuts), held, strict=True):
            cuts.remove(cut)
            cut.restore()
            is_shared = stays.pop()
            if cut.leaf.grad is None:
                continue
            gradient, replaced = _call_hooks(cut)
            loss = weigh([lazy], [gradient])
            del gradient
            differentiate(loss, is_shared, replaced)
    finally:
        for cut in cuts:
            cut.restore()
    for place, tensor in zip(hooked, tensors, strict=True):
        # Parts that fitted have computed it with its graph.
        if place.tensor is None:
            place.show(tensor)
    return True


def differentiate_at_cut(
    value: Value, held: list[Any], differentiate: Callable[[Value, bool, int], None]
) -> bool:
    """The same at tensors that have no hooks, of which none is made of another one, and which
    are known: what comes before them is differentiated once. False if hooks of weights are to
    see what both parts give."""
    cuts: list[_Cut] = []
    try:
        for lazy in held:
            place = current(lazy)
            tensor = known(place)
            assert place.node is not None and tensor is not None
            leaf = tensor.detach().requires_grad_()
            cuts.append(_Cut(place, place.node, leaf, []))
            place.node, place.tensor = None, leaf
        before = [node for cut in cuts for node in _nodes_before(cut)]
        parts = [gradient_closure(value)[0], before]
        if not set(before).isdisjoint(closure([value])):
            return False  # what is handed on is written, and made again for that
        if _are_seen_together(parts) or _share_graphs(*parts):
            return False
        differentiate(value, False, 0)
    finally:
        for cut in cuts:
            cut.restore()
    found = [(lazy, cut.leaf.grad) for lazy, cut in zip(held, cuts, strict=True)]
    cuts.clear()
    pairs = [(lazy, gradient) for lazy, gradient in found if gradient is not None]
    found.clear()
    if pairs:
        loss = weigh([lazy for lazy, _ in pairs], [gradient for _, gradient in pairs])
        pairs.clear()
        differentiate(loss, False, 0)
    return True


def _share_graphs(one: list[Node], other: list[Node]) -> bool:
    """Whether two parts begin in one graph of before, which the first backward pass frees, or
    come to one weight with a hook, through graphs or by itself."""
    graphs, weights = _begin_in(one)
    other_graphs, other_weights = _begin_in(other)
    shared = weights.keys() & other_weights.keys()
    return not graphs.isdisjoint(other_graphs) or any(_has_hooks(weights[key]) for key in shared)


def _begin_in(part: list[Node]) -> tuple[set[Any], dict[int, Tensor]]:
    """The nodes of autograd in which a part begins, and the weights at their ends."""
    leaves = [
        entry.tensor
        for node in part
        for entry in node.inputs
        if type(entry) is Value and entry.tensor is not None and entry.meta.requires_grad
    ]
    weights = {id(tensor): tensor for tensor in leaves if tensor.is_leaf}
    graphs = set()
    for found in walk(leaves, set()):
        weight = getattr(found, "variable", None)
        if weight is None:
            graphs.add(found)
        else:
            weights[id(weight)] = weight
    return graphs, weights


def _are_seen_together(parts: list[list[Node]]) -> bool:
    """Whether a hook of a weight, or one on several, is to see the gradients of more than
    one part, each of which is a backward pass."""
    known: set[int] = set()
    for part in parts:
        found = {
            id(entry.tensor): entry.tensor
            for node in part
            for entry in node.inputs
            if type(entry) is Value and entry.is_leaf() and entry.meta.requires_grad
        }
        hooked = {place for place, tensor in found.items() if _has_hooks(tensor)}
        if not known.isdisjoint(hooked) or any(map(_waits, found.values())):
            return True
        known |= hooked
    return False


def _has_hooks(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.is_leaf and has_gradient_hooks(tensor)


def _waits(tensor: Tensor | None) -> bool:
    """Whether a hook on it waits for the gradients of others."""
    if tensor is None or not tensor.is_leaf:
        return False
    hooks = (tensor._backward_hooks or {}).values()
    return has_accumulation_hooks(tensor) or any(
        getattr(hook, "__globals__", None) is vars(torch.autograd.graph) for hook in hooks
    )


def _nodes_before(cut: _Cut) -> list[Node]:
    found = [cut.node]
    for entry in cut.node.inputs:
        if type(entry) is Value:
            found += gradient_closure(entry)[0]
    return found


def apply_hooks(functions: Iterable[Callable[[Tensor], Tensor | None]], gradient: Tensor) -> Tensor:
    """What hooks, one after the other, make of a gradient. Autograd calls them, which
    raises of what is no gradient of the tensor."""
    leaf = gradient.detach().requires_grad_()
    with torch.enable_grad():
        tensor = leaf.view_as(leaf)
    for function in functions:
        tensor.register_hook(function)  # type: ignore[no-untyped-call]
    (found,) = torch.autograd.grad(tensor, leaf, gradient)
    return found


def _call_hooks(cut: _Cut) -> tuple[Tensor, int]:
    """What hooks make of the gradient of a cut, and the bytes of what it was before, if
    that was something else; the cut lets go of it."""
    given = cut.leaf.grad
    assert given is not None
    cut.leaf.grad = None
    functions = [hook.function for hook in cut.hooks if hook.function is not None]
    gradient = apply_hooks(functions, given) if functions else given
    # What is kept is what hooks have made of it, and not the memory that they have seen.
    if len(functions) < len(cut.hooks):
        retained = cut.value.retained
        if retained is not None:
            cut.value.retained = retained + gradient
        else:
            cut.value.retained = gradient.clone() if functions else gradient
    is_same = gradient.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
    return gradient, 0 if is_same else given.untyped_storage().nbytes()
