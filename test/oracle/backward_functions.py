"""More cases of backward_oracle.py: products with vectors, functions of two
tensors, transforms, and what moves elements."""

import torch
import torch.nn.functional as F


def convolve(x, w):
    """Along the last dim, by transforms of twice its size."""
    size = 2 * x.shape[-1]
    spectrum = torch.fft.rfft(x, n=size) * torch.fft.rfft(w[0], n=size)
    return torch.fft.irfft(spectrum, n=size)[..., : x.shape[-1]]


def normalize_spectrum(w, u, v):
    return w / torch.dot(u[:, 0].detach(), torch.mv(w.flatten(1), v[0].flatten().detach()))


def rotate(x):
    angles = torch.polar(torch.ones(6), torch.arange(6.0))
    return torch.view_as_real(torch.view_as_complex(x) * angles).flatten(2)


def complex_of(x):
    return torch.view_as_complex(x.contiguous())


def spectra(x, **options):
    return torch.stft(
        x, 16, hop_length=4, window=torch.ones(16), center=False, return_complex=True, **options
    )


def write_modes(x):
    y = torch.zeros(x.shape[0], 4, 8, dtype=torch.cfloat)
    y[:, :, :6] = complex_of(x) * 2
    return torch.view_as_real(y)


CASES = {
    "mv": (lambda x, v: x.flatten(1).mv(v[0].flatten()), (4, 6), (4, 6)),
    "mv_of_columns": (lambda x, v: x.flatten(1).t().mv(v[:, 0]), (4, 6), (4,)),
    "dot": (lambda x, y: torch.dot(x.flatten(), y.flatten()) * x, (4, 6), (4, 6)),
    "vdot_itself": (lambda x: torch.vdot(x.flatten(), x.flatten()) * x, (4, 6)),
    "spectral_norm": (normalize_spectrum, (4, 6), (1,), (4, 6)),
    "outer": (lambda x, y: torch.outer(x.flatten(), y[0]), (4, 6), (6,)),
    "addmv": (lambda x, y, z: torch.addmv(z[:, 0], x.flatten(1), y[0]), (4, 6), (24,), (1,)),
    "addr": (lambda x, y, z: torch.addr(z, x[:, 0], y[0], alpha=0.5), (4,), (6,), (6,)),
    "matmul_vector": (lambda x, y: x @ y[0], (4, 6), (6,)),
    "matmul_of_trained": (lambda x, y: y[0] @ x, (4, 6), (5, 4)),
    "matmul_repeated": (lambda x, y: x @ y[0], (2, 4, 6), (2, 6, 5)),
    "matmul_repeated_heads": (lambda x, y: x[:, None] @ y, (4, 6), (2, 6, 5)),
    "baddbmm_scaled": (
        lambda x, y, z: torch.baddbmm(z, x, y, alpha=0.5, beta=2),
        (4, 6),
        (6, 5),
        (4, 5),
    ),
    "addmm_scaled": (
        lambda x, y, z: torch.addmm(z, x, y[0], alpha=0.5, beta=0.3),
        (6,),
        (6, 5),
        (5,),
    ),
    "cross": (lambda x, y: torch.linalg.cross(x, y), (4, 3), (4, 3)),
    "unfold_image": (lambda x: F.unfold(x, 3, padding=1).transpose(1, 2) * 2, (4, 6, 6)),
    "unfold_image_softmax": (
        lambda x: F.unfold(x, 3, padding=1).unflatten(1, (4, 9)).softmax(2),
        (4, 6, 6),
    ),
    "fold": (lambda x: F.fold(x, (6, 6), 3, padding=1), (36, 36)),
    "fold_permuted": (
        lambda x: F.fold(x, (6, 6), 3, padding=1).permute(0, 2, 3, 1).contiguous() * 2,
        (36, 36),
    ),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 2), (4, 6)),
    "adaptive_max_pool2d_channels_last": (
        lambda x: F.adaptive_max_pool2d(x.to(memory_format=torch.channels_last), 2),
        (4, 6, 6),
    ),
    "max_pool1d_of_columns": (lambda x: F.max_pool1d(x.transpose(1, 2), 2), (4, 6)),
    "max_pool1d_of_all": (lambda x: F.max_pool1d(x, x.shape[2]).squeeze(2), (4, 6)),
    "rfft": (lambda x: torch.fft.rfft(x).abs(), (4, 6)),
    "rfft_cut": (lambda x: torch.fft.rfft(x, n=4).abs(), (4, 6)),
    "rfft_convolution": (convolve, (4, 6), (4, 6)),
    "rfft2_twice": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=(4, 6)), (4, 6)),
    "fft_real": (lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real, (4, 6)),
    "fft2_twice": (lambda x: torch.fft.ifft2(torch.fft.fft2(x)).real, (4, 6)),
    "complex_square": (
        lambda x: (torch.view_as_complex(x) * torch.view_as_complex(x)).real,
        (4, 6, 2),
    ),
    "rotary_complex": (rotate, (4, 6, 2)),
    "einsum_view": (lambda x: torch.einsum("bij->bji", x), (4, 6)),
    "einsum_summed": (lambda x: torch.einsum("bij->bj", x), (4, 6)),
    "einsum_over_samples": (lambda x, y: torch.einsum("bi,bj->ij", x, y), (6,), (5,)),
    "einsum_of_three": (
        lambda x: torch.einsum("bti,btj,btk->btijk", *x.split(2, 2)),
        (4, 6),
    ),
    "einsum_chain": (
        lambda x, y, z: torch.einsum("bij,bjk,bkl->bil", x, y, z),
        (4, 6),
        (6, 5),
        (5, 3),
    ),
    "einsum_forms": (
        lambda x, y, z: torch.einsum("bi,bij,bj->b", x, y, z),
        (4,),
        (4, 6),
        (6,),
    ),
    "einsum_bilinear": (
        lambda x, w, y: torch.einsum("bn,anm,bm->ba", x, w[:3], y),
        (4,),
        (4, 6),
        (6,),
    ),
    "movedim": (lambda x: x.movedim(1, 2) * 2, (4, 6)),
    "diag_embed": (torch.diag_embed, (4, 6)),
    "hstack": (lambda x, y: torch.hstack([x, y]), (4, 6), (4, 6)),
    "cummax": (lambda x: x.cummax(1)[0], (4, 6)),
    "norm_inf": (lambda x: x.norm(p=float("inf"), dim=1), (4, 6)),
    "norm_3": (lambda x: x.norm(p=3, dim=1), (4, 6)),
    "norm_1_5": (lambda x: x.norm(p=1.5, dim=-1, keepdim=True), (4, 6)),
    "nansum": (lambda x: x.nansum(1), (4, 6)),
    "nansum_of_double": (lambda x: x.double().nansum(1, dtype=torch.float32), (4, 6)),
    "median_all": (lambda x: x.median() * x, (4, 6)),
    "index_put": (lambda x, y: x.index_put((torch.tensor([0]),), y[:1]), (4, 6), (4, 6)),
    "index_put_added": (
        lambda x, y: x.index_put((torch.tensor([0]),), y[:1], accumulate=True),
        (4, 6),
        (4, 6),
    ),
    "index_add": (
        lambda x, y: x.index_add(1, torch.tensor([0, 2, 2]), y),
        (4, 6),
        (3, 6),
    ),
    # Indices of int32, or that are one number in all places, are copied first.
    "scatter_narrow": (lambda x, i: x.scatter(1, i.int(), 1.5) * 2, (6,), ("int 6", 3)),
    "scatter_add_narrow": (
        lambda x, i, y: x.scatter_add(1, i.int(), y) * 2,
        (6,),
        ("int 6", 3),
        (3,),
    ),
    "index_copy_expanded": (
        lambda x, i, y: x.index_copy(1, i[0].expand(3), y) * 2,
        (6,),
        ("int 6", 1),
        (3,),
    ),
    # Parts that do not overlap, and of nothing.
    "unfold_apart": (lambda x: x.unfold(1, 1, 2) * 2, (6,)),
    "repeat_never": (lambda x: x.repeat(1, 0, 2), (4, 6)),
    "upsample_to_pixels": (
        lambda x: F.interpolate(x, size=(1, 1), mode="bilinear", align_corners=True),
        (3, 5, 5),
    ),
    "det_of_numbers": (lambda x: torch.det(x.exp()), (1, 1)),
    "istft_of_pairs": (
        lambda x: torch.istft(torch.view_as_complex(x), 4, 1, normalized=True),
        (3, 5, 2),
    ),
    "fft_cut_twice": (lambda x: torch.fft.rfft2(x, s=(2, 3)).real, (4, 6)),
    "index_copy": (
        lambda x, y: x.index_copy(1, torch.tensor([0, 3, 2]), y),
        (4, 6),
        (3, 6),
    ),
    "index_put_number": (lambda x: (x * 2).index_put((x > 0,), torch.zeros(())), (4, 6)),
    "atan2": (torch.atan2, (4, 6), (4, 6)),
    "hypot": (torch.hypot, (4, 6), (4, 6)),
    "fmod": (torch.fmod, (4, 6), (4, 6)),
    "remainder_number": (lambda x: torch.remainder(x, 2.0), (4, 6)),
    "logaddexp": (torch.logaddexp, (4, 6), (4, 6)),
    "logaddexp2_broadcast": (torch.logaddexp2, (4, 6), (1, 6)),
    "addcdiv": (
        lambda x, y, z: torch.addcdiv(x, y, z.abs() + 1, value=0.5),
        (4, 6),
        (4, 6),
        (4, 6),
    ),
    "pow_of_number": (lambda x: 2.0**x, (4, 6)),
    "lerp_tensor": (torch.lerp, (4, 6), (4, 6), (4, 6)),
    "clamp_tensor": (lambda x, y: torch.clamp(x, min=y.detach()), (4, 6), (4, 6)),
    "cumprod": (lambda x: x.cumprod(1), (4, 6)),
    "cumprod_of_zero": (lambda x: (x * (torch.arange(6) != 2)).cumprod(2), (4, 6)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (4, 6)),
    "diff": (lambda x: x.diff(dim=1), (4, 6)),
    "var_mean": (lambda x: sum(torch.var_mean(x, dim=1)), (4, 6)),
    "std_mean": (lambda x: torch.mul(*torch.std_mean(x, dim=(1, 2), keepdim=True)), (4, 6)),
    "std_of_number": (lambda x: x.mean().std() * x, (4, 6)),
    "std_mean_of_number": (lambda x: torch.mul(*torch.std_mean(x.mean())) * x, (4, 6)),
    "var_without_freedom": (lambda x: x.var(dim=None, correction=10**6) * x, (4, 6)),
    "var_mean_without_freedom": (
        lambda x: torch.mul(*torch.var_mean(x.double(), dim=None, correction=10**6)) * x,
        (4, 6),
    ),
    "mean_of_var_mean": (lambda x: torch.var_mean(x)[1] * x, (4, 6)),
    "aminmax": (lambda x: torch.sub(*torch.aminmax(x, dim=1)), (4, 6)),
    "xlogy": (lambda x, y: torch.xlogy(x, y.abs() + 1), (4, 6), (1, 6)),
    "xlogy_of_number": (lambda x: torch.xlogy(2.0, x.abs() + 1), (4, 6)),
    "fmax": (torch.fmax, (4, 6), (4, 1)),
    "copysign": (torch.copysign, (4, 6), (4, 6)),
    "sinc": (torch.sinc, (4, 6)),
    "erfinv": (lambda x: torch.erfinv(x.tanh() * 0.9), (4, 6)),
    "atanh": (lambda x: torch.atanh(x.tanh() * 0.9), (4, 6)),
    "angle_of_real": (torch.angle, (4, 6)),
    "angle": (lambda x: complex_of(x).angle(), (4, 6, 2)),
    "abs_of_complex": (lambda x: complex_of(x).abs(), (4, 6, 2)),
    "polar": (lambda x, y: torch.polar(x.abs(), y).real, (4, 6), (4, 6)),
    "complex": (lambda x, y: torch.complex(x, y).imag, (4, 6), (4, 6)),
    "complex_quotient": (
        lambda x, y: torch.view_as_real(complex_of(x) / complex_of(y)),
        (4, 6, 2),
        (4, 6, 2),
    ),
    "complex_exp": (lambda x: complex_of(x).exp().real, (4, 6, 2)),
    "complex_sum": (lambda x: torch.view_as_real(complex_of(x).sum(1)), (4, 6, 2)),
    "complex_mean": (lambda x: torch.view_as_real(complex_of(x).mean(1) + 1), (4, 6, 2)),
    "complex_matrices": (
        lambda x, y: torch.view_as_real(complex_of(x) @ complex_of(y)),
        (9, 8, 2),
        (8, 10, 2),
    ),
    "complex_by_weight": (
        lambda x, y: torch.view_as_real(complex_of(x) @ complex_of(y[0])),
        (9, 8, 2),
        (8, 10, 2),
    ),
    "complex_by_turned_weight": (
        lambda x, y: torch.view_as_real(complex_of(x) @ complex_of(y[0]).T),
        (8, 2),
        (10, 8, 2),
    ),
    "complex_modes": (
        lambda x, w: torch.view_as_real(
            torch.einsum("bixy,ioxy->boxy", complex_of(x), complex_of(w[0]))
        ),
        (9, 3, 3, 2),
        (9, 10, 3, 3, 2),
    ),
    "complex_pad": (
        lambda x: torch.view_as_real(F.pad(complex_of(x), (0, 3))),
        (4, 6, 2),
    ),
    "complex_written": (write_modes, (4, 6, 2)),
    "stft": (lambda x: spectra(x).abs(), (64,)),
    "stft_of_all": (lambda x: spectra(x, onesided=False).abs(), (64,)),
    "stft_without_window": (
        lambda x: torch.stft(x, 16, center=False, return_complex=True).abs(),
        (64,),
    ),
    "istft": (
        lambda x: torch.istft(complex_of(x), 16, hop_length=4, window=torch.ones(16)),
        (9, 17, 2),
    ),
    "istft_of_length": (
        lambda x: torch.istft(complex_of(x), 16, hop_length=4, window=torch.ones(16), length=60),
        (9, 17, 2),
    ),
    "hann_window": (lambda x: x * torch.hann_window(6), (4, 6)),
    "hamming_window": (lambda x: x * torch.hamming_window(6, periodic=False), (4, 6)),
    "linspace_to_size": (lambda x: torch.linspace(0, x.shape[2], 6) * x, (4, 6)),
    "logspace_to_size": (lambda x: torch.logspace(0, x.shape[1] - 1, 6) * x, (4, 6)),
    "linspace_of_sizes": (lambda x: x * torch.linspace(0, x.shape[1] - 1, x.shape[2]), (4, 6)),
}
