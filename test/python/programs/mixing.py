"""What mixes samples, chooses among them, or counts them by hand."""

import torch
import torch.nn.functional as F
from torch import nn

from programs.common import BATCH, backward, gradients, loop, make_mlp, program, samples


@program
def mixup(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    torch.manual_seed(5)
    p = torch.randperm(x.size(0))
    xm = 0.3 * x + 0.7 * x[p]
    loss = 0.3 * F.cross_entropy(model(xm), y) + 0.7 * F.cross_entropy(model(xm), y[p])
    return backward(loss, model)


@program
def contrastive(lazy):
    model = make_mlp()
    x, _y = lazy(*samples())
    z = F.normalize(model(x), dim=1)
    s = z @ z.T / 0.5
    loss = F.cross_entropy(s, torch.arange(len(x)))
    return backward(loss, model)


@program
def center(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    x = (x - x.mean(0)) / (x.std(0) + 1e-5)
    loss = F.cross_entropy(model(x), y)
    return backward(loss, model)


@program
def topk_hard(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y, reduction="none")
    loss = loss.topk(6).values.mean()
    return backward(loss, model)


@program
def masked_select(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    o = model(x)
    k = y > 1
    loss = F.cross_entropy(o[k], y[k])
    return backward(loss, model)


@program
def batchnorm_train(lazy):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5))
    return loop(model, torch.optim.SGD(model.parameters(), 0.1), lazy, F.cross_entropy, [samples()])


@program
def iterate(lazy):
    model = make_mlp()
    x, _y = lazy(*samples())
    o = model(x)
    s = 0
    for r in o:
        s = s + r.sum()
    s.backward()
    return [s.item(), *gradients(model)]


@program
def view_hard(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    h = model[0](x).view(BATCH, 8, 8).transpose(1, 2).reshape(BATCH, -1)
    loss = F.cross_entropy(model[2:](h), y)
    return backward(loss, model)


@program
def view_shape(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    h = model[0](x).view(x.shape[0], 8, 8).transpose(1, 2).reshape(x.size(0), -1)
    loss = F.cross_entropy(model[2:](h), y)
    return backward(loss, model)


@program
def patches(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    h = model[0](x.view(x.shape[0] * 2, 8).repeat(1, 2)).view(x.shape[0], 2, 64).mean(1)
    loss = F.cross_entropy(model[2:](h), y)
    return backward(loss, model)


@program
def cat_split(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    a, b = x.chunk(2, 0)
    loss = F.cross_entropy(model(torch.cat([b, a])), torch.cat([y[BATCH // 2 :], y[: BATCH // 2]]))
    return backward(loss, model)


@program
def siamese(lazy):
    model = make_mlp()
    x, _y = lazy(*samples())
    z = model(torch.cat([x, x * 0.5]))
    a, b = z.chunk(2)
    loss = (1 - F.cosine_similarity(a, b)).mean()
    return backward(loss, model)


@program
def sort_(lazy):
    model = make_mlp()
    x, _y = lazy(*samples())
    loss = (model(x).sum(1).sort().values * torch.arange(BATCH)).mean()
    return backward(loss, model)


@program
def cumsum_batch(lazy):
    model = make_mlp()
    x, _y = lazy(*samples())
    loss = model(x).cumsum(0).square().mean()
    return backward(loss, model)


@program
def arange_pos(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x + torch.arange(x.shape[0]).view(-1, 1) * 0.01), y)
    return backward(loss, model)
