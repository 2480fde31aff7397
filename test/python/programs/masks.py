"""What boolean masks select: rows of which data say how many a sample has."""

import torch
import torch.nn.functional as F
from torch import nn

from programs.common import BATCH, backward, make_mlp, program, weights

STEPS = 12


def tokens(seed=5, rate=0.3):
    """Sequences, labels, and which of them count."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(BATCH, STEPS, 16, generator=generator)
    inputs = inputs * torch.linspace(0.5, 2, BATCH).view(-1, 1, 1)
    labels = torch.randint(5, (BATCH, STEPS), generator=generator)
    return inputs, labels, torch.rand(BATCH, STEPS, generator=generator) < rate


def make_loss(name, function, rate=0.3):
    def run(lazy):
        model = make_mlp()
        x, y, mask = lazy(*tokens(rate=rate))
        return backward(function(model(x), y, mask), model)

    run.__name__ = f"mask_{name}"
    program(run)


def one_hot(y):
    return F.one_hot(y, 5).to(torch.get_default_dtype())


for reduction in ("mean", "sum"):
    for name in ("smooth_l1_loss", "mse_loss", "l1_loss", "binary_cross_entropy_with_logits"):
        make_loss(
            f"{name}_{reduction}",
            lambda p, y, m, loss=getattr(F, name), how=reduction: loss(
                p[m], one_hot(y)[m], reduction=how
            ),
        )
    make_loss(
        f"cross_entropy_{reduction}",
        lambda p, y, m, how=reduction: F.cross_entropy(p[m], y[m], reduction=how),
    )
make_loss("sum", lambda p, y, m: p[m].square().sum())
make_loss("mean", lambda p, y, m: p[m].exp().mean())
make_loss("mean_of_rows", lambda p, y, m: p[m].abs().sum(1).mean())
make_loss("mean_of_columns", lambda p, y, m: p[m].abs().mean(0).sum())
make_loss("over_count", lambda p, y, m: p[m].square().sum() / m.sum().clamp(min=1))
make_loss("ignored", lambda p, y, m: F.cross_entropy(p[m], y[m], ignore_index=2))
make_loss("few", lambda p, y, m: F.cross_entropy(p[m], y[m]), rate=0.003)
make_loss("nothing", lambda p, y, m: F.cross_entropy(p[m], y[m], reduction="sum"), rate=-1)
make_loss("of_labels", lambda p, y, m: F.cross_entropy(p[y > 1], y[y > 1]))
make_loss("of_scores", lambda p, y, m: F.l1_loss(p[p > 0.01], torch.ones_like(p)[p > 0.01]))
make_loss("select", lambda p, y, m: p[..., 0].masked_select(m).cosh().mean())
make_loss("inverse", lambda p, y, m: p[m].square().mean() + p[~m].abs().mean())
make_loss("of_samples", lambda p, y, m: p[m.any(1)].square().mean())
make_loss("column", lambda p, y, m: p[m, 1].square().sum() + p[..., 2][m].sum())
make_loss("softmax", lambda p, y, m: (p[m].log_softmax(1) * one_hot(y)[m]).sum())
# What cannot run in tiles.
make_loss("first_rows", lambda p, y, m: p[m][:10].square().sum())
make_loss("over_rows", lambda p, y, m: (p[m].softmax(0) * one_hot(y)[m]).sum())
make_loss("deviation", lambda p, y, m: p[m].std())
make_loss("largest", lambda p, y, m: p[m].max())
make_loss("rows_by_size", lambda p, y, m: p[m].square().sum() / len(p[m]))


@program
def mask_of_another_order(lazy):
    """As many elements, at other places."""
    model = make_mlp()
    x, y, mask = tokens()
    x, y, mask, other = lazy(x, y, mask, mask.roll(1, 0))
    return backward(F.mse_loss(model(x)[mask], one_hot(y)[other], reduction="sum"), model)


@program
def mask_then_layer(lazy):
    """Only what counts goes through the last layer."""
    model = make_mlp()
    x, y, mask = lazy(*tokens())
    h = model[:2](x)
    return backward(F.cross_entropy(model[2:](h[mask]), y[mask]), model)


@program
def mask_loop(lazy):
    """Each batch has another number of elements that count."""
    model = make_mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for seed in range(4):
        x, y, mask = lazy(*tokens(seed))
        optimizer.zero_grad()
        scores = model(x)
        loss = F.cross_entropy(scores[mask], y[mask])
        loss.backward()
        optimizer.step()
        right = scores.detach()[mask].argmax(1) == y[mask]
        losses += [loss.item(), right.double().mean().item()]
    return losses + weights(model)


@program
def mask_read(lazy):
    """What is selected is shown."""
    model = make_mlp()
    x, y, mask = lazy(*tokens())
    with torch.no_grad():
        scores = model(x)
        chosen = scores[mask]
        return [chosen.clone(), y[mask].tolist(), chosen.mean(1), len(chosen)]


@program
def mask_of_weights(lazy):
    """A mask without the batch, of a weight and of columns."""
    torch.manual_seed(0)
    layer = nn.Linear(16, 8)
    x, _, mask = tokens()
    x = lazy(x)
    columns = mask[0].repeat(2)[:16]
    loss = layer(x * columns).square().mean() + layer.weight[:, columns].abs().sum()
    return backward(loss + x[..., columns].mean() * layer.bias.sum(), layer)
