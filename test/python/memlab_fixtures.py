"""What tests of tensors that Python has share."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def freeze():
    """What there is already is looked at no more: collecting garbage takes no time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def collect(freeze):
    gc.collect()
