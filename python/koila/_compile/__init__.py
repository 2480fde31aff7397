"""``koila.analyze``, ``koila.compile`` and ``koila.max_batch``."""

from koila._compile.api import CompiledModule, analyze, compile, max_batch

__all__ = ["CompiledModule", "analyze", "compile", "max_batch"]
