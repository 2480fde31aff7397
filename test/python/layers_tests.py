"""The rooms of the Python package: imports go one way, and one door leads to C++."""

import ast
import pathlib

import koila

PACKAGE = pathlib.Path(koila.__file__).parent
# Each may import those before it: a compiled module hands calls that it has no
# program for to koila.lazy.
ROOMS = [
    {"_generators"},
    {"_operators"},
    {"_capture"},
    {"_plan"},
    {"_execute"},
    {"_report"},
    {"_lazy"},
    {"_compile"},
    {"_check"},
]
DOOR = "_compiler"
# What is in C++ and no compiler: how much memory is free, and what is allocated.
COUNTERS = ("memory.py", "compat/pytorch_memlab/_sources.py")


def imports_of(text):
    """What a file imports of koila, as dotted names."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "koila":
                yield from (f"koila.{name.name}" for name in node.names)
            elif node.module.startswith("koila."):
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("koila."))


def find_violations(files):
    """(file, import) pairs that go upwards or past the door, of {path: text}."""
    order = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
    found = []
    for path, text in files.items():
        room = path.split("/")[0]
        for name in imports_of(text):
            part = name.split(".")[1]
            upward = room in order and part in order and part != room
            if upward and order[part] >= order[room]:
                found.append((path, name))
            if part == "_C" and path not in (f"{DOOR}.py", *COUNTERS):
                found.append((path, name))
    return found


def read_package():
    files = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    return {name: path.read_text() for name, path in files.items() if not name.startswith("bin/")}


def test_imports_go_downwards():
    files = read_package()
    assert {path.split("/")[0] for path in files} >= {"_lazy", "_plan", "_execute", "_capture"}
    assert find_violations(files) == []


def test_what_goes_upwards_is_found():
    files = {
        "_capture/a.py": "from koila._plan.planner import Run",
        "_plan/b.py": "from koila import _lazy",
        "_lazy/c.py": "from koila._compile import compile",
        "_execute/d.py": "def f():\n    from koila import _C",
        "_lazy/e.py": "from koila._execute import executor",
    }
    assert [path for path, _ in find_violations(files)] == [
        "_capture/a.py",
        "_plan/b.py",
        "_lazy/c.py",
        "_execute/d.py",
    ]
