"""Small networks for random scripts, as text, and the data that they learn from.

    net = choose(rng)                         # or choose(rng, floats=True)
    data_lines(net, task, rng, total)         # `data` and `labels`
    class_lines(net, "Net", outputs, rng)     # a module with features() and forward()

The sizes are such that weights are small next to what a batch of 64 samples
needs: about 30 KB of weights, 4 to 16 KB a sample.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# A layer whose output may be written in place, or not: tanh and sigmoid keep theirs.
ACTIVATIONS = ("nn.ReLU()", "nn.ReLU(inplace=True)", "nn.GELU()", "nn.Tanh()", "nn.LeakyReLU(0.1)")
TASKS = ("classes", "values")


@dataclass(frozen=True)
class Net:
    """``sample`` is the shape of one sample; with ``letters`` it is whole
    numbers below that. ``layers`` make the module, ``forward`` goes from ``x``
    to ``h``, which has ``width`` columns."""

    family: str
    sample: tuple[int, ...]
    width: int
    layers: tuple[str, ...]
    forward: tuple[str, ...]
    letters: int = 0


def _per_position(rng: random.Random) -> Net:
    length, inputs, width = rng.choice((8, 12, 16)), rng.choice((4, 6)), rng.choice((24, 32))
    first, second = rng.choice(ACTIVATIONS), rng.choice(ACTIVATIONS)
    body = f"nn.Linear({inputs}, {width}), {first}, nn.Linear({width}, {width}), {second}"
    pool = rng.choice(("h.mean(1)", "h.sum(dim=1) / h.shape[1]", "h[:, -1] + h.mean(1)"))
    return Net(
        "mlp",
        (length, inputs),
        width,
        (f"self.body = nn.Sequential({body})",),
        ("h = self.body(x)", f"h = {pool}"),
    )


def _wide(rng: random.Random) -> Net:
    inputs, wide, width = rng.choice((6, 8)), rng.choice((192, 256)), 16
    return Net(
        "wide",
        (inputs,),
        width,
        (
            f"self.wide = nn.Linear({inputs}, {wide})",
            f"self.norm = nn.LayerNorm({wide})",
            f"self.narrow = nn.Linear({wide}, {width})",
        ),
        (
            f"h = self.norm({rng.choice(('F.relu', 'torch.tanh', 'F.silu'))}(self.wide(x)))",
            "h = self.narrow(h)",
        ),
    )


def _convolutions(rng: random.Random) -> Net:
    channels, size, wide = rng.choice((1, 2)), rng.choice((8, 10)), rng.choice((6, 8))
    half = size // 2
    first, second = rng.choice(ACTIVATIONS), rng.choice(ACTIVATIONS)
    body = f"nn.Conv2d({channels}, {wide}, 3, padding=1), {first}, "
    if rng.random() < 0.5:
        body += f"nn.Conv2d({wide}, {wide}, 3, stride=2, padding=1), {second}"
    else:
        body += f"nn.MaxPool2d(2), nn.Conv2d({wide}, {wide}, 3, padding=1), {second}"
    flat = rng.choice(("h.flatten(1)", "h.view(h.size(0), -1)", "h.reshape(len(h), -1)", "mean"))
    pool, width = (flat, wide * half * half) if flat != "mean" else ("h.mean((2, 3))", wide)
    return Net(
        "conv",
        (channels, size, size),
        width,
        (f"self.body = nn.Sequential({body})",),
        ("h = self.body(x)", f"h = {pool}"),
    )


def _recurrent(rng: random.Random) -> Net:
    length, inputs, width = rng.choice((6, 8)), rng.choice((4, 6)), rng.choice((12, 16))
    kind = rng.choice(("GRU", "LSTM"))
    last = "last" if kind == "GRU" else "(last, _)"
    pool = rng.choice(("out[:, -1]", "out.mean(dim=1)", "last[-1]"))
    return Net(
        kind.lower(),
        (length, inputs),
        width,
        (f"self.rnn = nn.{kind}({inputs}, {width}, batch_first=True)",),
        (f"out, {last} = self.rnn(x)", f"h = {pool}"),
    )


def _attention(rng: random.Random) -> Net:
    length, inputs, width = rng.choice((6, 8)), rng.choice((4, 6)), 16
    layers = [f"self.embed = nn.Linear({inputs}, {width})", f"self.norm = nn.LayerNorm({width})"]
    forward = ["h = self.embed(x)"]
    if rng.random() < 0.5:
        layers.append(
            f"self.attention = nn.MultiheadAttention({width}, 2, dropout=0.1, batch_first=True)"
        )
        forward.append("h = self.norm(h + self.attention(h, h, h, need_weights=False)[0])")
    else:
        layers.append(f"self.qkv = nn.Linear({width}, {3 * width})")
        forward.append("q, k, v = self.qkv(h).chunk(3, dim=-1)")
        forward.append(f"weights = F.softmax(q @ k.transpose(1, 2) / {width**0.5:g}, dim=-1)")
        forward.append("h = self.norm(h + F.dropout(weights, 0.1, self.training) @ v)")
    layers.append(f"self.up = nn.Linear({width}, {2 * width})")
    layers.append(f"self.down = nn.Linear({2 * width}, {width})")
    forward.append("h = h + self.down(F.gelu(self.up(h)))")
    forward.append("h = h.mean(dim=1)")
    return Net("attention", (length, inputs), width, tuple(layers), tuple(forward))


def _embedding(rng: random.Random) -> Net:
    length, letters, width = rng.choice((10, 14)), rng.choice((20, 30)), rng.choice((24, 32))
    return Net(
        "embedding",
        (length,),
        width,
        (
            f"self.embed = nn.Embedding({letters}, 16)",
            f"self.mix = nn.Linear(16, {width})",
        ),
        (
            f"h = {rng.choice(('F.relu', 'torch.tanh', 'F.gelu'))}(self.mix(self.embed(x)))",
            f"h = {rng.choice(('h.mean(1)', 'h.sum(1) / x.size(1)'))}",
        ),
        letters=letters,
    )


_FAMILIES = (_per_position, _wide, _convolutions, _recurrent, _attention, _embedding)


def choose(rng: random.Random, floats: bool = False) -> Net:
    """Any network; ``floats`` are those whose inputs are no whole numbers."""
    families = [make for make in _FAMILIES if not (floats and make is _embedding)]
    return rng.choice(families)(rng)


def data_lines(net: Net, task: str, rng: random.Random, total: int, outputs: int) -> list[str]:
    """Samples that differ clearly, and labels that depend on them."""
    inner = tuple(range(1, len(net.sample) + 1))
    over = inner[0] if len(inner) == 1 else inner
    if net.letters:
        shape = ", ".join(map(str, (total, *net.sample)))
        lines = [f"data = torch.randint({net.letters}, ({shape}))", "size = data.float()"]
    else:
        shape = ", ".join(map(str, (total, *net.sample)))
        column = ", ".join([":", *["None"] * len(net.sample)])
        scale = rng.choice(("torch.rand(total)", "torch.linspace(0, 1, total)"))
        lines = [
            f"total = {total}",
            f"data = torch.randn({shape}) * (0.5 + {scale})[{column}]",
            "size = data",
        ]
    if task == "classes":
        lines.append(f"labels = (size.abs().sum({over}) * 3).long() % {outputs}")
    else:
        columns = ", ".join(
            f"size.{what}" for what in (f"mean({over})", f"std({over})", f"amax({over})")[:outputs]
        )
        lines.append(f"labels = torch.stack([{columns}], dim=1)")
        if net.letters:
            lines.append(f"labels = labels / {net.letters}")
    return lines


def class_lines(
    net: Net, name: str, outputs: int, rng: random.Random, gives_hidden: bool = False
) -> list[str]:
    """A module with ``features(x)`` and ``forward(x)``, with what people put
    between them: dropout, noise, writes in place."""
    layers, forward = list(net.layers), list(net.forward)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        _add_habit(net, layers, forward, rng)
    layers.append(f"self.head = nn.Linear({net.width}, {outputs})")
    given = "h, self.head(h)" if gives_hidden else "self.head(self.features(x))"
    lines = [f"class {name}(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {line}" for line in layers]
    lines += ["", "    def features(self, x):"]
    lines += [f"        {line}" for line in forward]
    lines += ["        return h", "", "    def forward(self, x):"]
    lines += ["        h = self.features(x)"] * gives_hidden
    lines += [f"        return {given}"]
    return lines


def _add_habit(net: Net, layers: list[str], forward: list[str], rng: random.Random) -> None:
    habit = rng.choice(("dropout", "function", "noise", "relu_", "inplace", "norm"))
    if habit == "dropout" and not any("Dropout" in line for line in layers):
        layers.append(f"self.drop = nn.Dropout({rng.choice(('0.1', '0.3'))})")
        forward.append("h = self.drop(h)")
    elif habit == "function":
        forward.append("h = F.dropout(h, 0.2, self.training)")
    elif habit == "noise":
        draw = rng.choice(("torch.randn_like(h)", "torch.randn(h.shape)", "torch.rand_like(h)"))
        forward.append("if self.training:")
        forward.append(f"    h = h + 0.1 * {draw}")
    elif habit == "relu_" and net.width <= 32 and not any("self.mid" in line for line in layers):
        layers.append(f"self.mid = nn.Linear({net.width}, {net.width})")
        forward.append(rng.choice(("h = self.mid(h).relu_()", "h = F.relu(self.mid(h), True)")))
    elif habit == "inplace":
        # A sum of its own: nobody has kept it.
        forward.append("h = h + 0.01")
        forward.append(
            rng.choice(
                (
                    "h.mul_(1.5)",
                    "h[:, :3] += 0.5",
                    "h[:, 0].mul_(2.0)",
                    "h.masked_fill_(h < -1.0, 0.0)",
                    "h *= 0.5",
                )
            )
        )
    elif habit == "norm" and net.width <= 32 and not any("norm" in line for line in layers):
        layers.append(f"self.norm = nn.LayerNorm({net.width})")
        forward.append("h = self.norm(h)")
