"""A device besides the CPU, for machines that have none: PyTorch's PrivateUse1.

Its memory is the host's, counted: `capacity` bytes of tensors, beyond which
allocations raise as those of a GPU do. Only what operators return is counted, not
what they need inside.
"""

import weakref
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

DEVICE = torch.device("privateuseone", 0)


class Memory:
    """Bytes of the device's tensors."""

    def __init__(self):
        self.capacity = self.peak = 0
        self.refused = False
        self._uses: dict[int, list[int]] = {}

    @property
    def live(self):
        return sum(size for _, size in self._uses.values())

    def hold(self, owner, inner):
        storage = inner.untyped_storage()
        place = storage.data_ptr()
        if place and place not in self._uses:
            needed = self.live + storage.nbytes()
            if self.capacity and needed > self.capacity:
                # An error of Python ends the process in a backward pass of this device.
                if torch._C._current_graph_task_id() == -1:
                    raise torch.OutOfMemoryError("CUDA out of memory.")
                self.refused = True
            if not self.refused:
                self.peak = max(self.peak, needed)
            self._uses[place] = [0, storage.nbytes()]
        if place:
            self._uses[place][0] += 1
            weakref.finalize(owner, self._release, place)

    def _release(self, place):
        entry = self._uses[place]
        entry[0] -= 1
        if not entry[0]:
            del self._uses[place]


memory = Memory()


class StandIn(torch.Tensor):
    """A tensor of the device; `inner` has its values."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner):
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        memory.hold(made, inner)
        return made

    def __init__(self, inner):
        pass

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
        kwargs = dict(kwargs or {})
        target = kwargs.get("device")
        if target is not None and torch.device(target).type == DEVICE.type:
            kwargs["device"] = torch.device("cpu")
        comes_down = target is not None and torch.device(target).type != DEVICE.type
        known: dict[int, Any] = {}

        def plain(item):
            if isinstance(item, StandIn):
                known[id(item.inner)] = item
                return item.inner
            if isinstance(item, torch.Tensor) and item.dim() and func is not _COPY:
                raise RuntimeError("Expected all tensors to be on the same device")
            return item

        args, kwargs = pytree.tree_map(plain, (args, kwargs))
        result = func(*args, **kwargs)

        def wrap(item):
            if not isinstance(item, torch.Tensor) or comes_down:
                return item
            return known.get(id(item)) if id(item) in known else StandIn(item)

        return pytree.tree_map(wrap, result)


_COPY = torch.ops.aten.copy_.default


def _raises_later(differentiate):
    """A backward pass that ran out of memory says so when it is over."""

    def call(*args, **kwargs):
        result = differentiate(*args, **kwargs)
        if memory.refused and torch._C._current_graph_task_id() == -1:
            memory.refused = False
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return result

    return call


def install():
    """Registers the device, once in a process."""
    _setup_privateuseone_for_python_backend("standin")

    torch.autograd.grad = _raises_later(torch.autograd.grad)
    torch.autograd.backward = _raises_later(torch.autograd.backward)

    def empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
        return StandIn(torch.empty(size, dtype=dtype))

    def empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
        return StandIn(torch.empty_strided(size, stride, dtype=dtype))

    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", empty, "PrivateUse1")
    library.impl("empty_strided", empty_strided, "PrivateUse1")
    return library
