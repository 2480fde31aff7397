from typing import TypedDict

import torch

class Result(TypedDict):
    succeeded: bool
    messages: bytes
    report: bytes
    tile: int | None
    module: torch.jit.ScriptModule | None

class Options:
    def __init__(
        self,
        *,
        name: str,
        method: str,
        loss: str | None,
        inputs: list[str],
        batch: list[str],
        batch_symbol: str,
        pipeline: str,
    ) -> None: ...

class Guards:
    def __init__(self, guards: list[tuple[object, object]]) -> None: ...
    def hold(self) -> bool: ...

def run_on_module(script: torch.jit.ScriptModule, options: Options, emit: bool) -> Result: ...
def make_module(
    name: str,
    unit: torch._C.CompilationUnit,
    parameters: list[tuple[str, torch.Tensor]],
    buffers: list[tuple[str, torch.Tensor]],
    modules: list[tuple[str, torch._C.ScriptModule]],
) -> torch._C.ScriptModule: ...
def save_module(script: torch.jit.ScriptModule, path: str) -> tuple[int, int]: ...
def run_on_archive(path: str, options: Options, output: str) -> Result: ...
def check_archive(path: str) -> bytes: ...
def check_output(path: str) -> None: ...
def parse_size(text: str) -> int: ...
def free_host_memory() -> tuple[int, str]: ...
