"""Judges texts of scripts in a process of its own, which may end or hang.

    with Worker(timeout=20) as worker:
        found = worker.judge(text, ["fits", "half"])     # a Found

Run as a program it is that process: requests come as lines of JSON, and answers
go back so.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

# Plain runs that round in other ways, and how many where something seems wrong:
# of a sum that is near a limit few runs do not show both sides.
ROUNDED_RUNS, MORE_ROUNDED_RUNS = 2, 12
# A step of bfloat16 is 2**-8. Under autocast the weights are moved by a part of that
# in place of one of float32, since what is added up in tiles is rounded so, too.
_COARSE, _FINE = 2.0**-11, 2.0**-23
# Of what is read, rounding may change such a part; more would hide faults.
MOST_CHAOS = 5e-2
LEAST_NEED = 64 << 10
# Programs after which a process is let go, with all that is left of them.
MOST_PROGRAMS = 200
# After so many what PyTorch loads when it is used is there. It stays, and need not
# be looked through for weights and cycles at each run.
_WARM = 4
# An answer comes after so many runs at most.
_RUNS = 8
BAD = ("wrong", "silent", "refused", "crashed")


@dataclass
class Found:
    """``verdicts`` as in judge.py, by budget, as dicts; ``complaints`` are what
    is wrong with the script."""

    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    need: int = 0
    seconds: float = 0.0
    koila_seconds: float = 0.0

    def is_bad(self) -> bool:
        return bool(self.complaints) or any(
            verdict["verdict"] in BAD or verdict["keeps"] or verdict["false_warning"]
            for verdict in self.verdicts.values()
        )

    def classes(self) -> Iterator[tuple[str, str]]:
        """What is not right: a budget, and verdict and reason without the names
        and numbers of this program."""
        for text in self.complaints:
            yield "plain", "unfit: " + _without_numbers(text)
        for name, verdict in self.verdicts.items():
            for word, reasons in _split_reasons(verdict):
                yield name, f"{word}: {_without_numbers(reasons[0]) if reasons else ''}"


def _split_reasons(verdict: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Verdicts and flags that are bad, each with what was said of it."""
    keeps = [text for text in verdict["reasons"] if "at its end" in text]
    false = [text for text in verdict["reasons"] if text.startswith("false warning")]
    if verdict["verdict"] in BAD:
        rest = [text for text in verdict["reasons"] if text not in keeps and text not in false]
        yield verdict["verdict"], rest
    if verdict["keeps"]:
        yield "keeps", keeps
    if verdict["false_warning"]:
        yield "false warning", false


def _without_numbers(text: str) -> str:
    text = re.sub(r"^(results|stdout|\w+)[^:]*?(\.\w+|\[[^\]]*\]|number \d+)+: ", "", text)
    text = re.sub(r"(false warning: )?script\.py:\d+: ", r"\1", text)
    text = re.sub(r"line \d+: ", "", text)
    text = re.sub(r"/\S*/script\.py(:\d+)*", "script.py", text)
    text = re.sub(r"^stdout( number \d+)?: .*", r"stdout", text)
    text = re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?", "#", text)
    return re.sub(r"# (bytes|[KMGT]iB)", "# bytes", text)[:200]


class Worker:
    """Starts its process when there is something to judge."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._judged = 0
        self._folder = tempfile.TemporaryDirectory()
        self._errors = pathlib.Path(self._folder.name) / "stderr"

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def judge(
        self, text: str, budgets: list[str], controls: bool = False, again: bool = True
    ) -> Found:
        """``again`` is whether to make sure of what seems wrong."""
        if self._process is None or self._judged >= MOST_PROGRAMS:
            self.stop()
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        self._judged += 1
        request = {
            "text": text,
            "budgets": budgets,
            "controls": controls,
            "again": again,
            "timeout": self.timeout,
        }
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = self._read(process)
        except BrokenPipeError:
            answer = b""
        if answer:
            return Found(**json.loads(answer))
        end = self._end()
        lost = {"verdict": "crashed", "reasons": [end], "keeps": [], "false_warning": False}
        return Found({name: {**lost, "tiles": [], "warned": []} for name in budgets})

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        script = str(pathlib.Path(self._folder.name) / "script.py")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", __file__, script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._judged = 0

    def _read(self, process: subprocess.Popen[bytes]) -> bytes:
        """A line, or nothing where the process ended or hangs."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], self.timeout * _RUNS)
        return process.stdout.readline() if ready else b""

    def _end(self) -> str:
        """Why there is no answer. The process is gone then."""
        process = self._process
        assert process is not None
        try:
            code = process.wait(1)
        except subprocess.TimeoutExpired:
            end = f"took longer than {self.timeout * _RUNS:g} s"
        else:
            lines = [line.strip() for line in self._errors.read_text().splitlines() if line.strip()]
            told = [line for line in lines if line.startswith("Fatal")] or lines[-3:]
            end = f"exit code {code}: {' / '.join(told)}"
        self.stop()
        return end


# The process.


def _judge(
    text: str, budgets: list[str], controls: bool, again: bool, timeout: float, script: str
) -> Found:
    import variants
    from execute import Run, execute
    from judge import judge, need_of
    from study import ENOUGH

    path = pathlib.Path(script)
    path.write_text(text)

    def run(call: Any, rounding: variants.Rounding | None = None) -> Run:
        return execute(path, call, _memory, rounding, timeout)

    variants.ROUNDING = _COARSE if "autocast" in text else _FINE
    found = Found()
    # A rounded run first, so that the plain one finds loaded what PyTorch loads
    # when it is used.
    rounded = [run(variants.plain, variants.Rounding(0))]
    if rounded[0].raised is not None:
        found.complaints.append(f"plain PyTorch: {rounded[0].raised}")
        return found
    rounded += [run(variants.plain, variants.Rounding(seed)) for seed in range(1, ROUNDED_RUNS)]
    plain = run(variants.plain)
    found.need, found.seconds = need_of(plain), plain.seconds
    found.complaints += _check(plain, rounded, found.need)
    if controls:
        dropped = judge(run(variants.drop), ENOUGH, plain, rounded, path)
        if dropped.verdict not in ("wrong", "crashed"):
            found.complaints.append("vacuous: right without the last samples")
    for name in budgets:
        budget = {"half": found.need // 2, "quarter": found.need // 4}.get(name, ENOUGH)
        ran = run(variants.within(budget))
        verdict = judge(ran, budget, plain, rounded, path, binding=name != "fits")
        if again and verdict.verdict == "wrong" and len(rounded) < MORE_ROUNDED_RUNS:
            more = range(len(rounded), MORE_ROUNDED_RUNS)
            rounded += [run(variants.plain, variants.Rounding(seed)) for seed in more]
            verdict = judge(ran, budget, plain, rounded, path, binding=name != "fits")
        found.verdicts[name] = dataclasses.asdict(verdict)
        found.koila_seconds += verdict.seconds
    return found


def _check(plain: Any, rounded: list[Any], need: int) -> Iterator[str]:
    """Whether the script is one to judge by."""
    import numpy as np

    from compare import spread

    if plain.raised is not None:
        yield f"plain PyTorch: {plain.raised}"
    if need < LEAST_NEED:
        yield f"needs {need} bytes, fewer than {LEAST_NEED}"
    moved = size = 0.0
    for path, leaf in plain.leaves.items():
        if leaf.number is None or not path.startswith("results"):
            continue
        if not np.isfinite(leaf.number).all():
            yield f"{path}: not finite"
        if path.startswith("results['weights']"):
            others = [run.leaves[path] for run in rounded if path in run.leaves]
            size += float(np.square(leaf.number).sum())
            moved += spread(leaf, others) ** 2
    if moved > MOST_CHAOS**2 * size:
        yield f"the weights: rounding moves them by {(moved / size) ** 0.5:.1e} of them"


def _serve(script: str) -> None:
    # What else writes to stdout must not come between answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for index, line in enumerate(sys.stdin):
        found = _judge(**json.loads(line), script=script)
        if index < _WARM:
            gc.collect()
            gc.freeze()
        answers.write(json.dumps(dataclasses.asdict(found)) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Before PyTorch is loaded: what is measured must not depend on the processors.
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
    import instruction_set

    instruction_set.limit()
    from measure import Memory

    # The counting allocator goes in before there are tensors.
    _memory = Memory()
    _serve(sys.argv[1])
