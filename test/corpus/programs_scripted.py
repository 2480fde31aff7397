"""Scripted models: all families of torchvision's classifiers and segmentation
models, some of timm, and transformers written for the corpus. What the traced
corpus makes, too, is taken from there."""

import math
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import programs_timm  # noqa: F401  registers what is scripted here
import programs_torchvision
from registry import PROGRAMS, scripted

IMAGE = "float32[B,3,64,64]"


def scripted_form(name, **options):
    """The traced program of this name, to be scripted."""

    def make():
        return PROGRAMS[name]()

    make.__name__ = make.__qualname__ = "script_" + name
    make.__module__ = __name__
    scripted(**options)(make)


# Of these families one small model is made in every run, the others in long
# ones.
QUICK = {"resnet_basic", "convnext", "mixer"}


# What these have in common with the traced ones is their definition only:
# every branch of it is compiled, with train mode, checks and options.
for model in (
    "alexnet",
    "vgg11_bn",
    "resnet_basic",
    "resnet_bottleneck",
    "resnext",
    "densenet",
    "googlenet",
    "inception_v3",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "shufflenet",
    "squeezenet",
    "mnasnet",
    "efficientnet_b0",
    "efficientnet_v2",
    "regnet_x",
    "regnet_y",
    "convnext",
    "vit",
    "swin",
    "swin_padded",
    "swin_v2",
    "maxvit",
    "fcn",
    "deeplabv3",
    "lraspp",
):
    scripted_form("tv_" + model, long=model not in QUICK)

for model in (
    "convmixer",
    "mixer",
    "gmlp",
    "deit_distilled",
    "beit",
    "xcit",
    "cait",
    "levit",
    "nfnet",
    "resnest",
    "ghostnet",
    "res2net",
    "pit",
    "repvgg",
    "poolformer",
    "mobilevit",
    "edgenext",
    "efficientformer",
    "twins",
    "coat",
):
    scripted_form("timm_" + model, long=model not in QUICK)


@scripted(training=True, long=True)
def script_tv_resnet_training():
    """Running statistics are written by every layer."""
    return programs_torchvision.tv_resnet_basic()


@scripted(training=True, long=True)
def script_tv_googlenet_training():
    """In training mode the result holds those of two more heads."""
    from torchvision import models

    return models.GoogLeNet(10, aux_logits=True, init_weights=False, dropout=0.0), [IMAGE]


@scripted(long=True)
def script_tv_fcn_auxiliary():
    """A second head; the results are a dict."""
    from torchvision.models import _utils, resnet
    from torchvision.models.segmentation import fcn

    body = _utils.IntermediateLayerGetter(
        resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1]), {"layer3": "aux", "layer4": "out"}
    )
    return fcn.FCN(body, fcn.FCNHead(512, 5), fcn.FCNHead(256, 5)), [IMAGE]


# ---------------------------------------------------------------------------
# Transformers


class Attention(nn.Module):
    """With an optional mask, and optional keys and values of before."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        return x.view(b, n, self.heads, c // self.heads).transpose(1, 2)

    def forward(
        self, x: Tensor, mask: Optional[Tensor] = None, past: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        q, k, v = self.project(x).chunk(3, -1)
        q, k, v = self.split(q), self.split(k), self.split(v)
        if past is not None:
            k = torch.cat([past[0], k], 2)
            v = torch.cat([past[1], v], 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.out(y), (k, v)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, drop: float = 0.1):
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.drop = drop

    def forward(
        self, x: Tensor, mask: Optional[Tensor] = None, past: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        y, present = self.attention(self.norm1(x), mask, past)
        if self.training and self.drop > 0:
            keep = torch.rand(x.size(0), 1, 1) >= self.drop
            y = y * keep / (1 - self.drop)
        x = x + y
        return x + self.mlp(self.norm2(x)), present


class Encoder(nn.Module):
    """Pads are masked, and results may be all layers or the pooled last."""

    def __init__(self, pooled: bool):
        super().__init__()
        self.table = nn.Embedding(30, 16, padding_idx=0)
        self.places = nn.Parameter(torch.randn(20, 16))
        self.blocks = nn.ModuleList([Block(16, 4) for _ in range(2)])
        self.pooled = pooled

    def forward(self, tokens: Tensor) -> List[Tensor]:
        pads = tokens == 0
        x = self.table(tokens) + self.places[: tokens.size(1)]
        layers: List[Tensor] = []
        for block in self.blocks:
            x = block(x, pads[:, None, None, :])[0]
            layers.append(x)
        if not self.pooled:
            return layers
        kept = (~pads).unsqueeze(-1).to(x.dtype)
        return [(x * kept).sum(1) / kept.sum(1).clamp(min=1)]


@scripted()
def script_encoder_layers():
    return Encoder(pooled=False), ["int64[B,12]{0:30}"]


@scripted()
def script_encoder_pooled():
    return Encoder(pooled=True), ["int64[B,12]{0:30}"]


@scripted(training=True, long=True)
def script_encoder_training():
    """Blocks are dropped, sample by sample."""
    return Encoder(pooled=False), ["int64[B,12]{0:30}"]


class Decoder(nn.Module):
    """A language model with a causal mask; `generate` keeps the keys and
    values of all layers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 16)
        self.places = nn.Embedding(40, 16)
        self.blocks = nn.ModuleList([Block(16, 2) for _ in range(2)])
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.table.weight

    def run(
        self, tokens: Tensor, past: Optional[List[Tuple[Tensor, Tensor]]] = None
    ) -> Tuple[Tensor, List[Tuple[Tensor, Tensor]]]:
        begin = 0
        if past is not None:
            begin = past[0][0].size(2)
        n = tokens.size(1)
        places = torch.arange(begin, begin + n)
        mask = torch.arange(begin + n)[None, :] > places[:, None]
        x = self.table(tokens) + self.places(places)
        present: List[Tuple[Tensor, Tensor]] = []
        for i, block in enumerate(self.blocks):
            x, kept = block(x, mask, past[i] if past is not None else None)
            present.append(kept)
        return self.head(x), present

    def forward(self, tokens: Tensor) -> Tensor:
        return self.run(tokens)[0]

    @torch.jit.export
    def generate(self, tokens: Tensor, count: int) -> Tensor:
        logits, past = self.run(tokens)
        out = [tokens]
        for _ in range(count):
            token = logits[:, -1].argmax(-1, keepdim=True)
            out.append(token)
            logits, past = self.run(token, past)
        return torch.cat(out, 1)


@scripted()
def script_decoder():
    return Decoder(), ["int64[B,12]{0:30}"]


@scripted(
    methods={"generate": ["int64[B,6]{0:30}", "4"]},
    decided="the number of tokens that a loop has appended",
    long=True,
)
def script_decoder_generate():
    return Decoder(), ["int64[B,12]{0:30}"]


@scripted(long=True)
def script_seq2seq():
    """Cross attention of PyTorch's own layers; scripting takes their fast
    paths along as branches."""

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = (nn.Embedding(30, 16), nn.Embedding(30, 16))
            self.transformer = nn.Transformer(16, 4, 1, 2, 32, batch_first=True, norm_first=True)
            self.head = nn.Linear(16, 30)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            n = target.size(1)
            mask = torch.full([n, n], float("-inf")).triu(1)
            x = self.transformer(self.source(source), self.target(target), tgt_mask=mask)
            return self.head(x)

    return Translator(), ["int64[B,12]{0:30}", "int64[B,9]{0:30}"]


@scripted(long=True)
def script_encoder_layer():
    """nn.TransformerEncoderLayer as it comes, with padding."""

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

        def forward(self, x: Tensor, pads: Tensor) -> Tensor:
            return self.layer(x, src_key_padding_mask=pads)

    return Wrapped(), ["float32[B,12,16]", "bool[B,12]{0:1}"]


class Vision(nn.Module):
    """A vision transformer: layers are dropped in training, places are
    interpolated for other image sizes, the head depends on an option."""

    def __init__(self, pool: str):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.places = nn.Parameter(torch.randn(1, 16, 4, 4))
        self.blocks = nn.ModuleList([Block(16, 4) for _ in range(3)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 10)
        self.pool = pool

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image)
        places = self.places
        if x.size(2) != places.size(2) or x.size(3) != places.size(3):
            places = F.interpolate(places, [x.size(2), x.size(3)], mode="bilinear")
        x = (x + places).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], 1)
        for i, block in enumerate(self.blocks):
            if not self.training or bool(torch.rand(1) >= 0.3 * i):
                x = block(x)[0]
        x = self.norm(x)
        if self.pool == "token":
            x = x[:, 0]
        elif self.pool == "mean":
            x = x[:, 1:].mean(1)
        else:
            raise ValueError("no such pool: " + self.pool)
        return self.head(x)


@scripted()
def script_vision_token():
    return Vision("token"), ["float32[B,3,32,32]"]


@scripted()
def script_vision_mean():
    """An image of another size than the places are for."""
    return Vision("mean"), ["float32[B,3,48,40]"]


@scripted(training=True, long=True)
def script_vision_training():
    return Vision("token"), ["float32[B,3,32,32]"]


@scripted(training=True, raises=("float32[B,3,48,48]",), long=True)
def script_vision_unknown():
    """A mode that only raises is compiled, too: here for one size."""

    class Guarded(nn.Module):
        def __init__(self):
            super().__init__()
            self.small, self.large = Vision("token"), Vision("none")

        def forward(self, image: Tensor) -> Tensor:
            if image.size(2) > 40:
                return self.large(image)
            return self.small(image)

    return Guarded(), ["float32[B,3,32,32]"]
