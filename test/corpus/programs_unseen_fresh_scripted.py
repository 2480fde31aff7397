"""Scripted programs, as people write them outside of this repository."""

import math
from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from registry import scripted

IMAGE = "float32[B,3,16,16]"
SEQUENCE = "float32[B,6,8]"
ROWS = "float32[B,8]"


@scripted()
def fresh_script_greedy():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.cell, self.out = (
                nn.Embedding(20, 8),
                nn.LSTMCell(8, 16),
                nn.Linear(16, 20),
            )
            self.init = nn.Linear(8, 16)

        def forward(self, context: Tensor, steps: int = 6) -> Tuple[Tensor, Tensor]:
            h = torch.tanh(self.init(context))
            c = torch.zeros_like(h)
            token = torch.zeros(context.size(0), dtype=torch.long)
            done = torch.zeros(context.size(0), dtype=torch.bool)
            tokens: List[Tensor] = []
            scores = torch.zeros(context.size(0))
            for _ in range(steps):
                h, c = self.cell(self.embed(token), (h, c))
                best, token = self.out(h).log_softmax(-1).max(-1)
                token = token.masked_fill(done, 0)
                scores = scores + best.masked_fill(done, 0.0)
                done = done | token.eq(1)
                tokens.append(token)
            return torch.stack(tokens, 1), scores

    return Net(), [ROWS]


@scripted()
def fresh_script_beam_search():
    class Net(nn.Module):
        def __init__(self, beam: int = 3, vocab: int = 12):
            super().__init__()
            self.beam, self.vocab = beam, vocab
            self.embed, self.cell, self.out = (
                nn.Embedding(vocab, 8),
                nn.GRUCell(8, 8),
                nn.Linear(8, vocab),
            )

        def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
            b, k = x.size(0), self.beam
            h = x.repeat_interleave(k, dim=0)
            scores = torch.full((b, k), -1e9)
            scores[:, 0] = 0.0
            seqs = torch.zeros(b, k, 1, dtype=torch.long)
            offset = (torch.arange(b) * k).unsqueeze(1)
            for step in range(5):
                h = self.cell(self.embed(seqs[:, :, -1].reshape(-1)), h)
                logp = F.log_softmax(self.out(h), dim=-1).view(b, k, -1)
                total = (scores.unsqueeze(-1) + logp).view(b, -1)
                scores, index = total.topk(k, dim=1)
                parent = torch.div(index, self.vocab, rounding_mode="floor")
                token = index % self.vocab
                h = h.index_select(0, (parent + offset).view(-1))
                seqs = seqs.gather(1, parent.unsqueeze(-1).expand(-1, -1, seqs.size(2)))
                seqs = torch.cat([seqs, token.unsqueeze(-1)], dim=2)
            return seqs, scores

    return Net(), [ROWS]


@scripted()
def fresh_script_sampling():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.out = (
                nn.Embedding(20, 8),
                nn.GRU(8, 12, batch_first=True),
                nn.Linear(12, 20),
            )

        def sample(self, logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
            logits = logits / max(temperature, 1e-5)
            if top_k > 0:
                kth = torch.topk(logits, min(top_k, logits.size(-1)))[0][:, -1:]
                logits = torch.where(logits < kth, torch.full_like(logits, -1e9), logits)
            if top_p < 1.0:
                ordered, index = torch.sort(logits, descending=True)
                remove = torch.cumsum(F.softmax(ordered, -1), -1) > top_p
                remove[:, 1:] = remove[:, :-1].clone()
                remove[:, 0] = False
                logits = logits.masked_fill(remove.scatter(1, index, remove), -1e9)
            return torch.multinomial(F.softmax(logits, dim=-1), 1)

        def forward(
            self, ids: Tensor, temperature: float = 0.8, top_k: int = 5, top_p: float = 0.9
        ) -> Tensor:
            state: Optional[Tensor] = None
            x = ids
            for _ in range(4):
                out, state = self.rnn(self.embed(x), state)
                x = self.sample(self.out(out[:, -1]), temperature, top_k, top_p)
                ids = torch.cat([ids, x], 1)
            return ids

    return Net(), ["int64[B,5]{0:20}"]


def iou(a: Tensor, b: Tensor) -> Tensor:
    lt, rb = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    return inter / (area_a[:, None] + area_b - inter)


@scripted(decided="how many scores are above a threshold")
def fresh_script_detections():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 16, 4, 4)
            self.box, self.cls = nn.Conv2d(16, 4, 1), nn.Conv2d(16, 3, 1)

        def nms(self, boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
            order = scores.argsort(descending=True)
            keep: List[int] = []
            while order.numel() > 0:
                i = int(order[0].item())
                keep.append(i)
                if order.numel() == 1:
                    break
                rest = order[1:]
                order = rest[iou(boxes[i : i + 1], boxes[rest])[0] <= threshold]
            return torch.tensor(keep, dtype=torch.long)

        def forward(self, x: Tensor) -> List[Dict[str, Tensor]]:
            f = F.relu(self.conv(x))
            box, cls = (
                self.box(f).flatten(2).transpose(1, 2),
                self.cls(f).flatten(2).transpose(1, 2),
            )
            results: List[Dict[str, Tensor]] = []
            for i in range(x.size(0)):
                scores, labels = cls[i].sigmoid().max(-1)
                keep = torch.where(scores > 0.5)[0]
                b = box[i][keep]
                b = torch.cat([b[:, :2] - b[:, 2:].exp(), b[:, :2] + b[:, 2:].exp()], 1)
                s, found = scores[keep], labels[keep]
                k = self.nms(b, s, 0.6)[:10]
                results.append({"boxes": b[k], "scores": s[k], "labels": found[k]})
            return results

    return Net(), [IMAGE]


@scripted()
def fresh_script_top_anchors():
    """Levels, each with a fixed number of candidates."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.c2 = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
            self.head = nn.Conv2d(8, 5, 3, padding=1)

        def levels(self, x: Tensor) -> List[Tensor]:
            a = F.relu(self.c1(x))
            return [a, F.relu(self.c2(a))]

        def forward(self, x: Tensor, per_level: int = 10) -> Tuple[Tensor, Tensor]:
            scores: List[Tensor] = []
            boxes: List[Tensor] = []
            for level in self.levels(x):
                out = self.head(level).permute(0, 2, 3, 1).flatten(1, 2)
                n = min(per_level, out.size(1))
                s, index = out[:, :, 4].topk(n, 1)
                boxes.append(torch.gather(out[:, :, :4], 1, index.unsqueeze(-1).repeat(1, 1, 4)))
                scores.append(s.sigmoid())
            return torch.cat(boxes, 1), torch.cat(scores, 1)

    return Net(), [IMAGE]


class Output(NamedTuple):
    logits: Tensor
    hidden: Tensor
    loss: Optional[Tensor]


@scripted()
def fresh_script_named_tuple_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 5)

        def forward(self, x: Tensor, labels: Optional[Tensor] = None) -> Output:
            h = F.gelu(self.body(x))
            logits = self.head(h)
            loss: Optional[Tensor] = None
            if labels is not None:
                loss = F.cross_entropy(logits, labels)
            return Output(logits, h, loss)

    return Net(), [ROWS, "int64[B]{0:5}"]


@scripted()
def fresh_script_feature_dict():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleDict(
                {
                    "stem": nn.Conv2d(3, 8, 3, 2, 1),
                    "layer1": nn.Conv2d(8, 8, 3, 1, 1),
                    "layer2": nn.Conv2d(8, 16, 3, 2, 1),
                }
            )
            self.keep: Dict[str, str] = {"layer1": "low", "layer2": "high"}
            self.lat = nn.ModuleList([nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1)])

        def forward(self, x: Tensor) -> Dict[str, Tensor]:
            out: Dict[str, Tensor] = {}
            for name, layer in self.layers.items():
                x = F.relu(layer(x))
                if name in self.keep:
                    out[self.keep[name]] = x
            values = list(out.values())
            feats: List[Tensor] = []
            for i, conv in enumerate(self.lat):
                feats.append(conv(values[i]))
            top = F.interpolate(feats[1], size=feats[0].shape[-2:], mode="nearest")
            out["merged"] = feats[0] + top
            return out

    return Net(), [IMAGE]


@scripted()
def fresh_script_kv_cache():
    """An attribute that grows from call to call, and is set back."""

    class Net(nn.Module):
        past_k: Optional[Tensor]
        past_v: Optional[Tensor]

        def __init__(self):
            super().__init__()
            self.qkv, self.o = nn.Linear(8, 24), nn.Linear(8, 8)
            self.past_k, self.past_v = None, None

        def step(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            pk, pv = self.past_k, self.past_v
            if pk is not None and pv is not None:
                k, v = torch.cat([pk, k], 1), torch.cat([pv, v], 1)
            self.past_k, self.past_v = k, v
            return self.o(F.softmax(q @ k.transpose(1, 2) / math.sqrt(8.0), -1) @ v)

        def forward(self, x: Tensor) -> Tensor:
            self.past_k, self.past_v = None, None
            outs: List[Tensor] = []
            for t in range(x.size(1)):
                outs.append(self.step(x[:, t : t + 1]))
            return torch.cat(outs, 1)

    return Net(), [SEQUENCE]


@scripted()
def fresh_script_streaming_conv():
    class Stream(nn.Module):
        def __init__(self, c: int, k: int, d: int):
            super().__init__()
            self.pad = (k - 1) * d
            self.conv = nn.Conv1d(c, c, k, dilation=d)

        def forward(self, x: Tensor, cache: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
            if cache is None:
                x = F.pad(x, (self.pad, 0))
            else:
                x = torch.cat((cache, x), dim=2)
            return F.relu(self.conv(x)), x[:, :, -self.pad :]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Stream(4, 3, 1), Stream(4, 3, 2)])

        def forward(self, x: Tensor) -> Tensor:
            caches: Dict[int, Tensor] = {}
            outs: List[Tensor] = []
            for chunk in torch.split(x, 8, dim=2):
                y = chunk
                for i, layer in enumerate(self.layers):
                    old: Optional[Tensor] = None
                    if i in caches:
                        old = caches[i]
                    y, caches[i] = layer(y, old)
                outs.append(y)
            return torch.cat(outs, 2)

    return Net(), ["float32[B,4,24]"]


class Activation(Enum):
    RELU = 0
    GELU = 1
    SWISH = 2


@scripted()
def fresh_script_enum():
    class Net(nn.Module):
        def __init__(self, act: Activation):
            super().__init__()
            self.act = act
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            if self.act == Activation.RELU:
                h = F.relu(h)
            elif self.act == Activation.GELU:
                h = F.gelu(h)
            else:
                h = h * torch.sigmoid(h)
            return self.b(h)

    return Net(Activation.SWISH), [ROWS]


@scripted()
def fresh_script_unet_stack():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([nn.Conv2d(i, o, 3, padding=1) for i, o in ((3, 8), (8, 16))])
            self.mid = nn.Conv2d(16, 16, 3, padding=1)
            self.up = nn.ModuleList([nn.Conv2d(i, o, 3, padding=1) for i, o in ((32, 8), (16, 8))])
            self.head = nn.Conv2d(8, 2, 1)

        def forward(self, x: Tensor, target: Tensor) -> Tuple[Tensor, Tensor]:
            skips: List[Tensor] = []
            for layer in self.down:
                x = F.relu(layer(x))
                skips.append(x)
                x = F.max_pool2d(x, 2)
            x = F.relu(self.mid(x))
            for layer in self.up:
                skip = skips.pop()
                x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
                x = F.relu(layer(torch.cat([x, skip], 1)))
            logits = self.head(x)
            return F.cross_entropy(logits, target), logits.argmax(1)

    return Net(), [IMAGE, "int64[B,16,16]{0:2}"]


@scripted()
def fresh_script_ln_lstm():
    """Recurrent cells in loops, with layers and directions."""

    class Cell(nn.Module):
        def __init__(self, i: int, h: int):
            super().__init__()
            self.w = nn.Parameter(torch.randn(4 * h, i) * 0.2)
            self.u = nn.Parameter(torch.randn(4 * h, h) * 0.2)
            self.ni, self.nh, self.nc = nn.LayerNorm(4 * h), nn.LayerNorm(4 * h), nn.LayerNorm(h)

        def forward(
            self, x: Tensor, state: Tuple[Tensor, Tensor]
        ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
            h, c = state
            gates = self.ni(torch.mm(x, self.w.t())) + self.nh(torch.mm(h, self.u.t()))
            i, f, g, o = gates.chunk(4, 1)
            c = self.nc(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g))
            h = torch.sigmoid(o) * torch.tanh(c)
            return h, (h, c)

    class Layer(nn.Module):
        def __init__(self, i: int, h: int, back: bool):
            super().__init__()
            self.cell, self.back, self.h = Cell(i, h), back, h

        def forward(self, x: Tensor) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
            steps = x.unbind(0)
            if self.back:
                steps = steps[::-1]
            zero = torch.zeros(x.size(1), self.h)
            state = (zero, zero)
            outs: List[Tensor] = []
            for i in range(len(steps)):
                out, state = self.cell(steps[i], state)
                outs += [out]
            if self.back:
                outs.reverse()
            return torch.stack(outs), state

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer(8, 6, False), Layer(8, 6, True)])
            self.fc = nn.Linear(12, 3)

        def forward(self, x: Tensor) -> Tuple[Tensor, List[Tuple[Tensor, Tensor]]]:
            outs: List[Tensor] = []
            states: List[Tuple[Tensor, Tensor]] = []
            for layer in self.layers:
                out, state = layer(x.transpose(0, 1))
                outs.append(out)
                states.append(state)
            return self.fc(torch.cat(outs, -1)).transpose(0, 1), states

    return Net(), [SEQUENCE]


@scripted()
def fresh_script_reduction_loss():
    class DiceFocal(nn.Module):
        def __init__(self, reduction: str = "mean", gamma: float = 2.0):
            super().__init__()
            self.reduction, self.gamma = reduction, gamma

        def forward(self, logits: Tensor, target: Tensor) -> Tensor:
            if logits.shape != target.shape:
                raise ValueError(f"shapes {logits.shape} and {target.shape} differ")
            p = torch.sigmoid(logits)
            pt = torch.where(target > 0.5, p, 1 - p)
            focal = -((1 - pt) ** self.gamma) * torch.log(pt.clamp(min=1e-6))
            flat = list(range(1, logits.dim()))
            dice = 1 - (2 * (p * target).sum(flat) + 1) / (p.sum(flat) + target.sum(flat) + 1)
            loss = focal.mean(flat) + dice
            if self.reduction == "mean":
                return loss.mean()
            elif self.reduction == "sum":
                return loss.sum()
            return loss

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
            self.mean, self.each = DiceFocal(), DiceFocal("none")

        def forward(self, x: Tensor, y: Tensor) -> Tuple[Tensor, Tensor]:
            out = self.net(x)
            return self.mean(out, y), self.each(out, y)

    return Net(), [IMAGE, "float32[B,1,16,16]{0:1}"]


@scripted()
def fresh_script_early_exit():
    class Net(nn.Module):
        def __init__(self, exits: int):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
            self.heads = nn.ModuleList([nn.Linear(8, 3) for _ in range(4)])
            self.exits = exits

        def forward(self, x: Tensor) -> Tensor:
            if x.dim() == 3:
                x = x.mean(1)
            if self.training:
                return self.heads[0](x)
            for i, (block, head) in enumerate(zip(self.blocks, self.heads)):
                x = x + torch.tanh(block(x))
                if i + 1 == self.exits:
                    return head(x)
            return x

    return Net(3), [SEQUENCE]


@scripted()
def fresh_script_while_steps():
    """Langevin steps with a step size that falls, by while."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Sequential(nn.Linear(9, 24), nn.SiLU(), nn.Linear(24, 8))

        def forward(self, x: Tensor, sigma: float = 1.0, least: float = 0.1) -> Tensor:
            count = 0
            while sigma > least:
                t = torch.full((x.size(0), 1), sigma)
                step = 0.1 * sigma * sigma
                s = self.score(torch.cat([x, t], 1))
                x = x + step * s + math.sqrt(2 * step) * torch.randn_like(x)
                sigma *= 0.7
                count += 1
                if count >= 8:
                    break
            return x

    return Net(), [ROWS]


@scripted(decided="how far the samples are from a fixed point")
def fresh_script_fixed_point():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.u = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor, tol: float = 1e-3) -> Tuple[Tensor, int]:
            z = torch.zeros_like(x)
            inject = self.u(x)
            steps = 0
            while steps < 50:
                new = torch.tanh(0.3 * self.w(z) + inject)
                if (new - z).norm().item() < tol:
                    break
                z = new
                steps += 1
            return z, steps

    return Net(), [ROWS]


@torch.jit.script
def swish_fused(x: Tensor, bias: Tensor) -> Tensor:
    y = x + bias
    return y * torch.sigmoid(1.702 * y)


@scripted()
def fresh_script_helpers():
    def relative_shift(x: Tensor) -> Tensor:
        b, h, t, n = x.size()
        zero = torch.zeros((b, h, t, 1), dtype=x.dtype)
        x = torch.cat([zero, x], dim=-1).view(b, h, n + 1, t)
        return x[:, :, 1:].reshape(b, h, t, n)

    class Net(nn.Module):
        __constants__ = ["heads"]

        def __init__(self, heads: int = 2):
            super().__init__()
            self.heads = heads
            self.qkv, self.pos = nn.Linear(8, 24), nn.Parameter(torch.randn(6, 8))
            self.u, self.v = (
                nn.Parameter(torch.randn(heads, 4)),
                nn.Parameter(torch.randn(heads, 4)),
            )
            self.bias = nn.Parameter(torch.zeros(8))

        def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
            b, t, _ = x.size()
            q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).unbind(2)
            p = self.pos.view(1, t, self.heads, -1).permute(0, 2, 3, 1)
            ac = torch.matmul((q + self.u).transpose(1, 2), k.permute(0, 2, 3, 1))
            bd = relative_shift(torch.matmul((q + self.v).transpose(1, 2), p))
            scores = (ac + bd) / math.sqrt(q.size(-1))
            if mask is not None:
                scores = scores.masked_fill(mask[:, None, None, :], float("-inf"))
            out = torch.matmul(scores.softmax(-1), v.transpose(1, 2))
            return swish_fused(out.transpose(1, 2).reshape(b, t, -1), self.bias)

    return Net(), [SEQUENCE]


@scripted()
def fresh_script_tree():
    """A stack machine over a fixed list of actions."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf, self.merge = nn.Linear(8, 8), nn.Linear(16, 24)
            self.actions: List[int] = [0, 0, 1, 0, 0, 1, 1]

        def forward(self, x: Tensor) -> Tensor:
            stack: List[Tuple[Tensor, Tensor]] = []
            at = 0
            for action in self.actions:
                if action == 0:
                    h = torch.tanh(self.leaf(x[:, at]))
                    stack.append((h, torch.zeros_like(h)))
                    at += 1
                else:
                    hr, cr = stack.pop()
                    hl, cl = stack.pop()
                    i, f, g = self.merge(torch.cat([hl, hr], 1)).chunk(3, 1)
                    c = i.sigmoid() * g.tanh() + f.sigmoid() * (cl + cr)
                    stack.append((c.tanh(), c))
            assert len(stack) == 1
            return stack[-1][0]

    return Net(), [SEQUENCE]


@scripted(methods={"encode": [ROWS], "decode": ["float32[B,2]"]})
def fresh_script_export():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.d = (
                nn.Linear(8, 4),
                nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 8)),
            )

        @torch.jit.export
        def encode(self, x: Tensor) -> Tuple[Tensor, Tensor]:
            mu, log_var = self.e(x).chunk(2, 1)
            return mu, log_var

        @torch.jit.export
        def decode(self, z: Tensor) -> Tensor:
            return self.d(z)

        def forward(self, x: Tensor) -> Dict[str, Tensor]:
            mu, lv = self.encode(x)
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * lv)
            rec = self.decode(z)
            kl = -0.5 * torch.sum(1 + lv - mu**2 - lv.exp(), dim=1).mean()
            return {"loss": F.mse_loss(rec, x) + 0.1 * kl, "z": z}

    return Net(), [ROWS]


@scripted()
def fresh_script_routing():
    class Net(nn.Module):
        def __init__(self, rounds: int = 3):
            super().__init__()
            self.rounds = rounds
            self.w = nn.Parameter(torch.randn(4, 6, 8, 5) * 0.3)

        def squash(self, s: Tensor, dim: int = -1) -> Tensor:
            n = torch.sum(s * s, dim=dim, keepdim=True)
            return n / (1.0 + n) * s / torch.sqrt(n + 1e-8)

        def forward(self, x: Tensor) -> Tensor:
            hat = torch.einsum("bni,cnio->bcno", x, self.w)
            logits = torch.zeros(hat.size(0), hat.size(1), hat.size(2), 1)
            v = hat[:, :, 0]
            for i in range(self.rounds):
                c = logits.softmax(1)
                v = self.squash((c * hat).sum(2))
                if i < self.rounds - 1:
                    logits = logits + (hat * v.unsqueeze(2)).sum(-1, keepdim=True)
            return torch.sqrt((v * v).sum(-1) + 1e-8)

    return Net(), [SEQUENCE]


@scripted()
def fresh_script_list_lengths():
    """Sentences of given lengths, one by one."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.att, self.fc = nn.Linear(8, 1), nn.Linear(8, 3)

        def forward(self, x: Tensor, spans: List[int]) -> Tensor:
            pooled: List[Tensor] = []
            start = 0
            for n in spans:
                if n == 0:
                    continue
                part = x[:, start : start + n]
                w = torch.softmax(self.att(part), 1)
                pooled.append((w * part).sum(1))
                start += n
            return torch.stack([self.fc(p) for p in pooled], 1)

    return Net(), [SEQUENCE, "[2, 0, 3, 1]"]


@scripted()
def fresh_script_transformer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.fc = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.triu(torch.full((x.size(1), x.size(1)), float("-inf")), diagonal=1)
            return self.fc(self.encoder(x, mask=mask))[:, -1]

    return Net(), [SEQUENCE]


@scripted()
def fresh_script_lstm_packed_classifier():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(8, 10, 2, bidirectional=True, batch_first=True)
            self.fc = nn.Linear(20, 4)

        def forward(
            self, x: Tensor, state: Optional[Tuple[Tensor, Tensor]] = None
        ) -> Tuple[Tensor, Tensor]:
            out, (h, c) = self.rnn(x, state)
            last = torch.cat([h[-2], h[-1]], 1)
            best, _ = out.max(1)
            return self.fc(last + best), c

    return Net(), [SEQUENCE]


@scripted()
def fresh_script_running_stats():
    """Buffers that are written, by hand."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))
            self.register_buffer("var", torch.ones(8))
            self.register_buffer("count", torch.tensor(0))
            self.fc = nn.Linear(8, 4)
            self.momentum: Optional[float] = 0.1

        def forward(self, x: Tensor) -> Tensor:
            m, v = x.mean(0), x.var(0, unbiased=False)
            self.count += 1
            rate = 0.0
            if self.momentum is None:
                rate = 1.0 / float(self.count)
            else:
                rate = self.momentum
            with torch.no_grad():
                self.mean.mul_(1 - rate).add_(m * rate)
                self.var = self.var * (1 - rate) + v * rate
            return self.fc((x - self.mean) / torch.sqrt(self.var + 1e-5))

    return Net(), [ROWS]


@scripted()
def fresh_script_ddim():
    """A sampler over a list of times, conditional and unconditional."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(7, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 3, 3, padding=1)
            )
            self.embed = nn.Embedding(11, 4)
            self.register_buffer("bar", torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0))

        def eps(self, x: Tensor, y: Tensor) -> Tensor:
            e = self.embed(y)[:, :, None, None].expand(-1, -1, x.size(2), x.size(3))
            return self.net(torch.cat([x, e], 1))

        def forward(self, x: Tensor, label: Tensor, guidance: float = 2.0) -> Tensor:
            times = [99, 66, 33, 0]
            for i in range(len(times) - 1):
                a, b = self.bar[times[i]], self.bar[times[i + 1]]
                if guidance > 1.0:
                    both = self.eps(
                        torch.cat([x, x]), torch.cat([label, torch.full_like(label, 10)])
                    )
                    cond, free = both.chunk(2)
                    e = free + guidance * (cond - free)
                else:
                    e = self.eps(x, label)
                x0 = ((x - (1 - a).sqrt() * e) / a.sqrt()).clamp(-1, 1)
                x = b.sqrt() * x0 + (1 - b).sqrt() * e
            return x

    return Net(), [IMAGE, "int64[B]{0:10}"]


@scripted()
def fresh_script_gather_experts():
    """A list of experts, each on all rows, weighted."""

    class Expert(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(F.silu(self.a(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList([Expert() for _ in range(4)])
            self.gate = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
            weights, index = torch.topk(self.gate(x).softmax(-1), 2)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                w = (weights * (index == i).to(weights.dtype)).sum(-1, keepdim=True)
                out += w * expert(x)
            load = torch.zeros(4).index_add(0, index.flatten(), torch.ones(index.numel()))
            return out, {"load": load, "gate": weights}

    return Net(), [ROWS]


@scripted(decided="which rows go to an expert")
def fresh_script_sparse_experts():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
            self.gate = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            best = self.gate(x).argmax(-1)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                rows = torch.where(best == i)[0]
                if rows.numel() > 0:
                    out.index_copy_(0, rows, expert(x[rows]))
            return out

    return Net(), [ROWS]


@scripted()
def fresh_script_viterbi():
    class Net(nn.Module):
        def __init__(self, tags: int = 5):
            super().__init__()
            self.emit, self.trans = nn.Linear(8, tags), nn.Parameter(torch.randn(tags, tags))

        def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
            e = self.emit(x)
            score = e[:, 0]
            alpha = e[:, 0]
            back: List[Tensor] = []
            for t in range(1, e.size(1)):
                best, index = (score.unsqueeze(2) + self.trans).max(1)
                score = best + e[:, t]
                alpha = torch.logsumexp(alpha.unsqueeze(2) + self.trans, 1) + e[:, t]
                back.append(index)
            tag = score.argmax(1)
            path = [tag]
            for i in range(len(back) - 1, -1, -1):
                tag = back[i].gather(1, tag.unsqueeze(1)).squeeze(1)
                path.insert(0, tag)
            return torch.stack(path, 1), torch.logsumexp(alpha, 1)

    return Net(), [SEQUENCE]


@scripted()
def fresh_script_act():
    """Adaptive computation with masks, a fixed most of turns."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.p = nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor, most: int = 4) -> Tuple[Tensor, Tensor]:
            halting = torch.zeros(x.size(0), 1)
            updates = torch.zeros(x.size(0), 1)
            out = torch.zeros_like(x)
            for step in range(most):
                p = torch.sigmoid(self.p(x))
                running = (halting < 1.0).float()
                ended = (halting + p * running > 0.9).float() * running
                running = (halting + p * running <= 0.9).float() * running
                halting += p * running
                rest = ended * (1 - halting)
                halting = halting + rest
                updates += running + ended
                x = torch.tanh(self.f(x))
                weight = p * running + rest
                out = x * weight + out * (1 - weight)
            return out, updates

    return Net(), [ROWS]
