"""Compares two archives: what a module holds, and what it computes.

Usage: check_roundtrip.py A.pt B.pt --input SPEC... [--more-methods NAME...]
           [--more-attributes NAME...] [--only-contents]

Reads the archives themselves: classes, attributes, parameters with their
strides, storage sharing, requires_grad and bytes; then loads both and compares
methods, state dicts and, bit by bit, results. --more-methods and
--more-attributes name what B has and A has not; --only-contents leaves out the
results. Exits with 1 and the first difference.
"""

import argparse
import difflib
import hashlib
import pickle
import re
import sys
import zipfile
from typing import ClassVar

import torch

import equality

MANGLED = re.compile(r"\.?___torch_mangle_\d+")


class Object:
    """An object of a class that only the archive knows."""

    def __init__(self, name):
        self.name = MANGLED.sub("", name)
        self.arguments = ()
        self.state = None

    def __setstate__(self, state):
        self.state = state


def make_class(module, name):
    full_name = f"{module}.{name}"

    def new(cls, *arguments):
        made = Object.__new__(Object)
        Object.__init__(made, full_name)
        made.arguments = arguments
        return made

    return type(name, (Object,), {"__new__": new, "__init__": lambda *arguments: None})


class Unpickler(pickle._Unpickler):
    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)

    def load_reduce(self):
        # LibTorch writes the value of an enum without the tuple around it.
        if not isinstance(self.stack[-1], tuple):  # type: ignore[attr-defined]
            self.stack[-1] = (self.stack[-1],)  # type: ignore[attr-defined]
        super().load_reduce()  # type: ignore[misc]

    dispatch[pickle.REDUCE[0]] = load_reduce

    def __init__(self, archive, root):
        super().__init__(archive.open(root + "data.pkl"))
        self.archive, self.root, self.storages = archive, root, {}

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        return make_class(module, name)

    def persistent_load(self, identity):
        _, dtype, key, device, count = identity
        if key not in self.storages:
            data = self.archive.read(f"{self.root}data/{key}")
            made = Object(f"storage{len(self.storages)}")
            made.arguments = (dtype.__name__, device, count, hashlib.sha256(data).hexdigest())
            self.storages[key] = made
        return self.storages[key]


def lines_of(value, prefix, lines):
    """One line per leaf, in the order of the archive."""
    if isinstance(value, Object):
        lines.append(f"{prefix}: {value.name}")
        lines_of(value.arguments, prefix, lines)
        if value.state is not None:
            lines_of(value.state, prefix, lines)
    elif isinstance(value, dict):
        for key, part in value.items():
            lines_of(part, f"{prefix}.{key}", lines)
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            lines_of(part, f"{prefix}[{index}]", lines)
    else:
        lines.append(f"{prefix} = {value!r}")
    return lines


def archive_lines(path):
    with zipfile.ZipFile(path) as archive:
        [name] = [n for n in archive.namelist() if re.fullmatch(r"[^/]+/data\.pkl", n)]
        root = name.removesuffix("data.pkl")
        return lines_of(Unpickler(archive, root).load(), "module", [])


def module_lines(module):
    lines = []
    for name, part in module.named_modules():
        kind = getattr(part, "original_name", type(part).__name__)
        lines.append(f"{name or '<top>'}: {MANGLED.sub('', kind)} training={part.training}")
    for name, value in module.named_parameters(remove_duplicate=False):
        lines.append(f"parameter {name} {list(value.shape)} requires_grad={value.requires_grad}")
    for name, value in module.named_buffers(remove_duplicate=False):
        lines.append(f"buffer {name} {list(value.shape)}")
    lines += [f"key {key}" for key in module.state_dict()]
    return lines


def compare_lines(what, a, b):
    difference = list(difflib.unified_diff(a, b, "A", "B", lineterm="", n=0))
    if difference:
        sys.exit(f"{what} differ:\n" + "\n".join(difference[:20]))
    print(f"{what}: {len(a)} lines equal")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--input", action="append", required=True)
    parser.add_argument("--more-methods", nargs="*", default=[])
    parser.add_argument("--more-attributes", nargs="*", default=[])
    parser.add_argument("--only-contents", action="store_true")
    arguments = parser.parse_args()

    lines = archive_lines(arguments.b)
    for name in arguments.more_attributes:
        more = [line for line in lines if line.startswith(f"module.{name} = ")]
        assert len(more) == 1, f"{arguments.b} has no attribute {name}"
        lines.remove(more[0])
    compare_lines("archives", archive_lines(arguments.a), lines)
    a, b = torch.jit.load(arguments.a), torch.jit.load(arguments.b)
    compare_lines("modules", module_lines(a), module_lines(b))
    compare_lines(
        "methods",
        sorted(a._c._method_names() + arguments.more_methods),
        sorted(b._c._method_names()),
    )

    if arguments.only_contents:
        return
    inputs = equality.make_inputs(arguments.input, 5)
    with torch.no_grad():
        results = zip(equality.flatten(a(*inputs)), equality.flatten(b(*inputs)), strict=True)
    for index, (result_a, result_b) in enumerate(results):
        assert result_a.abs().max() > 0, "vacuous: all zero"
        if not torch.equal(result_a, result_b):
            sys.exit(f"result {index} differs by {(result_a - result_b).abs().max().item():g}")
    print("results: equal bit by bit")


if __name__ == "__main__":
    main()
