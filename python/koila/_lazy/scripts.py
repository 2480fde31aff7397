"""Calls of ScriptModules, which run past what koila records: whole, and said if that
is more than there is."""

from __future__ import annotations

from typing import Any

import torch

from koila import memory
from koila._capture.dispatch_cache import meta_of
from koila._capture.frames import find_frames
from koila._capture.program_trace import spec_of
from koila._capture.recorder import find_values
from koila._capture.thread_locks import tracing
from koila._capture.values import Value
from koila._compiler import analyze_script
from koila._errors import KoilaError
from koila._lazy.limits import find_limit

__all__ = ["check_script"]

# What was found of programs, of those of late.
_peaks: dict[Any, int | None] = {}
_MOST_KNOWN = 64


def check_script(function: Any, args: Any, kwargs: Any) -> None:
    """Announces a call of a method of a ScriptModule that does not fit the budget of
    its lazy arguments."""
    values: list[Value] = []
    find_values((args, kwargs), values)
    limit = find_limit(values)
    if limit is None:
        return
    peak = _find_peak(function, args, kwargs, limit.device)
    if peak is not None and peak <= limit.budget:
        return
    need = "an unknown number of bytes" if peak is None else memory.format_bytes(peak)
    limit.announce(
        f"a ScriptModule is not recorded: it runs whole, and needs {need} of "
        f"{memory.format_bytes(limit.budget)}; koila.compile splits its batch",
        find_frames(),
    )


def _find_peak(function: Any, args: Any, kwargs: Any, device: torch.device) -> int | None:
    """Bytes of the call, and of the backward pass that may follow; None if that is
    not known."""
    if kwargs or not all(isinstance(item, torch.Tensor) for item in args):
        return None
    metas = [meta_of(item) if type(item) is torch.Tensor else item._value.meta for item in args]
    specs = tuple(spec_of(meta) for meta in metas)
    module = torch.jit._recursive.wrap_cpp_module(function.owner)  # type: ignore[no-untyped-call]
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    grad = torch.is_grad_enabled() and bool(weights or any(meta.requires_grad for meta in metas))
    count = sum(weight.numel() for weight in weights)
    owner = hash(function.owner), str(function.owner._type())
    key = *owner, count, function.name, specs, grad, device
    if key not in _peaks:
        if len(_peaks) >= _MOST_KNOWN:
            del _peaks[next(iter(_peaks))]
        mode = "forward-with-grad" if grad else "inference"
        try:
            with tracing:
                report = analyze_script(
                    module,
                    specs,
                    mode=mode,
                    device=device,
                    method=function.name,
                    floor=False,
                    batches=0,
                )
        except KoilaError:
            _peaks[key] = None
        else:
            # What is not exact may take more, and gradients as much as the graph.
            factor = 1 if report["exact"] and not grad else 2
            peak = report["peak_bytes"]
            _peaks[key] = None if peak is None else peak * factor
    return _peaks[key]
