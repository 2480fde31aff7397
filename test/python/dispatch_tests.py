"""What a call returns, found on the device "meta", next to a FakeTensorMode and
to PyTorch with data."""

import pytest
import torch
from torch.nn import functional as F

from koila._capture import dispatch_cache
from koila._capture.values import Slot

X, W, V, U = map(Slot, range(4))


def dense(*shape, grad=True, last=False, dtype=torch.float32):
    tensor = torch.rand(shape).add_(0.1).to(dtype)
    if last:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    return tensor.requires_grad_() if grad else tensor


def images(last=False):
    return dense(4, 6, 8, 8, last=last)


def rows():
    return dense(5, 6)


def swapped():
    return dense(6, 5).t()


def heads():
    return dense(4, 8, 6, 8).transpose(1, 2)


def norm(channels):
    return [dense(channels, grad=False) for _ in range(2)] + [dense(channels), dense(channels)]


# A function, its arguments, and the tensors among them.
CALLS = [
    *(
        (function, ((X, *arguments), {}), [make()])
        for make in (images, lambda: images(True), heads, rows, swapped)
        for function, *arguments in (
            (F.relu,),
            (torch.relu,),
            (F.relu6,),
            (F.gelu,),
            (F.silu,),
            (F.hardswish,),
            (F.hardsigmoid,),
            (F.hardtanh,),
            (F.leaky_relu,),
            (F.elu,),
            (F.softplus,),
            (F.softmax, 1),
            (F.log_softmax, 1),
            (torch.Tensor.softmax, -1),
            (torch.sigmoid,),
            (torch.tanh,),
            (torch.exp,),
            (torch.log,),
            (torch.sqrt,),
            (torch.square,),
            (torch.flatten, 1),
            (torch.Tensor.flatten,),
            (torch.Tensor.reshape, -1),
            (torch.Tensor.transpose, 0, 1),
            (torch.Tensor.unsqueeze, 1),
            (torch.Tensor.squeeze,),
            (torch.Tensor.unflatten, 1, (2, 3)),
            (torch.Tensor.chunk, 2, 1),
            (torch.Tensor.split, 2),
            (torch.Tensor.unbind, 1),
            (torch.Tensor.narrow, 1, 0, 2),
            (torch.Tensor.select, 1, 0),
            (torch.roll, 1, 0),
            (torch.Tensor.contiguous,),
            (torch.Tensor.clone,),
            (torch.Tensor.detach,),
            (torch.Tensor.mean,),
            (torch.Tensor.mean, 1, True),
            (torch.Tensor.sum, 1),
            (torch.Tensor.__add__, 2),
            (torch.Tensor.__rsub__, 1.5),
            (torch.Tensor.__mul__, 0.5),
            (torch.Tensor.__truediv__, 3),
            (torch.Tensor.__neg__,),
            (F.pad, (1, 2)),
            (torch.Tensor.__getitem__, 1),
            (torch.Tensor.__getitem__, slice(1, 3)),
            (torch.Tensor.__getitem__, (slice(None), None, slice(0, 4, 2))),
            (torch.Tensor.__getitem__, (Ellipsis, 0)),
            (torch.Tensor.__getitem__, (slice(None), [0, 2])),
            (torch.Tensor.__setitem__, slice(1, 3), 0.5),
            (torch.Tensor.__setitem__, 0, 1),
            (torch.Tensor.add_, 1.0),
            (torch.Tensor.mul_, 2),
            (torch.relu_,),
        )
    ),
    *(
        (function, ((X, *arguments), {}), [images(last)])
        for last in (False, True)
        for function, *arguments in (
            (F.max_pool2d, 3, 2, 1),
            (F.avg_pool2d, 2),
            (F.adaptive_avg_pool2d, 1),
            (F.adaptive_avg_pool2d, (3, 3)),
            (F.adaptive_avg_pool2d, (1, 1)),
            (torch.Tensor.permute, 0, 2, 3, 1),
            (torch.Tensor.expand, 4, 6, 8, 8),
        )
    ),
    *(
        (
            F.conv2d,
            ((X, W, V, stride, padding, 1, groups), {}),
            [images(last), dense(12, 6 // groups, size, size, last=wide), dense(12)],
        )
        for last in (False, True)
        for wide in (False, True)
        for size, stride, padding, groups in ((3, 1, 1, 1), (1, 1, 0, 1), (3, 2, 1, 6))
    ),
    (F.conv1d, ((X, W), {}), [dense(4, 6, 9), dense(3, 6, 2)]),
    (F.conv3d, ((X, W), {}), [dense(2, 6, 4, 4, 4), dense(3, 6, 2, 2, 2)]),
    *(
        (
            function,
            ((X, W, V, U, Slot(4), training, 0.1, 1e-5, *more), {}),
            [images(last), *norm(6)],
        )
        for function, more in ((F.batch_norm, ()),)
        for last in (False, True)
        for training in (False, True)
    ),
    (F.layer_norm, ((X, (6,), W, V), {}), [dense(4, 3, 6), dense(6), dense(6)]),
    (F.layer_norm, ((X, (6,)), {}), [swapped().t().view(5, 1, 6)]),
    (F.group_norm, ((X, 3, W, V), {}), [images(), dense(6), dense(6)]),
    (F.group_norm, ((X, 3), {}), [images(True)]),
    *(
        (F.linear, ((X, W, V), {}), [data, dense(3, 6), dense(3)])
        for data in (rows(), swapped(), dense(2, 5, 6), dense(6), dense(6, 2, 5).permute(1, 2, 0))
    ),
    (F.linear, ((X, W), {}), [dense(2, 5, 6), dense(3, 6)]),
    *(
        (function, ((X, W), {}), [dense(*left), dense(*right)])
        for function in (torch.matmul, torch.Tensor.__matmul__)
        for left, right in (
            ((5, 6), (6, 2)),
            ((3, 5, 6), (6, 2)),
            ((3, 5, 6), (3, 6, 2)),
            ((6,), (6, 2)),
            ((2, 3, 5, 6), (3, 6, 2)),
        )
    ),
    *(
        (function, ((X, W), {}), [heads(), heads().transpose(2, 3)])
        for function in (torch.matmul, torch.Tensor.matmul)
    ),
    *(
        (torch.Tensor.__getitem__, ((X, index), {}), [make(), torch.tensor([0, 2, 1])])
        for make in (images, heads, rows, swapped)
        for index in (W, (slice(None), W), (W, slice(None), None), (Ellipsis, W), (W, W), (W, 0))
    ),
    (torch.Tensor.__setitem__, ((X, slice(0, 2), W), {}), [rows(), dense(6)]),
    (torch.Tensor.__setitem__, ((X, (slice(None), 1), W), {}), [heads(), dense(6, 8)]),
    *(
        (torch.Tensor.masked_fill, ((X, W, -1.0), {}), [make(), make().detach() > 0.5])
        for make in (heads, rows, swapped)
    ),
    (torch.bmm, ((X, W), {}), [dense(3, 5, 6), dense(3, 2, 6).transpose(1, 2)]),
    (torch.addmm, ((X, W, V), {}), [dense(2), dense(5, 6), dense(6, 2)]),
    *(
        (function, ((X, W), {}), [left, right])
        for function in (torch.add, torch.sub, torch.mul, torch.div, torch.Tensor.add_)
        for left, right in (
            (rows(), dense(6)),
            (swapped(), rows()),
            (images(True), images()),
            (images(), dense(4, 6, 1, 1)),
            (dense(2, 3, dtype=torch.float64), dense(3)),
            (torch.arange(6).view(2, 3), torch.arange(3)),
            (dense(2, 3), torch.arange(3)),
        )
    ),
    *(
        (torch.cat, (([X, W], 1), {}), pair)
        for pair in (
            [rows(), rows()],
            [swapped(), rows()],
            [images(True), images(True)],
            [images(True), images()],
        )
    ),
    (torch.stack, (([X, W],), {}), [rows(), rows()]),
    (F.embedding, ((X, W), {}), [torch.randint(7, (5, 3)), dense(7, 4)]),
    *(
        (F.cross_entropy, ((X, W), options), [rows(), torch.randint(6, (5,))])
        for options in ({}, {"reduction": "none"}, {"label_smoothing": 0.1})
    ),
    (F.cross_entropy, ((X, W), {}), [images(), torch.randint(6, (4, 8, 8))]),
    *(
        (function, ((X, W), {}), [rows(), rows()])
        for function in (
            F.mse_loss,
            F.l1_loss,
            F.smooth_l1_loss,
            F.binary_cross_entropy_with_logits,
        )
    ),
]
PARTS = ("result", "metas", "same", "shares", "writes", "tracks", "random", "graph_names")


def describe(call):
    function, _, tensors = call
    layouts = (str(list(tensor.shape)) + "T" * (not tensor.is_contiguous()) for tensor in tensors)
    return "-".join([function.__name__, *layouts])


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("call", CALLS, ids=describe)
def test_meta_agrees_with_fakes_and_data(call, grad):
    function, arguments, tensors = call
    assert function in dispatch_cache._ON_META | dispatch_cache._ON_META_IN_ORDER
    fill = dispatch_cache._filler(arguments)
    metas = [dispatch_cache.meta_of(tensor) for tensor in tensors]

    def find(**options):
        return dispatch_cache._observe(
            function, fill, [None] * len(metas), metas, grad, None, **options
        )

    try:
        wanted = find()
    except Exception:
        # What fakes refuse, PyTorch is asked for.
        return
    assert (
        dispatch_cache._propagate(function, arguments, [None] * len(metas), metas, grad, None).metas
        == wanted.metas
    )
    if not dispatch_cache._suits_meta(function, metas):
        return
    found = find(on_meta=True)
    for part in PARTS:
        assert getattr(found, part) == getattr(wanted, part), part
    # No leaves, so that they can be written to.
    args, kwargs = fill([tensor.clone() for tensor in tensors])
    with torch.set_grad_enabled(grad):
        results = found.flatten(function(*args, **kwargs))
    assert [dispatch_cache.meta_of(result) for result in results] == list(found.metas)
    for result, name, same in zip(results, found.graph_names, found.same, strict=True):
        if same is None:
            assert (result.grad_fn and result.grad_fn.name()) == name
