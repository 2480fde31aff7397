"""Files that are there while koila works, and reports."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from koila._errors import KoilaError
from koila._interrupt import held_back

__all__ = ["explain_write", "temporary_folder", "write_bytes", "write_text"]


@contextlib.contextmanager
def temporary_folder(beside: str | None = None) -> Iterator[str]:
    """A folder that is removed at the end: where TMPDIR says, or a hidden one beside
    a file. A signal that raises comes before or after it is made or removed."""
    folder = None
    try:
        with held_back():
            try:
                if beside is None:
                    folder = tempfile.TemporaryDirectory(prefix="koila-")
                else:
                    # A link stays a link.
                    where, name = os.path.split(os.path.realpath(beside))
                    folder = tempfile.TemporaryDirectory(
                        prefix=f".{name}.koila-", suffix=".tmp", dir=where
                    )
            except OSError as error:
                if beside is not None:
                    raise KoilaError(f"cannot write '{beside}': {error.strerror}") from None
                raise KoilaError(f"there is no folder for temporary files: {error}") from None
        yield folder.name
    finally:
        if folder is not None:
            with held_back():
                folder.cleanup()


def write_text(path: str, text: str) -> None:
    """As ``write_bytes``, in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str, data: bytes) -> None:
    """A complete file, or the one that was there; KoilaError where the disk is
    full. What is no regular file is written directly."""
    is_direct = os.path.exists(path) and not os.path.isfile(path)
    # A link stays a link.
    target = path if is_direct else os.path.realpath(path)
    folder, name = os.path.split(target)
    written = target if is_direct else os.path.join(folder, f".{name}.koila-{os.getpid()}.tmp")
    try:
        with open(written, "wb") as file:
            file.write(data)
        if not is_direct:
            os.replace(written, target)
    except OSError as error:
        raise KoilaError(f"cannot write '{path}' ({len(data):,} bytes): {error.strerror}") from None
    finally:
        if not is_direct:
            with contextlib.suppress(OSError):
                os.unlink(written)


def explain_write(error: OSError, path: str, size: int, what: str) -> KoilaError:
    """Of a file of ``size`` bytes that cannot be written."""
    return KoilaError(
        f"cannot write '{path}' ({size:,} bytes of {what}): {error.strerror}",
        None,
        ("the environment variable TMPDIR names another folder for temporary files",),
    )
