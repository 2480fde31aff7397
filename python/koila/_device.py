"""Devices whose memory is their own: what there is of it, and whose kernels run there.

Every kind is asked through its module of PyTorch, by the names that ``torch.cuda`` has. A
device of a kind that is not registered is refused: the host's figures are not its.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from koila._errors import KoilaError

__all__ = [
    "BlockCounter",
    "Kind",
    "MemoryOfDevice",
    "describe_mix",
    "empty_caches",
    "find_device_of",
    "find_kind",
    "find_target",
    "has_figures",
    "register",
    "resolve_device",
]


class MemoryOfDevice(NamedTuple):
    """Bytes of a device now."""

    free: int  # what the driver has for any process
    allocated: int  # blocks that PyTorch's allocator has handed out
    reserved: int  # these, and what it keeps for later
    split: int  # of what it keeps: parts of segments in which other parts are in use
    limit: int  # the most that it may reserve

    def available(self) -> int:
        """What tensors of any size can get: segments that are kept, and of which no part
        is in use, are given back to the driver where it has too little; other parts are
        too small for some tensors, and do not count."""
        used = self.allocated + self.split
        return max(min(self.free + self.reserved, self.limit) - used, 0)


class Kind:
    """Devices of one type. ``target`` says which kernel models are those of a device
    (``device=`` of a report)."""

    def __init__(self, name: str, target: Callable[[torch.device], str]) -> None:
        self.name = name
        self.find_target = functools.cache(target)

    @property
    def module(self) -> Any:
        return torch.get_device_module(self.name)

    def is_in_use(self) -> bool:
        """Whether asking starts nothing on the devices."""
        module = self.module
        is_initialized = getattr(module, "is_initialized", module.is_available)
        return bool(module.is_available() and is_initialized())

    def ask(self, device: torch.device) -> MemoryOfDevice:
        module = self.module
        # PyTorch knows the limit of a process by the device's number alone.
        device = self.with_index(device)
        free, total = module.mem_get_info(device)
        stats = module.memory_stats(device)
        # Blocks that another stream may still read are not there yet.
        allocated = max(module.memory_allocated(device), stats.get("active_bytes.all.current", 0))
        get_fraction = getattr(module, "get_per_process_memory_fraction", None)
        limit = total if get_fraction is None else int(get_fraction(device) * total)
        split = stats.get("inactive_split_bytes.all.current", 0)
        return MemoryOfDevice(free, allocated, module.memory_reserved(device), split, limit)

    def with_index(self, device: torch.device) -> torch.device:
        if device.index is not None:
            return device
        return torch.device(device.type, self.module.current_device())


def _find_card(device: torch.device) -> str:
    """The card by its name, if its properties are those of the profile: there are several
    cards of some names."""
    if torch.version.hip is not None:
        raise KoilaError(
            "koila has no models of the kernels of ROCm, on which this PyTorch runs: it knows "
            "CPUs and CUDA"
        )
    from koila._compiler import find_card

    found = torch.cuda.get_device_properties(device)
    return find_card(found.name, found.major, found.minor, found.multi_processor_count)


_kinds: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Tensors of these devices are planned for from now on."""
    _kinds[kind.name] = kind


register(Kind("cuda", _find_card))


def find_kind(device: torch.device) -> Kind | None:
    """None for the CPU, and for tensors without data; KoilaError for devices that koila
    has no figures of."""
    if device.type in ("cpu", "meta"):
        return None
    kind = _kinds.get(device.type)
    if kind is None:
        known = " and ".join(["CPUs", *("CUDA" if name == "cuda" else name for name in _kinds)])
        raise KoilaError(
            f"koila has no figures of devices of type '{device.type}': it knows {known}; give "
            "it tensors there, or leave koila out"
        )
    return kind


def has_figures(device: torch.device) -> bool:
    """Whether programs are planned for there."""
    return device.type == "cpu" or device.type in _kinds


def resolve_device(device: torch.device | str) -> torch.device:
    """The device of that name, with its number. KoilaError where there is none, or koila has
    no figures of it."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        text = str(error).splitlines()[0]
        raise KoilaError(f"device={device!r} is no device: {text}") from None
    kind = find_kind(found)
    if kind is None:
        if found.type == "cpu":
            return torch.device("cpu")
        raise KoilaError(f"device={str(device)!r} has no memory; name one that computes")
    module = kind.module
    if not module.is_available():
        raise KoilaError(f"device={str(device)!r}: there is no such device here")
    found, count = kind.with_index(found), module.device_count()
    if found.index >= count:
        number = "one is" if count == 1 else f"{count} are"
        raise KoilaError(f"device={str(device)!r}: {number} here, numbered from 0")
    return found


def find_target(device: torch.device | str) -> str:
    """The kernel models of a device: ``"cpu"``, ``"cuda"`` for a GPU of which nothing is
    known, or the name of a card. A text is that name already."""
    if isinstance(device, str):
        return device
    kind = find_kind(device)
    return "cpu" if kind is None else kind.find_target(kind.with_index(device))


def describe_mix(tensors: Iterable[tuple[str, tuple[int, ...], torch.device]]) -> str | None:
    """What is where, if tensors, of these names and shapes, are on several devices; None if
    they are on one. Numbers of the CPU go with any device, as in PyTorch."""
    first: dict[torch.device, str] = {}
    for name, shape, device in tensors:
        if device.type != "meta" and (shape or device.type != "cpu"):
            first.setdefault(device, f"{name} of shape {tuple(shape)} is on {device}")
    return ", and ".join(first.values()) if len(first) > 1 else None


def find_device_of(devices: Iterable[torch.device]) -> torch.device:
    """The first that has memory of its own; the CPU without one. KoilaError for devices
    that koila has no figures of."""
    return next((device for device in devices if find_kind(device)), torch.device("cpu"))


def empty_caches() -> None:
    """Gives blocks that PyTorch's allocators keep for later back to the drivers."""
    for kind in _kinds.values():
        if kind.is_in_use():
            kind.module.empty_cache()


class BlockCounter:
    """Bytes that the allocator of a device hands out in a ``with`` block. The counters are
    the user's, and start at no other time: a peak below that of before is told as what was
    live at the end, and no memory was taken for it that the process had not had before."""

    def __init__(self, kind: Kind, device: torch.device) -> None:
        self._kind, self._device = kind, kind.with_index(device)
        self._ended: tuple[int, int] | None = None

    def __enter__(self) -> BlockCounter:
        self._before, self._most = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = self.get_live(), self.get_peak()

    def _read(self) -> tuple[int, int]:
        module = self._kind.module
        return module.memory_allocated(self._device), module.max_memory_allocated(self._device)

    def get_live(self) -> int:
        """Bytes more than at the start of the block."""
        return self._ended[0] if self._ended else self._read()[0] - self._before

    def get_peak(self) -> int:
        """The most at once since the start of the block, and until its end."""
        if self._ended:
            return self._ended[1]
        live, most = self._read()
        return (most if most > self._most else live) - self._before
