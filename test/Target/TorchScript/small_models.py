"""Models of few operators: small_models.py FOLDER."""

import pathlib
import sys
import warnings

import torch
from torch import nn


class Sized(nn.Module):
    """Tracing makes a tensor of the size, which only the view reads."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return self.linear(x).view(x.shape[0], 3, 2)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, i):
        return self.head(self.embedding(i).tanh())


class Padded(nn.Module):
    """Sequences without their padding, on the fast path of nested tensors."""

    def __init__(self, first, trained):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=first)
        self.encoder = nn.TransformerEncoder(layer, 2)
        # That path is left out for norm_first by torch.nn alone.
        self.encoder.use_nested_tensor = True
        self.scale = nn.Parameter(torch.ones(1)) if trained else None

    def forward(self, x, mask):
        # A gradient flows to what is nested.
        if self.scale is not None:
            x = x * self.scale
        return self.encoder(x, src_key_padding_mask=mask).sum(1)


class Gradients(nn.Module):
    """A step through a convolution and a batch_norm, by operators."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3, 3, 3, dtype=torch.float64))
        self.scale = nn.Parameter(torch.rand(6, dtype=torch.float64))

    def forward(self, x, y):
        made = torch.conv2d(x, self.weight, None, [1, 1], [1, 1])
        mean, variance = torch.batch_norm_update_stats(made, None, None, 0.1)
        deviation = (variance + 1e-5).rsqrt()
        of_made, of_scale, of_shift = torch.ops.aten.native_batch_norm_backward(
            y, made, self.scale, None, None, mean, deviation, True, 1e-5, [True, True, True]
        )
        # What the mask leaves out nothing reads.
        _, of_weight, _ = torch.ops.aten.convolution_backward(
            of_made,
            x,
            self.weight,
            None,
            [1, 1],
            [1, 1],
            [1, 1],
            False,
            [0, 0],
            1,
            [False, True, False],
        )
        return of_weight, of_scale, of_shift


class IntoTheBatch(nn.Module):
    """Windows join the samples, and the number of samples follows in place; in units
    of four, which a trace keeps as another constant of the same number."""

    def forward(self, x):
        batch, units = x.shape[0], x.shape[2] // 4
        x = x.view(batch, 8, 8, -1)
        for _ in range(2):
            rows = x.shape[1] // 2
            windows = x.view(batch, rows, 2, rows, 2, -1).permute(0, 2, 4, 1, 3, 5)
            x = windows.flatten(0, 2)
            batch *= 4
        return x.reshape(-1, 64, units * 4).sum(1).exp()


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    x = torch.randn(3, 6)
    torch.jit.trace(Sized(), x).save(folder / "sized.pt")
    torch.jit.trace(IntoTheBatch(), torch.randn(3, 64, 12)).save(folder / "windows.pt")
    torch.jit.trace(nn.Identity(), x).save(folder / "identity.pt")
    torch.jit.script(Tied()).save(folder / "tied.pt")
    torch.jit.script(Gradients()).save(folder / "gradients.pt")
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        for name in ("last", "first", "trained"):
            model = Padded(name == "first", name == "trained").eval()
            sequences = torch.randn(2, 5, 8), mask
            torch.jit.trace(model, sequences, check_trace=False).save(folder / f"{name}.pt")


main()
