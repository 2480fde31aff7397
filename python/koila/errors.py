"""Names of koila 0.1.1: what it raised."""

from __future__ import annotations

from koila._errors import KoilaError

__all__ = ["UnsupportedError"]

# koila 0.1.1 raised it where an operator was unknown, most often without a
# word. What is refused now is a KoilaError with its place.
UnsupportedError = KoilaError
