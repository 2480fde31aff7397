"""Calls of koila, many in one process.

Starting LibTorch takes most of a koila-opt run. So archives are read and
written by koila's C boundary in this process, which has PyTorch already, and
koila-opt only runs passes. `command_line` in property.py says how to do the
same by hand.
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess

ABI_VERSION = 4
TIMEOUT = 60

# Errors that are no answer to a program: what koila itself made is wrong.
# What koila says of an operation by its name is said of a program that
# PyTorch runs: the verifier's errors, and false alarms. What shape inference
# did not find out is an answer.
INTERNAL = re.compile(
    r"^'[\w.]+' op (?!has a result of unknown type)|reads back as another"
    r"|is not valid; see|cannot be read|dominate|LibTorch failed|out of memory|INTERNAL ASSERT"
    r"|use of value|redefinition|custom op|expected ['\w]"
)


class Refused(Exception):
    """koila said no, with a sentence."""


class Broken(Exception):
    """koila crashed, hung, or spoke of its own mistake."""


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(ctypes.c_char)), ("size", ctypes.c_size_t)]


class ImportOptions(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("function", ctypes.c_char_p),
        ("loss", ctypes.c_char_p),
        ("gradients", ctypes.c_char_p),
        ("program", ctypes.c_void_p),
    ]


class EmitOptions(ctypes.Structure):
    _fields_ = [
        ("bytecode", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("weights", ctypes.c_char_p),
        ("output", ctypes.c_char_p),
        ("report", ctypes.c_char_p),
        ("program", ctypes.c_void_p),
    ]


def complain(text):
    """Raises what the first error in koila's messages is."""
    errors = [line for line in text.splitlines() if "error" in line]
    first = (errors or text.splitlines() or [""])[0]
    if not first.strip():
        raise Broken("refused without a word")
    first = first.split("error: ", 1)[-1]
    raise (Broken if INTERNAL.search(first) else Refused)(first)


class Koila:
    def __init__(self, tool):
        self.tool = pathlib.Path(tool).resolve()
        folder = self.tool.parent.parent / "lib"
        self.environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
        # The one beside the tool, whatever the search path says.
        ctypes.CDLL(str(folder / "libKoila.so"), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(folder / "libKoilaTorchScript.so"))
        if self.library.koilaTorchAbiVersion() != ABI_VERSION:
            raise SystemExit(
                "koila_opt.py: the C boundary has another version; "
                "compare with Target/TorchScript/TorchScript.h"
            )

    def take(self, buffer):
        data = ctypes.string_at(buffer.data, buffer.size)
        self.library.koilaTorchFree(ctypes.byref(buffer))
        return data

    def check(self, failed, messages):
        text = self.take(messages).decode()
        if failed:
            complain(
                "\n".join(
                    f"{message['severity']}: {message['message']}"
                    for message in map(json.loads, text.splitlines())
                )
            )

    def read(self, path, function="forward", loss=None, gradients=None):
        """The program of an archive, or with `loss` its training step, as bytecode."""
        words = [None if word is None else word.encode() for word in (function, loss, gradients)]
        options = ImportOptions(str(path).encode(), *words, None)
        bytecode, messages = Buffer(), Buffer()
        failed = self.library.koilaTorchImport(
            ctypes.byref(options), ctypes.byref(bytecode), ctypes.byref(messages)
        )
        self.check(failed, messages)
        return self.take(bytecode)

    def write(self, code, path):
        options = EmitOptions(code, len(code), None, str(path).encode(), None, None)
        messages = Buffer()
        failed = self.library.koilaTorchEmit(ctypes.byref(options), ctypes.byref(messages))
        self.check(failed, messages)

    def passes(self, code, folder, arguments, suffix):
        """Runs passes; `suffix` says whether text or bytecode comes out."""
        before, after = folder / "before.mlirbc", folder / f"after{suffix}"
        before.write_bytes(code)
        try:
            done = subprocess.run(
                [self.tool, before, *arguments, "-o", after],
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                env=self.environment,
            )
        except subprocess.TimeoutExpired:
            raise Broken("koila-opt takes too long") from None
        if done.returncode == 1:
            complain(done.stderr)
        if done.returncode:
            raise Broken(f"koila-opt ends with {done.returncode}: " + done.stderr[-300:])
        return after.read_bytes()

    def compile(self, source, specs, passes, target, loss=None, gradients=None):
        """Writes what passes make of an archive, or of its training step."""
        code = self.read(source, loss=loss, gradients=gradients)
        arguments = [*(f"--input={spec}" for spec in specs), *passes]
        self.write(self.passes(code, target.parent, arguments, ".mlirbc"), target)
