"""Peak memory of a call, measured by PyTorch's own profiler."""

import torch


def read_allocations(events):
    """The address and the bytes, negative if they go, in order of time."""
    left = list(events)
    found = []
    while left:
        event = left.pop()
        left.extend(event.children)
        if event.name == "[memory]":
            fields = event.extra_fields
            found.append((event.start_time_ns, fields.ptr, fields.alloc_size))
    # What happens at one time is in the order of the tree.
    found.sort(key=lambda allocation: allocation[0])
    return [(place, size) for _, place, size in found]


def peak_bytes(function, calls=3, warm=True):
    """Largest sum of bytes allocated and not yet freed, over the calls after
    one warm-up, if `warm`; what was live before does not count. Of a block that the
    profiler did not see the first time it may give the size of another one
    that had its address."""
    if warm:
        function()
    peak = 0
    for _ in range(calls):
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            result = function()
        blocks, live = {}, 0
        for place, size in read_allocations(
            profile.profiler.kineto_results.experimental_event_tree()
        ):
            if size > 0:
                blocks[place] = size
                live += size
            else:
                live -= blocks.pop(place, 0)
            peak = max(peak, live)
        del result
    return peak
