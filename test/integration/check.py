"""Whether a script is fit to judge koila by.

    complaints = check(script, header, plain, rounded, lazies)    # a line each

A script says in a line what it shows, and whether tiles can do it. It is short,
takes much more than its weights, inputs and results, keeps what the user reads
in ``results``, and rounding changes it little.
"""

from __future__ import annotations

import ast
import pathlib

import numpy as np

from compare import spread
from execute import Run
from judge import MIB, mib, need_of

LEAST_NEED = 2 * MIB
# Of weights and inputs; of what the script keeps of a batch.
LEAST_OF_REST, LEAST_OF_KEPT = 8, 4
LONGEST = 1.0
FEWEST_WINDOWS = 3
# More, and rounding alone would hide what koila does wrong.
MOST_CHAOS = 1e-3


def check(
    script: pathlib.Path, header: str | None, plain: Run, rounded: list[Run], lazies: object
) -> list[str]:
    text = script.read_text()
    wrong = []
    if header is None:
        wrong.append("no line '# koila: tiles' or '# koila: whole: REASON'")
    docstring = ast.get_docstring(ast.parse(text))
    if not docstring or docstring.strip().count("\n"):
        wrong.append("no docstring of one line")
    if "budget" in text:
        wrong.append("names a budget, which is the runner's")
    if plain.raised is not None and not any(
        word in f"{script.stem} {docstring}".lower() for word in ("raise", "error")
    ):
        wrong.append(f"raises in plain PyTorch, and does not say so: {plain.raised}")
    return wrong + _check_sizes(plain, lazies) + _check_values(plain, rounded)


def _check_sizes(plain: Run, lazies: object) -> list[str]:
    wrong = []
    if len(plain.windows) < FEWEST_WINDOWS:
        wrong.append(f"{len(plain.windows)} calls of koila.lazy; {FEWEST_WINDOWS} are wanted")
    if plain.seconds > LONGEST:
        wrong.append(f"takes {plain.seconds:.2f} s; at most {LONGEST:g} are wanted")
    need = need_of(plain)
    if need < LEAST_NEED:
        wrong.append(f"needs {mib(need)}; at least {mib(LEAST_NEED)} are wanted")
    rest = getattr(lazies, "given", 0) + getattr(lazies, "weights", 0)
    if need < LEAST_OF_REST * rest:
        wrong.append(
            f"needs {mib(need)}; at least {LEAST_OF_REST} times its weights and inputs "
            f"({mib(rest)}) are wanted"
        )
    # The first window makes gradients and the state of the optimizer.
    kept = max((window.end - window.start for window in plain.windows[1:]), default=0)
    if need < LEAST_OF_KEPT * kept:
        wrong.append(
            f"needs {mib(need)}; at least {LEAST_OF_KEPT} times what it keeps of a batch "
            f"({mib(kept)}) is wanted"
        )
    return wrong


def _check_values(plain: Run, rounded: list[Run]) -> list[str]:
    wrong = []
    results = {path: leaf for path, leaf in plain.leaves.items() if path.startswith("results")}
    if not results or set(results) == {"results"}:
        wrong.append("no results")
    if not any(path.startswith("results['weights'][") for path in results):
        wrong.append("no results['weights']")
    moved = weights = 0.0
    for path, leaf in results.items():
        if leaf.number is None:
            continue
        size = float(np.linalg.norm(leaf.number.ravel()))
        change = spread(leaf, [run.leaves[path] for run in rounded if path in run.leaves])
        if not np.isfinite(size):
            wrong.append(f"{path}: not finite")
        elif path.startswith("results['weights']"):
            # Together: a bias that begins with zero may be all rounding.
            weights, moved = weights + size**2, moved + change**2
        elif size == 0:
            wrong.append(f"{path}: all zero")
        elif change > MOST_CHAOS * size:
            wrong.append(f"{path}: rounding moves it by {change / size:.1e} of itself")
    if moved > MOST_CHAOS**2 * weights:
        wrong.append(f"the weights: rounding moves them by {(moved / weights) ** 0.5:.1e} of them")
    for run in rounded:
        if run.leaves.keys() != plain.leaves.keys():
            wrong.append("rounding changes what there is: other names or lengths")
            break
        if run.leaves["torch.get_rng_state()"].exact.tobytes() != (
            plain.leaves["torch.get_rng_state()"].exact.tobytes()
        ):
            wrong.append("rounding changes what is drawn")
            break
    return wrong
