"""One training step of a random script: network, losses, backward(), new weights.

KINDS[kind](w)        # its lines, with pieces between them
zero(w)               # the gradients of an optimizer
"""

from __future__ import annotations

from collections.abc import Callable

from random_losses import add_losses, extra_loss, main_loss
from random_writer import Writer


def _is_coarse(w: Writer) -> bool:
    """Whether sums over samples are rounded so in bfloat16 that parts of a batch give
    other gradients in plain PyTorch, too: those of a LayerNorm's weights on the CPU."""
    return any("LayerNorm" in layer for layer in w.plan.net.layers)


def _forward(w: Writer) -> str:
    """The name of what the network gives."""
    if w.plan.gives_hidden:
        w.line("h, logits = model(x)")
        w.know("h", "rows", graph=True)
    elif w.chance(0.3):
        w.line("h = model.features(x)")
        w.know("h", "rows", graph=True)
        if w.chance(0.3):
            w.add("between")
        w.line("logits = model.head(h)")
        w.keep("h")
    elif w.chance(0.06) and not _is_coarse(w):
        with w.block('with torch.autocast("cpu", dtype=torch.bfloat16):'):
            w.line("logits = model(x).float()")
    else:
        w.line("logits = model(x)")
    return w.know("logits", "rows", graph=True, free=True)


def _backward(w: Writer, losses: list[str]) -> None:
    if w.plan.zeroed == "backward" and not w.plan.accumulates:
        zero(w)
    if len(losses) == 2:
        first, second = losses
        if w.chance(0.3):
            w.line(f"torch.autograd.backward([{first}, {second}])")
        else:
            w.line(f"{first}.backward(retain_graph=True)")
            w.gap("before", 1)
            w.line(f"{second}.backward()")
    else:
        [loss] = losses
        form = w.rng.randrange(12)
        if form == 0:
            w.line(f"({loss} / 2).backward()")
        elif form == 1:
            w.line(f"{loss}.backward(retain_graph=True)")
            w.line(f"extra_grads = torch.autograd.grad({loss}, [model.head.weight])")
            w.log("gradient", "extra_grads[0].norm().item()")
        elif form == 2 and "each" in w.known:
            w.line("each.backward(torch.full_like(each, 1 / len(each)))")
        elif form == 3:
            w.line("weights = list(model.parameters())")
            w.line(f"grads = torch.autograd.grad({loss}, weights, retain_graph=True)")
            w.log("gradient", "grads[-1].tolist()")
            w.line(f"{loss}.backward()")
        elif form == 4:
            w.line(f"{loss}.backward(torch.tensor(0.5))")
        else:
            w.line(f"{loss}.backward()")
    w.free_graphs()


def _update(w: Writer) -> None:
    if w.plan.accumulates:
        with w.block("if (step + 1) % 2 == 0 or step == steps - 1:"):
            w.line("optimizer.step()")
            zero(w)
        return
    form = w.rng.randrange(10)
    if form == 0:
        with w.block("with torch.no_grad():"):
            w.line("for p in model.parameters():")
            w.line(
                w.pick(
                    "    p -= 0.01 * p.grad",
                    "    p.sub_(p.grad, alpha=0.01)",
                    "    p.copy_(p - 0.01 * p.grad)",
                )
            )
    elif form == 1:
        w.line("for p in model.parameters():", "    p.data.add_(p.grad, alpha=-0.01)")
    else:
        w.line("optimizer.step()")


def _finish(w: Writer, losses: list[str]) -> None:
    """From the losses to the new weights."""
    w.gap("before", 3)
    if (
        len(losses) == 1
        and w.plan.kind == "supervised"
        and not w.plan.accumulates
        and w.chance(0.08)
    ):
        w.line(f"grads = torch.autograd.grad({losses[0]}, list(model.parameters()))")
        w.free_graphs()
        with w.block("with torch.no_grad():"):
            w.line("for p, grad in zip(model.parameters(), grads):", "    p -= 0.01 * grad")
        return
    _backward(w, losses)
    w.gap("graded", 2)
    _update(w)


def zero(w: Writer, name: str = "optimizer") -> None:
    if name == "optimizer" and w.chance(0.2):
        w.line("for p in model.parameters():", "    p.grad = None")
        if w.plan.kind == "variational":
            w.line("decoder.zero_grad()")
        return
    w.line(f"{name}.zero_grad({w.pick('', '', 'set_to_none=True', 'set_to_none=False')})")


def _supervised(w: Writer) -> None:
    rows = _forward(w)
    w.gap("between", 3)
    losses = [main_loss(w, rows)]
    if w.chance(0.5):
        w.gap("before", 1)
        losses.append(extra_loss(w, rows))
        if w.chance(0.7):
            losses = [add_losses(w, *losses)]
    _finish(w, losses)


def _second_batch(w: Writer) -> None:
    size = w.pick("n", "n", "n // 2")
    begin = w.rng.randrange(w.plan.batch)
    rows = _forward(w)
    w.gap("between", 1)
    first = main_loss(w, rows)
    w.line(f"u = koila.lazy(data[{begin} : {begin} + {size}], batch=0)")
    w.line("other = model(u)")
    w.know("other", "rows", graph=True, free=True, other=True)
    w.gap("between", 2)
    w.line(
        w.pick(
            "extra = other.square().mean()",
            "extra = F.softplus(other).mean()",
            "extra = (other - logits.detach().mean(0)).square().mean()",
            "extra = (other.mean(0) - logits.mean(0)).square().sum()",
            "extra = F.mse_loss(other + 0.1 * torch.randn_like(other), other.detach())",
        )
    )
    w.keep("other", "logits")
    w.know("extra", "scalar", graph=True)
    w.gap("before", 1)
    losses = [first, "extra"]
    if w.chance(0.7):
        losses = [add_losses(w, *losses)]
    _finish(w, losses)


def _teacher(w: Writer) -> None:
    rows = _forward(w)
    with w.block(w.pick("with torch.no_grad():", "with torch.no_grad():", "if True:")):
        w.line("goal = teacher(x).detach()")
    w.know("goal", "rows")
    w.gap("between", 2)
    first = main_loss(w, rows)
    w.line(
        w.pick(
            "extra = F.mse_loss(logits, goal)",
            "extra = F.kl_div(F.log_softmax(logits, 1), goal.softmax(1), reduction='sum') / len(x)",
            "extra = (logits - goal).square().sum(1).mean()",
        )
    )
    w.know("extra", "scalar", graph=True)
    losses = [first, "extra"]
    if w.chance(0.8):
        losses = [add_losses(w, *losses)]
    _finish(w, losses)
    form = w.rng.randrange(4)
    if form == 0:
        with w.block("with torch.no_grad():"):
            w.line("for t, p in zip(teacher.parameters(), model.parameters()):")
            w.line("    t.lerp_(p, 0.2)")
    elif form == 1:
        w.line("for t, p in zip(teacher.parameters(), model.parameters()):")
        w.line("    t.data.mul_(0.8).add_(p.data, alpha=0.2)")
    elif form == 2:
        w.line("for t, p in zip(teacher.parameters(), model.parameters()):")
        w.line("    t.data = 0.8 * t.data + 0.2 * p.data")
    else:
        with w.block("if step % 2 == 1:"):
            w.line("teacher.load_state_dict(model.state_dict())")


def _variational(w: Writer) -> None:
    w.line("stats = model(x)")
    w.know("stats", "rows", graph=True, free=True)
    w.gap("between", 1)
    w.line("mu, logvar = stats[:, :4], stats[:, 4:]")
    w.keep("stats")
    w.know("mu", "rows", graph=True)
    w.line(
        *w.rng.choice(
            (
                ["z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()"],
                ["z = torch.distributions.Normal(mu, (0.5 * logvar).exp()).rsample()"],
                ["eps = torch.randn(mu.shape)", "z = eps.mul((0.5 * logvar).exp()).add_(mu)"],
                ["z = mu + torch.randn(mu.size(0), 4) * F.softplus(logvar)"],
            )
        )
    )
    w.know("z", "rows", graph=True)
    shaped = w.pick("view_as(x)", "view(x.shape)", "reshape(x.size(0), *x.shape[1:])")
    w.line(f"recon = decoder(z).{shaped}")
    w.line(
        w.pick(
            "main = F.mse_loss(recon, x)",
            "main = F.mse_loss(recon, x, reduction='sum') / len(x)",
            "main = (recon - x).square().flatten(1).sum(1).mean()",
        )
    )
    w.know("main", "scalar", graph=True)
    w.line(
        w.pick(
            "extra = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(dim=1).mean()",
            "extra = -0.5 * torch.mean(1 + logvar - mu.pow(2) - logvar.exp())",
        )
    )
    w.know("extra", "scalar", graph=True)
    losses = [add_losses(w, "main", "extra")] if w.chance(0.8) else ["main", "extra"]
    _finish(w, losses)


def _adversarial(w: Writer) -> None:
    noise = w.pick("torch.randn(x.size(0), 8)", "torch.randn(len(x), 8)")
    if w.chance(0.5):
        noise = f"koila.lazy({noise}, batch=0)"
    w.line(f"z = {noise}", "fake = generator(z).view(-1, *x.shape[1:])")
    rows = _forward(w)
    w.line("fooled = model(fake.detach())")
    w.know("fooled", "rows", graph=True, free=True)
    w.gap("between", 1)
    w.line("main = F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))")
    w.line("extra = F.binary_cross_entropy_with_logits(fooled, torch.zeros_like(fooled))")
    w.keep(rows, "fooled")
    w.know("main", "scalar", graph=True)
    w.know("extra", "scalar", graph=True)
    losses = ["main", "extra"]
    if w.chance(0.5):
        losses = [add_losses(w, *losses)]
    _finish(w, losses)
    zero(w, "generator_optimizer")
    w.line("judged = model(fake)")
    w.know("judged", "rows", graph=True, free=True)
    w.gap("between", 1)
    w.line("generator_loss = " + w.pick(
        "F.binary_cross_entropy_with_logits(judged, torch.ones_like(judged))",
        "F.softplus(-judged).mean()",
        "-judged.mean()",
    ))  # fmt: skip
    w.keep("judged")
    w.know("generator_loss", "scalar", graph=True)
    w.gap("before", 1)
    w.line("generator_loss.backward()")
    w.free_graphs()
    w.line("generator_optimizer.step()")


KINDS: dict[str, Callable[[Writer], None]] = {
    "supervised": _supervised,
    "second batch": _second_batch,
    "teacher": _teacher,
    "variational": _variational,
    "adversarial": _adversarial,
}
