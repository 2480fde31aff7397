"""Comparisons of results in memory and in files."""

import itertools

import pytest
import torch

from koila._capture.coarsest_type import CoarsestType
from koila._capture.compare import compare, compare_gradients, put_aside

TYPES = (torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool, torch.float64)
SHAPES = ((), (3,), (1 << 13,), (5, 9000), (20000,), (3, 7, 1000), (0, 4), (30000, 2))


def make(shape, dtype):
    torch.manual_seed(0)
    values = torch.randn(shape) * 3
    return values > 0 if dtype is torch.bool else values.to(dtype)


@pytest.mark.parametrize("dtype,shape", list(itertools.product(TYPES, SHAPES)))
def test_what_is_put_aside_is_the_same(dtype, shape, tmp_path):
    tensor = make(shape, dtype)
    forms = [tensor, tensor.transpose(0, -1).contiguous().transpose(0, -1)] if shape else [tensor]
    if shape:
        forms.append(torch.stack([tensor, tensor], -1)[..., 0])
    for found, form in itertools.product(forms, forms):
        aside = put_aside([form], str(tmp_path))
        kept = put_aside([form], str(tmp_path), form.nbytes)
        assert all(isinstance(part, torch.Tensor) for part in kept)
        assert compare([found], aside) is None and compare([found], kept) is None
        assert compare([found], [form]) is None
        if not tensor.numel():
            continue
        other = found.clone()
        last = other[(-1,) * other.dim()]
        last.copy_(~last if dtype is torch.bool else last + 1000)
        assert compare([other], aside) and compare([other], [form])
        assert compare([other], aside) == compare([other], [form]) == compare([other], kept)


def test_what_is_kept_in_memory_is_a_copy_within_room(tmp_path):
    tensors = [torch.ones(4), torch.ones(4)]
    kept = put_aside(tensors, str(tmp_path), tensors[0].nbytes)
    assert [isinstance(part, torch.Tensor) for part in kept] == [True, False]
    tensors[0].zero_()
    assert compare(tensors, kept)


def test_numbers_that_are_not_finite(tmp_path):
    tensor = torch.randn(20000)
    tensor[15000] = torch.nan
    aside = put_aside(tensor, str(tmp_path))
    assert compare(tensor.clone(), aside) is None
    tensor[15000], tensor[14000] = 0, torch.inf
    assert compare(tensor, aside) == "not finite at other places"
    # In parts that are equal, too.
    tensor = torch.randn(40000)
    tensor[0] = torch.inf
    aside, other = put_aside(tensor, str(tmp_path)), tensor.clone()
    other[-1] += 10
    assert compare(tensor, aside) is None and "off by" in compare(other, aside)


def test_rounding_is_allowed_unless_exact(tmp_path):
    tensor = torch.randn(20000)
    aside = put_aside(tensor, str(tmp_path))
    near = tensor * (1 + 1e-6)
    assert compare(near, aside) is None and "off by" in compare(near, aside, exact=True)
    assert compare(tensor, aside, exact=True) is None


def test_rounding_is_that_of_the_coarsest_type():
    wanted = make((100, 100), torch.float32)
    with CoarsestType() as types:
        found = wanted.to(torch.bfloat16).to(torch.float32)
    assert types.dtype is torch.bfloat16
    assert compare([found], [wanted])
    assert compare([found], [wanted], coarsest=types.dtype) is None
    # What half types do not explain is an error with them, too.
    assert compare([found * 1.2], [wanted], coarsest=types.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_gradients_are_told_apart_in_half_types(dtype):
    large, small = make((100, 100), dtype), make((100, 100), dtype) / 2
    assert compare_gradients([large, small], [large, small], []) is None
    assert compare_gradients([large, small * 0], [large, small], [])
