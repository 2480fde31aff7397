"""One program, by the interpreter and through koila.

Everything that can be seen of a call is compared: what it returns, what it
did to its arguments, and what the module holds afterwards; and, after all
calls, what the earlier ones returned, which later writes may reach.
"""

import contextlib
import dataclasses
import os
import pathlib
import pickle
import random
import select
import signal
import tempfile
import time
import warnings

import torch

from koila_opt import Broken, Refused
from program import compile_program

# Seconds for a program through all of koila; and of computing, for a loop that
# never ends in the program itself.
TIMEOUT = 40
COMPUTING = 4


@dataclasses.dataclass(frozen=True)
class Pipeline:
    name: str
    # None: koila-opt has nothing to run.
    passes: tuple = ()
    # With --input, and so only for calls that it describes.
    described: bool = False
    suffix: str = ".mlirbc"
    # Relative, for floats: kernels round otherwise for another number of rows.
    tolerance: float = 0.0


PIPELINES = (
    Pipeline("plain"),
    # Out of loops, into branches, constants across both; by text.
    Pipeline(
        "upstream",
        (
            "--canonicalize",
            "--cse",
            "--loop-invariant-code-motion",
            "--control-flow-sink",
            "--sccp",
            "--cse",
            "--canonicalize",
        ),
        suffix=".mlir",
    ),
    Pipeline(
        "inferred",
        (
            "--cse",
            "--loop-invariant-code-motion",
            "--koila-infer-shapes",
            "--canonicalize",
            "--cse",
            "--loop-invariant-code-motion",
        ),
        described=True,
    ),
)
# Phases of loops over two samples and one, around what has effects or mixes
# samples.
TILED = (
    Pipeline(
        "tiled",
        ("--koila-infer-shapes", "--koila-tile-batch=tile=2"),
        described=True,
        tolerance=1e-5,
    ),
)
# What is enough to go wrong without the marks of order.
UPSTREAM = ("--canonicalize", "--cse", "--loop-invariant-code-motion")


@dataclasses.dataclass
class Verdict:
    """`kind` is ok, refused, failed or discarded; `what` sorts failures."""

    kind: str
    pipeline: str = ""
    what: str = ""
    detail: str = ""

    def key(self):
        return self.kind, self.pipeline, self.what


def input_flags(arguments):
    return [f"--input={argument.name}={argument.spec}" for argument in arguments]


# -- Calls --------------------------------------------------------------------


def make_call(arguments, batch, seed, described, aliased=False):
    """The values of one call. `aliased`: arguments that share storage."""
    source = random.Random(seed)
    values: dict = {}
    for argument in arguments:
        value = argument.make(batch, source)
        if described and argument.spec in ("true", "3"):
            value = {"true": True, "3": 3}[argument.spec]
        while described and value is None:
            value = argument.make(batch, source)
        values[argument.name] = value
    if aliased:
        if "y" in values:
            values["y"] = values["x"]
        if "z" in values:
            values["z"] = values["x"][:, 1]
        if "many" in values:
            values["many"][1] = values["many"][0]
    return list(values.values())


def make_calls(arguments, described, salt=0):
    """Two batches, twice in a row, and one call with shared arguments."""
    return [
        make_call(arguments, 3, 10 + salt, described),
        make_call(arguments, 3, 20 + salt, described),
        make_call(arguments, 5, 30 + salt, described),
        make_call(arguments, 2, 40 + salt, described, aliased=True),
    ]


def snapshot(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return type(value)(snapshot(part) for part in value)
    if isinstance(value, dict):
        return {key: snapshot(part) for key, part in value.items()}
    return value


def state_of(module, names):
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    state |= {name: getattr(module, name) for name in names}
    return snapshot(state)


def observe(module, program, calls):
    """What there is to see of a row of calls; raises what they raise."""
    names = [line.split(":")[0] for line in program.declared]
    seen, kept = [], []
    with torch.no_grad():
        for values in calls:
            result = module(*values)
            kept.append(result)
            seen.append(
                {
                    "result": snapshot(result),
                    "arguments": snapshot(values),
                    "state": state_of(module, names),
                }
            )
    seen.append({"results in the end": snapshot(kept)})
    return seen


def difference(one, other, path="", tolerance=0.0):
    """None, or where two things differ by a bit, or more, or in kind."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{path}: {other.dtype} {list(other.shape)} for {one.dtype} {list(one.shape)}"
        same = (one == other) | ((one != one) & (other != other))
        if tolerance and one.is_floating_point():
            same |= torch.isclose(one, other, rtol=tolerance, atol=tolerance)
        return None if same.all() else f"{path}: other values"
    if type(one) is not type(other):
        return f"{path}: {type(other).__name__} for {type(one).__name__}"
    if isinstance(one, dict):
        if list(one) != list(other):
            return f"{path}: keys {list(other)} for {list(one)}"
        pairs = [(key, one[key], other[key]) for key in one]
    elif isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f"{path}: {len(other)} elements for {len(one)}"
        pairs = [(i, *pair) for i, pair in enumerate(zip(one, other, strict=True))]
    else:
        near = (
            isinstance(one, float) and tolerance and abs(one - other) <= tolerance * (1 + abs(one))
        )
        return (
            None
            if one == other or (one != one and other != other) or near
            else f"{path}: {other} for {one}"
        )
    for key, left, right in pairs:
        if found := difference(left, right, f"{path}[{key}]", tolerance):
            return found
    return None


# -- One program --------------------------------------------------------------


class Discarded(Exception):
    """The program says nothing about koila."""


def interpreted():
    """Programs run as they are written, node by node."""
    torch._C._jit_set_profiling_executor(False)
    torch._C._set_graph_executor_optimize(False)


def compiled():
    """LibTorch as koila-opt has it: inlining needs the optimiser on."""
    torch._C._set_graph_executor_optimize(True)


@contextlib.contextmanager
def computing():
    """Bounds the time that a program computes in this process."""
    # Kills it: the interpreter listens to nothing else.
    signal.setitimer(signal.ITIMER_VIRTUAL, COMPUTING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def get_reference(program, folder):
    """Writes the archive; what the interpreter makes of each set of calls."""
    with computing():
        return run_reference(program, folder)


def run_reference(program, folder):
    try:
        compiled()
        module = compile_program(program.source())
        module.save(folder / "in.pt")
    except Exception as error:
        raise Discarded(f"compile: {error}") from None
    reference = {}
    interpreted()
    try:
        for described in (False, True):
            calls = make_calls(program.arguments, described)
            reference[described] = observe(torch.jit.load(folder / "in.pt"), program, calls)
        other = observe(
            torch.jit.load(folder / "in.pt"), program, make_calls(program.arguments, False, salt=1)
        )
        again = observe(module, program, make_calls(program.arguments, False))
    except Exception as error:
        last = str(error).strip().splitlines()[-1]
        raise Discarded(f"run: {last}") from None
    if difference(reference[False], again):
        raise Discarded("PyTorch's own archive differs")
    if not difference(
        [seen.get("result") for seen in reference[False]], [seen.get("result") for seen in other]
    ):
        raise Discarded("results do not depend on inputs")
    return reference


def run_emitted(path, program, described):
    interpreted()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = observe(torch.jit.load(path), program, make_calls(program.arguments, described))
    for warning in caught:
        if "koila" in str(warning.message):
            raise RuntimeError(f"fell back: {warning.message}")
    return seen


def through(koila, pipeline, code, program, folder):
    """The archive that comes out."""
    if pipeline.passes:
        flags = input_flags(program.arguments) if pipeline.described else []
        code = koila.passes(code, folder, [*flags, *pipeline.passes], pipeline.suffix)
    path = folder / f"{pipeline.name}.pt"
    koila.write(code, path)
    return path


def check_pipeline(koila, pipeline, code, program, reference, folder):
    try:
        compiled()
        path = through(koila, pipeline, code, program, folder)
    except Refused as refusal:
        return Verdict("refused", pipeline.name, detail=str(refusal))
    except Broken as error:
        return Verdict("failed", pipeline.name, "broken", str(error))
    try:
        seen = run_emitted(path, program, pipeline.described)
    except Exception as error:
        return Verdict("failed", pipeline.name, "raises", str(error))
    found = difference(reference[pipeline.described], seen, tolerance=pipeline.tolerance)
    if found:
        return Verdict("failed", pipeline.name, "differs", found)
    return Verdict("ok", pipeline.name)


def evaluate(koila, program, folder, pipelines):
    """A Verdict per pipeline; one for all if koila does not read it."""
    try:
        reference = get_reference(program, folder)
    except Discarded as reason:
        return [Verdict("discarded", detail=str(reason))]
    try:
        compiled()
        code = koila.read(folder / "in.pt")
    except Refused as refusal:
        return [Verdict("refused", "import", detail=str(refusal))]
    except Broken as error:
        return [Verdict("failed", "import", "broken", str(error))]
    return [
        check_pipeline(koila, pipeline, code, program, reference, folder) for pipeline in pipelines
    ]


# -- Apart --------------------------------------------------------------------


def in_child(function, timeout=TIMEOUT):
    """What `function` returns, computed in a process of its own, so that a
    crash or a loop without end is an answer too: ("value", it), ("died", why).
    """
    with tempfile.TemporaryFile() as words:
        return ask_child(function, timeout, words)


def ask_child(function, timeout, words):
    """The same; `words` is the file that the process writes its errors to."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            # The last words of a process that dies.
            os.dup2(words.fileno(), 2)
            with os.fdopen(writer, "wb") as pipe:
                try:
                    answer = ("value", function())
                except Exception as error:
                    answer = ("died", f"{type(error).__name__}: {error}")
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(writer)
    data, late = b"", time.monotonic() + timeout
    with os.fdopen(reader, "rb") as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0, late - time.monotonic()))
            if not ready:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "died", f"no answer after {timeout} seconds"
            part = os.read(pipe.fileno(), 1 << 16)
            if not part:
                break
            data += part
    _, status = os.waitpid(child, 0)
    if status == signal.SIGVTALRM:
        return "endless", "the program does not end"
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        words.seek(0)
        last = words.read().decode(errors="replace").strip().splitlines()
        return "died", f"died of {name}: " + " ".join(last[-8:])[:600]
    return pickle.loads(data)


def evaluate_apart(koila, program, pipelines=PIPELINES):
    with tempfile.TemporaryDirectory() as folder:
        kind, answer = in_child(lambda: evaluate(koila, program, pathlib.Path(folder), pipelines))
    if kind == "endless":
        return [Verdict("discarded", detail=answer)]
    if kind == "died":
        return [
            Verdict("failed", "all" if len(pipelines) > 1 else pipelines[0].name, "crash", answer)
        ]
    return answer
