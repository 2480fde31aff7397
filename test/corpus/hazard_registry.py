"""Where the files hazards_*.py put their programs.

Apart from registry.py: these programs have a test of their own, hazards.py,
and none of the tables of the corpus. A program is its `forward`; the decorator
says what else there is to know:

    @hazard(ROWS, barrier="softmax")
    def softmax_over_batch(self, x):
        return self.encode(x).softmax(0)

`self.encode` is there in every program: a layer that works on each sample by
itself, so that there is something to tile around a hazard.
"""

import dataclasses
import sys
import typing
import zlib

PROGRAMS = {}

# The input of most programs.
ROWS = "float32[B,8]"
SERIES = "float32[B,5,8]"


@dataclasses.dataclass
class Program:
    forward: typing.Callable
    inputs: tuple
    # "hazard": to run a program of these samples and one of those is not to
    # run it of all; "safe": it is.
    kind: str
    # A regular expression for one of the barriers that koila must name.
    barrier: str = ""
    # A regular expression for the reason of a refusal. With `barrier`, koila
    # may do either.
    refused: str = ""
    # Of a hazard: may be equal without a barrier, since what the samples share
    # can be gathered from tile to tile, or is known without them.
    exact: bool = False
    # Why koila may be more careful than the program asks for.
    careful: str = ""
    # Data decide how much memory a call needs: sizes, branches, turns of a loop.
    decided: bool = False
    # Scripted instead of traced.
    scripted: bool = False
    training: bool = False
    # Returns what belongs to the module besides `encode`.
    parts: typing.Callable = dict

    @property
    def name(self):
        return self.forward.__name__

    @property
    def file(self):
        return sys.modules[self.forward.__module__].__file__

    @property
    def expected(self):
        if self.careful:
            return "careful"
        return " or ".join(
            ["refused"] * bool(self.refused) + ["equal"] * (not self.refused or bool(self.barrier))
        )

    def build(self):
        """The module; the same one in every run."""
        import torch

        torch.manual_seed(zlib.crc32(self.name.encode()))
        module = type("Network", (torch.nn.Module,), {"forward": self.forward})()
        module.encode = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh())
        for name, part in self.parts().items():
            if isinstance(part, torch.Tensor) and not isinstance(part, torch.nn.Parameter):
                module.register_buffer(name, part)
            else:
                setattr(module, name, part)
        return module.train(self.training)


def register(kind, inputs, options):
    def add(forward):
        program = Program(forward, inputs, kind, **options)
        assert program.name not in PROGRAMS, f"a second {program.name}"
        PROGRAMS[program.name] = program
        return forward

    return add


def hazard(*inputs, **options):
    """Tiles that know nothing of it would change the result."""
    assert any(map(options.get, ("barrier", "refused", "exact")))
    return register("hazard", inputs, options)


def hazard_that_adds_up(*inputs, **options):
    """A hazard that need not be a barrier: what the samples share is made of
    what each tile has, or of their number."""
    return hazard(*inputs, exact=True, **options)


def safe(*inputs, **options):
    """Looks like a hazard, and is none."""
    return register("safe", inputs, options)
