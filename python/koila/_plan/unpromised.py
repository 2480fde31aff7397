"""Tiles of programs to whose figures something is missing, as the workspaces of cuDNN: about
the right size is better than the whole batch. Where memory runs out all the same, smaller
ones are tried (``_execute/smaller_tiles.py``, ``_compile/program_selection.py``)."""

from __future__ import annotations

from collections.abc import Callable

from koila._compiler import Compiled

__all__ = ["choose_tile"]

# The part of a budget that figures are to take, with room for what they do not count.
_SHARE = 2


def choose_tile(
    batch: int, peak: int | None, budget: int, rewrite: Callable[[int], Compiled]
) -> Compiled:
    """What ``rewrite`` makes of a program in a tile that needs half of the budget by what is
    known, or in the smallest; ``peak`` is what the whole batch needs. Raises what it raises."""
    budget //= _SHARE
    whole = max(peak or 0, 1)
    tile = 1 << max((batch - 1) * budget // whole, 1).bit_length() - 1
    # All in one tile where that fits.
    tile = min(tile, 1 << (batch - 1).bit_length())
    made = rewrite(tile)
    while tile > 1 and (made.report["peak_bytes"] or 0) > budget:
        tile //= 2
        made = rewrite(tile)
    return made
