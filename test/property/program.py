"""What the property test's programs are made of, and how they become modules.

A program is a tree of lines, so that a reducer can take parts away without
knowing what they mean: what does not compile or run any more is no candidate.
"""

import dataclasses
import linecache
import re
import textwrap
import typing

import torch

NAME = re.compile(r"\b[A-Za-z_]\w*\b")
INDENT = "    "

# A submodule that changes its own buffer.
SUBMODULE = """class Sub(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('mem', torch.zeros(6))

    def forward(self, t: Tensor) -> Tensor:
        self.mem.add_(t[0].flatten()[:6])
        return t + self.mem


"""


@dataclasses.dataclass
class Block:
    """`if`, `for` and `while`: pairs of a header and the items below it."""

    parts: list

    def copy(self):
        return Block([(header, copy_items(items)) for header, items in self.parts])


def copy_items(items):
    return [item.copy() if isinstance(item, Block) else item for item in items]


def lines_of(items, depth):
    """Python text; a part that has nothing in it says `pass`."""
    lines = []
    for item in items:
        if isinstance(item, Block):
            for header, inner in item.parts:
                lines.append(INDENT * depth + header)
                lines += lines_of(inner, depth + 1)
        else:
            lines.append(INDENT * depth + item)
    return lines or [INDENT * depth + "pass"]


@dataclasses.dataclass(frozen=True)
class Argument:
    name: str
    type: str
    # For koila's --input; None: koila cannot be told about it.
    spec: str
    # What the module is called with, for a batch and a random.Random.
    make: typing.Callable


@dataclasses.dataclass
class Program:
    arguments: list
    # Lines of __init__, of other methods, and the body of forward.
    state: list
    methods: list
    body: list
    # Declarations of attributes, `counter: int`.
    declared: list
    features: tuple = ()

    def copy(self):
        return Program(
            list(self.arguments),
            list(self.state),
            list(self.methods),
            copy_items(self.body),
            list(self.declared),
            self.features,
        )

    def source(self):
        """The module as Python text, with what it needs beside it."""
        text = self.module_source()
        return SUBMODULE + text if "Sub()" in text else text

    def module_source(self):
        parameters = "".join(f", {argument.name}: {argument.type}" for argument in self.arguments)
        return (
            "\n".join(
                ["class M(torch.nn.Module):"]
                + [INDENT + line for line in self.declared]
                + [INDENT + "def __init__(self):", INDENT * 2 + "super().__init__()"]
                + [INDENT * 2 + line for line in self.state]
                + ["\n" + textwrap.indent(method, INDENT) for method in self.methods]
                + ["", INDENT + f"def forward(self{parameters}):"]
                + lines_of(self.body, 2)
            )
            + "\n"
        )

    def size(self):
        """What a reducer makes smaller: lines first, then characters."""
        text = self.source()
        return text.count("\n"), len(text)


COUNT = 0


def compile_program(source):
    """A scripted module; `source` must define the class M."""
    # torch.jit.script reads the text by the name of its file.
    global COUNT
    COUNT += 1
    name = f"program{COUNT}.py"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    names: dict = {
        "torch": torch,
        "Tensor": torch.Tensor,
        "List": typing.List,
        "Dict": typing.Dict,
        "Tuple": typing.Tuple,
        "Optional": typing.Optional,
        "__name__": "program",
    }
    exec(compile(source, name, "exec"), names)
    torch.manual_seed(0)
    return torch.jit.script(names["M"]().eval())
