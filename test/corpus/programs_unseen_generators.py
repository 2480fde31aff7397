"""Traced diffusion and other generators that no rule was made with."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program, record


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
