"""``koila.analyze``, ``koila.compile``, ``koila.fit`` and ``koila.max_batch``."""

from koila._compile.api import CompiledModule, analyze, compile, max_batch
from koila._compile.fit import fit

__all__ = ["CompiledModule", "analyze", "compile", "fit", "max_batch"]
