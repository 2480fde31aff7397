"""Checkpoints of programs: a count of samples is an ordinary int in them.

``pickle`` knows a subclass of int by a global name, which ``torch.load`` refuses by default.
"""

from __future__ import annotations

import functools
import pickle
import types
from typing import Any, ClassVar

import torch

from koila._capture.batch_int import BatchInt

__all__ = ["watch_saving"]

_save: Any = torch.save
# In Python, where how a type is written can be said; tensors are not written by it.
_PicklerInPython: Any = pickle._Pickler


class _Pickler(_PicklerInPython):  # type: ignore[misc]
    dispatch: ClassVar[dict[type, Any]] = {
        **_PicklerInPython.dispatch,
        BatchInt: lambda pickler, value: pickler.save(int(value)),
    }


_pickle = types.ModuleType("pickle")
vars(_pickle).update({**vars(pickle), "Pickler": _Pickler})


@functools.wraps(_save)
def _save_plainly(obj: Any, f: Any, pickle_module: Any = pickle, *args: Any, **kwargs: Any) -> Any:
    return _save(obj, f, _pickle if pickle_module is pickle else pickle_module, *args, **kwargs)


def watch_saving() -> None:
    torch.save = torch.serialization.save = _save_plainly
