"""Taking back what a call did before it ran out of memory, so that it may run
again: gradients that it added, tensors that it wrote, numbers that it drew.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from koila._capture.by_memory import place_of
from koila._capture.dispatch_mode import DispatchMode, call_operator
from koila._capture.module_snapshot import tensors_of
from koila._capture.values import unnoticed
from koila._errors import KoilaError
from koila._out_of_memory import is_out_of_memory

__all__ = ["Copies", "RandomState", "Snapshot", "WriteWatch", "kept"]


class RandomState:
    """Of PyTorch's generators: the host's and that of ``device``, or without one those
    of all CUDA devices."""

    def __init__(self, device: torch.device | None = None) -> None:
        # Not as a tensor, which would be part of what a step holds.
        self._host = torch.get_rng_state().numpy().tobytes()
        devices = [] if device is None or device.type == "cpu" else [device]
        if device is None and torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        self._states: list[tuple[torch.device, Tensor]] = []
        for one in devices:
            module = torch.get_device_module(one)
            # Some devices draw from the host's.
            if hasattr(module, "get_rng_state"):
                self._states.append((one, module.get_rng_state(one)))

    def restore(self) -> None:
        torch.set_rng_state(torch.frombuffer(bytearray(self._host), dtype=torch.uint8))
        for device, state in self._states:
            torch.get_device_module(device).set_rng_state(state, device)

    def is_still(self) -> bool:
        """Whether nothing was drawn since."""
        return self._host == torch.get_rng_state().numpy().tobytes() and all(
            torch.equal(state, torch.get_device_module(device).get_rng_state(device))
            for device, state in self._states
        )


@contextlib.contextmanager
def kept(tensors: Iterable[Tensor]) -> Iterator[None]:
    """After the block tensors have the values that they had before it, in place."""
    with torch.no_grad():
        before = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in before:
                _write(tensor, value)


class Copies:
    """The elements of tensors, to be put back. On the CPU they are in memory that PyTorch's
    allocator does not count: what a step needs is what it was without them. Those of devices
    are ``on_host``, or else where the tensors are."""

    def __init__(self, tensors: Iterable[Tensor], *, on_host: bool = True) -> None:
        self._kept: list[tuple[Tensor, Any]] = []
        for tensor in tensors:
            flat = _flatten(tensor)
            if flat is None:
                self._kept.append((tensor, tensor.detach().clone()))
            elif flat.device.type == "cpu":
                self._kept.append((tensor, flat.numpy().copy()))
            else:
                self._kept.append((tensor, flat.cpu() if on_host else flat.clone()))

    @classmethod
    def make(cls, tensors: Iterable[Tensor], *, on_host: bool = True) -> Copies | None:
        """None where there is no memory for them."""
        try:
            return cls(tensors, on_host=on_host)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        return None

    def restore(self) -> None:
        """Without a trace: nothing was written, to whoever counts versions."""
        with torch.no_grad():
            for tensor, kept in self._kept:
                flat = _flatten(tensor)
                if flat is None:
                    unnoticed(tensor).copy_(kept)
                else:
                    flat.copy_(torch.from_numpy(kept) if flat.device.type == "cpu" else kept)


def _flatten(tensor: Tensor) -> Tensor | None:
    """The memory of a tensor that is dense, as bytes; None of others."""
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        return None
    plain = unnoticed(tensor)
    strides = plain.stride()
    dense = plain.permute(sorted(range(plain.dim()), key=lambda dim: -strides[dim]))
    return dense.view(-1).view(torch.uint8) if dense.is_contiguous() else None


class Snapshot:
    """What calls may change of modules and tensors, and the state of all random
    generators.

    Copies, where they are: gradients; buffers of modules; the values of tensors
    that are given themselves. Parameters of modules are not copied: only an
    optimizer writes them, and a call that runs out of memory after such a step
    cannot run again.
    """

    def __init__(self, sources: Iterable[torch.nn.Module | Tensor]) -> None:
        values: dict[int, tuple[Tensor, bool]] = {}
        for source in sources:
            if isinstance(source, Tensor):
                values[id(source)] = (source, True)
                continue
            for parameter in source.parameters():
                values.setdefault(id(parameter), (parameter, False))
            for buffer in source.buffers():
                values[id(buffer)] = (buffer, True)
        with torch.no_grad():
            self._saved = [_Saved(tensor, is_copied) for tensor, is_copied in values.values()]
        self._random = RandomState()

    @property
    def tensors(self) -> list[Tensor]:
        """All that it takes back."""
        return [saved.tensor for saved in self._saved]

    def restore(self) -> None:
        """Puts everything back, in place; what has not changed is not touched.
        KoilaError, and nothing is done, where a parameter was written."""
        for saved in self._saved:
            if saved.value is None and saved.tensor._version != saved.version:
                raise KoilaError(
                    f"a parameter of shape {list(saved.tensor.shape)} was written before memory "
                    "ran out, so that the call cannot run again; keep steps of optimizers out of "
                    "it, or name the parameter itself in undo="
                )
        with torch.no_grad():
            for saved in self._saved:
                saved.restore()
        self._random.restore()


class _Saved:
    def __init__(self, tensor: Tensor, is_copied: bool) -> None:
        self.tensor, self.version = tensor, tensor._version
        self.value = tensor.detach().clone() if is_copied else None
        self._has_gradient = tensor.is_leaf or tensor.retains_grad
        self._gradient = tensor.grad if self._has_gradient else None
        if self._gradient is not None:
            self._gradient_value = self._gradient.detach().clone()

    def restore(self) -> None:
        # Not by versions: kernels of batch normalisation write statistics without one.
        if self.value is not None:
            _write(self.tensor, self.value)
        if self._gradient is not None:
            _write(self._gradient, self._gradient_value)
        if self._has_gradient and self.tensor.grad is not self._gradient:
            self.tensor.grad = self._gradient


def _write(tensor: Tensor, value: Tensor) -> None:
    target = tensor.detach()
    if target.shape != value.shape:
        target.resize_(value.shape)
    elif torch.equal(target, value):
        return
    target.copy_(value)


class WriteWatch(DispatchMode):
    """Finds what a call changes that was there before it: tensors that operators
    write, and gradients that backward passes add."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known, self._known_leaves = set[int](), set[int]()
        for tensor in known:
            self._known.add(_get_memory(tensor))
            self._known_leaves.add(id(tensor))
            if tensor.is_leaf and tensor.grad is not None:
                self._known.add(_get_memory(tensor.grad))
        self._made: set[int] = set()
        self._leaves: dict[int, tuple[weakref.ref[Tensor], Tensor | None, int]] = {}
        self._written: list[str] = []

    def find_changes(self) -> list[str]:
        """What was changed and is not among the known, in words."""
        found = list(self._written)
        for reference, gradient, version in self._leaves.values():
            leaf = reference()
            if leaf is None or leaf.grad is None:
                continue
            if leaf.grad is not gradient or leaf.grad._version != version:
                found.append(f"the gradient of a tensor of shape {list(leaf.shape)}")
        return found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        for tensor in tensors_of([args, kwargs]):
            if not tensor.requires_grad or not tensor.is_leaf:
                continue
            if id(tensor) not in self._known_leaves and _get_memory(tensor) not in self._made:
                gradient = tensor.grad
                version = 0 if gradient is None else gradient._version
                self._leaves.setdefault(id(tensor), (weakref.ref(tensor), gradient, version))
        for value in _find_written(func._schema.arguments, args, kwargs):
            for tensor in tensors_of([value]):
                memory = _get_memory(tensor)
                if memory not in self._made and memory not in self._known:
                    self._written.append(f"a tensor of shape {list(tensor.shape)}, by {func}")
        result = call_operator(func, args, kwargs)
        # A view is of memory that was there.
        given = {_get_memory(tensor) for tensor in tensors_of([args, kwargs])}
        self._made.update({_get_memory(tensor) for tensor in tensors_of([result])} - given)
        return result


def _find_written(arguments: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that an operator writes."""
    given = {argument.name: kwargs.get(argument.name) for argument in arguments}
    given |= dict(zip(given, args, strict=False))
    written = {
        argument.name
        for argument in arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    # Of native_batch_norm and its like the schema does not say it.
    if given.get("training") or given.get("train") or given.get("use_input_stats"):
        written |= {"running_mean", "running_var"} & given.keys()
    return [given[name] for name in written]


def _get_memory(tensor: Tensor) -> int:
    place = place_of(tensor)
    return id(tensor) if place is None else place
