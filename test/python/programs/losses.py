"""Losses: sums and means over the batch, weighted, masked, and others."""

import torch
import torch.nn.functional as F
from torch import nn

import koila
from programs.common import (
    BATCH,
    backward,
    gradients,
    images,
    make_mlp,
    program,
    samples,
    weights,
)


@program
def label_smoothing_weights(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y, weight=torch.linspace(0.1, 1, 5), label_smoothing=0.1)
    return backward(loss, model)


@program
def ignore_index(lazy):
    model = make_mlp()
    inputs, labels = samples()
    labels[::3] = -100
    x, y = lazy(inputs, labels)
    loss = F.cross_entropy(model(x), y)
    return backward(loss, model)


@program
def sum_over_len(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y, reduction="sum") / len(x)
    return backward(loss, model)


@program
def none_mean(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y, reduction="none")
    loss = (loss * torch.linspace(0, 1, len(y))).mean()
    return backward(loss, model)


@program
def shape0_div(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.nll_loss(F.log_softmax(model(x), 1), y, reduction="sum") / x.shape[0] + 0.01 * sum(
        p.square().sum() for p in model.parameters()
    )
    return backward(loss, model)


@program
def mse_onehot(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.mse_loss(model(x).softmax(1), F.one_hot(y, 5).to(torch.float64))
    return backward(loss, model)


@program
def two_losses(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    h = model[:2](x)
    o = model[2:](h)
    loss = F.cross_entropy(o, y) + 0.1 * h.abs().mean()
    return backward(loss, model)


@program
def two_backwards_retain(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    o = model(x)
    l1 = F.cross_entropy(o, y)
    l2 = o.square().mean()
    l1.backward(retain_graph=True)
    l2.backward()
    return [l1.item(), l2.item(), *gradients(model)]


@program
def sqrt_mean(lazy):
    model = make_mlp()
    x, _y = lazy(*samples())
    loss = (model(x).square().mean() + 1e-8).sqrt()
    return backward(loss, model)


@program
def log_of_sum(lazy):
    model = make_mlp()
    x, _y = lazy(*samples())
    loss = model(x).exp().sum().log()
    return backward(loss, model)


@program
def var_loss(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    o = model(x)
    loss = F.cross_entropy(o, y) - 0.1 * o.var(0).mean()
    return backward(loss, model)


@program
def where_mask(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    o = model(x)
    k = (y > 1).double()
    loss = (F.cross_entropy(o, y, reduction="none") * k).sum() / k.sum()
    return backward(loss, model)


@program
def nograd_teacher(lazy):
    model = make_mlp()
    t = make_mlp()
    x, y = lazy(*samples())
    with torch.no_grad():
        q = t(x).softmax(1)
    loss = F.kl_div(model(x).log_softmax(1), q, reduction="batchmean")
    loss = loss + F.cross_entropy(model(x) * 0.5, y)
    return backward(loss, model)


@program
def bce_logits_posweight(lazy):
    model = make_mlp()
    inputs, labels = samples()
    T = F.one_hot(labels, 5).double()
    x, t = lazy(inputs, T)
    loss = F.binary_cross_entropy_with_logits(model(x), t, pos_weight=torch.linspace(1, 2, 5))
    return backward(loss, model)


@program
def int_div_size(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    n = x.shape[0]
    loss = F.cross_entropy(model(x), y, reduction="sum") / (n // 2 + 1) * (n**0.5)
    return backward(loss, model)


@program
def weight_by_batchsize(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y) * x.size(0) / 64
    return backward(loss, model)


@program
def vae(lazy):
    torch.manual_seed(0)
    e = nn.Linear(16, 8)
    d = nn.Linear(4, 16)
    x, _y = lazy(*samples())
    torch.manual_seed(8)
    mu, lv = e(x).chunk(2, 1)
    z = mu + torch.randn_like(mu) * (lv * 0.5).exp()
    loss = (
        F.mse_loss(d(z), x, reduction="sum") / len(x)
        - 0.5 * (1 + lv - mu.square() - lv.exp()).sum(1).mean()
    )
    return backward(loss, e, d)


@program
def gan(lazy):
    g, d = make_mlp(), nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    torch.manual_seed(1)
    for p in d.parameters():
        nn.init.normal_(p, std=0.3)
    og = torch.optim.SGD(g.parameters(), 0.1)
    od = torch.optim.SGD(d.parameters(), 0.1)
    for _ in range(2):
        x, y = lazy(*samples())
        f = g(x)
        od.zero_grad()
        loss = F.softplus(d(f.detach())).mean() + F.softplus(-d(x[:, :5])).mean()
        loss.backward()
        od.step()
        og.zero_grad()
        x, _y = lazy(*samples())
        l2 = F.softplus(-d(g(x))).mean()
        l2.backward()
        og.step()
    return weights(g) + weights(d)


@program
def gan_same_fake(lazy):
    g, d = make_mlp(), nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    torch.manual_seed(1)
    for p in d.parameters():
        nn.init.normal_(p, std=0.3)
    og = torch.optim.SGD(g.parameters(), 0.1)
    od = torch.optim.SGD(d.parameters(), 0.1)
    x, _y = lazy(*samples())
    f = g(x)
    loss = F.softplus(d(f.detach())).mean()
    loss.backward()
    od.step()
    try:
        og.zero_grad()
        F.softplus(-d(f)).mean().backward()
        og.step()
    except koila.KoilaError:
        return ["raised"]
    return weights(g) + weights(d)


@program
def seg_loss(lazy):
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 3, padding=1)
    inputs, _ = images()
    T = (inputs.abs().sum(1) * 3).long() % 4
    x, t = lazy(inputs, T)
    loss = F.cross_entropy(model(x), t)
    p = model(x).softmax(1)
    d = (
        1
        - (
            2 * (p * F.one_hot(t, 4).permute(0, 3, 1, 2)).sum((0, 2, 3)) / (p.sum((0, 2, 3)) + 1)
        ).mean()
    )
    (loss + d).backward()
    return [loss.item(), d.item(), *gradients(model)]


@program
def loop_until(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    o = model(x)
    n = 0
    while o.abs().max() > 0.1 and n < 5:
        o = o * 0.5
        n += 1
    loss = F.cross_entropy(o, y)
    loss.backward()
    return [n, loss.item(), *gradients(model)]


def speech(count=BATCH, steps=30, longest=5):
    """Frames, letters, and how many of each belong to a sample."""
    generator = torch.Generator().manual_seed(4)
    frames = torch.randn(count, steps, 16, generator=generator)
    letters = torch.randint(1, 5, (count, longest), generator=generator)
    lengths = torch.randint(2 * longest + 1, steps + 1, (count,), generator=generator)
    counts = torch.randint(1, longest + 1, (count,), generator=generator)
    return frames, letters, lengths, counts


def make_ctc(form, reduction):
    def run(lazy):
        model = make_mlp()
        frames, letters, lengths, counts = speech()
        if form == "lazy":
            frames, letters, lengths, counts = lazy(frames, letters, lengths, counts)
        else:
            # As one row, with lengths that are numbers.
            letters = torch.cat([row[:n] for row, n in zip(letters, counts, strict=True)])
            frames, lengths, counts = lazy(frames), lengths.tolist(), tuple(counts.tolist())
        logs = model(frames).log_softmax(2).transpose(0, 1)
        loss = F.ctc_loss(logs, letters, lengths, counts, reduction=reduction, zero_infinity=True)
        return backward(loss.mean(), model)

    run.__name__ = f"ctc_{form}_{reduction}"
    return run


for form in ("lazy", "row"):
    for reduction in ("mean", "sum", "none"):
        program(make_ctc(form, reduction))


@program
def ctc_too_long(lazy):
    """PyTorch's error, where it is called."""
    model = make_mlp()
    frames, letters, lengths, counts = speech()
    said = []
    for more, most in ((20, 0), (0, 5)):
        x, y, steps, labels = lazy(frames, letters, lengths + more, counts + most)
        logs = model(x).log_softmax(2).transpose(0, 1)
        try:
            F.ctc_loss(logs, y, steps, labels)
        except RuntimeError as error:
            said.append(str(error).splitlines()[0])
    return said


@program
def rows_of_a_batch(lazy):
    """Decoding, one sample after the other, and writes that all see."""
    model = make_mlp()
    frames, _, lengths, _ = lazy(*speech())
    with torch.no_grad():
        scores = model(frames)
        best = scores.argmax(2)
        paths = [
            torch.unique_consecutive(row[:length]).tolist()
            for row, length in zip(best, lengths, strict=True)
        ]
        first, total = best[7].tolist(), best.sum()
        best[3] = 4
        best[5].zero_()
        return [*paths, first, total.item(), best.sum().item(), scores.amax().item()]
