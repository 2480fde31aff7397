"""``koila.load_extension``: rules for operators of other libraries."""

from __future__ import annotations

import os

from koila import _compiler
from koila._plan import plan_cache

__all__ = ["load_extension"]


def load_extension(path: str | os.PathLike[str]) -> None:
    """Loads a library with rules for operators that koila does not know.

    ``path`` is a shared library that was built with koila's CMake package
    (docs/user/Extensions.md); its code is run. From now on the whole process knows
    its operators: ``analyze``, ``compile``, ``max_batch`` and ``lazy`` alike. Modules
    that were compiled before stay what they are. A library that is loaded already is
    left alone. The operators themselves are PyTorch's business: load their library
    with ``torch.ops.load_library``.

    Raises KoilaError, which names the path and the reason, for a file that is not
    there or no such library, that was built for another version of koila or MLIR,
    or has operators for which there are rules already.
    """
    _compiler.load_extension(os.fspath(path))
    # Plans of recorded programs have been made without its rules.
    plan_cache.forget()
