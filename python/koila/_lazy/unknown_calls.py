"""Calls of which nothing is known without their data, as of a recurrent network that reads how
many sequences of a packed batch go on: they run whole when they are made, and it is said if
they took more than there is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from koila import memory
from koila._capture.frames import find_frames
from koila._capture.recorder import find_values
from koila._capture.values import Value
from koila._lazy.limits import find_limit

__all__ = ["check_call"]


def check_call(function: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
    """The function, which tells what it took, beside what it was given of the batch."""
    values: list[Value] = []
    find_values((args, kwargs), values)
    limit = find_limit(values)
    if limit is None:
        return function  # type: ignore[no-any-return]
    made = (value for value in dict.fromkeys(values) if value.source and not value.origin)
    given = sum(value.meta.nbytes for value in made)
    name = str(getattr(function, "__name__", function))
    frames = find_frames()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with memory.count_memory(limit.device) as counted:
            result = function(*args, **kwargs)
        need = given + counted.get_peak()
        if need > limit.budget:
            limit.announce(
                f"'{name}' depends on data, so that nothing was known of it before: it ran whole, "
                f"and took {memory.format_bytes(need)} of {memory.format_bytes(limit.budget)}",
                frames,
            )
        return result

    return call
