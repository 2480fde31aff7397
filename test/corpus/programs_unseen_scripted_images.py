"""Scripted networks of images that no rule was made with."""

import math
from typing import Dict, Final, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from registry import network, scripted

IMAGE = "float32[B,3,16,16]"


def block(inputs: int, outputs: int):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


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


class Modulated(nn.Module):
    """A convolution whose weight a style scales, of each sample its own: the
    batch becomes groups (StyleGAN2)."""

    up: Final[bool]
    demodulates: Final[bool]

    def __init__(self, inputs: int, outputs: int, kernel: int, up: bool = False, plain=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, kernel, kernel))
        self.style = nn.Linear(6, inputs)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.up = up
        self.demodulates = not plain

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        kernel = self.weight.shape[-1]
        weight = self.weight.unsqueeze(0) * self.style(style).view(batch, 1, channels, 1, 1)
        if self.demodulates:
            weight = weight * torch.rsqrt(weight.square().sum([2, 3, 4], keepdim=True) + 1e-8)
        x = x.reshape(1, batch * channels, height, width)
        if self.up:
            weight = weight.transpose(1, 2).reshape(batch * channels, -1, kernel, kernel)
            x = F.conv_transpose2d(x, weight, stride=2, padding=1, groups=batch)
        else:
            weight = weight.reshape(-1, channels, kernel, kernel)
            x = F.conv2d(x, weight, padding=kernel // 2, groups=batch)
        x = x.view(batch, -1, x.shape[2], x.shape[3])
        return x + self.bias.view(1, -1, 1, 1)


@scripted()
def unseen_script_modulated():
    def forward(self, x, style):
        y = F.leaky_relu(self.first(x, style), 0.2)
        y = F.leaky_relu(self.grow(y, style), 0.2)
        y = F.leaky_relu(self.second(y, style), 0.2)
        return self.image(y, style)

    return network(
        forward,
        first=Modulated(8, 12, 3),
        grow=Modulated(12, 16, 3, up=True),
        second=Modulated(16, 10, 3),
        image=Modulated(10, 3, 1, plain=True),
    ), ["float32[B,8,7,6]", "float32[B,6]"]
