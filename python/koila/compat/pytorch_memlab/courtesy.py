"""A process that steps aside: its tensors leave the accelerator, and come back.

After pytorch_memlab by Stonesjtu (MIT).
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable
from types import TracebackType

import torch
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from koila._errors import KoilaWarning
from koila.compat.pytorch_memlab import _tensors

__all__ = ["Courtesy"]


class _Moved:
    """A storage whose bytes are on the host."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage, self.bytes = storage, storage.nbytes()
        self.host = torch.empty(self.bytes, dtype=torch.uint8).untyped_storage()
        self.host.copy_(storage, non_blocking=False)
        self.is_back = False

    def leave(self) -> None:
        self.storage.resize_(0)

    def come_back(self) -> None:
        if not self.is_back:
            self.storage.resize_(self.bytes)
            self.storage.copy_(self.host, non_blocking=False)
            self.is_back = True


class _Switched:
    """A tensor that is on the host meanwhile."""

    def __init__(self, tensor: torch.Tensor, hosts: dict[int, _Moved]) -> None:
        self.tensor = TensorWeakRef(tensor)
        self.twin = tensor.data
        self.there = _get_host(self.twin, hosts)
        self.moved = [hosts[part.storage._cdata] for part in _tensors.get_parts(self.twin)]


class Courtesy:
    """Moves the tensors of the process to the CPU, and back to where they were.

    All of them: parameters, gradients, optimizer state, variables, and what a live
    autograd graph saved. While they are away, Python's tensors are on the CPU and can be
    read and written, a checkpoint saved or loaded; ``backward()`` through a graph that
    was there before raises PyTorch's error for tensors that were written to. Afterwards
    all is as it was, to the bit, views and shared memory among it. May be used as a
    ``with`` statement, which brings all back after an exception, too.

    ``devices``: what to leave (``"cuda:1"``, ``"xpu"``); every accelerator without it.
    What cannot be moved stays, and a ``koila.KoilaWarning`` and ``not_moved`` say what
    and why. The accelerator's context stays, too.
    """

    def __init__(self, *, devices: Iterable[str | torch.device] | None = None) -> None:
        self._devices = None if devices is None else [torch.device(d) for d in devices]
        #: Where the tensors that are away belong.
        self.loc_map: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        #: What stayed on its device, and why.
        self.not_moved: list[str] = []
        self._moved: dict[int, _Moved] = {}
        self._switched: list[_Switched] = []
        self._versions: list[tuple[torch.Tensor, int]] = []
        self._is_away = False

    def _is_left(self, device: torch.device) -> bool:
        if self._devices is None:
            return device.type not in ("cpu", "meta")
        return any(
            device.type == one.type and one.index in (None, device.index) for one in self._devices
        )

    def yield_memory(self) -> None:
        """Moves all to the CPU. If that fails, for want of memory there, nothing moved."""
        if self._is_away:
            return
        gc.collect()
        self.not_moved = []
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            tensors = [t for t in _get_tensors() if self._is_left(t.device)]
            graphs = _tensors.walk_graphs(tensors)
            saved = [one.tensor for one in graphs.saved if self._is_left(one.tensor.device)]
            # A node may be all that holds a tensor.
            known = {id(tensor) for tensor in tensors}
            moved: dict[int, _Moved] = {}
            switched = []
            for tensor in self._get_movable([*tensors, *(t for t in saved if id(t) not in known)]):
                for part in _tensors.get_parts(tensor):
                    if part.storage._cdata not in moved:
                        moved[part.storage._cdata] = _Moved(part.storage)
                if id(tensor) in known:
                    switched.append(_Switched(tensor, moved))
            if graphs.closed and tensors:
                nodes = ", ".join(f"{count} {name}" for name, count in graphs.closed.items())
                self.not_moved.append(
                    f"what only these nodes of the graph saved, which Python cannot see: {nodes}"
                )
            # From here on nothing fails.
            self._moved, self._switched, self._is_away = moved, switched, True
            self._guard([*tensors, *saved])
            for one in switched:
                tensor = one.tensor()
                self.loc_map[tensor] = tensor.device
                tensor.data = one.there
            for storage in moved.values():
                storage.leave()
        self._empty_caches()
        if self.not_moved:
            warnings.warn(
                "stays on its device: " + "; ".join(self.not_moved), KoilaWarning, stacklevel=2
            )

    def _get_movable(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Those that can be moved. Tensors that share memory stay or go together."""
        storages = {
            id(tensor): {part.storage._cdata for part in _tensors.get_parts(tensor)}
            for tensor in tensors
        }
        problems = {id(tensor): _get_problem(tensor) for tensor in tensors}
        staying: set[int] = set()
        before = -1
        while before != len(staying):
            before = len(staying)
            for tensor in tensors:
                key = id(tensor)
                if not problems[key] and not staying.isdisjoint(storages[key]):
                    problems[key] = "it shares memory with one that stays"
                if problems[key]:
                    staying |= storages[key]
        self.not_moved = [
            f"{tuple(tensor.shape)} on {tensor.device}: {problems[id(tensor)]}"
            for tensor in tensors
            if problems[id(tensor)]
        ]
        return [tensor for tensor in tensors if not problems[id(tensor)]]

    def _guard(self, tensors: list[torch.Tensor]) -> None:
        """Lets a backward pass raise that would read what is away: what it saved counts
        as written to until it is back."""
        for tensor in tensors:
            # The graph's own; tensors of Python may go meanwhile.
            if tensor.is_inference():
                continue
            alias = tensor.detach()
            if alias.layout == torch.strided:
                self._versions.append((alias, tensor._version))
        for alias, version in self._versions:
            torch._C._autograd._unsafe_set_version_counter((alias,), (version + 1,))

    def restore(self) -> None:
        """Brings all back. If that fails, for want of memory on the device, it can be
        called again."""
        if not self._is_away:
            return
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            self._switched = [one for one in self._switched if one.tensor() is not None]
            for moved in self._moved.values():
                moved.come_back()
            for one in self._switched:
                tensor = one.tensor()
                if tensor is None:
                    continue
                if _is_same(tensor, one.there):
                    tensor.data = one.twin
                else:
                    # Somebody gave it other memory.
                    tensor.data = tensor.data.to(one.twin.device)
            # Writes of meanwhile stay writes.
            versions = [alias._version - 1 for alias, _ in self._versions]
            for (alias, _), version in zip(self._versions, versions, strict=True):
                torch._C._autograd._unsafe_set_version_counter((alias,), (version,))
        self._moved, self._switched, self._versions = {}, [], []
        self._is_away = False
        self.loc_map.clear()

    def _empty_caches(self) -> None:
        for kind in {moved.storage.device.type for moved in self._moved.values()}:
            if kind != "cpu":
                if kind == "cuda" and hasattr(torch._C, "_cuda_clearCublasWorkspaces"):
                    # Tens of MiB for each handle and stream; made again when asked for.
                    torch._C._cuda_clearCublasWorkspaces()
                module = torch.get_device_module(kind)
                if hasattr(module, "empty_cache"):
                    module.empty_cache()

    def __enter__(self) -> Courtesy:
        self.yield_memory()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()


def _get_tensors() -> list[torch.Tensor]:
    """Of Python, and of TorchScript modules."""
    tensors = {id(tensor): tensor for tensor in _tensors.get_live_tensors()}
    for module in [o for o in gc.get_objects() if issubclass(type(o), torch.jit.ScriptModule)]:
        for tensor in [*module.parameters(), *module.buffers()]:
            tensors[id(tensor)] = tensor
            gradient = _tensors.get_gradient(tensor)
            if gradient is not None:
                tensors[id(gradient)] = gradient
    return list(tensors.values())


def _get_problem(tensor: torch.Tensor) -> str:
    """Why a tensor cannot be moved; nothing if it can."""
    if tensor.is_quantized:
        return "quantized"
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        return f"PyTorch cannot give new memory to a tensor of layout {tensor.layout}"
    parts = _tensors.get_parts(tensor)
    if not parts:
        return "it has no storage that can be moved"
    if not all(part.storage.resizable() for part in parts):
        return "its memory belongs to somebody else"
    if tensor.is_inference():
        return "made in inference mode"
    return ""


def _get_host(tensor: torch.Tensor, hosts: dict[int, _Moved]) -> torch.Tensor:
    """The same tensor on the host."""
    if tensor.layout == torch.strided:
        host = torch.empty(0, dtype=tensor.dtype)
        host.set_(
            hosts[tensor.untyped_storage()._cdata].host,
            tensor.storage_offset(),
            tensor.size(),
            tensor.stride(),
        )
        if tensor.is_conj():
            torch._C._set_conj(host, True)
        if tensor.is_neg():
            torch._C._set_neg(host, True)
        return host
    parts = [_get_host(part.detach(), hosts) for part in _tensors.get_dense(tensor)]
    return torch.sparse_coo_tensor(
        parts[0],
        parts[1],
        tensor.size(),
        is_coalesced=tensor.is_coalesced(),
        check_invariants=False,
    )


def _is_same(tensor: torch.Tensor, there: torch.Tensor) -> bool:
    """Whether a tensor is still where it was put."""
    own, other = _tensors.get_parts(tensor), _tensors.get_parts(there)
    return (
        tensor.layout == there.layout
        and tensor.size() == there.size()
        and [(p.storage._cdata, p.begin, p.end) for p in own]
        == [(p.storage._cdata, p.begin, p.end) for p in other]
    )
