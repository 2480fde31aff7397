"""Scripted programs with numbers, loops and state that no rule was made with."""

import math
from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from registry import network, scripted

ROWS = "float32[B,8]"

SEQUENCE = "float32[B,6,8]"


@scripted()
def unseen_script_early_return():
    class Early(nn.Module):
        def __init__(self, simple: bool):
            super().__init__()
            self.simple = simple
            self.one, self.two = nn.Linear(8, 6), nn.Linear(6, 3)

        def forward(self, x, depth: int = 2):
            y = torch.relu(self.one(x))
            if self.simple:
                return y
            if depth < 1:
                return y * 2
            for i in range(depth):
                y = y + torch.sin(y) * i
            return self.two(y)

    return nn.Sequential(Early(False), nn.Tanh()), [ROWS]


@scripted()
def unseen_script_break():
    """Refined until a number of turns, which an attribute says."""

    class Refine(nn.Module):
        def __init__(self):
            super().__init__()
            self.most = 3
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            y = x
            turns = 0
            for i in range(10):
                if i >= self.most:
                    break
                if i == 1:
                    continue
                y = y + 0.5 * torch.tanh(self.fc(y))
                turns += 1
            return y, turns

    return Refine(), [ROWS]


@scripted()
def unseen_script_power_iteration():
    def forward(self, x):
        matrix = x.transpose(1, 2) @ x
        v = torch.ones(x.size(0), x.size(2), 1)
        i = 0
        while i < 5:
            v = torch.bmm(matrix, v)
            v = v / v.norm(2, dim=[1], keepdim=True)
            i = i + 1
        value = torch.bmm(v.transpose(1, 2), torch.bmm(matrix, v)).squeeze(2).squeeze(1)
        return value, v

    return network(forward), [SEQUENCE]


@scripted()
def unseen_script_differential_equation():
    """Runge-Kutta with a network as the derivative."""

    class Equation(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(9, 16), nn.Linear(16, 8)

        def slope(self, t: float, y: Tensor) -> Tensor:
            time = torch.full_like(y[:, :1], t)
            return self.two(torch.tanh(self.one(torch.cat([y, time], dim=1))))

        def forward(self, y):
            h = 0.25
            path = [y]
            for i in range(4):
                t = i * h
                k1 = self.slope(t, y)
                k2 = self.slope(t + h / 2, y + h / 2 * k1)
                k3 = self.slope(t + h / 2, y + h / 2 * k2)
                k4 = self.slope(t + h, y + h * k3)
                y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
                path.append(y)
            return torch.stack(path)

    return Equation(), [ROWS]


@scripted(decided="how far the values are from each other")
def unseen_script_equilibrium():
    """A fixed point, until the change is small."""

    class Equilibrium(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            z = torch.zeros_like(x)
            error, turns = 1.0, 0
            while error > 1e-2 and turns < 20:
                new = torch.tanh(0.3 * self.fc(z) + x)
                error = float((new - z).norm() / (new.norm() + 1e-8))
                z = new
                turns += 1
            return z

    return Equilibrium(), [ROWS]


@scripted()
def unseen_script_moving_average():
    """Statistics kept in buffers, and a count in an attribute."""

    class Average(nn.Module):
        count: int

        def __init__(self):
            super().__init__()
            self.count = 0
            self.fc = nn.Linear(8, 8)
            self.register_buffer("mean", torch.zeros(8))
            self.register_buffer("seen", torch.tensor(0))

        def forward(self, x):
            y = self.fc(x)
            mean = y.detach().mean(0)
            self.mean = 0.9 * self.mean + 0.1 * mean
            self.seen += 1
            self.count += 1
            return (y - self.mean) / (1 + self.count)

    return Average(), [ROWS]


@scripted(training=True)
def unseen_script_moving_average_in_place():
    class Codes(nn.Module):
        def __init__(self):
            super().__init__()
            self.decay = 0.8
            self.register_buffer("codes", torch.randn(5, 8))
            self.register_buffer("sizes", torch.ones(5))

        def forward(self, x):
            index = torch.cdist(x, self.codes).argmin(1)
            hot = F.one_hot(index, 5).to(x.dtype)
            quantized = hot @ self.codes
            if self.training:
                with torch.no_grad():
                    self.sizes.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
                    total = hot.t() @ x
                    self.codes.lerp_(total / self.sizes.unsqueeze(1), 1 - self.decay)
            return x + (quantized - x).detach(), index

    return Codes(), [ROWS]


@scripted()
def unseen_script_dict_heads():
    """Heads by name, with a loss weight each."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 12)
            self.heads = nn.ModuleDict({"age": nn.Linear(12, 1), "kind": nn.Linear(12, 4)})
            self.weights = {"age": 0.3, "kind": 1.0}

        def forward(self, x) -> Dict[str, Tensor]:
            y = torch.relu(self.body(x))
            out: Dict[str, Tensor] = {}
            for name, head in self.heads.items():
                out[name] = head(y) * self.weights[name]
            out["features"] = y
            return out

    return Heads(), [ROWS]


@scripted()
def unseen_script_dict_argument():
    """Features by name into one row."""

    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = ["dense", "ids"]
            self.table = nn.Embedding(20, 5)
            self.head = nn.Linear(13, 3)

        def forward(self, features: Dict[str, Tensor]):
            parts: List[Tensor] = []
            for key in self.keys:
                if key in features:
                    value = features[key]
                    if key == "ids":
                        value = self.table(value).sum(1)
                    parts.append(value)
            return self.head(torch.cat(parts, 1))

    return Features(), ["{'dense': float32[B,8], 'ids': int64[B,4]{0:20}}"]


@scripted(methods={"encode": [ROWS], "decode": ["float32[B,3]"]})
def unseen_script_export():
    class Auto(nn.Module):
        def __init__(self):
            super().__init__()
            self.into = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 6))
            self.out = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 8))

        @torch.jit.export
        def encode(self, x) -> Tuple[Tensor, Tensor]:
            mean, log_variance = self.into(x).chunk(2, dim=-1)
            return mean, log_variance

        @torch.jit.export
        def decode(self, z):
            return torch.sigmoid(self.out(z))

        def forward(self, x):
            mean, log_variance = self.encode(x)
            if self.training:
                mean = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            kl = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(-1)
            return self.decode(mean), kl

    return Auto(), [ROWS]


@scripted()
def unseen_script_chunks():
    """Parts of a row by index, in each of the ways to cut one."""

    def forward(self, x):
        parts = self.fc(x).chunk(3, dim=1)
        gate = torch.sigmoid(parts[0]) * parts[1]
        sizes = [2, 3, 3]
        pieces = torch.split(gate, sizes, dim=1)
        columns = pieces[1].unbind(1)
        total = columns[0] * columns[2]
        for i in range(len(pieces)):
            total = total + pieces[i].sum(1)
        return total, torch.tensor_split(parts[2], 2, dim=1)[1]

    return network(forward, fc=nn.Linear(8, 24)), [ROWS]


@scripted()
def unseen_script_asserts():
    """Checks of the arguments, as libraries have them."""

    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.width = 8
            self.fc = nn.Linear(8, 4)

        def forward(self, x, scale: Optional[float] = None):
            assert x.dim() == 2, "rows expected"
            if x.size(1) != self.width:
                raise ValueError(f"expected {self.width}, got {x.size(1)}")
            torch._assert(x.dtype == torch.float32, "single precision expected")
            if scale is None:
                scale = 1.0 / math.sqrt(float(self.width))
            return self.fc(x) * scale

    return Checked(), [ROWS]


@scripted()
def unseen_script_rates():
    """Numbers in a list that say how layers differ."""

    class Rates(nn.Module):
        def __init__(self):
            super().__init__()
            self.rates = [2, 3]
            self.convs = nn.ModuleList(nn.Conv1d(8, 8, 3, padding=1) for _ in self.rates)

        def forward(self, x):
            x = x.transpose(1, 2)
            for i, conv in enumerate(self.convs):
                x = F.interpolate(
                    x, scale_factor=float(self.rates[i]), mode="linear", align_corners=False
                )
                x = F.leaky_relu(conv(x), 0.2)
            return x.transpose(1, 2)

    return Rates(), [SEQUENCE]


@scripted()
def unseen_script_farthest_points():
    """Points chosen one by one, each as far from those before as can be."""

    def forward(self, x):
        batch, count, _ = x.shape
        chosen = torch.zeros(batch, 4, dtype=torch.long)
        distance = torch.full((batch, count), 1e10)
        farthest = torch.zeros(batch, dtype=torch.long)
        rows = torch.arange(batch)
        for i in range(4):
            chosen[:, i] = farthest
            centre = x[rows, farthest].unsqueeze(1)
            distance = torch.minimum(distance, ((x - centre) ** 2).sum(-1))
            farthest = distance.argmax(-1)
        return self.fc(x.gather(1, chosen.unsqueeze(-1).expand(-1, -1, 3)))

    return network(forward, fc=nn.Linear(3, 6)), ["float32[B,9,3]"]


@scripted()
def unseen_script_autoregression():
    """Values written one after the other into a buffer."""

    def forward(self, x):
        out = torch.zeros(x.size(0), 7)
        out[:, :2] = x[:, :2]
        for i in range(2, 7):
            seen = torch.cat([out[:, i - 2 : i], x], 1)
            out[:, i] = torch.tanh(self.fc(seen)).squeeze(1)
        return out

    return network(forward, fc=nn.Linear(10, 1)), [ROWS]


@scripted()
def unseen_script_message_rounds():
    """Rounds of messages over given edges, with what each round gave."""

    class Rounds(nn.Module):
        def __init__(self):
            super().__init__()
            self.message = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
            self.update = nn.GRUCell(8, 8)

        def forward(self, x, edges):
            source, target = edges[0], edges[1]
            rounds: List[Tensor] = []
            for message in self.message:
                sent = torch.relu(message(x)).index_select(0, source)
                total = torch.zeros_like(x).index_add(0, target, sent)
                x = self.update(total, x)
                rounds.append(x)
            return torch.cat(rounds, 1)

    return Rounds(), ["float32[4*B,8]", "int64[2,9*B]{0:4*B}"]


@scripted()
def unseen_script_ensemble():
    """Members of an ensemble: their mean, and how they differ."""

    class Ensemble(nn.Module):
        def __init__(self):
            super().__init__()
            self.members = nn.ModuleList(
                nn.Sequential(nn.Linear(8, 12), nn.SELU(), nn.Linear(12, 3)) for _ in range(3)
            )

        def forward(self, x, most: int = 3):
            outs = [member(x).softmax(-1) for member in self.members]
            outs = outs[:most]
            stacked = torch.stack(outs)
            mean = stacked.mean(0)
            entropy = -(mean * mean.log()).sum(-1)
            return mean, stacked.var(0).sum(-1), entropy

    return Ensemble(), [ROWS]


@scripted()
def unseen_script_quantile_loss():
    """A loss that sums over quantiles."""

    class Quantiles(nn.Module):
        def __init__(self):
            super().__init__()
            self.quantiles = [0.1, 0.5, 0.9]
            self.fc = nn.Linear(8, 3)

        def forward(self, x, y):
            out = self.fc(x)
            losses: List[Tensor] = []
            for i, q in enumerate(self.quantiles):
                error = y - out[:, i]
                losses.append(torch.max((q - 1) * error, q * error).unsqueeze(1))
            return torch.mean(torch.sum(torch.cat(losses, dim=1), dim=1)), out

    return Quantiles(), [ROWS, "float32[B]"]


@scripted()
def unseen_script_filter_bank():
    """Bands of a spectrum between numbers that are computed."""

    def forward(self, x):
        spectrum = torch.fft.rfft(x, dim=-1).abs()
        bands: List[Tensor] = []
        start = 0
        width = 2
        while start < spectrum.size(-1):
            end = min(start + width, spectrum.size(-1))
            bands.append(spectrum[:, start:end].pow(2).mean(-1))
            start = end
            width *= 2
        return self.fc(torch.log(torch.stack(bands, 1) + 1e-6))

    return network(forward, fc=nn.Linear(4, 4)), ["float32[B,48]"]


@scripted()
def unseen_script_kalman():
    """Filtering with a matrix per sample, step by step."""

    def forward(self, x):
        mean = torch.zeros(x.size(0), 3, 1)
        cov = torch.eye(3).repeat(x.size(0), 1, 1)
        means: List[Tensor] = []
        for t in range(x.size(1)):
            mean = self.move @ mean
            cov = self.move @ cov @ self.move.t() + 0.1 * torch.eye(3)
            s = self.see @ cov @ self.see.t() + 0.5 * torch.eye(2)
            gain = torch.linalg.solve(s, self.see @ cov).transpose(1, 2)
            mean = mean + gain @ (x[:, t].unsqueeze(-1) - self.see @ mean)
            cov = cov - gain @ self.see @ cov
            means.append(mean.squeeze(-1))
        return torch.stack(means, 1), cov

    return network(
        forward,
        move=nn.Parameter(torch.randn(3, 3) * 0.5),
        see=nn.Parameter(torch.randn(2, 3)),
    ), ["float32[B,5,2]"]


@scripted()
def unseen_script_modulated_convolution():
    """Weights of each sample, as groups of one convolution; a trace would hold
    the number of groups."""

    class Modulated(nn.Module):
        def __init__(self):
            super().__init__()
            self.affine = nn.Linear(9, 6)
            self.weight = nn.Parameter(torch.randn(10, 6, 3, 3))
            self.bias = nn.Parameter(torch.randn(10))

        def forward(self, x, style):
            batch, channels, height, width = x.shape
            scale = self.affine(style).view(batch, 1, channels, 1, 1)
            weight = self.weight.unsqueeze(0) * scale
            demodulate = torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8)
            weight = weight * demodulate.view(batch, -1, 1, 1, 1)
            weight = weight.view(-1, channels, 3, 3)
            out = F.conv2d(x.reshape(1, -1, height, width), weight, padding=1, groups=batch)
            out = out.view(batch, -1, height, width)
            out = F.interpolate(out, scale_factor=2.0, mode="bilinear", align_corners=False)
            return F.leaky_relu(out + self.bias.view(1, -1, 1, 1), 0.2)

    return Modulated(), ["float32[B,6,7,8]", "float32[B,9]"]
