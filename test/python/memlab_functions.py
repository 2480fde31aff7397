"""Functions whose memory is known, for memlab_profiler_tests.py: each is called with a
list that it may take from, and returns what it holds."""

import asyncio
import functools
import threading

import torch
from torch import nn


def plain(held):
    a = torch.ones(1000)
    b = a + 1
    return a, b


def frees(held):
    a = torch.ones(5000)
    del a
    held.clear()
    return torch.ones(10)


def loops(held):
    out = []
    for i in range(5):
        out.append(torch.ones(100 * (i + 1)))
        torch.ones(3000)
    return out


def comprehends(held):
    out = [torch.ones(i) for i in range(1, 20)]
    return out, {i: torch.zeros(i) for i in range(1, 5)}, sum(t.sum() for t in out)


def recurses(held, depth=6):
    own = torch.ones(depth * 100)
    if depth:
        below = recurses(held, depth - 1)
        torch.ones(4000)
        return own, below
    return own


def nested(held):
    a = plain(held)
    b = loops(held)
    return a, b


def generator(held):
    for i in range(4):
        a = torch.ones(50 * (i + 1))
        yield a
    yield torch.ones(7)


def generates(held):
    return [value + 1 for value in generator(held)]


async def awaits(held):
    a = torch.ones(300)
    await asyncio.sleep(0)
    b = await deeper(a)
    return a, b


async def deeper(a):
    await asyncio.sleep(0)
    return a * 2


def runs_async(held):
    async def both():
        return await asyncio.gather(awaits(held), awaits(held))

    return asyncio.run(both())


def in_thread(held):
    a = torch.ones(111)
    torch.ones(999)
    held.append((a, torch.ones(222)))


def threads(held):
    all_ = [threading.Thread(target=in_thread, args=(held,)) for _ in range(3)]
    for thread in all_:
        thread.start()
    for thread in all_:
        thread.join()
    return torch.ones(5)


def raises(held):
    a = torch.ones(100)
    try:
        torch.ones(200)
        fails(a)
    except ValueError:
        b = torch.ones(300)
    finally:
        c = torch.ones(400)
    return a, b, c


def fails(a):
    a = a + 1
    raise ValueError(a.shape)


@torch.no_grad()
def decorated(held):
    a = torch.ones(500)
    return a, a.exp().sin()


def trace(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    @trace
    def forward(self, x):
        hidden = self.layers[0](x)
        hidden = self.layers[1](hidden)
        return self.layers[2](hidden)


def trains(held):
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        loss = net(torch.ones(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net, optimizer, loss


def saves(held):
    a = torch.ones(100, requires_grad=True)
    out = (a * (a + 2)).exp()
    return a, out


def writes(held):
    a = torch.ones(50)
    a.resize_(500)
    a += 1
    b = a.view(5, 100)
    return a, b[2:]


def convolves(held):
    layer = nn.Conv2d(3, 8, 3, padding=1)
    return layer, layer(torch.ones(2, 3, 24, 24))


def recurrent(held):
    layer = nn.LSTM(8, 16)
    out, state = layer(torch.ones(5, 2, 8))
    return layer, out, state


def sparse(held):
    layer = nn.Embedding(100, 8, sparse=True)
    layer(torch.arange(10)).sum().backward()
    return layer, layer.weight.grad


def closes(held):
    a = torch.ones(10)

    def inner():
        return a + torch.ones(10)

    return a, inner()


def managed(held):
    with torch.no_grad():
        a = torch.ones(77)
        with torch.enable_grad():
            b = a * 2
    while b.numel() < 300:
        b = torch.cat([b, b])
    return a, b


class Scaled(torch.autograd.Function):
    """PyTorch asks a thread's profiler for its configuration where it calls this."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 + x * 0


def differentiates(held):
    x = torch.ones(700, requires_grad=True)
    out = Scaled.apply(x)
    out.sum().backward()
    return x, out.detach()


def nothing(held):
    pass


FUNCTIONS = [
    plain,
    frees,
    loops,
    comprehends,
    recurses,
    nested,
    generates,
    runs_async,
    threads,
    raises,
    decorated,
    trains,
    saves,
    writes,
    convolves,
    recurrent,
    sparse,
    closes,
    managed,
    differentiates,
    nothing,
]
