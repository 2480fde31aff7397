"""Peak memory of a call, measured by PyTorch's own profiler."""

import torch


def peak_bytes(function, calls=3):
    """Largest sum of bytes allocated and not yet freed, over the calls after
    one warm-up; what was live before does not count."""
    function()
    peak = 0
    for _ in range(calls):
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            result = function()
        live = 0
        for event in profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                live += event.nbytes()
                peak = max(peak, live)
        del result
    return peak
