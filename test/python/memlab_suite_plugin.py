"""A plugin of pytest: pytorch_memlab is koila's, and without a GPU `.cuda()` is the CPU."""

import sys

import pytest
import torch

from koila.compat import pytorch_memlab
from koila.compat.pytorch_memlab import courtesy, line_profiler, mem_reporter, utils
from koila.compat.pytorch_memlab.line_profiler import extension, line_records, profile

for module in (pytorch_memlab, courtesy, line_profiler, mem_reporter, utils):
    sys.modules[module.__name__.removeprefix("koila.compat.")] = module
for module in (extension, line_records, sys.modules[profile.__module__]):
    sys.modules[module.__name__.removeprefix("koila.compat.")] = module

if not torch.cuda.is_available():
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.nn.Module.cuda = lambda self, *_, **__: self


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Tests that skip themselves without CUDA run as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        return (yield)
