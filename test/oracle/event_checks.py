"""What holds of each list of events."""


def check_events(events):
    """The largest sum and the last one; a text for what cannot be."""
    live, there, most = 0, {}, 0
    for index, event in enumerate(events):
        if event["index"] != index:
            return f"event {index} has index {event['index']}"
        identity, size = event["id"], event["bytes"]
        if size <= 0:
            return f"event {index} has {size} bytes"
        if event["action"] == "alloc":
            if identity in there:
                return f"block {identity} is allocated twice"
            there[identity] = size
            live += size
        else:
            if there.get(identity, 0) < size:
                return f"block {identity} is freed and is not there"
            there[identity] -= size
            live -= size
        most = max(most, live)
    return most, live
