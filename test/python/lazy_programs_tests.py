"""Programs of users through koila.lazy: as plain PyTorch, or said not to be.

Each program runs plainly, with memory for everything, and with the least budget
of a row of powers of two that koila does not refuse. Values, gradients, weights
and what hooks saw are those of plain PyTorch; what does not run in tiles then
either fits, or a warning says why it runs whole.

Usage: lazy_programs_tests.py [NAME...]
"""

import importlib
import sys
import warnings

import torch

import koila
from koila._plan.planner import Run
from programs.common import programs

for part in ("loops", "losses", "masks", "mixing", "layers", "graphs"):
    importlib.import_module(f"programs.{part}")

# Inputs change between recording and reading.
RAISE = {"weight_changed_between"}
# At least as many as ran in tiles when this was written.
LEAST_IN_TILES = 120


def is_same(found, wanted):
    if isinstance(wanted, str) or isinstance(found, str):
        return found == wanted
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    if wanted is None or found is None:
        return found is wanted
    found, wanted = torch.as_tensor(found), torch.as_tensor(wanted)
    # bfloat16 rounds what is added up in another order.
    tolerance = 1e-9 if wanted.dtype == torch.float64 else 1e-2
    error = (found.double() - wanted.double()).norm()
    return found.shape == wanted.shape and error <= tolerance * wanted.double().norm() + 1e-12


def run(function, budget):
    """What it gives, in how many runs tiles ran, what was said, and whether
    something ran whole that does not fit."""
    tiles, overflows = [], []
    note = Run.note

    def watch(self, compiled, **options):
        note(self, compiled, **options)
        how = koila.last()
        tiles.append(how.tile)
        peak = how.peak_bytes
        overflows.append(how.tile is None and peak is not None and peak > self.budget)

    lazy = lambda *values, dim=0: koila.lazy(*values, batch=dim, budget=budget)
    Run.note = watch
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = function(lazy)
    finally:
        Run.note = note
    said = [str(w.message) for w in caught if issubclass(w.category, koila.KoilaWarning)]
    return found, sum(tile is not None for tile in tiles), said, any(overflows)


def check(name, function):
    """In how many runs tiles ran; a sentence if something is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = function(lambda *values, dim=0: values if len(values) > 1 else values[0])
    if name in RAISE:
        try:
            found = run(function, "1TiB")[0]
        except koila.KoilaError:
            return 0, None
        right = found == ["raised"] or is_same(found, wanted)
        return 0, None if right else "neither raised nor equal"
    found, _, said, _ = run(function, "1TiB")
    if not is_same(found, wanted) or said:
        return 0, f"differs with memory for everything {said}"
    for exponent in range(14, 24):
        try:
            found, tiles, said, overflows = run(function, 1 << exponent)
            break
        except koila.BudgetError:
            continue
    else:
        return 0, "no budget works"
    if not is_same(found, wanted):
        return tiles, f"differs within {1 << exponent} bytes {said}"
    if overflows and not said:
        return tiles, f"took more than {1 << exponent} bytes without a word"
    return tiles, None


def main():
    names = sys.argv[1:] or list(programs)
    torch.set_num_threads(1)
    split = failed = 0
    for name in names:
        try:
            tiles, problem = check(name, programs[name])
        except Exception as error:
            tiles, problem = 0, f"{type(error).__name__}: {error}"
        split += tiles > 0
        if problem:
            failed += 1
            print(f"{name}: {problem}")
    print(f"{len(names)} programs, {split} in tiles, {failed} wrong")
    return bool(failed) or (len(names) == len(programs) and split < LEAST_IN_TILES)


if __name__ == "__main__":
    sys.exit(main())
