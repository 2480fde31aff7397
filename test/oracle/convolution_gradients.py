#!/usr/bin/env python3
"""Compares what random convolutions hold in the backward pass with PyTorch.

Usage: convolution_gradients.py --counter LIBRARY [--koila-opt PATH]
           [--count N] [--seed S] [--threads 1,2] [--type NAME,...] [--control]
           [--least SHARE] [--turned]

Each convolution, of one, two or three dims, plain or transposed, contiguous or
channels-last, has a module and a file of its own; the loss is the mean of the
squares of its result. As in backward_nodes.py a hook before each autograd node
reads the allocator. A figure that koila calls exact must be the measured one,
and no other may be less than that. With --turned the images are of one dim, and
transposed, as those are that have their channels last. --control predicts another
batch than runs. With --least that share of the convolutions must be exact of which
koila knows the kernels: all of them with AVX-512, and those of contiguous tensors
with AVX2.
"""

import argparse
import collections
import random
import sys
import tempfile

import torch

import backward_nodes
from counter import Counter

CHANNELS = [4, 5, 6, 8, 10, 12, 16, 16, 20, 24, 32, 32, 40, 48, 64, 96, 128]
KERNELS = [1, 2, 3, 3, 3, 4, 5, 7, 9, 15]
# Of one sample.
MOST_PRODUCTS = 10**6
CLASSES = {
    (1, False): torch.nn.Conv1d,
    (2, False): torch.nn.Conv2d,
    (3, False): torch.nn.Conv3d,
    (1, True): torch.nn.ConvTranspose1d,
    (2, True): torch.nn.ConvTranspose2d,
    (3, True): torch.nn.ConvTranspose3d,
}


class Module(torch.nn.Module):
    """CONVOLUTION of an input that a weight scales, unless no gradient of the
    input is wanted."""

    def __init__(self, convolution, channels, rank, wants_input, last, turned=False):
        super().__init__()
        self.convolution = convolution
        self.scale = torch.nn.Parameter(
            torch.ones(1, channels, *[1] * rank), requires_grad=wants_input
        )
        self.last, self.turned = last, turned

    def forward(self, x):
        if self.turned:
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        if self.last:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.convolution(x * self.scale).square().mean()


def make_channels(rng):
    """Of the input and the result, and the groups."""
    kind = rng.choice(["dense"] * 5 + ["depthwise"] * 2 + ["groups", "first"])
    inputs, outputs = rng.choice(CHANNELS), rng.choice(CHANNELS)
    if kind == "depthwise":
        return inputs, inputs, inputs
    if kind == "groups":
        groups = rng.choice([2, 3, 4, 8])
        return (
            groups * rng.choice([2, 3, 4, 8, 16, 16, 32]),
            groups * rng.choice([1, 2, 4, 8, 16, 16, 24]),
            groups,
        )
    return rng.choice([1, 2, 3]) if kind == "first" else inputs, outputs, 1


def make_case(rng, turned):
    """A module and the extents of an image; none if there is no such one."""
    rank = 1 if turned else rng.choice([1, 2, 2, 2, 2, 2, 3])
    transposed = rng.random() < 0.2
    inputs, outputs, groups = make_channels(rng)
    sizes = [1, 2, 3, 5, 7, 8, 9, 12, 16, 20, 28] if rank < 3 else [1, 2, 4, 8]
    image = [rng.choice(sizes)] * rank
    kernel = [rng.choice(KERNELS)] * rank
    if rng.random() < 0.25:
        kernel = [rng.choice([1, 2, 3, 5, 7, 11]) for _ in range(rank)]
        image = [rng.choice(sizes) for _ in range(rank)]
    stride = rng.choice([1, 1, 1, 2, 2, 3, 4])
    dilation = rng.choice([2, 3]) if rng.random() < 0.15 else 1
    padding = [rng.choice([extent // 2, extent // 2, 0]) for extent in kernel]

    def make(device):
        return CLASSES[rank, transposed](
            inputs,
            outputs,
            kernel,
            stride,
            padding,
            dilation=dilation,
            groups=groups,
            bias=has_bias,
            device=device,
        )

    has_bias = rng.random() < 0.5
    sample = torch.empty(1, inputs, *image, device="meta")
    try:
        convolution = make("meta")
        result = convolution(sample)
    except (RuntimeError, ValueError):
        return None
    products = sample if transposed else result
    if products.numel() * convolution.weight[0].numel() > MOST_PRODUCTS:
        return None
    convolution = make("cpu")
    last = rank == 2 and rng.random() < 0.3
    if last and rng.random() < 0.5:
        convolution.to(memory_format=torch.channels_last)
    return Module(convolution, inputs, rank, rng.random() < 0.8, last, turned), image


def run_case(module, image, batch, threads, options, folder, counter):
    """A verdict, what differs, and whether koila knows the kernels."""
    x = torch.randn(batch, module.scale.shape[1], *image).to(module.scale.dtype)
    file = f"{folder}/convolution.pt"
    torch.jit.trace(module, x, check_trace=False).save(file)
    program = torch.jit.load(file)
    log = backward_nodes.measure(program, [x], counter)
    options.batch, options.threads = batch, threads
    spec = f"{str(x.dtype).removeprefix('torch.')}[B,{','.join(map(str, x.shape[1:]))}]"
    report, predicted = backward_nodes.predict(options, file, [spec])
    problems = backward_nodes.compare(log, predicted, False)
    is_known = report["isa"].startswith("avx512") or not module.last
    if report["exact"]:
        return "WRONG" if problems else "right", problems, is_known
    # Each operation that is a bound holds no less than was measured.
    if report["peak_bytes"] < log_peak(log):
        problems = [f"{report['peak_bytes']} B predicted, {log_peak(log)} B measured"]
        return "EXCEEDED", problems, is_known
    return "bounds", [], is_known


def log_peak(log):
    return max(log.peaks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--counter", required=True)
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--type", default="float32")
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("--turned", action="store_true")
    options = parser.parse_args()
    torch._C._jit_set_profiling_mode(False)
    has_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    counter = Counter(options.counter)
    rng = random.Random(options.seed)
    torch.manual_seed(options.seed)
    threads = [int(number) for number in options.threads.split(",")]
    types = [getattr(torch, name) for name in options.type.split(",")]
    verdicts, known = collections.Counter(), collections.Counter()
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        while done < options.count:
            case = make_case(rng, options.turned)
            if not case:
                continue
            module, image = case
            module.to(types[done // len(threads) % len(types)])
            number = threads[done % len(threads)]
            kernel = module.convolution.weight[0][0].numel()
            # There oneDNN writes past its scratchpad, with AVX-512 on several threads.
            if (
                (number > 1 or not has_avx512)
                and module.last
                and kernel == 1
                and (module.scale.shape[1] % 16 and module.convolution.stride[0] > 1)
            ):
                continue
            torch.set_num_threads(number)
            batch = rng.choice([1, 2, 3, 5, 8, 16, 17])
            verdict, problems, is_known = run_case(
                module, image, batch, number, options, folder, counter
            )
            verdicts[verdict] += 1
            known[verdict] += is_known
            done += 1
            if verdict.isupper():
                print(
                    f"{verdict}: {module.convolution}, batch {batch}, image "
                    f"{image}, {number} threads"
                    f"{', channels-last' if module.last else ''}"
                )
                for problem in problems:
                    print(f"  {problem}")
            if done % 500 == 0:
                print(f"{done} of {options.count}", file=sys.stderr)
    print(
        f"{done} convolutions: {verdicts['right']} right, "
        f"{verdicts['bounds']} bounds, {verdicts['WRONG']} WRONG, "
        f"{verdicts['EXCEEDED']} EXCEEDED"
    )
    print(f"of known kernels: {known['right']} of {known.total()} right")
    few = known["right"] < options.least * max(known.total(), 1)
    return 1 if verdicts["WRONG"] or verdicts["EXCEEDED"] or few else 0


if __name__ == "__main__":
    sys.exit(main())
