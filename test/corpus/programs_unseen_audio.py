"""Traced networks of sound that no rule was made with."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program, record


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
