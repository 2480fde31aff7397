"""koila.compat.infinitybatch on a GPU: groups of gpu_compat.py."""

import contextlib
import io
import warnings

import torch
from torch import nn
from torch.nn import functional as F

from gpu_compat_facts import (
    DEVICE,
    MIB,
    Hoard,
    format_bytes,
    group,
    limited,
    measure_peak,
    release_all,
)


class Digits(nn.Module):
    """The network of infinitybatch's example."""

    def __init__(self, drop):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.drop, self.last_drop = nn.Dropout2d(0.25 * drop), nn.Dropout(0.5 * drop)
        self.hidden, self.last = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.second(F.relu(self.first(x))))
        x = self.drop(F.max_pool2d(x, 2)).flatten(1)
        return F.log_softmax(self.last(self.last_drop(F.relu(self.hidden(x)))), 1)


def make_batch(count):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, 1, 28, 28, generator=generator)
    images *= torch.linspace(0.5, 2, count).view(-1, 1, 1, 1)
    return images, torch.randint(10, (count,), generator=generator)


def make_infinity(batches, drop, lr=0.05):
    from koila.compat import infinitybatch

    model = Digits(drop)
    ib = infinitybatch.InfinityBatch(
        model, torch.optim.SGD(model.parameters(), lr=lr), nn.NLLLoss(), batches, verbose=False
    )
    ib.changemodeldevice(DEVICE)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    return ib


def get_distance(found, wanted):
    norm = sum(part.double().square().sum() for part in wanted).sqrt()
    off = sum((a.double() - b.double()).square().sum() for a, b in zip(found, wanted, strict=True))
    return (off.sqrt() / norm).item()


def set_exact():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True


@group("`infinitybatch`")
def infinity_fifth(facts):
    set_exact()
    images, labels = make_batch(4096)
    plain = make_infinity([], 0)

    def step(model=plain.model, x=images):
        F.nll_loss(model(x.to(DEVICE)).cpu(), labels).backward()

    step()
    for weight in plain.model.parameters():
        weight.grad.zero_()
    torch.cuda.empty_cache()
    untiled = measure_peak(step)
    exact = Digits(0).double().to(DEVICE)
    step(exact, images.double())
    truth = [weight.grad.cpu() for weight in exact.parameters()]
    del exact
    wanted = [weight.grad.cpu() for weight in plain.model.parameters()]
    del plain
    ib = make_infinity([(images, labels)], 0)

    def pieces():
        ib.criterion(ib.batch_(images), labels).backward()

    # The workspaces of cuBLAS are there between steps.
    ib.model(images[:1].to(DEVICE)).sum().backward()
    ib.model.zero_grad(set_to_none=False)
    with limited(untiled // 5):
        peak = measure_peak(pieces)
    facts.say(
        "its example, 4,096 images: under a limit of a fifth of the untiled step's memory",
        peak <= untiled // 5 and 1 <= ib.tile < 4096,
        f"{format_bytes(peak)} of {format_bytes(untiled)}, {100 * peak / untiled:.1f} %, tiles of "
        f"{ib.tile}",
    )
    found = [weight.grad.cpu() for weight in ib.model.parameters()]
    off, off_whole = get_distance(found, truth), get_distance(wanted, truth)
    facts.say(
        "gradients: distance from float64, of the tiles and of the whole batch",
        off <= 3 * off_whole + 8 * torch.finfo(torch.float32).eps,
        f"{off:.1e}, {off_whole:.1e}",
    )


@group("`infinitybatch`")
def infinity_large(facts):
    set_exact()
    batches = [make_batch(16384)]
    steps = 3
    wanted = Digits(0).to(DEVICE)
    optimizer = torch.optim.SGD(wanted.parameters(), lr=0.05)
    right = []
    for images, labels in batches * steps:
        loss = F.nll_loss(wanted(images.to(DEVICE)), labels.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append(loss.item())
    with torch.no_grad():
        last = F.nll_loss(wanted(batches[0][0].to(DEVICE)).cpu(), batches[0][1]).item()
    weights = [weight.detach().cpu() for weight in wanted.parameters()]
    del wanted, optimizer, loss
    for kind, make in (
        ("a limit of the process", lambda: limited(120 * MIB)),
        ("a device that somebody else fills", lambda: Hoard(160 * MIB)),
    ):
        release_all()
        ib = make_infinity(batches, 0)
        ib.model(batches[0][0][:1].to(DEVICE)).sum().backward()
        ib.model.zero_grad(set_to_none=False)
        torch.cuda.empty_cache()
        with make(), warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                ib.model(batches[0][0].to(DEVICE))
                fits = True
            except torch.OutOfMemoryError:
                fits = False
            torch.cuda.empty_cache()
            ib(steps)
            found = ib.eval()["loss"]
        losses = [value for epoch in ib.losses for value, _ in epoch]
        off = max(abs(a / b - 1) for a, b in zip([*losses, found], [*right, last], strict=True))
        facts.say(
            f"16,384 images, {kind}: not to be had whole, three epochs and an evaluation",
            not fits and off < 1e-3 and 1 <= ib.tile < 16384,
            f"tiles of {ib.tile}, losses {off:.0e} off",
        )
        apart = get_distance([weight.detach().cpu() for weight in ib.model.parameters()], weights)
        facts.say(f"16,384 images, {kind}: weights", apart < 1e-4, f"{apart:.0e} off")
        del ib


@group("`infinitybatch`")
def infinity_dropout(facts):
    set_exact()
    images, labels = make_batch(512)
    ib, right = make_infinity([], 1), make_infinity([], 1).model
    ib.model(images[:1].to(DEVICE)).sum().backward()
    ib.model.zero_grad(set_to_none=False)
    torch.manual_seed(2)
    with limited(100 * MIB):
        loss = F.nll_loss(ib.batch_(images), labels)
        loss.backward()
    torch.manual_seed(2)
    parts = [right(part.to(DEVICE)).cpu() for part in images.split(ib.tile)]
    wanted = F.nll_loss(torch.cat(parts), labels)
    wanted.backward()
    off = get_distance(
        [w.grad for w in ib.model.parameters()], [w.grad for w in right.parameters()]
    )
    facts.say(
        "dropout: both passes of a tile draw the same",
        torch.allclose(loss, wanted) and off < 1e-5 and ib.tile < 512,
        f"tiles of {ib.tile}, gradients {off:.0e} off",
    )


@group("`infinitybatch`")
def infinity_more(facts):
    set_exact()
    check_goes_on(facts)
    check_scaler(facts)
    check_tools(facts)


def check_goes_on(facts):
    batches = [make_batch(64), make_batch(48)]

    def run(stop):
        torch.manual_seed(5)
        ib = make_infinity(batches, 1)
        ib(1)
        if stop:
            file = io.BytesIO()
            ib.checkpoint(file)
            file.seek(0)
            torch.manual_seed(99)
            ib = make_infinity(batches, 1)
            ib.resume(file)
        ib(1)
        return [weight.detach().clone() for weight in ib.model.parameters()]

    one, other = run(False), run(True)
    facts.say("`checkpoint` and `resume`: goes on to the bit", all(map(torch.equal, one, other)))


@group("`infinitybatch`")
def infinity_autocast(facts):
    set_exact()
    images, labels = make_batch(512)
    exact = Digits(0).double().to(DEVICE)
    F.nll_loss(exact(images.double().to(DEVICE)), labels.to(DEVICE)).backward()
    truth = [weight.grad.cpu() for weight in exact.parameters()]
    del exact

    def run(is_tiled):
        release_all()
        ib = make_infinity([], 0)
        with torch.autocast(DEVICE, dtype=torch.float16):
            # The workspaces of cuBLAS are there between steps.
            ib.model(images[:1].to(DEVICE)).sum().backward()
            ib.model.zero_grad(set_to_none=False)
            with limited(100 * MIB) if is_tiled else contextlib.nullcontext():
                outputs = ib.batch_(images) if is_tiled else ib.model(images.to(DEVICE)).cpu()
                F.nll_loss(outputs, labels).backward()
        return ib.tile, [weight.grad.cpu() for weight in ib.model.parameters()]

    tile, found = run(True)
    off, off_whole = get_distance(found, truth), get_distance(run(False)[1], truth)
    facts.say(
        "autocast to float16: distance of gradients from float64, of the tiles and of the whole",
        off <= 2 * off_whole and tile < 512,
        f"{off:.1e}, {off_whole:.1e}; tiles of {tile}",
    )


def check_scaler(facts):
    batches = [make_batch(64), make_batch(48)]
    plain, scaled = make_infinity(batches, 0), make_infinity(batches, 0)
    scaled.scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
    plain(2)
    scaled(2)
    off = get_distance(list(scaled.model.parameters()), list(plain.model.parameters()))
    facts.say("with a `GradScaler`: two epochs", off < 1e-5, f"weights {off:.0e} off")


def check_tools(facts):
    from koila.compat.infinitybatch import tools

    history = tools.CudaHistory()
    history.append("before")
    held = torch.empty(64 * MIB, dtype=torch.uint8, device=DEVICE)
    history.append("after")
    before, after = history[0][1], history[1][1]
    facts.say(
        "`tools.CudaHistory`: what was allocated between two snapshots",
        after.allocated - before.allocated == 64 * MIB and after.free_cache >= 0
        and after.total == torch.cuda.mem_get_info()[1] and "after" in str(history),
        format_bytes(after.allocated - before.allocated),
    )  # fmt: skip
    del held
    counted = tools.count_parameters(Digits(0).to(DEVICE), make_batch(4)[0].to(DEVICE))
    facts.say(
        "`tools.count_parameters` with inputs",
        counted.total.elements == 1199882 and counted.total.seconds > 0,
        f"{counted.total.elements:,} parameters",
    )
