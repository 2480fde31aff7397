"""Files that are there while koila works."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

from koila._errors import KoilaError

__all__ = ["explain_write", "temporary_folder"]


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder that is removed at the end, where TMPDIR says."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="koila-")
    except OSError as error:
        raise KoilaError(f"there is no folder for temporary files: {error}") from None
    with folder as path:
        yield path


def explain_write(error: OSError, path: str, size: int, what: str) -> KoilaError:
    """Of a file of ``size`` bytes that cannot be written."""
    return KoilaError(
        f"cannot write '{path}' ({size:,} bytes of {what}): {error.strerror}",
        None,
        ("the environment variable TMPDIR names another folder for temporary files",),
    )
