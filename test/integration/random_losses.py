"""Losses of random scripts, and how two are added.

name = main_loss(w, rows)         # of the task
name = extra_loss(w, rows)        # a penalty beside it, which may draw
name = add_losses(w, first, second)
"""

from __future__ import annotations

from random_writer import Writer

_CLASS_LOSSES = (
    *("F.cross_entropy({0}, y)", "nn.CrossEntropyLoss()({0}, y)") * 3,
    'F.cross_entropy({0}, y, reduction="sum") / len(y)',
    "F.cross_entropy({0}, y, label_smoothing=0.1)",
    "F.cross_entropy({0}, y, weight=torch.linspace(0.5, 1.5, {1}))",
    "F.nll_loss(F.log_softmax({0}, dim=1), y)",
    "F.binary_cross_entropy_with_logits({0}, F.one_hot(y, {1}).float())",
    "-F.log_softmax({0}, dim=1).gather(1, y[:, None]).mean()",
    "-F.log_softmax({0}, dim=1)[torch.arange(len(y)), y].mean()",
    "F.multi_margin_loss({0}, y)",
)
_VALUE_LOSSES = (
    *("F.mse_loss({0}, y)", "nn.MSELoss()({0}, y)") * 2,
    "({0} - y).square().mean()",
    "F.smooth_l1_loss({0}, y)",
    'F.mse_loss({0}, y, reduction="sum") / y.shape[0]',
    "F.l1_loss({0}, y)",
    "(({0} - y) ** 2).sum(1).mean()",
    "F.gaussian_nll_loss({0}, y, torch.ones_like({0}))",
)
_SAMPLE_LOSSES = {
    "classes": (
        'F.cross_entropy({0}, y, reduction="none")',
        "-F.log_softmax({0}, 1).gather(1, y.unsqueeze(1)).squeeze(1)",
    ),
    "values": ('F.mse_loss({0}, y, reduction="none").mean(1)', "({0} - y).abs().sum(dim=1)"),
}
_SAMPLE_MEANS = (
    "each.mean()",
    "each.sum() / len(each)",
    "(each * torch.rand(len(x))).mean()",
    "(each * weight).sum() / weight.sum()",
    "each.sum() / x.size(0)",
    "(each * (each.detach() > 0.1)).mean()",
    "each.topk(len(each) // 2).values.mean()",
)


def main_loss(w: Writer, rows: str) -> str:
    name = w.pick("loss", "main", "task_loss")
    if w.chance(0.3):
        w.line(f"each = {w.rng.choice(_SAMPLE_LOSSES[w.plan.task]).format(rows)}")
        w.know("each", "samples", graph=True)
        if w.chance(0.3):
            w.add("before")
        mean = w.rng.choice(_SAMPLE_MEANS)
        if "weight" in mean:
            w.line(w.pick("weight = torch.rand(x.size(0))", "weight = 1 / (1 + each.detach())"))
        w.line(f"{name} = {mean}")
    else:
        losses = _CLASS_LOSSES if w.plan.task == "classes" else _VALUE_LOSSES
        w.line(f"{name} = {w.rng.choice(losses).format(rows, w.plan.outputs)}")
    w.keep("logits", "h")
    return w.know(name, "scalar", graph=True)


def extra_loss(w: Writer, rows: str) -> str:
    choices = [
        ["extra = {0}.square().mean()"],
        ["p = {0}.softmax(1)", "extra = -(p * p.log()).sum(1).mean()"],
        ["extra = sum(p.square().sum() for p in model.parameters())"],
        ["extra = F.gumbel_softmax({0}, tau=1.0).square().sum(1).mean()"],
        ["extra = F.dropout({0}, 0.5).abs().mean()"],
        ["extra = ({0} * torch.randn_like({0})).mean()"],
        ["noise = torch.randn({0}.shape)", "extra = ({0} - noise).square().mean()"],
        [
            "with torch.no_grad():",
            "    drawn = torch.multinomial({0}.softmax(1), 1).squeeze(1)",
            "extra = F.cross_entropy({0}, drawn)",
        ],
        ["extra = {0}.logsumexp(1).mean()"],
        ["extra = ({0}[:, 0] - 1).relu_().mean()"],
        ["extra = F.cosine_similarity({0}, {0}.detach() + 1, dim=1).mean()"],
    ]  # fmt: skip
    if w.chance(0.15):
        # Of batches before.
        w.before_loop.append(f"center = torch.zeros({w.plan.outputs})")
        w.line(f"extra = ({rows} - center).square().mean()")
        w.end_of_step.append(f"center = 0.8 * center + 0.2 * {rows}.detach().mean(0)")
        return w.know("extra", "scalar", graph=True)
    if "h" in w.known:
        choices += [["extra = h.square().mean()"], ["extra = h.abs().sum(dim=1).mean()"]]
    if not w.plan.gives_hidden and w.plan.kind == "supervised":
        choices.append(["extra = (model(x) - {0}.detach()).square().mean()"])
        choices.append(["again = model(x)", "extra = F.mse_loss(again, {0})"])
    w.line(*(line.format(rows) for line in w.rng.choice(choices)))
    return w.know("extra", "scalar", graph=True)


def _factor(w: Writer) -> str:
    factor = w.pick("0.1", "0.05", "beta", "0.1 * (step + 1)", "0.5 ** (step + 1)", "scale")
    if factor == "beta":
        w.line(w.pick("beta = min(1.0, 0.2 * step)", "beta = 0.3 / (1 + step)"))
    elif factor == "scale":
        w.line("scale = torch.tensor(0.1)")
    return factor


def add_losses(w: Writer, first: str, second: str) -> str:
    """One loss of two; the lines in between may be read, too."""
    factor = _factor(w)
    loss = "loss" if first != "loss" else w.pick("loss", "whole_loss")
    form = w.rng.randrange(6)
    if form == 0 or loss == first:
        if loss == first and w.chance(0.5):
            w.line(f"{loss} += {factor} * {second}")
        else:
            w.line(f"{loss} = {first} + {factor} * {second}")
    elif form == 1:
        w.line(f"losses = [{first}, {factor} * {second}]", f"{loss} = sum(losses)")
    elif form == 2:
        w.line(f"{loss} = torch.stack([{first}, {factor} * {second}]).sum()")
    elif form == 3:
        w.line(f"{loss} = torch.zeros(())", f"{loss} += {first}")
        w.know(loss, "scalar", graph=True)
        w.gap("before", 1)
        w.line(f"{loss} = {loss} + {factor} * {second}")
    elif form == 4:
        w.line(f'losses = {{"first": {first}, "second": {factor} * {second}}}')
        w.line(f"{loss} = sum(losses.values())")
    else:
        w.line(f"{loss} = 0", f"for part_loss in ({first}, {factor} * {second}):")
        w.line(f"    {loss} = {loss} + part_loss")
    return w.know(loss, "scalar", graph=True)
