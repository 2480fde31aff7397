"""Scripted programs that no rule was made with: networks as their users write
them, with the control flow of their fields."""

import math
from typing import Dict, Final, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from registry import network, scripted

ROWS = "float32[B,8]"
SEQUENCE = "float32[B,6,8]"
IMAGE = "float32[B,3,16,16]"


def block(inputs: int, outputs: int):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


# ---------------------------------------------------------------------------
# Networks of images


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([block(3, 6), block(6, 12)])
        self.middle = block(12, 24)
        self.up = nn.ModuleList([block(36, 12), block(18, 6)])
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        skips: List[Tensor] = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for i, layer in enumerate(self.up):
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = layer(torch.cat([x, skips[-(i + 1)]], dim=1))
        return self.head(x)


@scripted()
def unseen_script_unet():
    return UNet(), [IMAGE]


@scripted(training=True)
def unseen_script_unet_training():
    return UNet(), [IMAGE]


class TimeBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, up: bool = False):
        super().__init__()
        self.up = up
        self.norm = nn.GroupNorm(2, inputs)
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(10, outputs)
        self.upsample = nn.Upsample(scale_factor=2.0, mode="nearest")
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x, t):
        y = F.silu(self.norm(x))
        if self.up:
            y = self.upsample(y)
            x = self.upsample(x)
        y = self.conv(y) + self.time(t)[:, :, None, None]
        if self.shortcut is not None:
            x = self.shortcut(x)
        return (x + y) / math.sqrt(2.0)


class Diffusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.ModuleList([TimeBlock(8, 8), TimeBlock(8, 16)])
        self.up = nn.ModuleList([TimeBlock(16, 8, True), TimeBlock(16, 8, True)])
        self.out = nn.Conv2d(16, 3, 3, padding=1)

    def embed(self, t):
        half = 5
        frequency = torch.exp(-math.log(100.0) * torch.arange(half, device=t.device) / half)
        angles = t.float().unsqueeze(1) * frequency.unsqueeze(0)
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    def forward(self, x, t):
        time = self.embed(t)
        y = self.into(x)
        hidden: List[Tensor] = [y]
        for layer in self.down:
            y = F.avg_pool2d(layer(y, time), 2)
            hidden.append(y)
        y = hidden.pop()
        for layer in self.up:
            y = layer(y, time)
            y = torch.cat([y, hidden.pop()], 1)
        return self.out(y)


@scripted()
def unseen_script_diffusion():
    return Diffusion(), ["float32[B,3,12,12]", "int64[B]{0:50}"]


@scripted()
def unseen_script_sampler():
    """Steps of a sampler in a loop around the network."""

    class Sampler(nn.Module):
        steps: Final[int]

        def __init__(self):
            super().__init__()
            self.model = Diffusion()
            self.steps = 3

        def forward(self, x):
            for step in range(self.steps):
                t = torch.full((x.size(0),), self.steps - step, dtype=torch.long)
                noise = self.model(x, t)
                x = x - noise * (0.1 * (step + 1))
                x = x.clamp(-2.0, 2.0)
            return x

    return Sampler(), ["float32[B,3,8,8]"]


class Basic(nn.Module):
    """The shortcut is a module or nothing."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: Optional[nn.Module] = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        identity = x
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


@scripted()
def unseen_script_residual():
    return nn.Sequential(
        Basic(3, 8), Basic(8, 8), Basic(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 5),
    ), [IMAGE]  # fmt: skip


@scripted()
def unseen_script_dense():
    """A list of all before, joined for each layer."""

    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(3 + 4 * i, 4, 3, padding=1) for i in range(3))
            self.head = nn.Linear(15, 4)

        def forward(self, x):
            features = [x]
            for layer in self.layers:
                features.append(F.relu(layer(torch.cat(features, 1))))
            return self.head(torch.cat(features, 1).mean([2, 3]))

    return Dense(), [IMAGE]


@scripted()
def unseen_script_pyramid():
    """From the coarsest level to the finest, into a list in the other order."""

    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList([block(3, 6), block(6, 8), block(8, 10)])
            self.lateral = nn.ModuleList([nn.Conv2d(c, 8, 1) for c in (6, 8, 10)])

        def lateral_of(self, x, index: int):
            out = x
            for i, layer in enumerate(self.lateral):
                if i == index:
                    out = layer(x)
            return out

        def forward(self, x):
            levels: List[Tensor] = []
            for stage in self.stages:
                x = F.max_pool2d(stage(x), 2)
                levels.append(x)
            last = self.lateral_of(levels[-1], len(levels) - 1)
            results = [last]
            for index in range(len(levels) - 2, -1, -1):
                inner = self.lateral_of(levels[index], index)
                last = inner + F.interpolate(last, size=inner.shape[-2:], mode="nearest")
                results.insert(0, last)
            return results

    return Pyramid(), [IMAGE]


@scripted()
def unseen_script_pad_to_multiple():
    """Padded to a multiple of the patch, and cut to the size it had."""

    def forward(self, x):
        height, width = x.shape[-2], x.shape[-1]
        down = (4 - height % 4) % 4
        right = (4 - width % 4) % 4
        if down > 0 or right > 0:
            x = F.pad(x, [0, right, 0, down])
        y = self.up(F.relu(self.patches(x)))
        return y[:, :, :height, :width].contiguous()

    return network(forward, patches=nn.Conv2d(3, 12, 4, 4), up=nn.ConvTranspose2d(12, 2, 4, 4)), [
        "float32[B,3,14,17]"
    ]


@scripted()
def unseen_script_towers():
    """Towers in step, by zip, and every second with a pool."""

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(c, d, 3, padding=1) for c, d in ((3, 6), (6, 6)))
            self.norms = nn.ModuleList(nn.InstanceNorm2d(6, affine=True) for _ in range(2))

        def forward(self, x):
            for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
                x = F.leaky_relu(norm(conv(x)), 0.1)
                if i % 2 == 0:
                    x = F.max_pool2d(x, 2)
            return x.flatten(1)

    return Towers(), [IMAGE]


@scripted()
def unseen_script_auxiliary():
    """A second head that is only there in training: an optional result."""

    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.rest = block(3, 6), block(6, 8)
            self.head, self.other = nn.Linear(8, 4), nn.Linear(6, 4)

        def forward(self, x) -> Tuple[Tensor, Optional[Tensor]]:
            x = self.body(x)
            other: Optional[Tensor] = None
            if self.training:
                other = self.other(x.mean([2, 3]))
            return self.head(self.rest(x).mean([2, 3])), other

    return Auxiliary(), [IMAGE]


@scripted(training=True)
def unseen_script_auxiliary_training():
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.rest = block(3, 6), block(6, 8)
            self.head, self.other = nn.Linear(8, 4), nn.Linear(6, 4)
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            x = self.body(x)
            out = {"out": self.head(self.drop(self.rest(x).mean([2, 3])))}
            if self.training:
                out["other"] = self.other(x.mean([2, 3]))
            return out

    return Auxiliary(), [IMAGE]


class Outputs(NamedTuple):
    logits: Tensor
    features: Tensor
    scale: float


@scripted()
def unseen_script_named_tuple():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = block(3, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, x, scale: float = 0.5) -> Outputs:
            features = self.conv(x).amax([2, 3]) * scale
            return Outputs(self.head(features), features, scale)

    return Named(), [IMAGE]


@scripted()
def unseen_script_detections():
    """For each sample what is above a score, in a list."""

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Conv2d(3, 5, 4, 4)

        def forward(self, x) -> List[Dict[str, Tensor]]:
            y = self.head(x).flatten(2).transpose(1, 2)
            scores, boxes = y[..., 0].sigmoid(), y[..., 1:]
            found: List[Dict[str, Tensor]] = []
            for i in range(x.size(0)):
                top, index = scores[i].topk(3)
                found.append({"scores": top, "boxes": boxes[i][index]})
            return found

    return Detector(), [IMAGE]


@scripted(decided="how many scores are high")
def unseen_script_detections_kept():
    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Conv2d(3, 5, 4, 4)

        def forward(self, x) -> List[Tensor]:
            y = self.head(x).flatten(2).transpose(1, 2)
            found: List[Tensor] = []
            for scores, boxes in zip(y[..., 0].unbind(0), y[..., 1:].unbind(0)):
                keep = torch.where(scores > 0)[0]
                found.append(boxes[keep].clamp(min=0))
            return found

    return Detector(), [IMAGE]


@scripted()
def unseen_script_vision_transformer():
    class Block(nn.Module):
        def __init__(self, width: int, heads: int):
            super().__init__()
            self.heads = heads
            self.scale = (width // heads) ** -0.5
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, width))

        def forward(self, x):
            b, n, c = x.shape
            qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, c // self.heads)
            qkv = qkv.permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
            weights = ((q @ k.transpose(-2, -1)) * self.scale).softmax(dim=-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(b, n, c))
            return x + self.mlp(self.norm2(x))

    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 12, 4, 4)
            self.token = nn.Parameter(torch.randn(1, 1, 12))
            self.place = nn.Parameter(torch.randn(1, 17, 12))
            self.blocks = nn.ModuleList(Block(12, 3) for _ in range(2))
            self.head = nn.Linear(12, 4)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1) + self.place
            hidden: List[Tensor] = []
            for layer in self.blocks:
                x = layer(x)
                hidden.append(x[:, 0])
            return self.head(x[:, 0]), hidden

    return Vision(), [IMAGE]


# ---------------------------------------------------------------------------
# Recurrent networks


@scripted()
def unseen_script_lstm_cell():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(8, 12)
            self.head = nn.Linear(12, 5)

        def forward(self, x):
            h = torch.zeros(x.size(0), 12, device=x.device)
            c = torch.zeros(x.size(0), 12, device=x.device)
            outputs: List[Tensor] = []
            for t in range(x.size(1)):
                h, c = self.cell(x[:, t], (h, c))
                outputs.append(self.head(h))
            return torch.stack(outputs, dim=1), (h, c)

    return Recurrent(), [SEQUENCE]


@scripted()
def unseen_script_gru_reversed():
    """Both directions, one of them from the end."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.forth, self.back = nn.GRUCell(8, 6), nn.GRUCell(8, 6)

        def forward(self, x):
            steps = x.unbind(1)
            h = x.new_zeros(x.size(0), 6)
            forth: List[Tensor] = []
            for step in steps:
                h = self.forth(step, h)
                forth.append(h)
            h = x.new_zeros(x.size(0), 6)
            back: List[Tensor] = []
            for i in range(len(steps) - 1, -1, -1):
                h = self.back(steps[i], h)
                back.append(h)
            back = back[::-1]
            return torch.cat([torch.stack(forth, 1), torch.stack(back, 1)], dim=2)

    return Both(), [SEQUENCE]


class OwnCell(nn.Module):
    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.weight_ih = nn.Parameter(torch.randn(4 * hidden, inputs) * 0.3)
        self.weight_hh = nn.Parameter(torch.randn(4 * hidden, hidden) * 0.3)
        self.bias = nn.Parameter(torch.randn(4 * hidden))

    def forward(self, x: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tensor]:
        h, c = state
        gates = torch.mm(x, self.weight_ih.t()) + torch.mm(h, self.weight_hh.t()) + self.bias
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


@scripted()
def unseen_script_own_cells():
    """Layers of cells with a state each, in a list of pairs."""

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList([OwnCell(8, 6), OwnCell(6, 6)])

        def forward(self, x):
            states: List[Tuple[Tensor, Tensor]] = []
            for _ in range(2):
                states.append((x.new_zeros(x.size(0), 6), x.new_zeros(x.size(0), 6)))
            outputs: List[Tensor] = []
            for t in range(x.size(1)):
                y = x[:, t]
                for i, cell in enumerate(self.cells):
                    states[i] = cell(y, states[i])
                    y = states[i][0]
                outputs.append(y)
            return torch.stack(outputs, 1)

    return Stack(), [SEQUENCE]


@scripted()
def unseen_script_layered_states():
    """As custom recurrent layers: each layer over all of the time."""

    class Layer(nn.Module):
        def __init__(self, inputs: int, hidden: int):
            super().__init__()
            self.cell = OwnCell(inputs, hidden)

        def forward(
            self, x: Tensor, state: Tuple[Tensor, Tensor]
        ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
            steps = x.unbind(0)
            outputs = torch.jit.annotate(List[Tensor], [])
            for i in range(len(steps)):
                state = self.cell(steps[i], state)
                outputs += [state[0]]
            return torch.stack(outputs), state

    class Stacked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer(8, 7), Layer(7, 7)])

        def forward(self, x, h, c):
            finals: List[Tensor] = []
            i = 0
            for layer in self.layers:
                x, state = layer(x, (h[i], c[i]))
                finals.append(state[0])
                i += 1
            return x, torch.stack(finals)

    return Stacked(), ["float32[5,B,8]", "float32[2,B,7]", "float32[2,B,7]"]


@scripted()
def unseen_script_optional_state():
    """A state that may be given."""

    class Optioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(8, 6, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, x, state: Optional[Tensor] = None):
            if state is None:
                state = torch.zeros(1, x.size(0), 6, dtype=x.dtype, device=x.device)
            y, last = self.gru(x, state)
            return self.head(y), last

    return Optioned(), [SEQUENCE]


@scripted()
def unseen_script_encoder_decoder():
    """A decoder that attends, fed with what it said."""

    class Translate(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(12, 8)
            self.encoder = nn.GRU(8, 10, batch_first=True)
            self.attention = nn.Linear(10, 10, bias=False)
            self.cell = nn.GRUCell(18, 10)
            self.head = nn.Linear(10, 12)

        def step(self, token: Tensor, h: Tensor, memory: Tensor) -> Tuple[Tensor, Tensor]:
            scores = torch.bmm(memory, self.attention(h).unsqueeze(2)).squeeze(2)
            weights = F.softmax(scores, dim=1)
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            h = self.cell(torch.cat([self.embedding(token), context], dim=1), h)
            return self.head(h), h

        def forward(self, source, length: int = 4):
            memory, h = self.encoder(self.embedding(source))
            h = h[-1]
            token = torch.zeros(source.size(0), dtype=torch.long, device=source.device)
            logits: List[Tensor] = []
            for _ in range(length):
                out, h = self.step(token, h, memory)
                logits.append(out)
                token = out.argmax(dim=1)
            return torch.stack(logits, 1)

    return Translate(), ["int64[B,7]{0:12}"]


@scripted()
def unseen_script_teacher_forcing():
    class Forced(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(12, 8)
            self.cell = nn.LSTMCell(8, 10)
            self.head = nn.Linear(10, 12)

        def forward(self, target: Tensor, forced: bool = True):
            batch, length = target.shape
            h = torch.zeros(batch, 10)
            c = torch.zeros(batch, 10)
            token = target[:, 0]
            out = torch.zeros(batch, length, 12)
            for t in range(1, length):
                h, c = self.cell(self.embedding(token), (h, c))
                logits = self.head(h)
                out[:, t] = logits
                token = target[:, t] if forced else logits.argmax(1)
            return out

    return Forced(), ["int64[B,5]{0:12}"]


@scripted()
def unseen_script_highway():
    """Depth by turns of the same weights, with a gate."""

    def forward(self, x):
        depth = 0
        while depth < 4:
            gate = torch.sigmoid(self.gate(x))
            x = gate * torch.relu(self.change(x)) + (1 - gate) * x
            depth += 1
        return x, depth

    return network(forward, gate=nn.Linear(8, 8), change=nn.Linear(8, 8)), [ROWS]


@scripted()
def unseen_script_greedy():
    """Greedy decoding with the tokens in one tensor that grows."""

    class Greedy(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(15, 8)
            self.mix = nn.Linear(8, 8)
            self.head = nn.Linear(8, 15)

        def forward(self, prompt):
            tokens = prompt
            logits = torch.zeros(prompt.size(0), 15)
            for _ in range(4):
                y = self.embedding(tokens)
                weights = torch.softmax(y @ y.transpose(1, 2) / 3.0, -1)
                y = torch.tanh(self.mix(weights @ y))
                logits = self.head(y[:, -1])
                tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
            return tokens, logits

    return Greedy(), ["int64[B,3]{0:15}"]


@scripted()
def unseen_script_cached_keys():
    """Keys and values of all steps before, in lists of tensors."""

    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))

        def forward(self, x):
            keys: List[Tensor] = []
            values: List[Tensor] = []
            outputs: List[Tensor] = []
            for t in range(x.size(1)):
                y = x[:, t : t + 1]
                for i, layer in enumerate(self.qkv):
                    q, k, v = layer(y).split(8, dim=-1)
                    if t == 0:
                        keys.append(k)
                        values.append(v)
                    else:
                        keys[i] = torch.cat([keys[i], k], 1)
                        values[i] = torch.cat([values[i], v], 1)
                    weights = torch.softmax(q @ keys[i].transpose(1, 2), -1)
                    y = y + weights @ values[i]
                outputs.append(y)
            return torch.cat(outputs, 1)

    return Cached(), [SEQUENCE]


@scripted()
def unseen_script_beams():
    """A search of fixed width, with the paths reordered at each step."""

    class Beams(nn.Module):
        width: Final[int]

        def __init__(self):
            super().__init__()
            self.width = 3
            self.embedding = nn.Embedding(9, 6)
            self.cell = nn.GRUCell(6, 6)
            self.head = nn.Linear(6, 9)

        def forward(self, h):
            batch = h.size(0)
            h = h.repeat_interleave(self.width, 0)
            scores = torch.full((batch, self.width), -1e9)
            scores[:, 0] = 0.0
            tokens = torch.zeros(batch * self.width, dtype=torch.long)
            path = torch.zeros(batch, self.width, 0, dtype=torch.long)
            for _ in range(3):
                h = self.cell(self.embedding(tokens), h)
                log_probs = self.head(h).log_softmax(-1).view(batch, self.width, 9)
                total = (scores.unsqueeze(-1) + log_probs).view(batch, -1)
                scores, index = total.topk(self.width, dim=1)
                beam = index // 9
                token = index % 9
                path = path.gather(1, beam.unsqueeze(-1).expand(-1, -1, path.size(2)))
                path = torch.cat([path, token.unsqueeze(-1)], 2)
                rows = (torch.arange(batch).unsqueeze(1) * self.width + beam).view(-1)
                h = h.index_select(0, rows)
                tokens = token.view(-1)
            return path, scores

    return Beams(), ["float32[B,6]"]


@scripted()
def unseen_script_windows():
    """A long signal in windows, with what is left of it."""

    def forward(self, x):
        outputs: List[Tensor] = []
        for start in range(0, x.size(1), 4):
            end = min(start + 4, x.size(1))
            window = x[:, start:end]
            outputs.append(self.net(window).mean(dim=1))
        return torch.stack(outputs, dim=1)

    return network(forward, net=nn.Sequential(nn.Linear(8, 12), nn.Tanh())), ["float32[B,10,8]"]


# ---------------------------------------------------------------------------
# Attention and text


@scripted()
def unseen_script_optional_mask():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x, mask: Optional[Tensor] = None, causal: bool = True):
            scores = torch.matmul(self.q(x), self.k(x).transpose(-1, -2)) / math.sqrt(8.0)
            if causal:
                length = x.size(1)
                upper = torch.ones(length, length, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(upper, -1e9)
            if mask is not None:
                scores = scores.masked_fill(mask[:, None] == 0, -1e9)
            return torch.matmul(F.softmax(scores, -1), self.v(x))

    return Attention(), [SEQUENCE, "bool[B,6]"]


class Choice(nn.Module):
    """Strings decide what is done."""

    def __init__(self, pooling: str, activation: str):
        super().__init__()
        self.pooling, self.activation = pooling, activation
        self.fc = nn.Linear(8, 10)

    def act(self, x):
        if self.activation == "gelu":
            return F.gelu(x)
        elif self.activation == "silu":
            return F.silu(x)
        else:
            return F.relu(x)

    def forward(self, x):
        y = self.act(self.fc(x))
        if self.pooling == "mean":
            return y.mean(1)
        if self.pooling == "max":
            return y.max(dim=1)[0]
        if self.pooling == "last":
            return y[:, -1]
        raise RuntimeError("no such pooling")


@scripted()
def unseen_script_strings_mean():
    return Choice("mean", "gelu"), [SEQUENCE]


@scripted()
def unseen_script_strings_max():
    return Choice("max", "relu"), [SEQUENCE]


@scripted()
def unseen_script_encoder_layers():
    """Layers with states of all kinds out, as an option."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
            self.fc = nn.Linear(8, 8)

        def forward(self, x, padding: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
            y, weights = self.attention(x, x, x, key_padding_mask=padding)
            x = self.norm1(x + y)
            return self.norm2(x + F.relu(self.fc(x))), weights

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def forward(self, x, padding: Optional[Tensor] = None, states: bool = True):
            kept: List[Tensor] = []
            for layer in self.layers:
                if states:
                    kept.append(x)
                x, weights = layer(x, padding)
                assert weights is not None
                kept.append(weights)
            return x, kept

    return Layers(), [SEQUENCE]


@scripted()
def unseen_script_experts():
    """The best two of four, weighed; each over all of the rows."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8)) for _ in range(4)
            )

        def forward(self, x):
            weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
            weights = weights / weights.sum(-1, keepdim=True)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                share = (weights * (chosen == i)).sum(-1, keepdim=True)
                out = out + share * expert(x)
            return out

    return Experts(), [ROWS]


@scripted(decided="how many rows choose an expert")
def unseen_script_routed_experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 3)
            self.experts = nn.ModuleList(nn.Linear(8, 5) for _ in range(3))

        def forward(self, x):
            chosen = self.gate(x).argmax(-1)
            out = torch.zeros(x.size(0), 5)
            for i, expert in enumerate(self.experts):
                rows = torch.nonzero(chosen == i).squeeze(1)
                out.index_add_(0, rows, expert(x[rows]))
            return out

    return Experts(), [ROWS]


# ---------------------------------------------------------------------------
# Numbers, loops, state


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
