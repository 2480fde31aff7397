"""Traced networks of images, as people write them outside of this repository."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from registry import program, record


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, x):
        shortcut = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)
        x = self.pwconv2(self.act(self.pwconv1(self.norm(x))))
        x = self.gamma * x
        return shortcut + x.permute(0, 3, 1, 2)


class LayerNorm2d(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


@program
def fresh_convnext():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 4, 4), LayerNorm2d(16))
            self.stage1 = nn.Sequential(ConvNeXtBlock(16), ConvNeXtBlock(16))
            self.down = nn.Sequential(LayerNorm2d(16), nn.Conv2d(16, 24, 2, 2))
            self.stage2 = nn.Sequential(ConvNeXtBlock(24))
            self.norm = nn.LayerNorm(24)
            self.head = nn.Linear(24, 10)

        def forward(self, x):
            x = self.stage2(self.down(self.stage1(self.stem(x))))
            return self.head(self.norm(x.mean([-2, -1])))

    return Net(), ["float32[B,3,32,32]"]


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce = nn.Conv2d(channels, reduced, 1)
        self.expand = nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(s), inplace=True)))


class MBConv(nn.Module):
    def __init__(self, inp, out, stride, expand):
        super().__init__()
        mid = inp * expand
        self.use_res = stride == 1 and inp == out
        self.block = nn.Sequential(
            nn.Conv2d(inp, mid, 1, bias=False),
            nn.BatchNorm2d(mid, eps=1e-3, momentum=0.01),
            nn.SiLU(inplace=True),
            nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False),
            nn.BatchNorm2d(mid, eps=1e-3, momentum=0.01),
            nn.SiLU(inplace=True),
            SqueezeExcite(mid, max(1, inp // 4)),
            nn.Conv2d(mid, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )

    def forward(self, x):
        out = self.block(x)
        return x + out if self.use_res else out


class EfficientNet(nn.Module):
    def __init__(self, smoothing=0.1):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU(inplace=True)
        )
        self.blocks = nn.Sequential(MBConv(8, 12, 2, 4), MBConv(12, 12, 1, 4), MBConv(12, 20, 2, 4))
        self.head = nn.Conv2d(20, 32, 1, bias=False)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(32, 10)
        self.loss = nn.CrossEntropyLoss(label_smoothing=smoothing)

    def forward(self, x, y):
        x = F.silu(self.head(self.blocks(self.stem(x))))
        logits = self.fc(self.drop(x.mean((2, 3))))
        return self.loss(logits, y)


@program
def fresh_efficientnet_loss():
    return EfficientNet(), ["float32[B,3,32,32]", "int64[B]{0:10}"]


@program
def fresh_efficientnet_training():
    """In training mode: batch statistics and dropout."""
    return record(EfficientNet(), ["float32[B,3,32,32]", "int64[B]{0:10}"], training=True)


def cbs(i, o, k=3, s=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU())


class C2f(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2 = cbs(c, c, 1), cbs(3 * c // 2, c, 1)
        self.m = nn.ModuleList([cbs(c // 2, c // 2)])

    def forward(self, x):
        y = list(self.cv1(x).chunk(2, 1))
        y.extend(m(y[-1]) for m in self.m)
        return self.cv2(torch.cat(y, 1))


class SPPF(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2 = cbs(c, c // 2, 1), cbs(2 * c, c, 1)
        self.m = nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        x = self.cv1(x)
        y1 = self.m(x)
        y2 = self.m(y1)
        return self.cv2(torch.cat((x, y1, y2, self.m(y2)), 1))


class Yolo(nn.Module):
    classes, reg = 4, 8

    def __init__(self):
        super().__init__()
        self.s1, self.s2, self.s3 = cbs(3, 8, 3, 2), cbs(8, 16, 3, 2), cbs(16, 32, 3, 2)
        self.c2, self.c3, self.spp = C2f(16), C2f(32), SPPF(32)
        self.lateral, self.fuse = cbs(48, 16, 1), C2f(16)
        self.box = nn.ModuleList([nn.Conv2d(c, 4 * self.reg, 1) for c in (16, 32)])
        self.cls = nn.ModuleList([nn.Conv2d(c, self.classes, 1) for c in (16, 32)])
        self.register_buffer("proj", torch.arange(self.reg, dtype=torch.float))

    def anchors(self, feats, strides):
        points, scale = [], []
        for f, s in zip(feats, strides):
            h, w = f.shape[-2:]
            sx = torch.arange(w, device=f.device, dtype=f.dtype) + 0.5
            sy = torch.arange(h, device=f.device, dtype=f.dtype) + 0.5
            sy, sx = torch.meshgrid(sy, sx, indexing="ij")
            points.append(torch.stack((sx, sy), -1).view(-1, 2))
            scale.append(torch.full((h * w, 1), s, dtype=f.dtype))
        return torch.cat(points), torch.cat(scale)

    def features(self, x):
        p2 = self.c2(self.s2(self.s1(x)))
        p3 = self.spp(self.c3(self.s3(p2)))
        up = F.interpolate(p3, scale_factor=2.0, mode="nearest")
        return [self.fuse(self.lateral(torch.cat([up, p2], 1))), p3]

    def decode(self, x):
        feats = self.features(x)
        b = x.shape[0]
        outs = [
            torch.cat((self.box[i](f), self.cls[i](f)), 1).view(b, 4 * self.reg + self.classes, -1)
            for i, f in enumerate(feats)
        ]
        box, cls = torch.cat(outs, 2).split((4 * self.reg, self.classes), 1)
        points, scale = self.anchors(feats, (4, 8))
        a = box.shape[-1]
        dist = box.view(b, 4, self.reg, a).transpose(1, 2).softmax(1)
        dist = (dist * self.proj.view(1, -1, 1, 1)).sum(1)
        lt, rb = dist.chunk(2, 1)
        p = points.t().unsqueeze(0)
        x1y1, x2y2 = p - lt, p + rb
        return torch.cat((x1y1, x2y2), 1) * scale.t(), cls

    def forward(self, x):
        box, cls = self.decode(x)
        c, wh = (box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]
        return torch.cat((c, wh, cls.sigmoid()), 1)


@program
def fresh_yolo():
    return Yolo(), ["float32[B,3,32,32]"]


def ciou(b1, b2, eps=1e-7):
    x1, y1, x2, y2 = b1.chunk(4, 1)
    a1, c1, a2, c2 = b2.chunk(4, 1)
    w1, h1, w2, h2 = x2 - x1, y2 - y1 + eps, a2 - a1, c2 - c1 + eps
    inter = (x2.minimum(a2) - x1.maximum(a1)).clamp_(0) * (y2.minimum(c2) - y1.maximum(c1)).clamp_(
        0
    )
    union = w1 * h1 + w2 * h2 - inter + eps
    iou = inter / union
    cw, ch = x2.maximum(a2) - x1.minimum(a1), y2.maximum(c2) - y1.minimum(c1)
    diag = cw.pow(2) + ch.pow(2) + eps
    rho = ((a1 + a2 - x1 - x2).pow(2) + (c1 + c2 - y1 - y2).pow(2)) / 4
    v = (4 / math.pi**2) * ((w2 / h2).atan() - (w1 / h1).atan()).pow(2)
    with torch.no_grad():
        alpha = v / (v - iou + (1 + eps))
    return iou - (rho / diag + v * alpha)


@program
def fresh_yolo_loss():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Yolo()
            self.bce = nn.BCEWithLogitsLoss(reduction="none")

        def forward(self, x, boxes, labels):
            pred, cls = self.net.decode(x)
            target = torch.cat((boxes[:, :2], boxes[:, :2] + boxes[:, 2:]), 1)
            weight = labels.sum(1, keepdim=True)
            total = labels.sum().clamp(min=1)
            box = ((1.0 - ciou(pred, target)) * weight).sum() / total
            return 7.5 * box + 0.5 * self.bce(cls, labels).sum() / total

    return Loss(), ["float32[B,3,32,32]", "float32[B,4,80]{1:30}", "float32[B,4,80]{0:1}"]


class Detr(nn.Module):
    def __init__(self, queries=6, dim=16, classes=5):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()
        )
        self.proj = nn.Conv2d(16, dim, 1)
        self.row = nn.Parameter(torch.rand(10, dim // 2))
        self.col = nn.Parameter(torch.rand(10, dim // 2))
        self.query = nn.Embedding(queries, dim)
        self.transformer = nn.Transformer(dim, 4, 1, 2, 32, dropout=0.1)
        self.cls = nn.Linear(dim, classes + 1)
        self.box = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

    def forward(self, x):
        h = self.proj(self.backbone(x))
        height, width = h.shape[-2:]
        pos = (
            torch.cat(
                [
                    self.col[:width].unsqueeze(0).repeat(height, 1, 1),
                    self.row[:height].unsqueeze(1).repeat(1, width, 1),
                ],
                dim=-1,
            )
            .flatten(0, 1)
            .unsqueeze(1)
        )
        src = pos + 0.1 * h.flatten(2).permute(2, 0, 1)
        tgt = self.query.weight.unsqueeze(1).repeat(1, x.shape[0], 1)
        out = self.transformer(src, tgt).transpose(0, 1)
        return {"logits": self.cls(out), "boxes": self.box(out).sigmoid()}


@program
def fresh_detr():
    return Detr(), ["float32[B,3,24,24]"]


@program
def fresh_detr_loss():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Detr()
            weight = torch.ones(6)
            weight[-1] = 0.1
            self.register_buffer("empty", weight)

        def forward(self, x, order, labels, boxes):
            out = self.net(x)
            index = order.argsort(1)
            logits = out["logits"].gather(1, index.unsqueeze(-1).expand(-1, -1, 6))
            found = out["boxes"].gather(1, index.unsqueeze(-1).expand(-1, -1, 4))
            ce = F.cross_entropy(logits.transpose(1, 2), labels, self.empty)
            return ce + 5 * F.l1_loss(found, boxes, reduction="sum") / labels.numel()

    return Loss(), [
        "float32[B,3,24,24]",
        "float32[B,6]{0:1}",
        "int64[B,6]{0:6}",
        "float32[B,6,4]{0:1}",
    ]


class DoubleConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1),
            nn.GroupNorm(4, o),
            nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1),
            nn.GroupNorm(4, o),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.net(x)


class AttentionGate(nn.Module):
    def __init__(self, g, x, mid):
        super().__init__()
        self.wg, self.wx, self.psi = (
            nn.Conv2d(g, mid, 1),
            nn.Conv2d(x, mid, 1),
            nn.Conv2d(mid, 1, 1),
        )

    def forward(self, g, x):
        return x * torch.sigmoid(self.psi(F.relu(self.wg(g) + self.wx(x))))


class AttentionUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.mid = DoubleConv(1, 8), DoubleConv(8, 16), DoubleConv(16, 32)
        self.pool = nn.MaxPool2d(2)
        self.u2, self.u1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.g2, self.g1 = AttentionGate(16, 16, 8), AttentionGate(8, 8, 4)
        self.c2, self.c1 = DoubleConv(32, 16), DoubleConv(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        m = self.mid(self.pool(b))
        u = self.u2(m)
        # As many write it: sizes may differ by one.
        dy, dx = b.size(2) - u.size(2), b.size(3) - u.size(3)
        u = F.pad(u, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        u = self.c2(torch.cat([self.g2(u, b), u], 1))
        v = self.u1(u)
        v = self.c1(torch.cat([self.g1(v, a), v], 1))
        return self.out(v)


@program
def fresh_attention_unet_dice():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = AttentionUNet()

        def forward(self, x, mask):
            logits = self.net(x)
            p = torch.sigmoid(logits)
            inter = (p * mask).sum(dim=(1, 2, 3))
            dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
            return dice.mean() + F.binary_cross_entropy_with_logits(logits, mask)

    return Loss(), ["float32[B,1,16,16]", "float32[B,1,16,16]{0:1}"]


@program
def fresh_deeplab_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 4, 1), nn.BatchNorm2d(16), nn.ReLU(True))
            self.branches = nn.ModuleList(
                [nn.Conv2d(16, 8, 1)] + [nn.Conv2d(16, 8, 3, padding=r, dilation=r) for r in (2, 3)]
            )
            self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1), nn.ReLU())
            self.project = nn.Sequential(nn.Conv2d(32, 16, 1), nn.BatchNorm2d(16), nn.ReLU())
            self.head = nn.Conv2d(16, 6, 1)
            self.aux = nn.Conv2d(16, 6, 1)

        def forward(self, x, y):
            f = self.stem(x)
            parts = [F.relu(b(f)) for b in self.branches]
            parts.append(
                F.interpolate(
                    self.pooled(f), size=f.shape[-2:], mode="bilinear", align_corners=False
                )
            )
            out = self.head(self.project(torch.cat(parts, 1)))
            out = F.interpolate(out, size=x.shape[-2:], mode="bilinear", align_corners=False)
            aux = F.interpolate(self.aux(f), size=x.shape[-2:], mode="bilinear", align_corners=True)
            main = F.cross_entropy(out, y, ignore_index=5)
            return main + 0.4 * F.cross_entropy(aux, y, ignore_index=5)

    return Net(), ["float32[B,3,32,32]", "int64[B,32,32]{0:6}"]


class Generator(nn.Module):
    def __init__(self, z=16, f=8):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(z, f * 4, 4, 1, 0, bias=False),
            nn.BatchNorm2d(f * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(f * 4, f * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(f * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(f * 2, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z.view(z.size(0), -1, 1, 1))


@program
def fresh_dcgan_generator():
    return record(Generator(), ["float32[B,16]"], training=True)


class Discriminator(nn.Module):
    def __init__(self, f=8):
        super().__init__()
        self.main = nn.Sequential(
            spectral_norm(nn.Conv2d(3, f, 4, 2, 1)),
            nn.LeakyReLU(0.2, inplace=True),
            spectral_norm(nn.Conv2d(f, f * 2, 4, 2, 1)),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Flatten(),
            spectral_norm(nn.Linear(f * 2 * 16, 1)),
        )

    def forward(self, x):
        return self.main(x).squeeze(-1)


@program
def fresh_gan_hinge():
    """The discriminator's step: the generator under no_grad."""

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.g, self.d = Generator(), Discriminator()

        def forward(self, real, z):
            with torch.no_grad():
                fake = self.g(z)
            return F.relu(1 - self.d(real)).mean() + F.relu(1 + self.d(fake.detach())).mean()

    return Loss(), ["float32[B,3,16,16]", "float32[B,16]"]


@program
def fresh_spectral_training():
    """Power iteration writes its vectors."""
    return record(Discriminator(), ["float32[B,3,16,16]"], training=True)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 2), nn.SiLU(), nn.Linear(dim * 2, dim * 2))

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
        args = t[:, None].float() * freqs[None]
        return self.mlp(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))


class DiffusionBlock(nn.Module):
    def __init__(self, i, o, emb):
        super().__init__()
        self.inp = nn.Sequential(nn.GroupNorm(4, i), nn.SiLU(), nn.Conv2d(i, o, 3, padding=1))
        self.emb = nn.Sequential(nn.SiLU(), nn.Linear(emb, 2 * o))
        self.norm = nn.GroupNorm(4, o)
        self.out = nn.Sequential(nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(o, o, 3, padding=1))
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, emb):
        h = self.inp(x)
        scale, shift = self.emb(emb)[:, :, None, None].chunk(2, dim=1)
        h = self.out(self.norm(h) * (1 + scale) + shift)
        return self.skip(x) + h


class SpatialAttention(nn.Module):
    def __init__(self, c, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, c)
        self.qkv, self.proj = nn.Conv1d(c, 3 * c, 1), nn.Conv1d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape(b, c, -1)
        q, k, v = self.qkv(self.norm(x)).reshape(b * self.heads, -1, h * w).chunk(3, dim=1)
        scale = 1 / math.sqrt(math.sqrt(c // self.heads))
        weight = torch.einsum("bct,bcs->bts", q * scale, k * scale)
        weight = torch.softmax(weight.float(), dim=-1).type(weight.dtype)
        a = torch.einsum("bts,bcs->bct", weight, v)
        return (x + self.proj(a.reshape(b, -1, h * w))).reshape(b, c, h, w)


@program
def fresh_ddpm_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = TimeEmbedding(16)
            self.inp = nn.Conv2d(3, 16, 3, padding=1)
            self.b1, self.b2 = DiffusionBlock(16, 16, 32), DiffusionBlock(16, 32, 32)
            self.down, self.up = nn.Conv2d(16, 16, 3, 2, 1), nn.Conv2d(32, 32, 3, padding=1)
            self.attn = SpatialAttention(32)
            self.b3 = DiffusionBlock(48, 16, 32)
            self.out = nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 3, 3, padding=1))
            betas = torch.linspace(1e-4, 0.02, 100)
            self.register_buffer("bar", torch.cumprod(1 - betas, 0))

        def forward(self, x0, t, noise):
            a = self.bar[t].view(-1, 1, 1, 1)
            x = a.sqrt() * x0 + (1 - a).sqrt() * noise
            emb = self.time(t)
            h1 = self.b1(self.inp(x), emb)
            h = self.attn(self.b2(self.down(h1), emb))
            h = self.up(F.interpolate(h, scale_factor=2, mode="nearest"))
            h = self.b3(torch.cat([h, h1], 1), emb)
            return F.mse_loss(self.out(h), noise)

    return Net(), ["float32[B,3,16,16]", "int64[B]{0:100}", "float32[B,3,16,16]"]


@program
def fresh_super_resolution():
    class Net(nn.Module):
        def __init__(self, scale=2):
            super().__init__()
            self.scale = scale
            self.head = nn.Conv2d(3, 16, 3, padding=1)
            self.body = nn.Sequential(
                *[
                    nn.Sequential(
                        nn.Conv2d(16, 16, 3, padding=1), nn.PReLU(16), nn.Conv2d(16, 16, 3, 1, 1)
                    )
                    for _ in range(3)
                ]
            )
            self.tail = nn.Sequential(
                nn.Conv2d(16, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale)
            )

        def forward(self, low, high):
            f = self.head(low)
            h = f
            for block in self.body:
                h = h + block(h) * 0.1
            out = self.tail(h + f)
            out = out + F.interpolate(low, scale_factor=self.scale, mode="bicubic")
            pixel = torch.sqrt((out - high) ** 2 + 1e-6).mean()
            tv = (out[..., 1:, :] - out[..., :-1, :]).abs().mean()
            return pixel + 0.01 * tv, out.clamp(0, 1)

    return Net(), ["float32[B,3,12,12]{0:1}", "float32[B,3,24,24]{0:1}"]


class ViTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim))

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(self.n1(x)).reshape(B, N, 3, self.heads, C // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(B, N, C))
        return x + self.mlp(self.n2(x))


@program
def fresh_mae_loss():
    class Net(nn.Module):
        def __init__(self, dim=16, p=4):
            super().__init__()
            self.p = p
            self.embed = nn.Conv2d(3, dim, p, p)
            self.cls = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
            self.mask_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
            self.pos = nn.Parameter(torch.randn(1, 17, dim) * 0.02)
            self.enc, self.dec = ViTBlock(dim, 2), ViTBlock(dim, 2)
            self.pred = nn.Linear(dim, p * p * 3)

        def patchify(self, x):
            p = self.p
            h = w = x.shape[2] // p
            x = x.reshape(x.shape[0], 3, h, p, w, p)
            return torch.einsum("nchpwq->nhwpqc", x).reshape(x.shape[0], h * w, p * p * 3)

        def forward(self, imgs, noise):
            x = self.embed(imgs).flatten(2).transpose(1, 2) + self.pos[:, 1:]
            N, L, D = x.shape
            keep = 4
            shuffle = torch.argsort(noise, dim=1)
            restore = torch.argsort(shuffle, dim=1)
            x = torch.gather(x, 1, shuffle[:, :keep].unsqueeze(-1).repeat(1, 1, D))
            mask = torch.ones([N, L])
            mask[:, :keep] = 0
            mask = torch.gather(mask, 1, restore)
            x = torch.cat(((self.cls + self.pos[:, :1]).expand(N, -1, -1), x), 1)
            x = self.enc(x)
            tokens = self.mask_token.repeat(N, L - keep, 1)
            y = torch.cat([x[:, 1:], tokens], 1)
            y = torch.gather(y, 1, restore.unsqueeze(-1).repeat(1, 1, D))
            y = self.dec(torch.cat([x[:, :1], y], 1) + self.pos)
            pred = self.pred(y)[:, 1:]
            target = self.patchify(imgs)
            mean, var = target.mean(-1, keepdim=True), target.var(-1, keepdim=True)
            target = (target - mean) / (var + 1e-6) ** 0.5
            loss = ((pred - target) ** 2).mean(-1)
            return (loss * mask).sum() / mask.sum()

    return Net(), ["float32[B,3,16,16]", "float32[B,16]{0:1}"]


@program
def fresh_shifted_windows():
    class Net(nn.Module):
        def __init__(self, dim=16, heads=2, w=4):
            super().__init__()
            self.heads, self.w = heads, w
            self.embed = nn.Conv2d(3, dim, 2, 2)
            self.norm = nn.LayerNorm(dim)
            self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.table = nn.Parameter(torch.randn((2 * w - 1) ** 2, heads) * 0.02)
            c = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij"))
            c = c.flatten(1)
            r = (c[:, :, None] - c[:, None, :]).permute(1, 2, 0) + (w - 1)
            self.register_buffer("index", r[..., 0] * (2 * w - 1) + r[..., 1])
            self.merge = nn.Linear(4 * dim, 2 * dim, bias=False)
            self.head = nn.Linear(2 * dim, 5)

        def forward(self, x):
            x = self.embed(x).permute(0, 2, 3, 1)
            B, H, W, C = x.shape
            w = self.w
            s = torch.roll(self.norm(x), shifts=(-2, -2), dims=(1, 2))
            s = s.view(B, H // w, w, W // w, w, C).permute(0, 1, 3, 2, 4, 5).contiguous()
            s = s.view(-1, w * w, C)
            q, k, v = (
                self.qkv(s)
                .reshape(-1, w * w, 3, self.heads, C // self.heads)
                .permute(2, 0, 3, 1, 4)
            )
            attn = (q * (C // self.heads) ** -0.5) @ k.transpose(-2, -1)
            bias = self.table[self.index.view(-1)].view(w * w, w * w, -1)
            attn = (attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)).softmax(-1)
            s = self.proj((attn @ v).transpose(1, 2).reshape(-1, w * w, C))
            s = s.view(B, H // w, W // w, w, w, C).permute(0, 1, 3, 2, 4, 5).contiguous()
            x = x + torch.roll(s.view(B, H, W, C), shifts=(2, 2), dims=(1, 2))
            x = torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1)
            return self.head(self.merge(x).mean((1, 2)))

    return Net(), ["float32[B,3,16,16]"]


@program
def fresh_vqvae_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(
                nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 4, 2, 1)
            )
            self.code = nn.Embedding(32, 8)
            self.dec = nn.Sequential(
                nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1)
            )

        def forward(self, x):
            z = self.enc(x).permute(0, 2, 3, 1).contiguous()
            flat = z.view(-1, 8)
            d = (
                flat.pow(2).sum(1, keepdim=True)
                + self.code.weight.pow(2).sum(1)
                - 2 * flat @ self.code.weight.t()
            )
            idx = torch.argmin(d, dim=1)
            one = torch.zeros(idx.shape[0], 32)
            one.scatter_(1, idx.unsqueeze(1), 1)
            q = (one @ self.code.weight).view(z.shape)
            commit = F.mse_loss(q.detach(), z) * 0.25 + F.mse_loss(q, z.detach())
            q = z + (q - z).detach()
            out = self.dec(q.permute(0, 3, 1, 2))
            p = one.mean(0)
            perplexity = torch.exp(-(p * (p + 1e-10).log()).sum())
            return F.mse_loss(out, x) + commit, perplexity

    return Net(), ["float32[B,3,16,16]"]


@program
def fresh_spatial_transformer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.loc = nn.Sequential(
                nn.Conv2d(1, 6, 5),
                nn.MaxPool2d(2, 2),
                nn.ReLU(True),
                nn.Flatten(),
                nn.Linear(6 * 36, 6),
            )
            self.net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
            self.fc = nn.Linear(6 * 49, 10)

        def forward(self, x):
            theta = self.loc(x).view(-1, 2, 3)
            grid = F.affine_grid(theta, x.size(), align_corners=False)
            x = F.grid_sample(x, grid, align_corners=False)
            return F.log_softmax(self.fc(self.net(x)), dim=1)

    return Net(), ["float32[B,1,16,16]"]


@program
def fresh_video_r2plus1d():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.spatial = nn.Conv3d(3, 12, (1, 3, 3), padding=(0, 1, 1), bias=False)
            self.temporal = nn.Conv3d(12, 16, (3, 1, 1), padding=(1, 0, 0), bias=False)
            self.n1, self.n2 = nn.BatchNorm3d(12), nn.BatchNorm3d(16)
            self.pool = nn.MaxPool3d((1, 2, 2))
            self.fc = nn.Linear(16, 6)

        def forward(self, clip, label):
            x = F.relu(self.n1(self.spatial(clip)))
            x = self.pool(F.relu(self.n2(self.temporal(x))))
            logits = self.fc(F.adaptive_avg_pool3d(x, 1).flatten(1))
            return F.nll_loss(F.log_softmax(logits, 1), label), logits.argmax(1)

    return Net(), ["float32[B,3,4,12,12]", "int64[B]{0:6}"]


@program
def fresh_coordconv_heatmap():
    """Key points: coordinates as channels, soft-argmax."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(5, 16, 3, padding=1)
            self.conv2 = nn.Conv2d(16, 5, 3, padding=1)

        def forward(self, x, points):
            n, _, h, w = x.shape
            ys = torch.linspace(-1, 1, 12).view(1, 1, 12, 1).expand(n, 1, h, w)
            xs = torch.linspace(-1, 1, 12).view(1, 1, 1, 12).expand(n, 1, h, w)
            m = self.conv2(F.hardswish(self.conv1(torch.cat([x, ys, xs], 1))))
            p = m.flatten(2).softmax(-1).view_as(m)
            ex = (p.sum(2) * torch.linspace(-1, 1, 12)).sum(-1)
            ey = (p.sum(3) * torch.linspace(-1, 1, 12)).sum(-1)
            found = torch.stack([ex, ey], -1)
            return F.smooth_l1_loss(found, points, beta=0.1) + (found - points).norm(dim=-1).mean()

    return Net(), ["float32[B,3,12,12]", "float32[B,5,2]{-1:1}"]
