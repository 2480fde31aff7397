"""Traces or scripts programs of the corpus: make_programs.py --output FOLDER
NAME...

Writes NAME.pt, traced at batch 3 unless it is scripted, and NAME.inputs with
the specifications of its inputs, or NAME.error with the exception. A program
that was made from the same file by the same libraries is left alone, and then
they are not imported.
"""

import argparse
import fcntl
import functools
import hashlib
import importlib
import importlib.metadata
import json
import os
import pathlib
import sys
import traceback
import warnings

HERE = pathlib.Path(__file__).parent
# Differs from the other extents of the programs.
TRACED_BATCH = 3
SHARED = ["registry.py", "inputs.py", "make_programs.py"]
LIBRARIES = {
    "torchvision": ["torchvision"],
    "timm": ["torchvision", "timm"],
    "transformers": ["torchvision", "transformers"],
    "segmentation": ["torchvision", "timm", "segmentation_models_pytorch"],
    "graph": ["torch_geometric"],
    "handwritten_networks": [],
    "handwritten_forms": [],
    "handwritten_functions": [],
    "constructs_control": [],
    "constructs_containers": [],
    "constructs_modules": [],
    "constructs_mutation": [],
    "scripted": ["torchvision", "timm"],
    "unseen_audio": [],
    "unseen_forms": [],
    "unseen_fresh_mixed": [],
    "unseen_fresh_scripted": [],
    "unseen_fresh_sequences": [],
    "unseen_fresh_vision": [],
    "unseen_generators": [],
    "unseen_graphs": [],
    "unseen_recommenders": [],
    "unseen_scripted_images": [],
    "unseen_scripted_recurrent": [],
    "unseen_scripted_state": [],
    "unseen_scripted_text": [],
    "unseen_tables": [],
    "unseen_text": [],
    "unseen_vision": [],
}
# Nothing is downloaded.
os.environ["HF_HUB_OFFLINE"] = "1"


def load_programs():
    from registry import PROGRAMS

    for file in sorted(HERE.glob("programs_*.py")):
        importlib.import_module(file.stem)
    assert {PROGRAMS[name].__module__.removeprefix("programs_") for name in PROGRAMS} == set(
        LIBRARIES
    )
    return PROGRAMS


def key_of(name):
    """What a file is made from: this text and these libraries."""
    from registry import file_of, source_of

    key = hashlib.sha256()
    for path in [file_of(name), *(HERE / shared for shared in SHARED)]:
        key.update(pathlib.Path(path).read_bytes())
    for library in ["torch", *LIBRARIES[source_of(name)]]:
        key.update(importlib.metadata.version(library).encode())
    return key.hexdigest()


@functools.cache
def prepare_libraries():
    """torchvision's compiled operators do not load beside a PyTorch without
    CUDA; its models need their schemas only."""
    import torch

    warnings.simplefilter("ignore")
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )


def compile_module(name, module, specs):
    """The module, traced or scripted."""
    import torch

    from inputs import make
    from registry import SCRIPTED

    if isinstance(module, torch.jit.ScriptModule):
        return module
    if name in SCRIPTED:
        return torch.jit.script(module.train(SCRIPTED[name].training))
    # With grad mode on: under no_grad some modules record a fast path that
    # has no derivative.
    # Not strict: a dict is a legal result.
    return torch.jit.trace(
        module.eval(), make(specs, TRACED_BATCH), check_trace=False, strict=False
    )


def fill_zeros(module):
    """Heads that start as zero would make every result zero."""
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.normal_(0, 0.05)


def write_program(name, path):
    import torch

    from registry import PROGRAMS

    torch.manual_seed(0)
    module, specs = PROGRAMS[name]()
    fill_zeros(module)
    compile_module(name, module, specs).save(str(path))
    return specs


def make_all(names, folder):
    """Makes what is missing."""
    load_programs()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            stamp, key = folder / f".{name}.key", key_of(name)
            if stamp.exists() and stamp.read_text() == key:
                continue
            prepare_libraries()
            error = folder / f"{name}.error"
            error.unlink(missing_ok=True)
            print(f"making {name}", file=sys.stderr, flush=True)
            try:
                # Made elsewhere under its own name, which the archive holds.
                new = folder / ".new" / f"{name}.pt"
                new.parent.mkdir(exist_ok=True)
                specs = write_program(name, new)
                inputs = folder / f"{name}.inputs"
                inputs.write_text(json.dumps(specs))
                os.replace(new, folder / new.name)
            except Exception as exception:
                traceback.print_exc()
                (folder / f"{name}.pt").unlink(missing_ok=True)
                error.write_text(f"{type(exception).__name__}: {exception}\n")
            stamp.write_text(key)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="*", help="default: all")
    arguments = parser.parse_args()
    make_all(arguments.names or list(load_programs()), arguments.output)


if __name__ == "__main__":
    main()
