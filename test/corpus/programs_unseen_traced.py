"""Traced programs that no rule was made with: networks as their users write
them, of many fields, to see how koila does on what it has not seen."""

import math

import torch
from torch import nn
from torch.nn import functional as F

import inputs
from registry import network, program


def record(module, specs, grad=True, check=False, training=False):
    """Traced by hand: without recorded gradients, checked, or in training mode."""
    torch.manual_seed(0)
    with torch.set_grad_enabled(grad):
        return torch.jit.trace(
            module.train(training), inputs.make(specs, 3), check_trace=check, strict=False
        ), specs


def conv_norm(inputs, outputs, stride=1, groups=1, kernel=3):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(inplace=True),
    )


# ---------------------------------------------------------------------------
# Vision


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


# ---------------------------------------------------------------------------
# Text


class Encoder(nn.Module):
    def __init__(self, nested=False, **options):
        super().__init__()
        self.embedding = nn.Embedding(40, 24, padding_idx=0)
        self.register_buffer("place", torch.randn(1, 16, 24))
        layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
        self.head = nn.Linear(24, 6)

    def forward(self, ids):
        mask = ids == 0
        y = self.embedding(ids) * math.sqrt(24) + self.place[:, : ids.size(1)]
        y = self.encoder(y, src_key_padding_mask=mask)
        kept = (~mask).unsqueeze(-1)
        return self.head((y * kept).sum(1) / kept.sum(1).clamp(min=1))


IDS = "int64[B,11]{0:40}"


@program
def unseen_padded_encoder():
    return Encoder(), [IDS]


@program
def unseen_padded_encoder_no_grad():
    """The fast path, which has a mask."""
    return record(Encoder(), [IDS], grad=False)


@program
def unseen_padded_encoder_nested():
    """The fast path with nested tensors."""
    return record(Encoder(nested=True), [IDS], grad=False)


@program
def unseen_padded_encoder_training():
    return record(Encoder(activation="gelu", norm_first=True), [IDS], training=True)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(30, 16), nn.Embedding(35, 16)
        self.transformer = nn.Transformer(16, 2, 2, 1, 40, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 35)

    def forward(self, source, target):
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        padding = source.eq(1)
        out = self.transformer(
            self.source(source),
            self.target(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.head(out)


PAIR = ["int64[B,9]{0:30}", "int64[B,7]{0:35}"]


@program
def unseen_translator():
    return Translator(), PAIR


@program
def unseen_translator_no_grad():
    return record(Translator(), PAIR, grad=False)


@program
def unseen_translator_training():
    return record(Translator(), PAIR, training=True)


@program
def unseen_attention_weights():
    """Attention with given weights of both kinds, and masks of each kind."""

    def forward(self, x, memory, lengths):
        places = torch.arange(memory.size(1), device=memory.device)
        padding = places[None, :] >= lengths[:, None]
        y, weights = self.cross(x, memory, memory, key_padding_mask=padding)
        causal = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        z, heads = self.own(y, y, y, attn_mask=causal, average_attn_weights=False)
        return z, weights, heads

    return network(
        forward,
        cross=nn.MultiheadAttention(16, 4, kdim=10, vdim=10, batch_first=True),
        own=nn.MultiheadAttention(16, 2, batch_first=True, add_bias_kv=False),
    ), ["float32[B,6,16]", "float32[B,8,10]", "int64[B]{1:9}"]


class Rotary(nn.Module):
    """A decoder block with rotary places, grouped keys, a gated network."""

    def __init__(self, width=32, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 48, bias=False), nn.Linear(width, 48, bias=False)
        self.down = nn.Linear(48, width, bias=False)
        self.one, self.two = nn.RMSNorm(width), nn.RMSNorm(width)
        frequency = 1.0 / 100 ** (torch.arange(0, self.size, 2).float() / self.size)
        self.register_buffer("frequency", frequency)

    def rotate(self, x):
        angles = torch.outer(torch.arange(x.size(-2)).float(), self.frequency)
        angles = torch.cat([angles, angles], -1)
        low, high = x.chunk(2, -1)
        y = x * angles.cos() + torch.cat([-high, low], -1) * angles.sin()
        return y.type_as(x)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.one(x)
        q = self.q(y).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(y).view(batch, length, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
        q, k = self.rotate(q), self.rotate(k)
        k = k.repeat_interleave(self.heads // self.groups, dim=1)
        v = v.repeat_interleave(self.heads // self.groups, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        y = self.two(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@program
def unseen_rotary_decoder():
    model = nn.Sequential(nn.Embedding(50, 32), Rotary(), Rotary(), nn.RMSNorm(32))
    return model, ["int64[B,10]{0:50}"]


@program
def unseen_rotary_decoder_half():
    model = nn.Sequential(nn.Embedding(50, 32), Rotary(), nn.RMSNorm(32), nn.Linear(32, 50))
    return model.to(torch.bfloat16), ["int64[B,10]{0:50}"]


@program
def unseen_language_model_loss():
    def forward(self, ids):
        logits = self.head(self.block(self.embedding(ids)))
        shifted, labels = logits[:, :-1].contiguous(), ids[:, 1:].contiguous()
        loss = F.cross_entropy(
            shifted.view(-1, 50), labels.view(-1), ignore_index=0, label_smoothing=0.1
        )
        return loss, logits

    model = network(forward, embedding=nn.Embedding(50, 32), block=Rotary(), head=nn.Linear(32, 50))
    model.head.weight = model.embedding.weight
    return model, ["int64[B,10]{0:50}"]


@program
def unseen_linear_bias_attention():
    """Scores that fall with the distance, a slope per head."""

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.reshape(batch, length, 4, 6).transpose(1, 2) for part in self.qkv(x).split(24, -1)
        )
        distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        slopes = torch.tensor([2.0 ** -(i + 1) for i in range(4)]).view(4, 1, 1)
        scores = q @ k.mT / math.sqrt(6) + slopes * distance
        scores = scores.masked_fill(distance > 0, float("-inf"))
        y = torch.matmul(scores.softmax(-1, dtype=torch.float32).type_as(q), v)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, 24))

    return network(forward, qkv=nn.Linear(24, 72), out=nn.Linear(24, 24)), ["float32[B,9,24]"]


@program
def unseen_relative_shift():
    """Relative places by padding and reading with another row length."""

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        content = torch.einsum("bqd,bkd->bqk", q + self.u, k)
        place = torch.einsum("bqd,rd->bqr", q + self.v, self.places)
        batch, rows, columns = place.shape
        place = F.pad(place, (1, 0)).view(batch, columns + 1, rows)[:, 1:].view_as(place)
        weights = ((content + place[..., :rows]) * 0.3).softmax(-1)
        return torch.einsum("bqk,bkd->bqd", weights, v)

    return network(
        forward,
        qkv=nn.Linear(12, 36),
        u=nn.Parameter(torch.randn(12)),
        v=nn.Parameter(torch.randn(12)),
        places=nn.Parameter(torch.randn(8, 12)),
    ), ["float32[B,8,12]"]


@program
def unseen_text_convolutions():
    def forward(self, ids):
        y = self.embedding(ids).transpose(1, 2)
        parts = [F.max_pool1d(F.relu(conv(y)), y.size(2) - i).squeeze(2)
                 for i, conv in zip((1, 2, 3), self.convs)]  # fmt: skip
        return F.log_softmax(self.head(F.dropout(torch.cat(parts, 1), 0.5, self.training)), 1)

    return network(
        forward,
        embedding=nn.Embedding(60, 14),
        convs=nn.ModuleList(nn.Conv1d(14, 8, size) for size in (2, 3, 4)),
        head=nn.Linear(24, 5),
    ), ["int64[B,15]{0:60}"]


@program
def unseen_bags_of_words():
    """Bags in one row of ids with offsets, weighted and not."""

    def forward(self, ids, weights, rows):
        offsets = torch.arange(0, ids.size(0), 5)
        mean = self.mean(ids, offsets)
        total = self.sum(ids, offsets, per_sample_weights=weights)
        best = self.best(rows)
        return self.head(torch.cat([mean, total, best], 1))

    return network(
        forward,
        mean=nn.EmbeddingBag(50, 6),
        sum=nn.EmbeddingBag(50, 7, mode="sum"),
        best=nn.EmbeddingBag(50, 4, mode="max"),
        head=nn.Linear(17, 3),
    ), ["int64[5*B]{0:50}", "float32[5*B]", "int64[B,6]{0:50}"]


@program
def unseen_random_field():
    """A chain of labels: the sum over all of them, and the best one."""

    def forward(self, x):
        scores = self.emit(x)
        alpha, best = scores[:, 0], scores[:, 0]
        pointers = []
        for t in range(1, scores.size(1)):
            step = scores[:, t].unsqueeze(1)
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.moves + step, dim=1)
            best, pointer = (best.unsqueeze(2) + self.moves + step).max(1)
            pointers.append(pointer)
        label = best.argmax(1)
        path = [label]
        for pointer in reversed(pointers):
            label = pointer.gather(1, label.unsqueeze(1)).squeeze(1)
            path.append(label)
        return torch.logsumexp(alpha, 1), torch.stack(path[::-1], 1)

    return network(forward, emit=nn.Linear(8, 5), moves=nn.Parameter(torch.randn(5, 5))), [
        "float32[B,6,8]"
    ]


@program
def unseen_decoder_given_states():
    """The states of one network start another."""

    def forward(self, source, target, h0):
        memory, h = self.encoder(source, h0)
        h = torch.tanh(self.bridge(torch.cat([h[0::2], h[1::2]], dim=2)))
        out, (h, c) = self.decoder(target, (h, torch.zeros_like(h)))
        weights = torch.bmm(out, self.key(memory).transpose(1, 2)).softmax(2)
        return self.head(torch.cat([out, weights.bmm(memory)], 2)), h.squeeze(0), c[-1]

    return network(
        forward,
        encoder=nn.GRU(6, 8, batch_first=True, bidirectional=True),
        bridge=nn.Linear(16, 10),
        decoder=nn.LSTM(5, 10, batch_first=True),
        key=nn.Linear(16, 10),
        head=nn.Linear(26, 4),
    ), ["float32[B,7,6]", "float32[B,5,5]", "float32[2,B,8]"]


@program
def unseen_projected_lstm():
    def forward(self, x):
        y, (h, c) = self.lstm(x)
        z, _ = self.rnn(y.flip(1))
        return z[:, -1], h.permute(1, 0, 2).flatten(1), c.sum(0)

    return network(
        forward,
        lstm=nn.LSTM(9, 16, 2, batch_first=True, proj_size=5),
        rnn=nn.RNN(5, 7, nonlinearity="relu", batch_first=True, bias=False),
    ), ["float32[B,6,9]"]


@program
def unseen_random_features():
    """Attention by positive features, causal by running sums."""

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)

        def feature(u):
            return torch.exp(u @ self.random - u.square().sum(-1, keepdim=True) / 2)

        q, k = feature(q * 0.3), feature(k * 0.3)
        context = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=1)
        norm = (q * k.cumsum(1)).sum(-1, keepdim=True)
        return torch.einsum("blf,blfd->bld", q, context) / (norm + 1e-6)

    return network(forward, qkv=nn.Linear(10, 30), random=torch.randn(10, 12)), ["float32[B,8,10]"]


# ---------------------------------------------------------------------------
# Audio


@program
def unseen_mel_recurrent():
    def forward(self, wave):
        spectrum = torch.stft(wave, 32, 16, window=self.window, return_complex=True)
        power = torch.view_as_real(spectrum).square().sum(-1)
        mel = torch.log1p(self.bank @ power)
        mel = (mel - mel.mean(2, keepdim=True)) / (mel.std(2, keepdim=True) + 1e-5)
        y = F.relu(self.conv(mel.unsqueeze(1)))
        y = y.permute(0, 3, 1, 2).flatten(2)
        y, h = self.gru(y)
        return self.head(y).log_softmax(-1), h[-1]

    return network(
        forward,
        window=torch.hann_window(32),
        bank=torch.rand(8, 17),
        conv=nn.Conv2d(1, 3, 3, padding=1),
        gru=nn.GRU(24, 10, batch_first=True),
        head=nn.Linear(10, 6),
    ), ["float32[B,256]"]


@program
def unseen_gated_dilations():
    """Dilated causal convolutions with skips."""

    def forward(self, x):
        y = self.start(x)
        skips = 0
        for i, (gate, mix) in enumerate(zip(self.gates, self.mixes)):
            padded = F.pad(y, (2**i, 0))
            signal, control = gate(padded).chunk(2, dim=1)
            z = torch.tanh(signal) * torch.sigmoid(control)
            skips = skips + z
            y = (y + mix(z)) * math.sqrt(0.5)
        return self.end(F.relu(skips))

    return network(
        forward,
        start=nn.Conv1d(1, 8, 1),
        gates=nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(4)),
        mixes=nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(4)),
        end=nn.Sequential(nn.Conv1d(8, 12, 1), nn.ReLU(), nn.Conv1d(12, 20, 1)),
    ), ["float32[B,1,50]"]


class Conformer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width)
        )
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.before = nn.LayerNorm(width)
        self.convolution = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, 7, padding=3, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )
        self.last = nn.LayerNorm(width)

    def forward(self, x):
        x = x + 0.5 * self.first(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.convolution(self.before(x).transpose(1, 2)).transpose(1, 2)
        return self.last(x + 0.5 * self.first(x))


@program
def unseen_conformer():
    return nn.Sequential(Conformer(), Conformer()), ["float32[B,12,16]"]


@program
def unseen_conformer_no_grad():
    return record(Conformer(), ["float32[B,12,16]"], grad=False)


@program
def unseen_vocoder():
    """Transposed convolutions with weight norm, and several kernels."""
    wn = nn.utils.weight_norm

    def forward(self, mel):
        y = self.start(mel)
        for up, blocks in zip(self.ups, self.blocks):
            y = up(F.leaky_relu(y, 0.1))
            total = None
            for block in blocks:
                z = block(F.leaky_relu(y, 0.1)) + y
                total = z if total is None else total + z
            y = total / len(blocks)
        return torch.tanh(self.end(F.leaky_relu(y))).squeeze(1)

    return network(
        forward,
        start=wn(nn.Conv1d(10, 16, 7, padding=3)),
        ups=nn.ModuleList(
            wn(nn.ConvTranspose1d(16 >> i, 8 >> i, 4, 2, padding=1)) for i in range(2)
        ),
        blocks=nn.ModuleList(
            nn.ModuleList(wn(nn.Conv1d(8 >> i, 8 >> i, k, padding=k // 2)) for k in (3, 5))
            for i in range(2)
        ),
        end=wn(nn.Conv1d(4, 1, 7, padding=3)),
    ), ["float32[B,10,12]"]


@program
def unseen_long_convolution():
    """Filters as long as the signal, by Fourier transforms."""

    def forward(self, x):
        length = x.size(1)
        decay = torch.exp(-torch.arange(length) * self.rate.abs().unsqueeze(1))
        kernel = torch.fft.rfft(self.filter[:, :length] * decay, n=2 * length)
        signal = torch.fft.rfft(x.transpose(1, 2), n=2 * length)
        y = torch.fft.irfft(signal * kernel, n=2 * length)[..., :length].transpose(1, 2)
        return self.out(F.gelu(y + x * self.skip, approximate="tanh")), signal.abs().mean(-1)

    return network(
        forward,
        filter=nn.Parameter(torch.randn(6, 20)),
        rate=nn.Parameter(torch.rand(6)),
        skip=nn.Parameter(torch.randn(6)),
        out=nn.Linear(6, 6),
    ), ["float32[B,20,6]"]


@program
def unseen_state_space_scan():
    """A diagonal recurrence, one step after the other."""

    def forward(self, x):
        gate, y = self.into(x).chunk(2, -1)
        delta = F.softplus(self.delta(y))
        a = torch.exp(delta.unsqueeze(-1) * -torch.exp(self.log_a))
        b, c = self.bc(y).split([4, 4], dim=-1)
        u = (delta * y).unsqueeze(-1) * b.unsqueeze(-2)
        state = torch.zeros(x.shape[0], 12, 4, device=x.device)
        outputs = []
        for t in range(x.shape[1]):
            state = a[:, t] * state + u[:, t]
            outputs.append(torch.einsum("bdn,bn->bd", state, c[:, t]))
        return self.out(torch.stack(outputs, 1) * F.silu(gate))

    return network(
        forward,
        into=nn.Linear(8, 24),
        delta=nn.Linear(12, 12),
        bc=nn.Linear(12, 8),
        log_a=nn.Parameter(torch.rand(12, 4)),
        out=nn.Linear(12, 8),
    ), ["float32[B,7,8]"]


# ---------------------------------------------------------------------------
# Tables


@program
def unseen_sparse_steps():
    """Features chosen by sparse weights, in steps."""

    def sparsemax(x):
        ordered, _ = torch.sort(x, dim=-1, descending=True)
        sums = ordered.cumsum(-1) - 1
        count = torch.arange(1, x.size(-1) + 1, dtype=x.dtype)
        size = (count * ordered > sums).sum(-1, keepdim=True)
        return torch.clamp(x - sums.gather(-1, size - 1) / size.to(x.dtype), min=0)

    def forward(self, x):
        x = self.norm(x)
        prior = torch.ones_like(x)
        total, kept = 0, []
        hidden = self.shared(x)
        for attend, transform in zip(self.attend, self.transform):
            mask = sparsemax(attend(hidden) * prior)
            prior = prior * (1.3 - mask)
            hidden = F.glu(transform(self.shared(mask * x)), -1)
            total = total + F.relu(hidden)
            kept.append(mask)
        return self.head(total), torch.stack(kept).sum(0)

    return network(
        forward,
        norm=nn.BatchNorm1d(14),
        shared=nn.Linear(14, 8),
        attend=nn.ModuleList(nn.Linear(8, 14) for _ in range(3)),
        transform=nn.ModuleList(nn.Linear(8, 16) for _ in range(3)),
        head=nn.Linear(8, 3),
    ), ["float32[B,14]"]


@program
def unseen_feature_tokens():
    """Numbers and categories as tokens of a transformer."""

    def forward(self, numbers, categories):
        tokens = numbers.unsqueeze(-1) * self.scale + self.shift
        offset = categories + torch.tensor([0, 5, 12])
        tokens = torch.cat(
            [self.token.expand(numbers.size(0), -1, -1), tokens, self.table(offset)], 1
        )
        return self.head(self.encoder(tokens)[:, 0])

    return network(
        forward,
        scale=nn.Parameter(torch.randn(6, 16)),
        shift=nn.Parameter(torch.randn(6, 16)),
        token=nn.Parameter(torch.randn(1, 1, 16)),
        table=nn.Embedding(20, 16),
        encoder=nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True),
        head=nn.Sequential(nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2)),
    ), ["float32[B,6]", "int64[B,3]{0:5}"]


@program
def unseen_soft_trees():
    def forward(self, x):
        right = torch.sigmoid(self.split(x)).view(-1, 4, 3)
        choice = torch.stack([right, 1 - right], -1)
        leaves = torch.einsum("bti,btj,btk->btijk", *choice.unbind(2)).flatten(2)
        return torch.einsum("btl,tlo->bo", leaves, self.values) / 4, leaves.amax(-1)

    return network(forward, split=nn.Linear(10, 12), values=nn.Parameter(torch.randn(4, 8, 3))), [
        "float32[B,10]"
    ]


@program
def unseen_entity_embeddings():
    def forward(self, categories, numbers):
        parts = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        y = torch.cat([*parts, self.norm(numbers)], 1)
        for layer in self.layers:
            y = layer(y)
        low, high = self.range
        return torch.sigmoid(y) * (high - low) + low

    return network(
        forward,
        tables=nn.ModuleList(nn.Embedding(size, width) for size, width in ((7, 3), (9, 4))),
        norm=nn.BatchNorm1d(5),
        layers=nn.ModuleList(
            [
                nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Dropout(0.1)),
                nn.Linear(16, 1),
            ]
        ),
        range=torch.tensor([1.0, 5.0]),
    ), ["int64[B,2]{0:7}", "float32[B,5]"]


@program
def unseen_time_series():
    """A series taken apart, each part forecast by blocks with back-casts."""

    def forward(self, x):
        trend = F.avg_pool1d(F.pad(x.unsqueeze(1), (2, 2), mode="replicate"), 5, 1).squeeze(1)
        rest = x - trend
        forecast = self.trend(trend)
        for block in self.blocks:
            back, ahead = block(rest).split([24, 6], dim=1)
            rest = rest - back
            forecast = forecast + ahead
        scale = x.std(1, keepdim=True, unbiased=False)
        return forecast * scale + x[:, -1:], rest

    return network(
        forward,
        trend=nn.Linear(24, 6),
        blocks=nn.ModuleList(
            nn.Sequential(nn.Linear(24, 16), nn.Softplus(), nn.Linear(16, 30)) for _ in range(2)
        ),
    ), ["float32[B,24]"]


# ---------------------------------------------------------------------------
# Graphs and sets


@program
def unseen_dense_graph():
    def forward(self, x, edges):
        adjacency = ((edges + edges.transpose(1, 2)) > 0.5).float() + torch.eye(edges.size(-1))
        degree = adjacency.sum(-1)
        scale = degree.pow(-0.5)
        normal = scale.unsqueeze(-1) * adjacency * scale.unsqueeze(-2)
        y = F.relu(torch.bmm(normal, self.one(x)))
        y = torch.baddbmm(self.bias, normal, self.two(y))
        assign = self.pool(y).softmax(-1)
        pooled = torch.einsum("bnk,bnd->bkd", assign, y)
        coarse = assign.mT @ adjacency @ assign
        return pooled, coarse / coarse.diagonal(dim1=1, dim2=2).sum(-1).view(-1, 1, 1)

    return network(
        forward,
        one=nn.Linear(5, 12),
        two=nn.Linear(12, 8),
        pool=nn.Linear(8, 3),
        bias=nn.Parameter(torch.randn(8)),
    ), ["float32[B,9,5]", "float32[B,9,9]{0:1}"]


@program
def unseen_edge_messages():
    """Nodes and edges of a batch of graphs in one row each."""

    def forward(self, x, edges):
        source, target = edges[0], edges[1]
        message = self.message(torch.cat([x[source], x[target]], 1)).relu()
        total = torch.zeros(x.size(0), message.size(1)).index_add_(0, target, message)
        degree = x.new_zeros(x.size(0)).scatter_add_(
            0, target, torch.ones_like(target, dtype=x.dtype)
        )
        y = self.update(total / degree.clamp(min=1).unsqueeze(-1), x)
        return self.head(y)

    return network(
        forward,
        message=nn.Linear(12, 10),
        update=nn.GRUCell(10, 6),
        head=nn.Linear(6, 3),
    ), ["float32[5*B,6]", "int64[2,12*B]{0:5*B}"]


@program
def unseen_edge_softmax():
    """Attention over the edges of each node."""

    def forward(self, x, edges):
        h = self.project(x).view(-1, 2, 4)
        source, target = edges.unbind(0)
        score = (h * self.left).sum(-1)[source] + (h * self.right).sum(-1)[target]
        score = F.leaky_relu(score, 0.2)
        index = target.unsqueeze(-1).expand_as(score)
        most = torch.full((x.size(0), 2), -1e9).scatter_reduce(0, index, score, "amax")
        weight = (score - most.gather(0, index)).exp()
        total = torch.zeros(x.size(0), 2).scatter_add(0, index, weight)
        weight = weight / (total.gather(0, index) + 1e-16)
        out = torch.zeros_like(h).index_add(0, target, h[source] * weight.unsqueeze(-1))
        return F.elu(out.flatten(1)), weight

    return network(
        forward,
        project=nn.Linear(6, 8, bias=False),
        left=nn.Parameter(torch.randn(1, 2, 4)),
        right=nn.Parameter(torch.randn(1, 2, 4)),
    ), ["float32[4*B,6]", "int64[2,10*B]{0:4*B}"]


@program
def unseen_induced_sets():
    def forward(self, x):
        h, _ = self.into(self.points.repeat(x.size(0), 1, 1), x, x)
        y, _ = self.back(x, h, h)
        y = self.norm(x + y)
        y = y + F.relu(self.fc(y))
        pooled, weights = self.pool(self.seed.expand(x.shape[0], 1, 12), y, y)
        return self.head(pooled).squeeze(1), weights.squeeze(1)

    return network(
        forward,
        points=nn.Parameter(torch.randn(1, 4, 12)),
        seed=nn.Parameter(torch.randn(1, 1, 12)),
        into=nn.MultiheadAttention(12, 3, batch_first=True),
        back=nn.MultiheadAttention(12, 3, batch_first=True),
        pool=nn.MultiheadAttention(12, 1, batch_first=True),
        norm=nn.LayerNorm(12),
        fc=nn.Linear(12, 12),
        head=nn.Linear(12, 5),
    ), ["float32[B,10,12]"]


@program
def unseen_edge_convolution():
    """Neighbours of points in the space of features, by index."""

    def forward(self, x):
        batch, points, _ = x.shape
        inner = -2 * torch.matmul(x, x.transpose(2, 1))
        squares = torch.sum(x**2, dim=2, keepdim=True)
        index = (-squares - inner - squares.transpose(2, 1)).topk(k=4, dim=-1)[1]
        base = torch.arange(0, batch).view(-1, 1, 1) * points
        near = x.reshape(batch * points, -1)[(index + base).view(-1)].view(batch, points, 4, -1)
        centre = x.view(batch, points, 1, -1).repeat(1, 1, 4, 1)
        feature = torch.cat((near - centre, centre), dim=3).permute(0, 3, 1, 2).contiguous()
        y = F.leaky_relu(self.norm(self.conv(feature)), negative_slope=0.2)
        y = y.max(dim=-1, keepdim=False)[0]
        return torch.cat([F.adaptive_max_pool1d(y, 1), F.adaptive_avg_pool1d(y, 1)], 1).view(
            batch, -1
        )

    return network(forward, conv=nn.Conv2d(6, 8, 1, bias=False), norm=nn.BatchNorm2d(8)), [
        "float32[B,11,3]"
    ]


# ---------------------------------------------------------------------------
# Diffusion and other generators


def timestep_embedding(t, width):
    frequency = torch.exp(-math.log(1000) * torch.arange(width // 2) / (width // 2))
    angles = t.float()[:, None] * frequency[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class TimeBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, inputs), nn.GroupNorm(4, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(16, 2 * outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, dim=1)
        y = self.norm2(y) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(y))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.into = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.ModuleList([TimeBlock(8, 8), TimeBlock(8, 16)])
        self.reduce = nn.Conv2d(8, 8, 3, 2, 1)
        self.middle = TimeBlock(16, 16)
        self.qkv, self.project = nn.Conv1d(16, 48, 1), nn.Conv1d(16, 16, 1)
        self.up = nn.ModuleList([TimeBlock(32, 16), TimeBlock(24, 8)])
        self.out = nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 3, 3, padding=1))

    def attend(self, x):
        batch, channels, *space = x.shape
        q, k, v = self.qkv(x.reshape(batch, channels, -1)).chunk(3, 1)
        weights = torch.einsum("bct,bcs->bts", q * 0.5, k * 0.5).softmax(-1)
        y = torch.einsum("bts,bcs->bct", weights, v)
        return x + self.project(y).reshape(batch, channels, *space)

    def forward(self, x, t):
        t = self.time(timestep_embedding(t, 8))
        y = self.into(x)
        one = self.down[0](y, t)
        two = self.down[1](self.reduce(one), t)
        y = self.attend(self.middle(two, t))
        y = self.up[0](torch.cat([y, two], 1), t)
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        y = self.up[1](torch.cat([y, one], 1), t)
        return self.out(y)


IMAGE_AND_TIME = ["float32[B,3,12,12]", "int64[B]{0:100}"]


@program
def unseen_denoiser():
    return Denoiser(), IMAGE_AND_TIME


@program
def unseen_denoiser_training():
    return record(Denoiser(), IMAGE_AND_TIME, training=True)


@program
def unseen_guided_step():
    """One step of a sampler: with and without a condition as one batch."""

    def forward(self, x, t):
        both = self.model(torch.cat([x] * 2), torch.cat([t, torch.zeros_like(t)]))
        with_condition, without = both.chunk(2)
        noise = without + 4.0 * (with_condition - without)
        alpha = self.alphas.gather(0, t).view(-1, 1, 1, 1)
        before = self.alphas[(t - 5).clamp(min=0)].reshape(-1, 1, 1, 1)
        clean = ((x - (1 - alpha).sqrt() * noise) / alpha.sqrt()).clamp(-1, 1)
        return before.sqrt() * clean + (1 - before).sqrt() * noise

    return record(
        network(forward, model=Denoiser(), alphas=torch.linspace(0.99, 0.1, 100)),
        IMAGE_AND_TIME,
        grad=False,
    )


@program
def unseen_diffusion_transformer():
    """Layer norms whose scale, shift and gate come from a condition."""

    def forward(self, x, t, label):
        y = self.patch(x).flatten(2).transpose(1, 2) + self.place
        c = self.time(timestep_embedding(t, 8)) + self.label(label)
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulate(c).unsqueeze(1).chunk(6, 2)
        z = F.layer_norm(y, (16,)) * (1 + scale1) + shift1
        batch, length, _ = z.shape
        q, k, v = self.qkv(z).reshape(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, 16)
        y = y + gate1 * self.project(z)
        z = F.layer_norm(y, (16,)) * (1 + scale2) + shift2
        y = y + gate2 * self.mlp(z)
        y = self.out(y).reshape(batch, 4, 3, 2, 2, 3)
        return torch.einsum("bhwpqc->bchpwq", y).reshape(batch, 3, 8, 6)

    return network(
        forward,
        patch=nn.Conv2d(3, 16, 2, 2),
        place=nn.Parameter(torch.randn(1, 12, 16)),
        time=nn.Linear(8, 16),
        label=nn.Embedding(10, 16),
        modulate=nn.Sequential(nn.SiLU(), nn.Linear(16, 96)),
        qkv=nn.Linear(16, 48),
        project=nn.Linear(16, 16),
        mlp=nn.Sequential(nn.Linear(16, 32), nn.GELU("tanh"), nn.Linear(32, 16)),
        out=nn.Linear(16, 12),
    ), ["float32[B,3,8,6]", "int64[B]{0:100}", "int64[B]{0:10}"]


@program
def unseen_codebook():
    """The nearest code of each place, with gradients past the choice."""

    def forward(self, x):
        z = self.encoder(x).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, 6)
        distance = (
            flat.pow(2).sum(1, keepdim=True)
            + self.codes.weight.pow(2).sum(1)
            - 2 * flat @ self.codes.weight.t()
        )
        index = distance.argmin(1)
        hot = F.one_hot(index, 15).type(flat.dtype)
        usage = hot.mean(0)
        quantized = self.codes(index).view(z.shape)
        commitment = F.mse_loss(quantized.detach(), z) + F.mse_loss(quantized, z.detach())
        quantized = z + (quantized - z).detach()
        image = self.decoder(quantized.permute(0, 3, 1, 2).contiguous())
        perplexity = torch.exp(-(usage * (usage + 1e-10).log()).sum())
        return image, commitment, perplexity, index.view(x.shape[0], -1)

    return network(
        forward,
        encoder=nn.Conv2d(3, 6, 4, 2, 1),
        codes=nn.Embedding(15, 6),
        decoder=nn.ConvTranspose2d(6, 3, 4, 2, 1),
    ), ["float32[B,3,10,8]"]


@program
def unseen_coupling_flow():
    """Invertible steps, with the logarithm of the volume."""

    def forward(self, x):
        volume = torch.zeros(x.size(0))
        for i, net in enumerate(self.nets):
            kept, changed = x[:, i % 2 :: 2], x[:, (i + 1) % 2 :: 2]
            scale, shift = net(kept).chunk(2, 1)
            scale = torch.tanh(scale)
            changed = changed * scale.exp() + shift
            x = torch.stack([kept, changed], 2).flatten(1)
            volume = volume + scale.sum(1)
        prior = torch.distributions.Normal(0.0, 1.0)
        return x, prior.log_prob(x).sum(1) + volume

    return network(
        forward,
        nets=nn.ModuleList(
            nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 8)) for _ in range(3)
        ),
    ), ["float32[B,8]"]


@program
def unseen_radiance_field():
    """Rays, sampled at places, and composed along them."""

    def forward(self, origin, direction):
        depth = torch.linspace(1.0, 3.0, 7).expand(origin.shape[0], 7)
        points = origin[:, None] + direction[:, None] * depth[..., None]
        powers = 2.0 ** torch.arange(3)
        coded = (points[..., None] * powers).flatten(-2)
        coded = torch.cat([points, coded.sin(), coded.cos()], -1)
        out = self.net(coded)
        colour, density = out[..., :3].sigmoid(), F.relu(out[..., 3])
        steps = torch.cat([depth.diff(dim=-1), torch.full_like(depth[..., :1], 1e3)], -1)
        alpha = 1 - torch.exp(-density * steps)
        clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-6], 1), 1)
        weights = alpha * clear[:, :-1]
        return (weights[..., None] * colour).sum(1), (weights * depth).sum(1)

    return network(
        forward, net=nn.Sequential(nn.Linear(21, 24), nn.ReLU(True), nn.Linear(24, 4))
    ), ["float32[B,3]", "float32[B,3]"]


# ---------------------------------------------------------------------------
# Recommenders, and losses over the batch


@program
def unseen_factorization():
    def forward(self, ids, values):
        first = (self.linear(ids).squeeze(-1) * values).sum(1, keepdim=True)
        v = self.table(ids) * values.unsqueeze(-1)
        second = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1, keepdim=True)
        x0 = x = v.flatten(1)
        for cross in self.cross:
            x = x0 * cross(x) + x
        pairs = torch.bmm(v, v.transpose(1, 2))
        rows, columns = torch.triu_indices(4, 4, 1)
        pairs = pairs[:, rows, columns]
        return torch.sigmoid(first + second + self.deep(torch.cat([x, pairs], 1))).squeeze(1)

    return network(
        forward,
        linear=nn.Embedding(30, 1),
        table=nn.Embedding(30, 5),
        cross=nn.ModuleList(nn.Linear(20, 20) for _ in range(2)),
        deep=nn.Sequential(nn.Linear(26, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)),
    ), ["int64[B,4]{0:30}", "float32[B,4]"]


@program
def unseen_two_towers():
    """The other items of the batch are what a user did not choose."""

    def forward(self, user, item):
        u = F.normalize(self.user(user).mean(1), dim=-1)
        i = F.normalize(self.item(item), dim=-1)
        logits = torch.einsum("ud,id->ui", u, i) * self.scale.exp()
        labels = torch.arange(logits.size(0), device=logits.device)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        return loss, logits.argmax(1)

    return network(
        forward,
        user=nn.Embedding(30, 12),
        item=nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 12)),
        scale=nn.Parameter(torch.tensor(1.5)),
    ), ["int64[B,5]{0:30}", "float32[B,9]"]


@program
def unseen_redundancy_loss():
    """Features of two views, correlated over the batch."""

    def forward(self, x, y):
        a, b = self.net(x), self.net(y)
        a = (a - a.mean(0)) / (a.std(0) + 1e-3)
        b = (b - b.mean(0)) / (b.std(0) + 1e-3)
        cross = torch.einsum("bi,bj->ij", a, b) / a.size(0)
        diagonal = (torch.diagonal(cross) - 1).pow(2).sum()
        rest = cross.pow(2).sum() - cross.diagonal().pow(2).sum()
        return diagonal + 0.005 * rest, cross

    return network(forward, net=nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8))), [
        "float32[B,10]",
        "float32[B,10]",
    ]


@program
def unseen_interest_attention():
    """What was seen before, weighed by how it fits a candidate."""

    def forward(self, history, candidate, lengths):
        h, c = self.table(history), self.table(candidate)
        q = c.unsqueeze(1).expand_as(h)
        scores = self.fit(torch.cat([q, h, q - h, q * h], -1)).squeeze(-1)
        mask = torch.arange(h.size(1)).unsqueeze(0) < lengths.unsqueeze(1)
        scores = torch.where(mask, scores, torch.tensor(-1e4))
        interest = torch.matmul(scores.softmax(-1).unsqueeze(1), h).squeeze(1)
        return self.head(torch.cat([interest, c], 1))[:, 0]

    return network(
        forward,
        table=nn.Embedding(40, 8),
        fit=nn.Sequential(nn.Linear(32, 10), nn.PReLU(), nn.Linear(10, 1)),
        head=nn.Sequential(nn.Linear(16, 8), nn.Sigmoid(), nn.Linear(8, 1)),
    ), ["int64[B,9]{0:40}", "int64[B]{0:40}", "int64[B]{1:10}"]


@program
def unseen_expert_gates():
    """Several tasks weigh the same experts."""

    def forward(self, x):
        experts = torch.stack([expert(x) for expert in self.experts], 1)
        outs = []
        for gate, tower in zip(self.gates, self.towers):
            weights = gate(x).softmax(1)
            outs.append(tower(torch.einsum("be,bed->bd", weights, experts)))
        return tuple(outs)

    return network(
        forward,
        experts=nn.ModuleList(nn.Sequential(nn.Linear(10, 8), nn.ReLU()) for _ in range(3)),
        gates=nn.ModuleList(nn.Linear(10, 3) for _ in range(2)),
        towers=nn.ModuleList(nn.Linear(8, 1 + i) for i in range(2)),
    ), ["float32[B,10]"]


# ---------------------------------------------------------------------------
# Forms


@program
def unseen_half_with_float_parts():
    """Half precision, with norms and the softmax in single precision."""

    def forward(self, x):
        y = self.one(x.half())
        y = F.layer_norm(y.float(), (24,)).half()
        q, k, v = self.qkv(y).chunk(3, -1)
        weights = (q.float() @ k.float().transpose(1, 2) / 5).softmax(-1).half()
        y = torch.bmm(weights, v)
        return self.two(F.gelu(y)).float()

    return network(
        forward,
        one=nn.Linear(16, 24).half(),
        qkv=nn.Linear(24, 72).half(),
        two=nn.Linear(24, 8).half(),
    ), ["float32[B,7,16]"]


@program
def unseen_written_residuals():
    """Sums and scales written over what they read."""

    def forward(self, x):
        y = self.one(x)
        y += x
        y *= self.scale
        z = self.two(y)
        z.add_(y, alpha=0.5).clamp_(min=-2)
        z[:, :, 0] = y[:, :, -1]
        z[:, 1::2].mul_(2.0)
        w = F.dropout(z.softmax(-1), 0.1, self.training)
        w.masked_fill_(w < 0.05, 0)
        w /= w.sum(-1, keepdim=True)
        return w, torch.relu_(z - 1)

    return network(
        forward, one=nn.Linear(12, 12), two=nn.Linear(12, 12), scale=nn.Parameter(torch.randn(12))
    ), ["float32[B,6,12]"]


@program
def unseen_nested_outputs():
    """A tuple of dicts and tuples."""

    def forward(self, x):
        hidden = []
        for layer in self.layers:
            x = torch.tanh(layer(x))
            hidden.append(x)
        last = {"hidden": hidden[-1], "mean": torch.stack(hidden).mean(0)}
        return last, tuple(hidden), (x.argmax(-1), (x > 0).sum(-1))

    return record(
        network(forward, layers=nn.ModuleList(nn.Linear(9, 9) for _ in range(3))),
        ["float32[B,9]"],
    )


@program
def unseen_metric_learning():
    def forward(self, anchor, positive, label):
        a, p = self.net(anchor), self.net(positive)
        distances = torch.cdist(a, p)
        same = label.unsqueeze(0) == label.unsqueeze(1)
        hardest = distances.masked_fill(same, float("inf")).min(1).values
        own = distances.diagonal()
        loss = F.relu(own - hardest.clamp(max=10) + 0.3).mean()
        cosine = F.cosine_similarity(a, p)
        margin = torch.cos(torch.acos(cosine.clamp(-0.99, 0.99)) + 0.2)
        return loss, margin

    return network(forward, net=nn.Sequential(nn.Linear(7, 12), nn.Tanh(), nn.Linear(12, 5))), [
        "float32[B,7]",
        "float32[B,7]",
        "int64[B]{0:3}",
    ]


@program
def unseen_actor_critic():
    """A policy with its entropy and a clipped ratio."""

    def forward(self, state, action, old, advantage):
        hidden = self.body(state)
        logits = self.policy(hidden)
        log_probs = logits - logits.logsumexp(-1, keepdim=True)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        chosen = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        ratio = (chosen - old).exp()
        clipped = torch.clamp(ratio, 0.8, 1.2) * advantage
        objective = torch.min(ratio * advantage, clipped)
        value = self.value(hidden).squeeze(-1)
        return -(objective + 0.01 * entropy).mean(), F.smooth_l1_loss(value, advantage)

    return network(
        forward,
        body=nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh()),
        policy=nn.Linear(16, 5),
        value=nn.Linear(16, 1),
    ), ["float32[B,8]", "int64[B]{0:5}", "float32[B]", "float32[B]"]


@program
def unseen_speech_loss():
    """Alignment by CTC."""

    def forward(self, x, target, lengths):
        y, _ = self.gru(x)
        log_probs = self.head(y).log_softmax(-1).transpose(0, 1)
        size = torch.full((x.size(0),), x.size(1), dtype=torch.long)
        return F.ctc_loss(log_probs, target, size, lengths, zero_infinity=True)

    return network(forward, gru=nn.GRU(6, 8, batch_first=True), head=nn.Linear(8, 10)), [
        "float32[B,12,6]",
        "int64[B,4]{1:10}",
        "int64[B]{1:5}",
    ]
