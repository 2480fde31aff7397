#!/usr/bin/env python3
"""Writes which tensors autograd saves for each operator of the dialect.

Usage: saved_tensors.py [--mlir-tblgen PATH] [--output FILE] [--check]
                        [--composed]

The source is what PyTorch generates its autograd code from and ships with
torch: torchgen/packaged/autograd/derivatives.yaml, read by its own
load_derivatives.py; the conditions are those of guard_for in its
gen_variable_type.py. The schemas are those of the ODS entries, read with
mlir-tblgen. --check compares with the file instead; --composed lists the
operators that PyTorch composes of others, which need a rule in ODS.

A line is a schema's name, the number of its tensor arguments, and what is
saved: `1` the tensor argument 1, counted from 0; `1<0` that argument if
argument 0 wants a gradient; `r0` result 0; `-` that no gradient passes. They are in
the order in which a node lets go of them.
"""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys

from torchgen.api.autograd import match_differentiability_info
from torchgen.gen import parse_native_yaml
from torchgen.model import BaseTy, BaseType, ListType, OptionalType
from torchgen.packaged import autograd
from torchgen.packaged.autograd.gen_variable_type import DONT_REQUIRE_DERIVATIVE
from torchgen.packaged.autograd.load_derivatives import load_derivatives

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "lib/Dialect/Koila/IR/SavedTensors.inc"
HEADER = """\
// Written by tools/support/saved_tensors.py from PyTorch's derivatives.yaml; do
// not edit. Name, number of tensor arguments, what is saved:
// see that script.
"""


def is_tensor(kind):
    if isinstance(kind, (OptionalType, ListType)):
        return is_tensor(kind.elem)
    return isinstance(kind, BaseType) and kind.name == BaseTy.Tensor


def read_schemas(tblgen):
    """The ODS schemas, in-place twins included."""
    include = pathlib.Path(tblgen).resolve().parents[1] / "include"
    text = subprocess.run(
        [
            tblgen,
            "-gen-op-decls",
            "-I",
            ROOT / "include",
            "-I",
            include,
            ROOT / "include/koila/Dialect/Koila/IR/KoilaAllOps.td",
        ],
        check=True,
        text=True,
        capture_output=True,
    ).stdout
    found = re.findall(
        r"get(?:Torch|InPlace)Schema\(\) "
        r'\{ return "aten::([^"]+)"',
        text,
    )
    return sorted({re.match(r"[\w.]+", schema)[0] for schema in found})


def get_condition(info, function, attribute, tensors):
    """The tensor argument whose gradient needs `attribute`; None if it is
    saved in any case. As guard_for."""
    if any(isinstance(argument.type, ListType) for argument in tensors):
        return None
    wanted = list(
        dict.fromkeys(name for derivative in info.derivatives for name in derivative.var_names)
    )
    if len(wanted) <= 1 or "backward" in info.name:
        return None
    if "Optional" in type(attribute.nctype.type).__name__:
        return None
    used = [derivative for derivative in info.derivatives if attribute in derivative.saved_inputs]
    if len(used) != 1:
        return None
    derivative = used[0]
    if len(derivative.var_names) == 1:
        return derivative.var_names[0]
    found = re.search(
        rf"wrap_opt_if\({attribute.nctype.name}, "
        r"grad_input_mask\[(\d+)\]\)",
        derivative.formula,
    )
    return wanted[int(found[1])] if found else None


def describe(function, info):
    """What is saved, as in the file."""
    arguments = [
        argument for argument in function.func.arguments.flat_all if is_tensor(argument.type)
    ]
    names = [argument.name for argument in arguments]
    if info is None:
        # Without a formula the gradient is refused by a record that keeps
        # nothing, which is a record all the same.
        base = function.func.name.name.base
        detached = not names or base in DONT_REQUIRE_DERIVATIVE
        return len(names), "-" if detached else ""
    results = [
        result.name or ("result" if len(function.func.returns) == 1 else f"result{index}")
        for index, result in enumerate(function.func.returns)
    ]
    # A twin that writes its first argument returns it.
    results = ["result" if name == "self" and len(results) == 1 else name for name in results]
    # Arguments by their names, then results: so release_variables() frees them.
    saved = set()
    for derivative in info.derivatives:
        for attribute in derivative.saved_inputs:
            name = attribute.nctype.name
            if name not in names:
                continue
            condition = get_condition(info, function, attribute, arguments)
            what = f"{names.index(name)}"
            what += "" if condition is None else f"<{names.index(condition)}"
            saved.add((False, name, what))
        for attribute in derivative.saved_outputs:
            name = attribute.nctype.name
            if name in results:
                saved.add((True, name, f"r{results.index(name)}"))
    return len(names), " ".join(what for *_, what in sorted(saved))


def make_table(schemas):
    """The lines of the file, and the names of composed operators."""
    folder = pathlib.Path(autograd.__file__).parent
    native = folder.parent / "ATen/native"
    functions, tags = native / "native_functions.yaml", native / "tags.yaml"
    infos, _ = load_derivatives(str(folder / "derivatives.yaml"), str(functions), str(tags))
    matched = {
        str(entry.func.func.name): entry
        for entry in match_differentiability_info(
            parse_native_yaml(str(functions), str(tags)).native_functions, infos
        )
    }
    lines, composed = [], []
    for schema in schemas:
        entry = matched.get(schema)
        if entry is None or entry.func.has_composite_implicit_autograd_kernel:
            composed.append(schema)
            continue
        info = (entry.info or {}).get("Default")
        count, saved = describe(entry.func, info)
        lines.append(f'SAVED("{schema}", {count}, "{saved}")\n')
    return lines, composed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mlir-tblgen", default="/usr/lib/llvm-22/bin/mlir-tblgen")
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--composed", action="store_true")
    options = parser.parse_args()
    lines, composed = make_table(read_schemas(options.mlir_tblgen))
    if options.composed:
        print("\n".join(composed))
        return
    fresh = HEADER + "".join(lines)
    if not options.check:
        options.output.write_text(fresh)
        return
    held = options.output.read_text()
    if held != fresh:
        sys.stdout.writelines(
            difflib.unified_diff(held.splitlines(True), fresh.splitlines(True), "held", "fresh")
        )
        sys.exit("SavedTensors.inc is stale: run tools/support/saved_tensors.py")


if __name__ == "__main__":
    main()
