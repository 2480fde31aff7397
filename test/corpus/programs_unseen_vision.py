"""Traced networks of images that no rule was made with."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program, record


def conv_norm(inputs, outputs, stride=1, groups=1, kernel=3):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(inplace=True),
    )


class PreActivation(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        out = F.relu(self.norm1(x))
        shortcut = self.shortcut(out)
        out = self.conv1(out)
        out = self.conv2(F.relu(self.norm2(out)))
        return out + shortcut


@program
def unseen_preactivation_resnet():
    """Traced without gradients, with the check of the tracer."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        PreActivation(8, 16, 2),
        PreActivation(16, 24, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 7),
    )
    return record(model, ["float32[B,3,20,20]"], grad=False, check=True)


class InvertedResidual(nn.Module):
    def __init__(self, channels, expand):
        super().__init__()
        hidden = channels * expand
        self.expand = conv_norm(channels, hidden, kernel=1)
        self.depthwise = conv_norm(hidden, hidden, groups=hidden, kernel=5)
        self.squeeze = nn.Conv2d(hidden, channels // 2, 1)
        self.excite = nn.Conv2d(channels // 2, hidden, 1)
        self.project = nn.Conv2d(hidden, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        scale = y.mean((2, 3), keepdim=True)
        scale = self.excite(F.silu(self.squeeze(scale), inplace=True)).sigmoid()
        return x + self.norm(self.project(y * scale))


@program
def unseen_inverted_residual():
    model = nn.Sequential(
        conv_norm(3, 12, 2), InvertedResidual(12, 3), InvertedResidual(12, 2), nn.Flatten(),
        nn.LazyLinear(5),
    )  # fmt: skip
    model(torch.zeros(1, 3, 18, 18))
    return model, ["float32[B,3,18,18]"]


@program
def unseen_training_mode():
    """Batch statistics and dropout, as a training loop runs it."""
    model = nn.Sequential(
        conv_norm(3, 8, 2), nn.Dropout2d(0.2), conv_norm(8, 12, 2), nn.Flatten(),
        nn.Dropout(0.4), nn.Linear(300, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 4),
    )  # fmt: skip
    return record(model, ["float32[B,3,20,20]"], training=True)


@program
def unseen_pyramid_dict():
    """A feature pyramid; what comes out is a dict."""

    def forward(self, x):
        c2 = self.stem(x)
        c3 = self.stage3(c2)
        c4 = self.stage4(c3)
        p4 = self.lateral4(c4)
        p3 = self.lateral3(c3) + F.interpolate(p4, size=c3.shape[-2:], mode="nearest")
        p2 = self.lateral2(c2) + F.interpolate(p3, size=c2.shape[-2:], mode="nearest")
        return {
            "p2": self.smooth(p2),
            "p3": self.smooth(p3),
            "p4": self.smooth(p4),
            "pool": F.max_pool2d(p4, 1, stride=2),
        }

    return network(
        forward,
        stem=conv_norm(3, 8, 2),
        stage3=conv_norm(8, 12, 2),
        stage4=conv_norm(12, 16, 2),
        lateral2=nn.Conv2d(8, 10, 1),
        lateral3=nn.Conv2d(12, 10, 1),
        lateral4=nn.Conv2d(16, 10, 1),
        smooth=nn.Conv2d(10, 10, 3, padding=1),
    ), ["float32[B,3,30,26]"]


@program
def unseen_adaptive_instance_norm():
    def forward(self, content, style):
        content, style = self.encoder(content), self.encoder(style)
        mean = style.mean((2, 3), keepdim=True)
        deviation = (style.var((2, 3), keepdim=True) + 1e-5).sqrt()
        normal = (content - content.mean((2, 3), keepdim=True)) / content.std((2, 3), keepdim=True)
        mixed = torch.lerp(content, normal * deviation + mean, 0.7)
        return self.decoder(mixed)

    return network(
        forward,
        encoder=nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2)
        ),
        decoder=nn.Sequential(
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.ReflectionPad2d(1),
            nn.Conv2d(8, 3, 3),
        ),
    ), ["float32[B,3,12,14]", "float32[B,3,16,10]"]


@program
def unseen_cycle_generator():
    model = nn.Sequential(
        nn.ReflectionPad2d(3),
        nn.Conv2d(3, 6, 7),
        nn.InstanceNorm2d(6),
        nn.ReLU(True),
        nn.Conv2d(6, 12, 3, 2, 1),
        nn.InstanceNorm2d(12, affine=True),
        nn.ReLU(True),
        nn.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1),
        nn.InstanceNorm2d(6),
        nn.ReLU(True),
        nn.ReplicationPad2d(1),
        nn.Conv2d(6, 3, 3),
        nn.Tanh(),
    )
    return model, ["float32[B,3,16,18]"]


@program
def unseen_spectral_discriminator():
    sn = nn.utils.spectral_norm
    model = nn.Sequential(
        sn(nn.Conv2d(3, 8, 4, 2, 1)),
        nn.LeakyReLU(0.2, inplace=True),
        sn(nn.Conv2d(8, 16, 4, 2, 1)),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Flatten(),
        sn(nn.Linear(16 * 16, 1)),
    )
    return model, ["float32[B,3,16,16]"]


@program
def unseen_parametrized_spectral():
    """The newer form, by parametrizations."""
    from torch.nn.utils.parametrizations import spectral_norm, weight_norm

    model = nn.Sequential(
        spectral_norm(nn.Conv1d(4, 8, 3, padding=1)),
        nn.ELU(),
        weight_norm(nn.Conv1d(8, 6, 3)),
        nn.Flatten(),
        weight_norm(nn.Linear(60, 4)),
    )
    return record(model, ["float32[B,4,12]"])


@program
def unseen_super_resolution():
    def forward(self, x):
        up = F.interpolate(x, scale_factor=3, mode="bicubic", align_corners=False)
        y = self.head(x)
        for layer in self.body:
            y = y + layer(y) * 0.2
        y = F.pixel_shuffle(self.tail(y), 3)
        back = F.pixel_unshuffle(y, 3)
        return (y + up).clamp(0, 1), back.mean(1)

    return network(
        forward,
        head=nn.Conv2d(3, 8, 3, padding=1),
        body=nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.PReLU(8)) for _ in range(2)
        ),
        tail=nn.Conv2d(8, 27, 3, padding=1),
    ), ["float32[B,3,9,11]"]


@program
def unseen_flow_warp():
    """An image drawn along a flow that a network makes."""

    def forward(self, first, second):
        batch, _, height, width = first.shape
        flow = self.net(torch.cat([first, second], 1))
        rows, columns = torch.meshgrid(
            torch.arange(height, device=flow.device),
            torch.arange(width, device=flow.device),
            indexing="ij",
        )
        base = torch.stack([columns, rows]).float().unsqueeze(0).expand(batch, -1, -1, -1)
        places = base + flow
        x = 2.0 * places[:, 0] / max(width - 1, 1) - 1.0
        y = 2.0 * places[:, 1] / max(height - 1, 1) - 1.0
        grid = torch.stack([x, y], dim=3)
        warped = F.grid_sample(second, grid, padding_mode="border", align_corners=True)
        mask = (
            F.grid_sample(torch.ones_like(second[:, :1]), grid, mode="nearest", align_corners=True)
            > 0.999
        )
        return warped * mask, (warped - first).abs().mean((1, 2, 3))

    return network(
        forward,
        net=nn.Sequential(nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1)),
    ), ["float32[B,3,10,13]", "float32[B,3,10,13]"]


@program
def unseen_cost_volume():
    """Stereo: one image shifted against the other, and a soft arg-max."""

    def forward(self, left, right):
        left, right = self.features(left), self.features(right)
        batch, channels, height, width = left.size()
        volume = left.new_zeros(batch, channels, 4, height, width)
        for shift in range(4):
            if shift:
                volume[:, :, shift, :, shift:] = left[..., shift:] * right[..., :-shift]
            else:
                volume[:, :, shift] = left * right
        cost = self.aggregate(volume).squeeze(1)
        weights = F.softmax(-cost, dim=1)
        shifts = torch.arange(4, dtype=cost.dtype).view(1, 4, 1, 1)
        return (weights * shifts).sum(1)

    return network(
        forward,
        features=nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU()),
        aggregate=nn.Conv3d(6, 1, 3, padding=1),
    ), ["float32[B,3,9,12]", "float32[B,3,9,12]"]


@program
def unseen_all_pairs_correlation():
    def forward(self, first, second):
        a, b = self.features(first), self.features(second)
        corr = torch.einsum("bchw,bcij->bhwij", a, b) / a.shape[1] ** 0.5
        n, h, w, _, _ = corr.shape
        flat = corr.reshape(n * h * w, 1, corr.shape[3], corr.shape[4])
        pyramid = [flat]
        for _ in range(2):
            flat = F.avg_pool2d(flat, 2, stride=2)
            pyramid.append(flat)
        return torch.cat([level.flatten(1).view(n, h, w, -1) for level in pyramid], -1)

    return network(forward, features=nn.Conv2d(3, 5, 3, 2, 1)), [
        "float32[B,3,16,12]",
        "float32[B,3,16,12]",
    ]


def decode_boxes(deltas, anchors):
    size = anchors[:, 2:] - anchors[:, :2]
    centre = anchors[:, :2] + 0.5 * size
    middle = deltas[..., :2] * size + centre
    extent = deltas[..., 2:].clamp(max=math.log(1000.0 / 16)).exp() * size
    return torch.cat([middle - extent / 2, middle + extent / 2], -1)


@program
def unseen_anchor_head():
    """Levels of a detector, decoded; the best of each sample are gathered."""

    def forward(self, x):
        scores, boxes = [], []
        for level in (self.stem(x), F.avg_pool2d(self.stem(x), 2)):
            height, width = level.shape[-2:]
            y = torch.arange(height, dtype=x.dtype) + 0.5
            x_ = torch.arange(width, dtype=x.dtype) + 0.5
            grid = torch.cartesian_prod(y, x_)
            anchors = torch.cat([grid - 2, grid + 2], 1).repeat_interleave(2, 0)
            logits = self.classify(level).permute(0, 2, 3, 1).reshape(level.size(0), -1, 5)
            deltas = self.regress(level).permute(0, 2, 3, 1).reshape(level.size(0), -1, 4)
            scores.append(logits.sigmoid())
            boxes.append(decode_boxes(deltas, anchors))
        scores, boxes = torch.cat(scores, 1), torch.cat(boxes, 1)
        best, labels = scores.max(-1)
        top, index = best.topk(10, dim=1)
        kept = boxes.gather(1, index.unsqueeze(-1).expand(-1, -1, 4))
        low = torch.max(kept[:, :, None, :2], kept[:, None, :, :2])
        high = torch.min(kept[:, :, None, 2:], kept[:, None, :, 2:])
        inner = (high - low).clamp(min=0).prod(-1)
        area = (kept[..., 2:] - kept[..., :2]).prod(-1)
        iou = inner / (area[:, :, None] + area[:, None] - inner)
        return kept, top, labels.gather(1, index), iou.triu(1).amax(1)

    return network(
        forward,
        stem=conv_norm(3, 8, 2),
        classify=nn.Conv2d(8, 10, 3, padding=1),
        regress=nn.Conv2d(8, 8, 3, padding=1),
    ), ["float32[B,3,16,16]"]


@program
def unseen_centre_peaks():
    """Peaks of heat maps: a pool in place of suppression, then the best."""

    def forward(self, x):
        y = self.backbone(x)
        heat = self.heat(y).sigmoid()
        size = self.size(y)
        peaks = heat * (F.max_pool2d(heat, 3, 1, 1) == heat).float()
        batch, _, height, width = peaks.shape
        scores, places = torch.topk(peaks.view(batch, -1), 6)
        labels = torch.div(places, height * width, rounding_mode="floor")
        places = places % (height * width)
        rows, columns = places // width, places % width
        flat = size.permute(0, 2, 3, 1).contiguous().view(batch, -1, 2)
        extents = flat.gather(1, places.unsqueeze(2).repeat(1, 1, 2))
        centres = torch.stack([columns, rows], -1).to(x.dtype)
        return torch.cat([centres - extents, centres + extents], 2), scores, labels

    return network(
        forward,
        backbone=conv_norm(3, 12, 2),
        heat=nn.Conv2d(12, 4, 1),
        size=nn.Conv2d(12, 2, 1),
    ), ["float32[B,3,18,22]"]


class Queries(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = conv_norm(3, 16, 2)
        self.transformer = nn.Transformer(16, 4, 1, 2, 32, batch_first=True)
        self.queries = nn.Parameter(torch.rand(5, 16))
        self.rows, self.columns = nn.Parameter(torch.rand(20, 8)), nn.Parameter(torch.rand(20, 8))
        self.classes, self.boxes = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x):
        y = self.backbone(x)
        height, width = y.shape[-2:]
        place = torch.cat(
            [
                self.columns[:width].unsqueeze(0).repeat(height, 1, 1),
                self.rows[:height].unsqueeze(1).repeat(1, width, 1),
            ],
            dim=-1,
        ).flatten(0, 1)
        source = place.unsqueeze(0) + 0.1 * y.flatten(2).permute(0, 2, 1)
        target = self.queries.unsqueeze(0).expand(x.shape[0], -1, -1)
        hidden = self.transformer(source, target)
        return {"logits": self.classes(hidden), "boxes": self.boxes(hidden).sigmoid()}


@program
def unseen_detection_transformer():
    return record(Queries(), ["float32[B,3,14,12]"], grad=False)


@program
def unseen_detection_transformer_training():
    return record(Queries(), ["float32[B,3,14,12]"], training=True)


@program
def unseen_channels_last_bfloat16():
    def forward(self, x):
        y = x.contiguous(memory_format=torch.channels_last).to(torch.bfloat16)
        y = F.relu(self.one(y))
        y = F.max_pool2d(y, 2)
        y = F.relu6(self.two(y))
        return self.head(y.mean((2, 3))).float()

    return network(
        forward,
        one=nn.Conv2d(3, 16, 3, padding=1).to(torch.bfloat16),
        two=nn.Conv2d(16, 24, 3).to(torch.bfloat16),
        head=nn.Linear(24, 5).to(torch.bfloat16),
    ), ["float32[B,3,18,18]"]


@program
def unseen_channels_last_weights():
    model = nn.Sequential(conv_norm(3, 8), nn.MaxPool2d(2), conv_norm(8, 16, groups=2))
    return model.to(memory_format=torch.channels_last), ["float32[B,3,16,14]"]


@program
def unseen_local_attention():
    """Attention in the neighbourhood of each pixel, by unfold."""

    def forward(self, x):
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(x).chunk(3, 1)
        k = F.unfold(k, 3, padding=1).view(batch, channels, 9, height * width)
        v = F.unfold(v, 3, padding=1).view(batch, channels, 9, height * width)
        scores = (q.view(batch, channels, 1, -1) * k).sum(1) / math.sqrt(channels)
        weights = scores.softmax(1)
        out = torch.einsum("bkn,bckn->bcn", weights, v).view_as(x)
        return x + self.out(out)

    return network(forward, qkv=nn.Conv2d(8, 24, 1), out=nn.Conv2d(8, 8, 1)), ["float32[B,8,9,7]"]


@program
def unseen_atrous_segmentation():
    def forward(self, x):
        size = x.shape[2:]
        y = self.stem(x)
        parts = [F.relu(branch(y)) for branch in self.branches]
        pooled = F.relu(self.pool(F.adaptive_avg_pool2d(y, 1)))
        parts.append(F.interpolate(pooled, size=y.shape[2:], mode="bilinear", align_corners=False))
        logits = self.head(torch.cat(parts, 1))
        logits = F.interpolate(logits, size=size, mode="bilinear", align_corners=True)
        return logits, logits.argmax(1), logits.softmax(1).amax(1)

    return network(
        forward,
        stem=conv_norm(3, 8, 2),
        branches=nn.ModuleList(
            [nn.Conv2d(8, 6, 1)] + [nn.Conv2d(8, 6, 3, padding=r, dilation=r) for r in (2, 3)]
        ),
        pool=nn.Conv2d(8, 6, 1),
        head=nn.Conv2d(24, 5, 1),
    ), ["float32[B,3,20,24]"]


@program
def unseen_capsules():
    """Votes of capsules, agreed on in three rounds."""

    def squash(x):
        norm = x.pow(2).sum(-1, keepdim=True)
        return norm / (1 + norm) * x / (norm.sqrt() + 1e-8)

    def forward(self, x):
        u = squash(self.primary(x).view(x.size(0), -1, 4))
        votes = torch.einsum("bic,iojc->bioj", u, self.weight)
        logits = torch.zeros(x.size(0), votes.size(1), votes.size(2))
        for turn in range(3):
            coupling = F.softmax(logits, dim=2)
            out = squash((coupling.unsqueeze(-1) * votes).sum(1))
            if turn < 2:
                logits = logits + (votes * out.unsqueeze(1)).sum(-1)
        return out.norm(dim=-1), out

    return network(
        forward,
        primary=nn.Conv2d(1, 8, 5, 2),
        weight=nn.Parameter(torch.randn(50, 3, 6, 4) * 0.3),
    ), ["float32[B,1,13,13]"]


@program
def unseen_masked_autoencoder():
    """Patches shuffled by given noise, some kept, and put back."""

    def forward(self, x, noise):
        y = self.patches(x).flatten(2).transpose(1, 2) + self.place
        batch, length, width = y.shape
        order = noise.argsort(1)
        back = order.argsort(1)
        kept = y.gather(1, order[:, :4].unsqueeze(-1).repeat(1, 1, width))
        kept = self.encoder(kept)
        tokens = self.token.repeat(batch, length - 4, 1)
        full = torch.cat([kept, tokens], dim=1)
        full = torch.gather(full, 1, back.unsqueeze(-1).repeat(1, 1, width))
        pixels = self.decoder(full + self.place)
        mask = torch.ones([batch, length])
        mask[:, :4] = 0
        mask = torch.gather(mask, 1, back)
        return pixels, mask, (pixels.pow(2).mean(-1) * mask).sum(1) / mask.sum(1)

    return network(
        forward,
        patches=nn.Conv2d(3, 16, 4, 4),
        place=nn.Parameter(torch.randn(1, 12, 16)),
        token=nn.Parameter(torch.randn(1, 1, 16)),
        encoder=nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, activation="gelu"),
        decoder=nn.Linear(16, 48),
    ), ["float32[B,3,16,12]", "float32[B,12]"]


@program
def unseen_padding_modes():
    def forward(self, x):
        y = self.circular(x)
        y = y + F.pad(x, (1, 1, 1, 1), mode="reflect")[:, :1, 1:-1, 1:-1]
        z = F.pad(y, (2, 0), value=0.5)
        w = F.pad(y, (-1, 2, 0, -1), mode="constant")
        return z, w, F.pad(x, (0, 1, 2, 0), mode="replicate"), self.reflect(z)

    return network(
        forward,
        circular=nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
        reflect=nn.Conv2d(6, 2, 3, padding=1, padding_mode="reflect", stride=2),
    ), ["float32[B,4,9,10]"]


@program
def unseen_video_clips():
    """Frames as samples of an image network, then a network over time."""

    def forward(self, x):
        batch, time = x.shape[:2]
        y = self.frames(x.flatten(0, 1)).mean((-2, -1))
        y = y.view(batch, time, -1).transpose(1, 2)
        y = F.gelu(self.temporal(y))
        return self.head(F.adaptive_max_pool1d(y, 1).squeeze(-1))

    return network(
        forward, frames=conv_norm(3, 10, 2), temporal=nn.Conv1d(10, 12, 3), head=nn.Linear(12, 4)
    ), ["float32[B,6,3,12,12]"]
