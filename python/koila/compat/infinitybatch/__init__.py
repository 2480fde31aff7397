"""infinitybatch's names, over ``koila.lazy``.

infinitybatch (https://github.com/hyperrixel/infinitybatch, by rixel) had the idea:
train with a batch that the device cannot hold, in a loop of one line or in pieces
of one's own. What differs, and why, is in ``docs/user/Migration.md``. In short: a
batch runs in tiles that fit and not sample by sample, and what was saved for
gradients is a tile's, where the original kept all of it.

::

    from koila.compat import infinitybatch

    ib = infinitybatch.InfinityBatch(model, optimizer, criterion, dataloader)
    ib(200)

Beside the names of the original: several models, criteria and optimizers, any
structure of batches, ``eval``, callbacks and ``EarlyStopping``, ``checkpoint`` and
``resume``, ``save_statistics``, ``tools.count_parameters``.
"""

from __future__ import annotations

from koila.compat.infinitybatch import tools
from koila.compat.infinitybatch.callbacks import EarlyStopping
from koila.compat.infinitybatch.errors import InfinityBatchError, InfinityBatchWarning
from koila.compat.infinitybatch.trainer import InfinityBatch

__all__ = [
    "EarlyStopping",
    "InfinityBatch",
    "InfinityBatchError",
    "InfinityBatchWarning",
    "tools",
]

# Of the original whose names these are.
__author__ = "rixel"
__copyright__ = "Copyright 2020, infinitybatch"
__credits__ = ["rixel"]
__license__ = "MIT"
__version__ = "1.0.0"
__status__ = "Production"
