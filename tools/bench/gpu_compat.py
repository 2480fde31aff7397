"""koila.retry and koila.compat on a GPU: what their users rely on.

Usage: gpu_compat.py run --json FILE [--only GROUP...] [--memlab FOLDER] [--seeds FOLDER]
       gpu_compat.py page FILE --write PAGE

*run* needs PyTorch and a GPU, and of koila the Python files alone: where its C++ part
is not built, a stand-in takes its place that counts nothing and analyses nothing, so
that sizes are found by trying. Each group of checks is a process of its own:

    errors     what PyTorch and the libraries below it raise where memory runs out
    sizes      what koila.retry and toma find under a limit, and on the whole device
    functions  toma's README; what is taken back before a function runs again
    lines      LineProfiler next to torch.cuda.memory_stats read by hand
    reporter   MemReporter next to what is allocated
    courtesy   a training that steps aside, to the bit
    infinity   infinitybatch with a batch that the device cannot hold

--memlab is the folder of pytorch_memlab's tests, --seeds one with a checkout of toma in
`toma`; without them their suites are left out. The exit code is 1 if something does not
hold. *page* writes the page of results.
"""

import argparse
import json
import os
import pathlib
import platform
import sys
import tempfile
import time
import traceback

import gpu_compat_facts as shared

# Their groups, in this order.
import gpu_compat_retry  # noqa: F401, isort: skip
import gpu_compat_memlab  # noqa: F401, isort: skip
import gpu_compat_infinity  # noqa: F401, isort: skip
import torch

# A group that hangs.
SECONDS = 60
SUITES = {"memlab_suite": "memlab", "toma_suite": "seeds"}


# --- Where the GPU is -------------------------------------------------------------------------


def run_group(name, file):
    facts = shared.Facts()
    try:
        shared.install_stand_in()
        shared.GROUPS[name][1](facts)
    except BaseException as error:
        traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__} at line {place.lineno}: {str(error)[:300]}"
        facts.say(f"`{name}` ends", False, said)
    file.write_text(json.dumps(facts))


def read_versions(file):
    there = torch.cuda.is_available()
    found = {
        "device": torch.cuda.get_device_name() if there else "no GPU",
        "bytes": torch.cuda.mem_get_info()[1] if there else 0,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "has_stand_in": shared.install_stand_in(),
    }
    file.write_text(json.dumps(found))


def call_in_child(function, *arguments):
    """In a process that goes on from here, with PyTorch there and CUDA not started.
    Returns its exit code; one that does not end is ended."""
    child = os.fork()
    if not child:
        try:
            function(*arguments)
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    start = time.monotonic()
    while time.monotonic() - start < SECONDS:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return f"none after {SECONDS} s"


def run(options):
    for name, folder in (("MEMLAB_TESTS", options.memlab), ("SEEDS", options.seeds)):
        if folder is not None:
            os.environ[f"KOILA_{name}"] = str(folder.resolve())
    names = [
        name
        for name in shared.GROUPS
        if (not options.only or any(name.startswith(only) for only in options.only))
        and getattr(options, SUITES.get(name, "json")) is not None
    ]
    result = {"groups": []}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "facts.json"
        if call_in_child(read_versions, file) != 0:
            sys.exit("gpu_compat.py: no versions; see above")
        result |= json.loads(file.read_text())
        for name in names:
            print(f"--- {name}", flush=True)
            file.write_text("[]")
            start = time.monotonic()
            code = call_in_child(run_group, name, file)
            rows = json.loads(file.read_text())
            if code != 0:
                rows.append({"what": f"`{name}` ends", "holds": False, "figure": f"code {code}"})
                print(f"NOT  {name} ends: code {code}", flush=True)
            seconds = round(time.monotonic() - start, 1)
            result["groups"].append({"name": name, "seconds": seconds, "rows": rows})
            options.json.write_text(json.dumps(result, indent=1) + "\n")
            print(f"     {seconds} s", flush=True)
    rows = [row for group in result["groups"] for row in group["rows"]]
    held = sum(row["holds"] for row in rows)
    print(f"{held} of {len(rows)} hold")
    sys.exit(held != len(rows) or not rows)


# --- The page ---------------------------------------------------------------------------------

ABOUT = """\
# `koila.retry` and `koila.compat` on a GPU

<!-- Written by tools/bench/gpu_compat.py page; do not edit. -->

What users of toma, pytorch_memlab and infinitybatch rely on, on a GPU. Each group of
rows is a process of its own. A limit of the process is
`torch.cuda.set_per_process_memory_fraction`; where somebody else fills the device, the
memory is taken from the driver beside PyTorch's allocator.
"""

STAND_IN = """
koila's C++ part is not built for this PyTorch: what it would predict is not there, and
the sizes of tiles are found by trying.
"""


def write_page(options):
    found = json.loads(options.file.read_text())
    rows = [row for group in found["groups"] for row in group["rows"]]
    held = sum(row["holds"] for row in rows)
    lines = [
        ABOUT,
        f"{found['device']} ({shared.format_bytes(found['bytes'])}), PyTorch {found['torch']}, "
        f"CUDA {found['cuda']}, cuDNN {found['cudnn']}, Python {found['python']}.",
    ]
    if found["has_stand_in"]:
        lines.append(STAND_IN.rstrip())
    lines += ["", f"{held} of {len(rows)} hold."]
    title = None
    for group in found["groups"]:
        if title != (title := shared.GROUPS[group["name"]][0]):
            lines += ["", f"## {title}", "", "| what | figure | holds |", "|---|---|---|"]
        for row in group["rows"]:
            what, figure = (row[part].replace("|", "\\|") for part in ("what", "figure"))
            lines.append(f"| {what} | {figure} | {'yes' if row['holds'] else '**no**'} |")
    options.write.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("run")
    part.add_argument("--json", type=pathlib.Path, required=True)
    part.add_argument("--only", nargs="*", metavar="GROUP")
    part.add_argument("--memlab", type=pathlib.Path)
    part.add_argument("--seeds", type=pathlib.Path)
    part.set_defaults(call=run)
    part = parts.add_parser("page")
    part.add_argument("file", type=pathlib.Path)
    part.add_argument("--write", type=pathlib.Path, required=True)
    part.set_defaults(call=write_page)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
