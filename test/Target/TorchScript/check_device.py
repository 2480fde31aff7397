"""Checks what koila-run --device says of a program whose kernels are those of the CPU.

Usage: check_device.py MODEL.pt INFERENCE.json TRAIN.json
"""

import json
import pathlib
import sys

import torch

BATCH, WIDTH = 64, 64


def blocks(*tensors):
    """Bytes that the device has for these."""
    return sum(-(-tensor.nbytes // 512) * 512 for tensor in tensors)


def main():
    model = torch.jit.load(sys.argv[1])
    inference, train = (json.loads(pathlib.Path(path).read_text()) for path in sys.argv[2:])
    weights = [*model.parameters(), *model.buffers()]
    x, target = torch.empty(BATCH, WIDTH), torch.empty(BATCH, dtype=torch.int64)
    # The first step makes the gradients, which are there before the others.
    for report, resident in (
        (inference, blocks(x, *weights)),
        (train, blocks(x, target, *weights, *model.parameters())),
    ):
        assert report["device"] == "standin"
        (program,) = report["programs"]
        peak, allocated = program["measured_peak_bytes"], program["measured_allocated_bytes"]
        assert peak > 0 and peak % 512 == 0
        assert allocated == resident + peak, (allocated, resident, peak)
        assert program["measured_reserved_bytes"] >= allocated
        assert program["predicted_peak_bytes"] is None
    print("blocks of the device")


if __name__ == "__main__":
    main()
