"""Whether what a run left is what plain PyTorch leaves, up to rounding.

    wrong = compare(found, plain, rounded)     # ["results['loss'][2]: ...", ...]

How much rounding may change is not guessed: ``rounded`` are runs of plain
PyTorch that round in other ways (variants.Rounding). A chaotic script differs
much there, and a tame one little.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from snapshot import Leaf

Leaves = dict[str, Leaf]

# So many times further away than those may be found: they are few, and tiles
# round other numbers. What loses or counts twice one of 512 samples is hundreds
# of times further away.
SPREADS = 16
# Float32 has 6e-8. Of sums that were added in another order the last digits
# differ also where the rounded runs, by chance, do not.
FLOOR = 1e-6
# Under autocast each gradient of a weight is rounded to bfloat16 where it is
# computed, for each tile or for the whole; moved weights do not show that.
HALF_FLOOR = 2.0**-8
# Where oneDNN has no kernels for bfloat16, PyTorch adds up the samples of a batch
# in it: the roundings of 64, each of 2^-9, grow with the root of their number.
SUMMED_FLOOR = 2.0**-6


def floor_of(text: str) -> float:
    """The floor for a script."""
    if "bfloat16" not in text:
        return FLOOR
    return HALF_FLOOR if torch.ops.mkldnn._is_mkldnn_bf16_supported() else SUMMED_FLOOR


def compare(found: Leaves, plain: Leaves, rounded: list[Leaves], floor: float = FLOOR) -> list[str]:
    """Where found values are not right, a line each."""
    if "stdout" in found and found["stdout"].about != plain["stdout"].about:
        # Then the numbers in it are not the same ones.
        found, plain = _without_numbers(found), _without_numbers(plain)
    wrong = [f"{path}: missing" for path in plain if path not in found]
    wrong += [f"{path}: not there in plain PyTorch" for path in found if path not in plain]
    for path in found:
        if path in plain:
            others = [leaves[path] for leaves in rounded if path in leaves]
            text = _differs(found[path], plain[path], others, floor)
            if text:
                wrong.append(f"{path}: {text}")
    return wrong


def _without_numbers(leaves: Leaves) -> Leaves:
    return {path: leaf for path, leaf in leaves.items() if not path.startswith("stdout number")}


def _differs(found: Leaf, plain: Leaf, others: list[Leaf], floor: float) -> str:
    """Why it is not the plain one; empty if it is."""
    if found.about != plain.about:
        return f"{_short(found.about)}, in plain PyTorch {_short(plain.about)}"
    if plain.number is not None and found.number is not None:
        return _numbers_differ(found, plain, others, floor)
    if plain.exact is not None and found.exact is not None:
        return _exact_differ(found.exact, [plain.exact, *_alike(plain, others)])
    if (plain.exact is None) != (found.exact is None):
        return "a text in the place of a number, or the other way round"
    return ""


def _alike(plain: Leaf, others: list[Leaf]) -> list[np.ndarray]:
    """The values of rounded runs, as far as these can be compared."""
    arrays = [other.number if plain.exact is None else other.exact for other in others]
    shape = (plain.number if plain.exact is None else plain.exact).shape
    return [array for array in arrays if array is not None and array.shape == shape]


def spread(plain: Leaf, others: list[Leaf]) -> float:
    """How far rounding moves it."""
    assert plain.number is not None
    return max((_distance(array, plain.number) for array in _alike(plain, others)), default=0.0)


def _norm(array: np.ndarray) -> float:
    """Of what is finite; where the others are is compared apart."""
    return math.sqrt(float(np.square(array[np.isfinite(array)]).sum()))


def _distance(array: np.ndarray, other: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):  # infinity less infinity
        return _norm(array - other)


def _numbers_differ(found: Leaf, plain: Leaf, others: list[Leaf], floor: float) -> str:
    new, old = found.number, plain.number
    assert new is not None and old is not None
    if new.shape != old.shape:
        return f"shape {new.shape}, in plain PyTorch {old.shape}"
    strange = ~np.isfinite(old) | ~np.isfinite(new)
    if not np.array_equal(new[strange], old[strange], equal_nan=True):
        return "not finite at other places than in plain PyTorch"
    scale = max(_norm(array) for array in [old, *_alike(plain, others)])
    distance, moved = _distance(new, old), spread(plain, others)
    # Of a single number, as the gradient of a bias whose terms cancel out, the
    # few rounded runs may by chance all be the plain one: it has no other
    # elements that would show how far rounding moves it.
    if old.size == 1:
        floor *= SPREADS
    # A printed number may be rounded to the other side.
    allowed = SPREADS * moved + floor * scale + 1.01 * max(found.unit, plain.unit)
    if distance <= allowed:
        return ""
    if old.size == 1:
        return f"{new.item():.9g}, in plain PyTorch {old.item():.9g} (at most {allowed:.1e} off)"
    return f"{distance:.2e} off, of {_norm(old):.2e}; rounding explains {allowed:.1e}"


def _exact_differ(found: np.ndarray, allowed: list[np.ndarray]) -> str:
    if found.shape != allowed[0].shape:
        return f"shape {found.shape}, in plain PyTorch {allowed[0].shape}"
    right = np.zeros(found.shape, dtype=bool)
    for array in allowed:
        right |= np.asarray(found == array, dtype=bool)
    if right.all():
        return ""
    if found.size == 1:
        return f"{_short(repr(found.item()))}, in plain PyTorch {_short(repr(allowed[0].item()))}"
    return f"{int((~right).sum())} of {found.size} values differ"


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "..."
