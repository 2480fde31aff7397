#!/usr/bin/env python3
"""Training steps in tiles: the gradients of one backward pass over the batch.

Each module of losses.py is compiled in float32 and float64 at several tiles.
The emitted `train_step` is called in a process with PyTorch alone, once
and twice (gradients add up), and `.grad` is compared with that of the module
itself; so is what `grads` returns. Equal: float64 decides, and float32 is no
further from it than twice the untiled program. As a control, the mean of what
tiles give has to differ wherever it is another loss. A loss that mixes samples
runs in segments, and is refused without them.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import torch

import losses
from plain_python import PlainPython

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Last: it has modules of the same names.
sys.path.append(str(ROOT / "test" / "property"))
from koila_opt import Broken, Koila, Refused

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Failure(Exception):
    pass


def parse(spec, batch, dtype):
    """A tensor for an input of losses.py, the same for both dtypes."""
    _, text = spec.split("=", 1)
    kind, rest = text.split("[", 1)
    dims, _, bounds = rest.partition("]")
    shape = [batch if dim == "B" else int(dim) for dim in dims.split(",")]
    if kind == "int64":
        low, high = map(int, bounds.strip("{}").split(":"))
        return torch.randint(low, high, shape)
    values = torch.randn(shape, dtype=torch.float64)
    if bounds:
        values = torch.rand(shape, dtype=torch.float64)
    return values.to(dtype)


def make_inputs(case, batch, dtype):
    torch.manual_seed(batch)
    return [parse(spec, batch, dtype) for spec in case.inputs]


def make_module(case, dtype):
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    module = case.make().to(dtype)
    torch.set_default_dtype(torch.float32)
    return module


def compute_loss(case, module, inputs):
    """The loss of `inputs` by the module itself."""
    if not case.loss:
        return module(*inputs)
    name, _, rest = case.loss.partition("(")
    numbers = {}
    for part in filter(None, rest.rstrip(")").split(",")):
        key, value = part.split("=")
        numbers[key] = value if key == "reduction" else json.loads(value)
    return getattr(torch.nn.functional, name)(module(*inputs[:-1]), inputs[-1], **numbers)


def get_gradients(module):
    return {
        name: None if value.grad is None else value.grad.clone()
        for name, value in module.named_parameters()
    }


def run_module(case, batch, dtype):
    module = make_module(case, dtype)
    inputs = make_inputs(case, batch, dtype)
    torch.manual_seed(0)
    loss = compute_loss(case, module, inputs)
    loss.backward()
    return loss.detach(), get_gradients(module)


def run_naively(case, batch, tile, dtype):
    """The control: the mean of what tiles give."""
    module = make_module(case, dtype)
    inputs = make_inputs(case, batch, dtype)
    starts = range(0, batch, tile)
    for start in starts:
        rows = [
            value.narrow(value.shape.index(batch), start, min(tile, batch - start))
            for value in inputs
        ]
        (compute_loss(case, module, rows) / len(starts)).backward()
    return get_gradients(module)


def compile_step(options, case, folder, tile, dtype, recompute="auto"):
    """The emitted file, or what the compiler says."""
    name = next(key for key, value in losses.CASES.items() if value is case)
    source = folder / f"{name}.{dtype}.pt"
    if not source.exists():
        module = make_module(case, DTYPES[dtype])
        inputs = make_inputs(case, 3, DTYPES[dtype])
        if case.loss:
            inputs = inputs[:-1]
        torch.jit.trace(module, tuple(inputs), check_trace=False).save(source)
    target = folder / f"{name}.{dtype}.{tile}.pt"
    loss = f" loss={case.loss}" if case.loss else ""
    specs = [spec.replace("FLOAT", dtype) for spec in case.inputs]
    choices = f"random={case.random} recompute={recompute}"
    passes = [f"--koila-compile=mode=train{loss} tile={tile} {choices}"]
    try:
        options.koila.compile(source, specs, passes, target, case.loss)
    except (Broken, Refused) as error:
        return None, str(error)
    return target, ""


# What a user does with the file, with nothing of koila.
USER = """
import sys, torch

def call(path, inputs, answer):
    module = torch.jit.load(path)
    tensors = torch.load(inputs)
    losses = []
    gradients = []
    for _ in range(2):
        torch.manual_seed(0)
        losses.append(module.train_step(*tensors))
        gradients.append({name: None if value.grad is None
                          else value.grad.clone()
                          for name, value in module.named_parameters()})
    # The method that returns them leaves `.grad` alone.
    torch.manual_seed(0)
    loss, returned = module.grads(*tensors)
    losses.append(loss)
    trained = [(name, value) for name, value in module.named_parameters()
               if value.requires_grad]
    assert len(returned) == len(trained)
    for name, value in module.named_parameters():
        before = gradients[1][name]
        assert (value.grad is None if before is None
                else torch.equal(value.grad, before)), name
    gradients.append({name: value for (name, _), value
                      in zip(trained, returned)})
    torch.save((losses, gradients), answer)
"""


def times(count, tensor):
    """A gradient that was added so often; none stays none."""
    return None if tensor is None else tensor * count


def get_error(found, exact):
    return (found.double() - exact.double()).norm().item()


def check_tensor(what, tiled, untiled, exact, dtype):
    if (tiled is None) != (untiled is None):
        raise Failure(
            f"{what}: {'no' if tiled is None else 'a'} gradient, unlike the module itself"
        )
    if tiled is None:
        return
    if tiled.dtype != untiled.dtype or tiled.shape != untiled.shape:
        raise Failure(
            f"{what}: {tiled.dtype}{list(tiled.shape)}, not {untiled.dtype}{list(untiled.shape)}"
        )
    if dtype == "float64":
        try:
            torch.testing.assert_close(tiled, exact, equal_nan=True)
        except AssertionError as error:
            raise Failure(f"{what}: {error}") from error
        return
    allowed = (
        2 * get_error(untiled, exact) + 8 * torch.finfo(untiled.dtype).eps * exact.norm().item()
    )
    if not get_error(tiled, exact) <= allowed:
        raise Failure(f"{what}: {get_error(tiled, exact):.3g} off, and {allowed:.3g} is allowed")


def check_spread(case, gradients):
    """Gradients that are all zero would prove nothing."""
    if not any(value is not None and value.abs().max() > 1e-4 for value in gradients.values()):
        raise Failure("all gradients are zero: the check is vacuous")


def check_case(options, name, case, folder):
    """Returns how many comparisons were made."""
    requests, checks = [], []
    for dtype in DTYPES:
        for tile in options.tiles:
            if case.refused:
                recompute = "never" if case.segments else "auto"
                path, message = compile_step(options, case, folder, tile, dtype, recompute)
                if path or case.refused not in message:
                    raise Failure(f"not refused with '{case.refused}': {message or 'it was tiled'}")
                if not case.segments:
                    return 0
            path, message = compile_step(options, case, folder, tile, dtype)
            if tile < case.least_tile:
                if path or "for a single sample; use tile=" not in message:
                    raise Failure(f"tile {tile} is not refused: {message}")
                continue
            if not path:
                raise Failure(f"tile {tile}: {message}")
            for batch in options.batches:
                inputs = folder / f"{name}.{dtype}.{batch}.inputs"
                torch.save(make_inputs(case, batch, DTYPES[dtype]), inputs)
                answer = folder / f"{name}.{dtype}.{tile}.{batch}.answer"
                requests.append((path, inputs, answer))
                checks.append((dtype, tile, batch, answer))
    good, errors = options.user.run(requests)
    if not good:
        raise Failure(f"train_step: {errors.strip()[-600:]}")
    if "koila:" in errors:
        raise Failure(f"the guard did not hold: {errors.strip()[-300:]}")
    for dtype, tile, batch, answer in checks:
        values, gradients = torch.load(answer)
        exact_loss, exact = run_module(case, batch, torch.float64)
        loss, untiled = run_module(case, batch, DTYPES[dtype])
        check_spread(case, exact)
        for call in range(2):
            where = f"{dtype}, tile {tile}, batch {batch}, call {call + 1}"
            if values[call].requires_grad:
                raise Failure(f"{where}: the loss has a graph")
            check_tensor(f"{where}, loss", values[call], loss, exact_loss, dtype)
            for key, value in gradients[call].items():
                # The second call adds the same again.
                check_tensor(
                    f"{where}, gradient of {key}",
                    value,
                    times(call + 1, untiled[key]),
                    times(call + 1, exact[key]),
                    dtype,
                )
        where = f"{dtype}, tile {tile}, batch {batch}, grads()"
        check_tensor(f"{where}, loss", values[2], loss, exact_loss, dtype)
        for key, value in gradients[2].items():
            # Of an unused weight they are zeros.
            zeros = torch.zeros_like(value)
            check_tensor(
                f"{where}, gradient of {key}",
                value,
                zeros if untiled[key] is None else untiled[key],
                zeros if exact[key] is None else exact[key],
                dtype,
            )
    if case.control:
        check_control(options, case)
    return len(checks) * 3


def check_control(options, case):
    batch = max(options.batches)
    tile = min(tile for tile in options.tiles if tile > 1)
    _, exact = run_module(case, batch, torch.float64)
    naive = run_naively(case, batch, tile, torch.float64)
    for key, value in exact.items():
        if value is None:
            continue
        try:
            check_tensor(key, naive[key], value, value, "float64")
        except Failure:
            return
    raise Failure("the mean of what tiles give is not noticed")


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--koila-opt", default=ROOT / "build/bin/koila-opt")
    parser.add_argument(
        "--folder", type=pathlib.Path, help="where programs are written; default: a temporary one"
    )
    parser.add_argument("--batches", default="2,7,16,100", type=numbers)
    parser.add_argument("--tiles", default="1,2,4,8", type=numbers)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    options = parser.parse_args()
    options.koila, options.user = Koila(options.koila_opt), PlainPython(USER)
    torch.set_num_threads(1)
    folder = options.folder or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    failed, compared, refused, segments = [], 0, 0, 0
    for name, case in losses.CASES.items():
        if options.only and name not in options.only:
            continue
        try:
            compared += check_case(options, name, case, folder)
            refused += bool(case.refused) and not case.segments
            segments += case.segments
        except Failure as failure:
            failed.append(name)
            print(f"{name}: FAILED: {failure}", flush=True)
    print(
        f"{compared} steps equal, {segments} modules in segments, "
        f"{refused} modules refused, {len(failed)} failed"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
