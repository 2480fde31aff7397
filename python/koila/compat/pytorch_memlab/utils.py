"""Sizes as people read them."""

from __future__ import annotations

__all__ = ["ByteSize", "calmsize", "readable_size"]

_UNITS = ("B", "K", "M", "G", "T", "P", "E")


class ByteSize:
    """Bytes that print in the largest unit of which there is one: 1536 as 1.50K."""

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __format__(self, spec: str) -> str:
        amount, unit = float(self.amount), 0
        while abs(amount) >= 1024 and unit + 1 < len(_UNITS):
            amount, unit = amount / 1024, unit + 1
        return format(amount, spec or "g") + _UNITS[unit]

    def __str__(self) -> str:
        return format(self)


def calmsize(num_bytes: object) -> object:
    """What ``readable_size`` prints; a name that pytorch_memlab has, too."""
    return ByteSize(num_bytes) if isinstance(num_bytes, int | float) else num_bytes


def readable_size(num_bytes: object) -> str:
    """Bytes as text, in powers of 1024 with two digits: ``4.00M``. No number, no text."""
    if isinstance(num_bytes, float) and num_bytes != num_bytes:
        return ""
    size = calmsize(num_bytes)
    try:
        return format(size, ".2f")
    except (TypeError, ValueError):
        # Sizes that are symbols, under torch.compile.
        return str(size)
