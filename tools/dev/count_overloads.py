#!/usr/bin/env python3
"""Writes test/oracle/most_used.txt: how many programs use each overload of ATen.

Usage: count_overloads.py --programs FOLDER [--output FILE]

Counts the programs of test/corpus, which are made in FOLDER if they are not there,
whose graph, with all that it calls, has an overload. What gives no tensor, and what is
no operator of the dispatcher (lists and dicts), runs no kernel and is left out.
"""

import argparse
import collections
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "corpus")]

import torch

import make_programs

OPERATORS = set(torch._C._dispatch_get_all_op_names())
HEAD = """# Overloads of ATen by the number of programs of test/corpus that use them, and
# how many there are in all graphs. Written by tools/dev/count_overloads.py.
"""


def walk(block):
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from walk(inner)


def list_overloads(path):
    """The overloads of one program, once for each node."""
    graph = torch.jit.load(str(path)).inlined_graph
    for node in walk(graph):
        if not node.kind().startswith("aten::") or not node.schema():
            continue
        name = node.schema().split("(")[0]
        gives = any("Tensor" in str(out.type()) for out in node.outputs())
        if gives and name in OPERATORS:
            yield name


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    names = list(make_programs.load_programs())
    make_programs.make_all(names, arguments.programs)
    programs: collections.Counter[str] = collections.Counter()
    nodes: collections.Counter[str] = collections.Counter()
    read = 0
    for name in names:
        path = arguments.programs / f"{name}.pt"
        if not path.exists():
            continue
        read += 1
        found = collections.Counter(list_overloads(path))
        nodes.update(found)
        programs.update(found.keys())
    order = sorted(programs, key=lambda name: (-programs[name], -nodes[name], name))
    text = (
        HEAD
        + f"# {read} programs.\n"
        + "".join(f"{name} {programs[name]} {nodes[name]}\n" for name in order)
    )
    output = arguments.output or ROOT / "test" / "oracle" / "most_used.txt"
    output.write_text(text)


if __name__ == "__main__":
    main()
