"""Training loops, optimizers and what is read in them."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

import koila
from programs.common import (
    BATCH,
    backward,
    gradients,
    images,
    loop,
    make_cnn,
    make_mlp,
    program,
    samples,
    weights,
)


@program
def sgd_momentum(lazy):
    model = make_mlp()
    return loop(
        model,
        torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        lazy,
        F.cross_entropy,
        [samples()],
    )


@program
def adam(lazy):
    model = make_mlp()
    return loop(
        model, torch.optim.AdamW(model.parameters(), 0.01), lazy, F.cross_entropy, [samples()]
    )


@program
def cnn_sgd(lazy):
    model = make_cnn()
    return loop(model, torch.optim.SGD(model.parameters(), 0.1), lazy, F.cross_entropy, [images()])


@program
def odd_batches(lazy):
    model = make_mlp()
    return loop(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        lazy,
        F.cross_entropy,
        [samples(24), samples(24), samples(7), samples(1)],
    )


@program
def empty_batch(lazy):
    model = make_mlp()
    x, y = samples(0)
    x, y = lazy(x, y)
    loss = F.cross_entropy(model(x), y, reduction="sum")
    return backward(loss, model)


@program
def closure_lbfgs(lazy):
    model = make_mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    inputs, labels = samples()

    def c():
        optimizer.zero_grad()
        x, y = lazy(inputs, labels)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(c)
    return weights(model)


@program
def closure_returns_lazy_then_item(lazy):
    model = make_mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs, labels = samples()

    def c():
        optimizer.zero_grad()
        x, y = lazy(inputs, labels)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    a = float(optimizer.step(c))
    return [a, *weights(model)]


@program
def accumulate(lazy):
    model = make_mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for i in range(4):
        x, y = lazy(*samples())
        (F.cross_entropy(model(x) * (i + 1), y) / 4).backward()
    optimizer.step()
    return weights(model) + gradients(model)


@program
def clip(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    F.cross_entropy(model(x), y).backward()
    n = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    return [float(n), *gradients(model)]


@program
def total_lazy(lazy):
    model = make_mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    tot = 0
    for _ in range(4):
        x, y = lazy(*samples())
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        tot += loss.detach()
    return [float(tot)]


@program
def acc_metrics(lazy):
    model = make_mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    cor = 0
    n = 0
    for _ in range(3):
        x, y = lazy(*samples())
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        cor += (out.argmax(1) == y).sum().item()
        n += len(y)
        optimizer.step()
    return [cor / n, *weights(model)]


@program
def acc_after_step_detach(lazy):
    model = make_mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = lazy(*samples())
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    try:
        return [(out.argmax(1) == y).double().mean().item()]
    except koila.KoilaError:
        return ["raised"]


@program
def buffer_reuse(lazy):
    model = make_mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    buf = torch.empty(BATCH, 16)
    by = torch.empty(BATCH, dtype=torch.long)
    r = []
    for i in range(3):
        inputs, labels = samples()
        buf.copy_(inputs * (i + 1))
        by.copy_(labels)
        x, y = lazy(buf, by)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        r.append(loss.item())
    return r + weights(model)


@program
def frozen(lazy):
    model = make_mlp()
    model[0].requires_grad_(False)
    r = loop(
        model,
        torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1),
        lazy,
        F.cross_entropy,
        [samples()],
    )
    model[0].requires_grad_(True)
    x, y = lazy(*samples())
    F.cross_entropy(model(x), y).backward()
    return r + gradients(model)


@program
def ema(lazy):
    model = make_mlp()
    e = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        x, y = lazy(*samples())
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(e.parameters(), model.parameters()):
                a.mul_(0.9).add_(b, alpha=0.1)
    return weights(e)


@program
def weight_changed_between(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    o = model(x)
    with torch.no_grad():
        model[0].weight.mul_(2)
    try:
        loss = F.cross_entropy(o, y)
        return [loss.item()]
    except koila.KoilaError:
        return ["raised"]


@program
def autocast(lazy):
    model = make_mlp().float()
    inputs, labels = samples()
    x, y = lazy(inputs.float(), labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    return backward(loss, model)


@program
def eval_loop(lazy):
    model = make_cnn().eval()
    c = 0
    L = 0
    with torch.no_grad():
        for _ in range(2):
            x, y = lazy(*images())
            o = model(x)
            c += (o.argmax(1) == y).sum().item()
            L += F.cross_entropy(o, y).item()
    return [c, L]


@program
def inference_mode(lazy):
    model = make_cnn().eval()
    with torch.inference_mode():
        x, _y = lazy(*images())
        o = model(x)
        return [o.sum().item()]


@program
def numpy_(lazy):
    model = make_cnn().eval()
    with torch.no_grad():
        x, _y = lazy(*images())
        return [torch.from_numpy(model(x).numpy().copy()), model(x).cpu().tolist()[0][0]]


@program
def grad_scaler(lazy):
    model = make_mlp()
    s = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    s.scale(loss).backward()
    s.step(optimizer)
    s.update()
    return weights(model)


@program
def data_write(lazy):
    model = make_mlp()
    torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        x, y = lazy(*samples())
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.1)
    return weights(model)


@program
def deepcopy_model_after(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    F.cross_entropy(model(x), y).backward()
    m2 = copy.deepcopy(model)
    x, y = lazy(*samples())
    F.cross_entropy(m2(x), y).backward()
    return gradients(model) + gradients(m2)


@program
def save_loss(lazy):
    import io

    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    b = io.BytesIO()
    torch.save({"loss": loss.detach() if not hasattr(loss, "run") else loss.detach().run()}, b)
    return [loss.item()]


@program
def exception_mid(lazy):
    model = make_mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = lazy(*samples())
    try:
        model(x) @ torch.zeros(3, 3)
    except RuntimeError:
        pass
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return [loss.item(), *weights(model)]


@program
def two_in_flight(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    x2, y2 = lazy(*[a.flip(0) for a in samples()])
    loss = F.cross_entropy(model(x), y)
    l2 = F.cross_entropy(model(x2) * 2, y2)
    (loss + l2).backward()
    return [loss.item(), l2.item(), *gradients(model)]


@program
def two_in_flight_other_size(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    x2, y2 = lazy(*samples(10))
    loss = F.cross_entropy(model(x), y)
    l2 = F.cross_entropy(model(x2) * 2, y2)
    (loss + l2).backward()
    return [loss.item(), l2.item(), *gradients(model)]


@program
def hf_like(lazy):
    from dataclasses import dataclass

    model = make_mlp()
    x, y = lazy(*samples())

    @dataclass
    class Out:
        loss: object
        logits: object

    lo = model(x)
    out = Out(F.cross_entropy(lo, y), lo)
    out.loss.backward()
    return [out.loss.item(), out.logits.argmax(-1).tolist(), *gradients(model)]


@program
def dict_out(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    out = {"logits": model(x), "aux": [x.mean(1)]}
    loss = F.cross_entropy(out["logits"], y) + out["aux"][0].mean()
    return backward(loss, model)


@program
def control_flow(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    if loss.item() > 1:
        loss = loss * 2
    if loss > 0.5:
        loss = loss + 1
    return backward(loss, model)
