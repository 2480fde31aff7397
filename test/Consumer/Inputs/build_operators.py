"""Compiles a library of PyTorch operators: build_operators.py CXX SOURCE.cpp OUT.so"""

import pathlib
import subprocess
import sys

import torch

compiler, source, output = sys.argv[1:]
root = pathlib.Path(torch.__file__).parent
subprocess.run(
    [
        *(compiler, "-std=c++20", "-O0", "-shared", "-fPIC", "-isystem", root / "include"),
        *(source, "-o", output, "-L", root / "lib", "-ltorch", "-ltorch_cpu", "-lc10"),
        f"-Wl,-rpath,{root / 'lib'}",
    ],
    check=True,
)
