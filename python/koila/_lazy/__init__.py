"""``koila.lazy``: tensors that record what is done to them."""

from koila._lazy.api import LazyFunction, lazy, run
from koila._lazy.lazy_tensor import BatchedPair, BatchInfo, Evaluation, LazyTensor

__all__ = [
    "BatchInfo",
    "BatchedPair",
    "Evaluation",
    "LazyFunction",
    "LazyTensor",
    "lazy",
    "run",
]
