#!/usr/bin/env python3
"""What a tiled step returns beside the loss: further results, and gradients of
arguments.

Each module of results.py is compiled for tiles of four, for batches that they
divide and that they do not. In float64 a process with PyTorch alone calls
`train_step`, twice, and `grads`: results, gradients of arguments and of weights
are those of the module itself, without graphs. In float32 koila-run compares
the file with the original, and the bytes that it predicts for both are those
that it measures. As a control, rows that come from another tile are noticed.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch

import results
from plain_python import PlainPython

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Last: it has modules of the same names.
sys.path.append(str(ROOT / "test" / "property"))
from koila_opt import Broken, Koila, Refused

TILE = 4


class Failure(Exception):
    pass


def parse(spec, batch, dtype):
    """A tensor for an input of results.py, and whether it is `@grad`."""
    kind, rest = spec.split("=", 1)[1].split("[", 1)
    dims, _, rest = rest.partition("]")
    shape = [batch if dim == "B" else int(dim) for dim in filter(None, dims.split(","))]
    if kind == "int64":
        low, high = map(int, rest.strip("{}").split(":"))
        return torch.randint(low, high, shape), False
    value = torch.randn(shape, dtype=torch.float64).to(dtype)
    if "@channels_last" in rest:
        value = value.contiguous(memory_format=torch.channels_last)
    return value, "@grad" in rest


def make_inputs(case, batch, dtype):
    torch.manual_seed(batch)
    return [parse(spec, batch, dtype) for spec in case.inputs]


def make_module(case, dtype):
    torch.manual_seed(3)
    return case.make().to(dtype)


def run_module(case, batch):
    """All that a step returns, and the gradients of the weights."""
    module = make_module(case, torch.float64)
    arguments = [
        value.requires_grad_(wanted) for value, wanted in make_inputs(case, batch, torch.float64)
    ]
    torch.manual_seed(0)
    if case.loss:
        found = torch.nn.functional.mse_loss(module(arguments[0]), arguments[1], reduction="sum")
    else:
        found = module(*arguments)
    found = found if isinstance(found, tuple) else (found,)
    # Before what is written in place.
    found[0].backward()
    found = [value.detach() for value in found]
    found += [value.grad for value in arguments if value.requires_grad]
    return found, {name: value.grad for name, value in module.named_parameters()}


def compile_step(options, case, folder, name, dtype):
    """The original and the emitted file, or what the compiler says."""
    typename = str(dtype).removeprefix("torch.")
    source = folder / f"{name}.{typename}.pt"
    target = folder / f"{name}.{typename}.tiled.pt"
    module = make_module(case, dtype)
    values = [value for value, _ in make_inputs(case, 3, dtype)]
    values = values[:-1] if case.loss else values
    script = (
        torch.jit.script(module)
        if case.scripted
        else torch.jit.trace(module, tuple(values), check_trace=False, strict=False)
    )
    script.save(source)
    specs = [spec.replace("FLOAT", typename) for spec in case.inputs]
    loss = f" loss={case.loss}" if case.loss else ""
    wanted = [str(place) for place, spec in enumerate(specs) if spec.endswith("@grad")]
    passes = [
        f"--koila-compile=mode=train{loss} tile={TILE} threads=1 guard=raise random={case.random}"
    ]
    try:
        options.koila.compile(source, specs, passes, target, case.loss, ",".join(wanted) or None)
    except (Broken, Refused) as error:
        return source, None, specs, str(error)
    return source, target, specs, ""


# What a user does with the file, with nothing of koila.
USER = """
import sys, torch

def call(path, given, answer):
    module = torch.jit.load(path)
    tensors, wanted = zip(*torch.load(given))
    calls = []
    for call in range(3):
        # Of the caller's tensors nothing is asked, and nothing changes.
        arguments = [value.clone().requires_grad_(is_wanted and call > 0)
                     for value, is_wanted in zip(tensors, wanted)]
        torch.manual_seed(0)
        if call < 2:
            found = module.train_step(*arguments)
            gradients = [None if value.grad is None else value.grad.clone()
                         for value in module.parameters()]
        else:
            found, gradients = module.grads(*arguments)
        found = found if isinstance(found, tuple) else (found,)
        assert not any(value.requires_grad for value in found)
        assert all(value.grad is None for value in arguments)
        calls.append((found, gradients))
    torch.save((calls, [(name, value.requires_grad) for name, value
                        in module.named_parameters()]), answer)
"""


def check_tensor(what, found, wanted):
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        raise Failure(
            f"{what}: {found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        )
    try:
        torch.testing.assert_close(found, wanted)
    except AssertionError as error:
        raise Failure(f"{what}: {error}") from error


def check_control(what, found, wanted, batch):
    """Rows of another tile must be noticed."""
    if batch < 2 * TILE or batch not in found.shape:
        return 0
    dim = found.shape.index(batch)
    if wanted.roll(TILE, dim).equal(wanted):
        raise Failure(f"{what}: all tiles are equal, so that it proves nothing")
    try:
        check_tensor(what, found.roll(TILE, dim), wanted)
    except Failure:
        return 1
    raise Failure(f"{what}: rows of another tile are not noticed")


def check_calls(case, where, batch, answer):
    """Returns how many results were compared, and how many controls caught."""
    calls, parameters = torch.load(answer)
    wanted, gradients = run_module(case, batch)
    compared = caught = 0
    for call, (found, of_weights) in enumerate(calls):
        if len(found) != len(wanted):
            raise Failure(f"{where}: {len(found)} results, not {len(wanted)}")
        for index, (value, expected) in enumerate(zip(found, wanted, strict=True)):
            what = f"{where}, call {call + 1}, result {index}"
            check_tensor(what, value, expected)
            caught += check_control(what, value, expected, batch)
            compared += 1
        trained = [name for name, is_trained in parameters if call < 2 or is_trained]
        for name, value in zip(trained, of_weights, strict=True):
            what, expected = f"{where}, gradient of {name}", gradients[name]
            if expected is None:
                if value is not None and value.any():
                    raise Failure(f"{what}: there is none")
                continue
            # The second call adds the same again.
            check_tensor(what, value, expected * (2 if call == 1 else 1))
            compared += 1
    return compared, caught


def check_memory(options, case, where, source, target, specs, batch):
    done = subprocess.run(
        [
            options.koila_run,
            source,
            target,
            *(f"--input={spec}" for spec in specs),
            "--batch",
            f"B={batch}",
            "--mode=train",
            "--threads=1",
            "--repeat=1",
            "--json",
            *([f"--loss={case.loss}"] if case.loss else []),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        raise Failure(f"{where}: {done.stderr.strip()[-500:]}")
    programs = json.loads(done.stdout)["programs"]
    for program in programs if case.exact else []:
        predicted, measured = (program["predicted_peak_bytes"], program["measured_peak_bytes"])
        is_bound = case.bound_with_avx2 and torch.backends.cpu.get_cpu_capability() == "AVX2"
        is_right = program["predicted_exact"] and predicted == measured
        if not (is_right or (is_bound and predicted >= measured)):
            raise Failure(
                f"{where}: {program['path']}: predicted {predicted}, "
                f"measured {measured} bytes: {done.stderr[-300:]}"
            )
    return 2 * case.exact


def check_case(options, name, case, folder):
    """How many results were compared, controls caught, and peaks met."""
    _, exact, _, message = compile_step(options, case, folder, name, torch.float64)
    if case.refused:
        if exact or case.refused not in message:
            raise Failure(f"not refused with '{case.refused}': {message or 'it was tiled'}")
        return 0, 0, 0
    if not exact:
        raise Failure(message)
    requests, checks = [], []
    for batch in options.batches:
        given = folder / f"{name}.{batch}.inputs"
        answer = folder / f"{name}.{batch}.answer"
        torch.save(make_inputs(case, batch, torch.float64), given)
        requests.append((exact, given, answer))
        checks.append((f"batch {batch}", batch, answer))
    good, errors = options.user.run(requests)
    if not good:
        raise Failure(f"train_step: {errors.strip()[-600:]}")
    counts = [check_calls(case, *check) for check in checks]
    source, target, specs, message = compile_step(options, case, folder, name, torch.float32)
    if not target:
        raise Failure(message)
    met = sum(
        check_memory(options, case, f"batch {batch}", source, target, specs, batch)
        for batch in options.batches
    )
    return *map(sum, zip(*counts, strict=True)), met


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--koila-opt", default=ROOT / "build/bin/koila-opt")
    parser.add_argument("--koila-run", default=ROOT / "build/bin/koila-run")
    parser.add_argument(
        "--folder", type=pathlib.Path, help="where programs are written; default: a temporary one"
    )
    parser.add_argument("--batches", default="7,16", type=numbers)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    options = parser.parse_args()
    options.koila, options.user = Koila(options.koila_opt), PlainPython(USER)
    torch.set_num_threads(1)
    folder = options.folder or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    failed, refused, total = [], 0, (0, 0, 0)
    for name, case in results.CASES.items():
        if options.only and name not in options.only:
            continue
        try:
            counts = check_case(options, name, case, folder)
            total = tuple(map(sum, zip(total, counts, strict=True)))
            refused += bool(case.refused)
        except Failure as failure:
            failed.append(name)
            print(f"{name}: FAILED: {failure}", flush=True)
    print(
        f"{total[0]} tensors equal, {total[1]} controls caught, {total[2]} "
        f"peaks as predicted, {refused} programs refused, {len(failed)} "
        f"failed"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
