#!/usr/bin/env python3
"""Measures the hidden bytes of convolutions, for tests of convolutionWorkspace.

Writes one JSON line per case: the fields of koila::ConvolutionShape and
koila::CpuTarget, and "hidden", the bytes the call held beyond its output at
its worst moment. The cases are the convolutions of ResNet-18 and seeded random
ones; equal arguments give equal cases.

    workspace_oracle.py --cases 200 --seed 1 --threads 2 > cases.jsonl
"""

import argparse
import json
import os
import random

BATCHES = (1, 2, 3, 4, 5, 7, 8, 13, 16)


def convolution(
    input, weight, stride, padding, dilation, groups=1, bias=False, channels_last=(False, False)
):
    rank = len(input) - 2
    return dict(
        input=input,
        weight=weight,
        stride=[stride] * rank,
        padding=[padding] * rank,
        dilation=[dilation] * rank,
        groups=groups,
        hasBias=bias,
        channelsLast=channels_last,
    )


def resnet18(side, batch):
    """The distinct convolutions of ResNet-18 on side x side images."""
    layers = [convolution([batch, 3, side, side], [64, 3, 7, 7], 2, 3, 1)]
    channels, side = 64, side // 4
    for outputs in (64, 128, 256, 512):
        stride = 1 if outputs == channels else 2
        source = [batch, channels, side, side]
        layers.append(convolution(source, [outputs, channels, 3, 3], stride, 1, 1))
        if stride == 2:
            layers.append(convolution(source, [outputs, channels, 1, 1], 2, 0, 1))
        channels, side = outputs, (side - 1) // stride + 1
        layers.append(
            convolution([batch, channels, side, side], [channels, channels, 3, 3], 1, 1, 1)
        )
    return layers


def random_convolution(rng):
    """One random configuration, or None if it makes no sense or is large."""
    kind = rng.random()
    groups = 1
    if kind < 0.2:  # An image.
        inputs = rng.choice((1, 2, 3, 3, 3, 4, 5))
        outputs = rng.choice((8, 10, 13, 16, 20, 24, 32, 48, 64, 96))
    elif kind < 0.55:
        inputs, outputs = (
            rng.choice((8, 16, 24, 32, 40, 48, 64, 96, 128, 160, 256)) for _ in range(2)
        )
    elif kind < 0.75:
        inputs, outputs = rng.randint(6, 130), rng.randint(1, 130)
    elif kind < 0.9:  # One filter, or two, for each channel.
        groups = rng.choice((8, 16, 24, 32, 58, 64, 96, 100, 128, 144, rng.randint(2, 90)))
        inputs, outputs = 1, rng.choice((1, 1, 1, 1, 2))
    else:
        groups = rng.choice((2, 3, 4, 8, 32))
        inputs = rng.choice((1, 2, 4, 5, 8, 12, 16, 32))
        outputs = rng.choice((1, 2, 4, 6, 8, 16, 20, 32))
    kernel = rng.choice((1, 1, 1, 2, 3, 3, 3, 3, 5, 7))
    other = kernel if rng.random() < 0.9 else rng.choice((1, 3, 5))
    dilation = 1 if rng.random() < 0.85 else rng.choice((2, 3, 6))
    stride = rng.choice((1, 1, 1, 2, 2, 3, 4))
    padding = rng.choice((0, 0, 1) + ((kernel - 1) * dilation // 2,) * 3)
    height = rng.choice((1, 2, 4, 7, 8, 13, 14, 16, 17, 28, 31, 32, 56, 57, 64))
    width = height if rng.random() < 0.7 else rng.choice((5, 7, 9, 14, 20, 28))
    batch = rng.choice((0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17, 32))
    line = rng.random() < 0.1
    bias = rng.random() < 0.4
    layout = rng.choice(((False, False),) * 4 + ((True, True), (True, False), (False, True)))
    sides = [width] if line else [height, width]
    kernels = [kernel] if line else [kernel, other]
    work = batch * groups * inputs * outputs
    for side, extent in zip(sides, kernels, strict=True):
        reach = side + 2 * padding - dilation * (extent - 1) - 1
        if reach < 0:
            return None
        work *= (reach // stride + 1) * extent
    if work > 1.5e8 or batch * groups * inputs * height * width > 2e6:
        return None
    return convolution(
        [batch, groups * inputs, *sides],
        [groups * outputs, inputs, *kernels],
        stride,
        padding,
        dilation,
        groups,
        bias,
        (False, False) if line else layout,
    )


def isa(capabilities):
    """oneDNN's name of the instruction set it uses."""
    asked = os.environ.get("ONEDNN_MAX_CPU_ISA", "").lower()
    if asked not in ("", "default", "all"):
        return asked
    for name, flag in (
        ("avx512_core_amx", "amx_tile"),
        ("avx512_core_fp16", "avx512_fp16"),
        ("avx512_core_bf16", "avx512_bf16"),
        ("avx512_core_vnni", "avx512_vnni"),
        ("avx512_core", "avx512_dq"),
        ("avx2", "avx2"),
    ):
        if capabilities.get(flag):
            return name
    return "unknown"


def is_channels_last(tensor):
    """Tensor::suggest_memory_format() == ChannelsLast."""
    if tensor.dim() != 4:
        return False
    strides, least = tensor.stride(), 0
    if strides[1] == 0:
        return False
    for axis in (1, 3, 2, 0):
        if tensor.shape[axis] == 0 or strides[axis] < least:
            return False
        if axis == 0 and least == strides[1]:
            return False
        least = strides[axis] * max(1, tensor.shape[axis])
    return True


def measure(torch, cases):
    """Adds "hidden" to each case; one profile sees them all."""
    from torch.profiler import ProfilerActivity, profile, record_function

    with (
        torch.no_grad(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        for number, case in enumerate(cases):
            tensors = []
            for name, last in zip(("input", "weight"), case["channelsLast"], strict=True):
                tensor = torch.zeros(case[name])
                if last:
                    tensor = tensor.to(memory_format=torch.channels_last)
                case[name + "ChannelsLast"] = is_channels_last(tensor)
                tensors.append(tensor)
            bias = torch.zeros(case["weight"][0]) if case["hasBias"] else None
            function = torch.conv1d if len(case["input"]) == 3 else torch.conv2d
            with record_function(f"case {number}"):
                output = function(
                    *tensors,
                    bias,
                    case["stride"],
                    case["padding"],
                    case["dilation"],
                    case["groups"],
                )
            del output
    events = profiler.profiler.kineto_results.events()
    # A call's own allocations lie between its marker's start and end.
    spans = sorted(
        (e.start_ns(), e.start_ns() + e.duration_ns(), int(e.name()[5:]))
        for e in events
        if e.name().startswith("case ")
    )
    memory = sorted(
        (
            (e.start_ns(), order, e.nbytes())
            for order, e in enumerate(events)
            if e.name() == "[memory]"
        )
    )
    at = 0
    for start, end, number in spans:
        live = peak = 0
        while at < len(memory) and memory[at][0] < start:
            at += 1
        while at < len(memory) and memory[at][0] <= end:
            live += memory[at][2]
            peak = max(peak, live)
            at += 1
        cases[number]["hidden"] = peak - live


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(arguments.threads))
    import torch

    torch.set_num_threads(arguments.threads)
    cases = [
        layer
        for side, batches in ((64, BATCHES), (224, (1, 2)))
        for batch in batches
        for layer in resnet18(side, batch)
    ]
    rng = random.Random(arguments.seed)
    wanted = len(cases) + arguments.cases
    while len(cases) < wanted:
        case = random_convolution(rng)
        if case:
            cases.append(case)
    measure(torch, cases)
    capabilities = torch.cpu.get_capabilities()
    target = dict(
        threads=torch.get_num_threads(),
        isa=isa(capabilities),
        l1Bytes=capabilities.get("l1d_cache_size", 0),
        l2Bytes=capabilities.get("l2_cache_size", 0),
    )
    for case in cases:
        del case["channelsLast"]
        print(json.dumps({**case, "elementBytes": 4, **target}))


if __name__ == "__main__":
    main()
