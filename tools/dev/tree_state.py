"""Says whether a command left the files of a git checkout alone.

Usage: tree_state.py write STATE [--root FOLDER]
       tree_state.py compare STATE [--root FOLDER]

`write` keeps which files differ from the last commit, ignored ones aside, and a
hash of each; `compare` names those that have changed since and exits with 1.
Outside a git checkout there is nothing to compare.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read_state(root):
    """Paths that differ from the last commit with hashes; None outside git."""
    try:
        done = subprocess.run(
            ["git", "-C", root, "status", "--porcelain", "-z", "--no-renames", "-uall"],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return None
    if done.returncode:
        return None
    state = {}
    for entry in filter(None, done.stdout.split("\0")):
        path = entry[3:]
        file = root / path
        state[path] = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "gone"
    return state


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["write", "compare"])
    parser.add_argument("state", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    options = parser.parse_args()
    now = read_state(options.root)
    if options.command == "write":
        options.state.write_text(json.dumps(now))
        return
    before = json.loads(options.state.read_text())
    if now is None or before is None:
        return
    changed = sorted(
        path for path in before.keys() | now.keys() if before.get(path) != now.get(path)
    )
    if changed:
        sys.exit(
            "koila: error: files of the tree changed while the tests ran: " + ", ".join(changed)
        )


if __name__ == "__main__":
    main()
