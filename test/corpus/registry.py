"""Where the files programs_*.py put their programs.

A program is a function that returns a module in eval mode and the input
specifications of koila (`float32[B,3,64,64]`, one per argument of forward).
Its name is the name of the program. Libraries are imported inside of the
functions: to list the programs needs none of them.

Programs registered with `scripted` are scripted instead of traced, and have a
table of their own.
"""

import dataclasses
import sys

PROGRAMS = {}
SCRIPTED = {}


@dataclasses.dataclass
class Scripted:
    """What there is to know about a scripted program."""

    # Methods beside forward: name -> input specifications.
    methods: dict = dataclasses.field(default_factory=dict)
    # Input specifications with which forward raises.
    raises: tuple = ()
    # The first tensor is passed as every argument.
    same_argument: bool = False
    # Left in training mode.
    training: bool = False
    # What decides extents that are no expressions in B; empty: nothing does.
    decided: str = ""
    # Takes seconds: left out unless all are asked for.
    long: bool = False


def program(function):
    """Registers a function which returns a module and its inputs."""
    name = function.__name__
    assert name not in PROGRAMS, f"two programs are called {name}"
    PROGRAMS[name] = function
    return function


def scripted(**options):
    """As `program`, for one that is scripted; `options` are of Scripted."""

    def register(function):
        SCRIPTED[function.__name__] = Scripted(**options)
        return program(function)

    return register


def source_of(name):
    """`timm` for a program of programs_timm.py."""
    return PROGRAMS[name].__module__.removeprefix("programs_")


def select(scripted=False, only=None):
    """The names of all traced or scripted programs; with `only`, of those whose
    names begin with one of these. Programs of programs_unseen_*.py, which are
    measured and not held to a page, are among them where `only` says so."""
    return [
        name
        for name in PROGRAMS
        if (name in SCRIPTED) == scripted
        and (
            any(name.startswith(part) for part in only)
            if only
            else not source_of(name).startswith("unseen")
        )
    ]


def file_of(name):
    return sys.modules[PROGRAMS[name].__module__].__file__


def record(module, specs, grad=True, check=False, training=False):
    """Traced by hand: without recorded gradients, checked, or in training mode."""
    import torch

    import inputs

    torch.manual_seed(0)
    with torch.set_grad_enabled(grad):
        return torch.jit.trace(
            module.train(training), inputs.make(specs, 3), check_trace=check, strict=False
        ), specs


def network(forward, **parts):
    """A module with these parts (modules; tensors become buffers) and this
    `forward(self, ...)`."""
    import torch

    module = type("Network", (torch.nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        if isinstance(part, torch.nn.Module):
            module.add_module(name, part)
        elif isinstance(part, torch.nn.Parameter):
            module.register_parameter(name, part)
        else:
            module.register_buffer(name, part)
    return module
