"""Programs written for the corpus: signals, linear algebra, many functions of
one number, chance, operators that write, views, pools, a custom operator."""

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


@program
def hand_fourier_mixing():
    """Two-dimensional transforms instead of attention, and a filter."""

    def forward(self, x):
        mixed = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
        spectrum = torch.fft.rfft(x, dim=1, norm="ortho")
        filtered = spectrum * torch.view_as_complex(self.filter)
        back = torch.fft.irfft(filtered, n=x.size(1), dim=1, norm="ortho")
        centred = torch.fft.fftshift(torch.fft.fft2(x), dim=(-2, -1)).abs()
        return self.norm(mixed + back), centred

    return network(forward, norm=nn.LayerNorm(12), filter=torch.randn(6, 12, 2)), [
        "float32[B,10,12]"
    ]


@program
def hand_spectrogram():
    def forward(self, x):
        spectrum = torch.stft(x, 16, hop_length=8, window=self.window, return_complex=True)
        power = spectrum.abs().pow(2)
        mel = torch.matmul(self.bank, power).clamp(min=1e-8).log10()
        wave = torch.istft(spectrum, 16, hop_length=8, window=self.window, length=x.size(1))
        return mel, wave

    return network(forward, window=torch.hann_window(16), bank=torch.rand(6, 9)), ["float32[B,80]"]


@program
def hand_linear_algebra():
    def forward(self, x):
        gram = x.transpose(1, 2) @ x + torch.eye(4)
        lower = torch.linalg.cholesky(gram)
        solved = torch.linalg.solve(gram, x.transpose(1, 2))
        inverse = torch.linalg.inv(gram)
        return (
            lower,
            solved,
            torch.linalg.det(gram),
            torch.kron(inverse.contiguous(), torch.eye(2)),
            torch.linalg.vector_norm(x, dim=(1, 2)),
            torch.diagonal(gram, dim1=1, dim2=2).prod(-1),
            torch.outer(x[:, 0, 0], x[:, 1, 1]),
            torch.cross(x[:, :3, 0], x[:, :3, 1], dim=-1),
            torch.diag_embed(x[:, 0]),
            torch.tensordot(x, self.weight, 1),
        )

    return network(forward, weight=torch.randn(4, 2)), ["float32[B,6,4]"]


@program
def hand_pointwise():
    """Functions of one number, many of them."""

    def forward(self, x):
        p = x.abs() + 0.5
        y = (
            x.tan().atan()
            + x.sinh().asinh()
            + p.sqrt()
            + p.rsqrt()
            + p.log2()
            + p.log10()
            + x.erf()
            + x.expm1()
            + p.lgamma()
            + torch.digamma(p)
            + x.tanh().atanh()
            + x.sign()
            + x.trunc()
            + x.frac()
            + x.round()
            + x.floor()
            + x.ceil()
            + p.reciprocal()
            + x.square()
            + x.exp2()
            + torch.sinc(x)
            + p.cosh().acosh()
        )
        z = (
            F.softplus(x)
            + F.mish(x)
            + F.hardswish(x)
            + F.hardtanh(x)
            + F.selu(x)
            + F.celu(x)
            + F.softsign(x)
            + F.logsigmoid(x)
            + F.hardsigmoid(x)
            + F.tanhshrink(x)
            + F.softshrink(x)
            + F.threshold(x, 0.1, 0.0)
            + F.glu(torch.cat([x, x], 1), 1)
            + F.softmin(x, 1)
            + F.rrelu(x)
            + F.relu6(x)
            + F.hardshrink(x)
        )
        return (
            y,
            z,
            torch.atan2(x, p),
            torch.hypot(x, p),
            torch.lerp(x, p, 0.3),
            torch.addcmul(x, p, p, value=0.1),
            torch.fmod(x, 0.7),
            torch.maximum(x, p),
            x.isnan() | x.isinf(),
            (torch.xlogy(x, p)),
            torch.nan_to_num(x / 0),
            (torch.copysign(x, p)),
        )

    return network(forward), ["float32[B,6]"]


@program
def hand_random():
    """Dropout does nothing in eval mode; noise is drawn all the same, and
    multiplied by zero, so that results can be compared."""

    def forward(self, x):
        y = F.dropout(self.mlp(x), 0.5, training=self.training)
        noise = (
            torch.randn_like(y)
            + torch.rand(y.shape)
            + torch.bernoulli(torch.full_like(y, 0.5))
            + torch.randint(0, 4, (y.size(0), 1))
        )
        picked = torch.multinomial(y.softmax(-1), 2)
        shuffled = torch.randperm(y.size(0))
        return y + 0 * noise, 0 * picked, 0 * shuffled

    return network(forward, mlp=mlp()), ["float32[B,16]"]


@program
def hand_in_place():
    """Operators that write into fresh tensors."""

    def forward(self, x):
        y = self.linear(x)
        y.add_(1).mul_(0.5).relu_()
        z = torch.zeros_like(y)
        z.copy_(y).clamp_(max=1.0).sub_(x[:, :8])
        buffer = torch.empty(x.size(0), 3, 8)
        for index in range(3):
            buffer[:, index] = z * index
        return buffer, F.relu(z, inplace=True)

    return network(forward, linear=nn.Linear(16, 8)), ["float32[B,16]"]


@program
def hand_views():
    """Shapes that change without a copy, and copies where they must."""

    def forward(self, x):
        y = x.movedim(1, -1).swapaxes(0, 1)
        parts = x.tensor_split(3, dim=1)
        stacked = torch.hstack([part.flatten(1) for part in parts])
        tiled = torch.tile(x[:, :1], (1, 2, 1, 1))
        return (
            y.contiguous().view(4, -1, 6),
            stacked,
            tiled,
            x.unflatten(1, (2, 3)),
            x[0, 0].t(),
            torch.atleast_3d(x[:, 0, 0]),
            x.repeat_interleave(2, dim=0),
            torch.broadcast_to(x[:, :, :1, :1], x.shape),
            x.squeeze().unsqueeze(-1),
            x.ravel(),
            x.as_strided((2, 3), (3, 1)),
            torch.rot90(x, 1, (2, 3)),
            torch.vstack([x, x]),
            torch.chunk(x, 2, dim=1)[1],
            torch.block_diag(x[0, 0], x[0, 1]),
        )

    return network(forward), ["float32[B,6,4,5]"]


@program
def hand_grid_pooling():
    """Pools with indices, odd windows and rounding up, and unpooling."""

    def forward(self, x):
        pooled, index = F.max_pool2d(x, 2, return_indices=True)
        back = F.max_unpool2d(pooled, index, 2, output_size=(11, 13))
        up = F.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)
        mean = F.avg_pool2d(x, (3, 2), stride=(2, 3), count_include_pad=False)
        norm = F.lp_pool2d(x.abs(), 2.0, 3)
        local = F.local_response_norm(x, 3)
        return back, up, mean, norm, local, F.adaptive_avg_pool2d(x, (3, None))

    return network(forward), ["float32[B,4,11,13]"]


LIBRARY = torch.library.Library("koila_corpus", "FRAGMENT")
LIBRARY.define("double_it(Tensor x) -> Tensor")
LIBRARY.impl("double_it", lambda x: x * 2, "CompositeImplicitAutograd")


@program
def hand_custom_operator():
    """An operator that PyTorch does not have."""

    def forward(self, x):
        return self.mlp(torch.ops.koila_corpus.double_it(x))

    return network(forward, mlp=mlp()), ["float32[B,16]"]
