"""The text of a random script while it is written, and what is known of its names.

    w = Writer(rng, plan)
    w.line("loss = F.cross_entropy(logits, y)")
    w.know("loss", "scalar", graph=True)
    w.gap("before", 2)        # up to two pieces that fit there
    w.text()

A piece is a function that writes a few lines, registered for gaps of the
program (random_pieces.py). It may raise Unfit where names that it wants are not
there; then another is tried.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from random_networks import Net


class Unfit(Exception):
    """A piece cannot stand here."""


@dataclass
class Known:
    """What a name of the program is.

    ``kind``: scalar (no dimensions), samples (one number a sample), rows (a row a
    sample), input, labels. ``graph``: gradients may still flow through it.
    ``free``: no operator has kept it for its gradient, so it may be written.
    ``other``: it belongs to another batch than the labels.
    """

    name: str
    kind: str
    graph: bool = False
    free: bool = False
    other: bool = False


@dataclass
class Plan:
    """What was drawn for a program before its first line.

    ``kind`` of steps, see random_steps.py; ``batch`` samples in each of ``steps``
    but the ``last``; ``gives_hidden`` is whether the network gives what is before
    its last layer, too; one step of a ``bad`` program raises, and that is caught;
    ``zeroed`` is where gradients are taken back.
    """

    kind: str
    net: Net
    task: str
    outputs: int
    batch: int
    steps: int
    last: int
    gives_hidden: bool
    bad: bool
    accumulates: bool
    zeroed: str

    @property
    def total(self) -> int:
        return self.batch * (self.steps - 1) + self.last

    @property
    def floats(self) -> bool:
        return not self.net.letters


Piece = Callable[["Writer"], None]


@dataclass(frozen=True)
class Entry:
    name: str
    write: Piece
    weight: float
    reads_only: bool


GAPS: dict[str, list[Entry]] = {}


def piece(*gaps: str, weight: float = 1.0, reads_only: bool = False) -> Callable[[Piece], Piece]:
    """Registers a piece. One that only reads may also stand in a condition or in
    no_grad, since nothing after it depends on it."""

    def register(function: Piece) -> Piece:
        for gap in gaps:
            entry = Entry(function.__name__, function, weight, reads_only)
            GAPS.setdefault(gap, []).append(entry)
        return function

    return register


class Writer:
    def __init__(self, rng: random.Random, plan: Plan) -> None:
        self.rng, self.plan = rng, plan
        self.lines: list[str] = []
        self.known: dict[str, Known] = {}
        self.pieces: list[str] = []
        # Lines that pieces want elsewhere.
        self.before_loop: list[str] = []
        self.start_of_step: list[str] = []
        self.after_lazy: list[str] = []
        self.end_of_step: list[str] = []
        self.after_loop: list[str] = []
        self._depth = 0
        self._numbers: dict[str, int] = {}

    # Text.

    def line(self, *lines: str) -> None:
        for line in lines:
            self.lines.append(self.indent() + line if line else "")

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        count = len(self.lines)
        yield
        if len(self.lines) == count:
            self.line("pass")
        self._depth -= 1

    def indent(self) -> str:
        return "    " * self._depth

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def log(self, name: str, value: str) -> None:
        self.line(f'log("{name}", {value})')

    # Choices.

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    def pick(self, *choices: str) -> str:
        return self.rng.choice(choices)

    # Names.

    def fresh(self, stem: str) -> str:
        count = self._numbers[stem] = self._numbers.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}{count}"

    def know(
        self, name: str, kind: str, graph: bool = False, free: bool = False, other: bool = False
    ) -> str:
        self.known[name] = Known(name, kind, graph, free, other)
        return name

    def find(
        self,
        *kinds: str,
        graph: bool | None = None,
        free: bool | None = None,
        other: bool | None = None,
    ) -> Known:
        """One of the names that are known, the newer the more likely."""
        found = [
            known
            for known in self.known.values()
            if known.kind in kinds
            and (graph is None or known.graph == graph)
            and (free is None or known.free == free)
            and (other is None or known.other == other)
        ]
        if not found:
            raise Unfit
        return max(self.rng.choice(found), self.rng.choice(found), key=found.index)

    def keep(self, *names: str) -> None:
        """An operator whose gradient is wanted has seen them."""
        for name in names:
            if name in self.known:
                self.known[name].free = False

    def free_graphs(self) -> None:
        """backward() is done: values stay, gradients do not flow again."""
        for known in self.known.values():
            known.graph = False

    # Pieces.

    def gap(self, name: str, most: int) -> None:
        for _ in range(self.rng.randint(0, most)):
            self.add(name)

    def add(self, gap: str) -> None:
        entries = GAPS[gap]
        for _ in range(8):
            [entry] = self.rng.choices(entries, [entry.weight for entry in entries])
            before = len(self.lines), dict(self._numbers)
            try:
                with self._wrapped(entry, gap):
                    entry.write(self)
            except Unfit:
                del self.lines[before[0] :]
                self._numbers = before[1]
                continue
            self.pieces.append(f"{gap}: {entry.name}")
            return

    def _wrapped(self, entry: Entry, gap: str) -> contextlib.AbstractContextManager[None]:
        if not entry.reads_only or self.chance(0.7):
            return contextlib.nullcontext()
        heads = ["with torch.no_grad():"] * 2 + ["with torch.inference_mode():"]
        if gap != "end":
            heads += ["if step % 2 == 0:"] * 2 + ["if step > 0:"]
        return self._undone(self.rng.choice(heads))

    @contextlib.contextmanager
    def _undone(self, head: str) -> Iterator[None]:
        """A block, which leaves its depth also where the piece is unfit."""
        depth = self._depth
        try:
            with self.block(head):
                yield
        finally:
            self._depth = depth
