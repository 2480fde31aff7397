"""What is told of a training's events, and may stop it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koila.compat.infinitybatch.trainer import InfinityBatch

__all__ = ["Callback", "EarlyStopping"]

#: Called with the event, one of ``"train start"``, ``"epoch start"``, ``"batch end"``,
#: ``"epoch end"`` and ``"train end"``. Where it returns True, the training ends
#: after the epoch, or at once at the end of a batch.
Callback = Callable[[str, "InfinityBatch"], Any]


class EarlyStopping:
    """Stops a training whose loss has not fallen by more than ``minimum_change`` for
    ``patience`` epochs: the loss of the evaluation where there is one, else that
    of the training. ``best`` is the lowest, and ``best_epoch`` when it was."""

    def __init__(self, patience: int = 3, minimum_change: float = 0.0) -> None:
        self.patience, self.minimum_change = patience, minimum_change
        self.best, self.best_epoch = math.inf, 0

    def __call__(self, event: str, ib: InfinityBatch) -> bool:
        if event != "epoch end":
            return False
        loss = ib.statistics[-1].get("evaluation", ib.statistics[-1]["loss"])
        if loss < self.best - self.minimum_change:
            self.best, self.best_epoch = loss, ib.epochs
        return ib.epochs - self.best_epoch >= self.patience
