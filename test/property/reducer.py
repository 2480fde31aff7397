"""Makes a failing program small.

Tries to take away lines, branches, loops around their bodies, results,
arguments and operands, and keeps what still fails in the same way. What does
not compile any more is discarded by the one who evaluates it.
"""

import itertools
import re
import time

from program import NAME, Block

RETURN = re.compile(r"return \((.*),\)$")
ASSIGNED = re.compile(r"([\w.]+) = (.+)$")


def without(items, index, instead=()):
    return items[:index] + list(instead) + items[index + 1 :]


def smaller_blocks(block):
    """Lists of items that may stand for the block."""
    for _, items in block.parts:
        yield items
    if len(block.parts) > 1:
        for index in range(1, len(block.parts)):
            yield [Block(block.parts[:index] + block.parts[index + 1 :])]
    for index, (header, items) in enumerate(block.parts):
        for smaller in smaller_items(items):
            parts = list(block.parts)
            parts[index] = (header, smaller)
            yield [Block(parts)]
        simple = {"if": "if x.size(0) > 1:", "fo": "for i9 in range(2):", "el": "else:"}.get(
            header[:2]
        )
        if simple and simple != header and not header.startswith("else"):
            parts = list(block.parts)
            parts[index] = (simple, items)
            yield [Block(parts)]


def smaller_lines(line):
    if found := RETURN.match(line):
        names = found.group(1).split(", ")
        if len(names) > 1:
            for index in range(len(names)):
                yield f"return ({', '.join(without(names, index))},)"
        return
    if found := ASSIGNED.match(line):
        target, value = found.groups()
        for name in dict.fromkeys(NAME.findall(value)):
            if name != value and re.match(r"[a-z]+\d*$", name):
                yield f"{target} = {name}"
    # What stands between parentheses, by one of its operands or a number.
    for found in re.finditer(r"\([^()]*\)", line):
        inner = found.group(0)[1:-1]
        candidates = [name for name in NAME.findall(inner)] + ["1."]
        for name in dict.fromkeys(candidates):
            if name != inner and len(name) < len(inner):
                yield (line[: found.start()] + f"({name})" + line[found.end() :])
        if "." in line[: found.start()]:
            # A call of a method.
            head = re.sub(r"\.\w+$", "", line[: found.start()])
            if head != line[: found.start()]:
                yield head + line[found.end() :]
    for found in re.finditer(r"\[[^][]*\]", line):
        yield line[: found.start()] + line[found.end() :]


def smaller_items(items):
    """Larger steps first."""
    half = len(items) // 2
    if half > 1:
        yield items[half:]
        yield items[:half]
        yield items[: half // 2] + items[half:]
    for index in reversed(range(len(items))):
        if not (isinstance(items[index], str) and RETURN.match(items[index])):
            yield without(items, index)
    for index, item in enumerate(items):
        made = (
            smaller_blocks(item)
            if isinstance(item, Block)
            else ([line] for line in smaller_lines(item))
        )
        for instead in made:
            yield without(items, index, instead)


def smaller_programs(program):
    def changed(**fields):
        copy = program.copy()
        for name, value in fields.items():
            setattr(copy, name, value)
        return copy

    for body in smaller_items(program.body):
        yield changed(body=body)
    for index in range(len(program.methods)):
        yield changed(methods=without(program.methods, index))
    for index in range(1, len(program.arguments)):
        yield changed(arguments=without(program.arguments, index))
    if program.state:
        yield changed(state=[], declared=[])
    for index, line in enumerate(program.state):
        name = re.search(r"self\.(\w+) =|'(\w+)'", line)
        names = [n for n in name.groups() if n] if name else []
        yield changed(
            state=without(program.state, index),
            declared=[
                declared for declared in program.declared if declared.split(":")[0] not in names
            ],
        )


def reduce_program(program, fails, seconds):
    """The smallest program found in time for which `fails` is true."""
    late = time.monotonic() + seconds
    tried, index, improved = set(), 0, False
    while time.monotonic() < late:
        # The rest of the steps, in the program as it is now.
        for candidate in itertools.islice(smaller_programs(program), index, None):
            text = candidate.source()
            index += 1
            if candidate.size() < program.size() and text not in tried:
                tried.add(text)
                if fails(candidate):
                    program, improved = candidate, True
                    index -= 1
                    break
            if time.monotonic() > late:
                return program
        else:
            if not improved:
                return program
            index, improved = 0, False
    return program
