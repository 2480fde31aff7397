"""Cases of backward_oracle.py: single operators."""

import torch
import torch.nn.functional as F


def halve(*tensors):
    return [tensor.bfloat16() for tensor in tensors]


def ctc(x, targets, lengths, **options):
    """Of targets of one letter up to three."""
    return F.ctc_loss(
        x.log_softmax(2).transpose(0, 1),
        targets + 1,
        torch.full_like(lengths, x.shape[1]),
        lengths + 1,
        **options,
    )


# Name: the function, and the extents of its operands after the batch. Of an
# operand "int N" the elements are classes below N.
CASES = {
    "relu": (torch.relu, (4, 6)),
    "relu_channels_last": (
        lambda x: torch.relu(x.to(memory_format=torch.channels_last)),
        (4, 6, 6),
    ),
    "gelu": (F.gelu, (4, 6)),
    "gelu_permuted": (lambda x: F.gelu(x).transpose(1, 2) * 2, (4, 6)),
    "gelu_of_permuted": (lambda x: F.gelu(x.transpose(1, 2)), (4, 6)),
    "gelu_expanded": (lambda x: F.gelu(x).sum(2, keepdim=True), (4, 6)),
    "gelu_strided": (lambda x: F.gelu(x)[..., ::2].cumsum(2), (4, 6)),
    "gelu_tanh_permuted": (lambda x: F.gelu(x, approximate="tanh").transpose(1, 2) * 2, (4, 6)),
    "silu": (F.silu, (4, 6)),
    "sigmoid": (torch.sigmoid, (4, 6)),
    "tanh_transposed": (lambda x: torch.tanh(x.transpose(1, 2)), (4, 6)),
    "hardtanh": (F.hardtanh, (4, 6)),
    "hardtanh_in_place": (lambda x: F.hardtanh(x * 2, inplace=True), (4, 6)),
    "relu_in_place": (lambda x: torch.relu_(x * 2), (4, 6)),
    "hardswish": (F.hardswish, (4, 6)),
    "hardsigmoid": (F.hardsigmoid, (4, 6)),
    "elu": (F.elu, (4, 6)),
    "leaky_relu": (F.leaky_relu, (4, 6)),
    "rrelu": (lambda x: F.rrelu(x, training=True), (4, 6)),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, 0.3, training=True), (4, 6)),
    "threshold": (lambda x: F.threshold(x, 0.1, 0.2), (4, 6)),
    "selu": (F.selu, (4, 6)),
    "celu": (F.celu, (4, 6)),
    "relu6": (F.relu6, (4, 6)),
    "softplus": (F.softplus, (4, 6)),
    "mish": (F.mish, (4, 6)),
    "logsigmoid": (F.logsigmoid, (4, 6)),
    "exp": (torch.exp, (4, 6)),
    "log": (lambda x: (x.abs() + 1).log(), (4, 6)),
    "log1p": (lambda x: x.abs().log1p(), (4, 6)),
    "erf": (torch.erf, (4, 6)),
    "special_entr": (lambda x: torch.special.entr(x.abs() + 1), (4, 6)),
    "special_entr_transposed": (lambda x: torch.special.entr(x.abs().transpose(1, 2) + 1), (4, 6)),
    "abs": (torch.abs, (4, 6)),
    "sin": (torch.sin, (4, 6)),
    "cos": (torch.cos, (4, 6)),
    "sqrt": (lambda x: (x.abs() + 1).sqrt(), (4, 6)),
    "rsqrt": (lambda x: (x.abs() + 1).rsqrt(), (4, 6)),
    "reciprocal": (lambda x: (x.abs() + 1).reciprocal(), (4, 6)),
    "neg": (torch.neg, (4, 6)),
    "pow_0": (lambda x: x.pow(0), (4, 6)),
    "pow_1": (lambda x: x.pow(1), (4, 6)),
    "pow_3": (lambda x: x.pow(3), (4, 6)),
    "pow_half": (lambda x: x.abs().pow(0.5), (4, 6)),
    "pow_tensors": (lambda x, y: x.abs() ** y, (4, 6), (4, 6)),
    "clamp": (lambda x: x.clamp(-1, 1), (4, 6)),
    "clamp_min": (lambda x: x.clamp(min=0.5), (4, 6)),
    "clamp_max": (lambda x: x.clamp_max(0.5), (4, 6)),
    "add": (lambda x, y: x + y, (4, 6), (4, 6)),
    "add_alpha": (lambda x, y: torch.add(x, y, alpha=2), (4, 6), (4, 6)),
    "add_broadcast": (lambda x, y: x + y, (4, 6), (1, 6)),
    "sub": (lambda x, y: x - y, (4, 6), (4, 6)),
    "sub_broadcast": (lambda x, y: x - y, (4, 1), (4, 6)),
    "rsub": (lambda x: 2 - x, (4, 6)),
    "mul_broadcast": (lambda x, y: x * y, (4, 6), (4, 1)),
    "mul_itself": (lambda x: x * x, (4, 6)),
    "mul_number": (lambda x: x * 0.5, (4, 6)),
    "div": (lambda x, y: x / (y.abs() + 1), (4, 6), (4, 6)),
    "div_broadcast": (lambda x, y: x / (y.abs() + 1), (4, 6), (1, 6)),
    "div_number": (lambda x: x / 3, (4, 6)),
    "div_floor": (
        lambda x, y: torch.div(x, y.abs() + 1, rounding_mode="floor") + x,
        (4, 6),
        (4, 6),
    ),
    "maximum": (torch.maximum, (4, 6), (4, 6)),
    "minimum_broadcast": (torch.minimum, (4, 6), (4, 1)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), (4, 6), (4, 6)),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=0.5), (4, 6), (4, 6), (4, 6)),
    "where": (lambda x, y: torch.where(x > 0, x, y), (4, 6), (4, 6)),
    "where_broadcast": (lambda x, y: torch.where(x > 0, x, y), (4, 6), (4, 1)),
    "where_number": (lambda x: torch.where(x > 0, x, 0.1), (4, 6)),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 0.5), (4, 6)),
    "cumsum": (lambda x: x.cumsum(1), (4, 6)),
    "view": (lambda x: x.reshape(-1, 24), (4, 6)),
    "reshape_copy": (lambda x: x.transpose(1, 2).reshape(-1, 24), (4, 6)),
    "permute": (lambda x: torch.relu(x.permute(0, 2, 1)).permute(0, 2, 1), (4, 6)),
    "contiguous": (lambda x: x.transpose(1, 2).contiguous(), (4, 6)),
    "expand": (lambda x: x.expand(-1, 4, 6), (1, 6)),
    "squeeze": (lambda x: x.unsqueeze(1).squeeze(1), (4, 6)),
    "select": (lambda x: x[:, 1], (4, 6)),
    "slice": (lambda x: x[:, 1:3], (4, 6)),
    "slice_step": (lambda x: x[:, ::2], (4, 6)),
    "split": (lambda x: x.split(2, 1)[1], (4, 6)),
    "split_all": (lambda x: torch.cat(x.split(2, 1)[::-1], 1), (4, 6)),
    "chunk": (lambda x: x.chunk(2, 2)[0], (4, 6)),
    "unbind": (lambda x: x.unbind(1)[2], (4, 6)),
    "cat": (lambda x, y: torch.cat([x, y], 1), (4, 6), (2, 6)),
    "cat_itself": (lambda x: torch.cat([x, x], 1), (4, 6)),
    "stack": (lambda x, y: torch.stack([x, y], 1), (4, 6), (4, 6)),
    "to_double": (lambda x: x.double(), (4, 6)),
    "clone": (torch.clone, (4, 6)),
    "flip": (lambda x: x.flip(1), (4, 6)),
    "roll": (lambda x: x.roll(1, 1), (4, 6)),
    "roll_two": (lambda x: x.roll((1, 2), (1, 2)), (4, 6)),
    "repeat": (lambda x: x.repeat(1, 2, 3), (4, 6)),
    "repeat_more": (lambda x: x.repeat(3, 1, 2, 1), (4, 6)),
    "tril": (torch.tril, (4, 4)),
    "pad": (lambda x: F.pad(x, (1, 2)), (4, 6)),
    "pad_reflect": (lambda x: F.pad(x, (1, 2), mode="reflect"), (4, 6)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (8, 3, 3)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (2, 6, 6)),
    "index_select": (lambda x: x.index_select(1, torch.tensor([0, 2, 2])), (4, 6)),
    "gather": (lambda x, i: x.gather(1, i), (6,), ("int 6", 3)),
    "index": (lambda x: x[:, torch.tensor([1, 0, 1])], (4, 6)),
    "scatter_add": (lambda x, i, y: x.scatter_add(1, i, y), (6,), ("int 6", 3), (3,)),
    "sum": (torch.sum, (4, 6)),
    "sum_dim": (lambda x: x.sum(1), (4, 6)),
    "sum_keepdim": (lambda x: x.sum((1, 2), keepdim=True) * x, (4, 6)),
    "mean": (torch.mean, (4, 6)),
    "mean_dim": (lambda x: x.mean(-1), (4, 6)),
    "mean_two": (lambda x: x.mean((2, 3)), (4, 6, 6)),
    "amax": (lambda x: x.amax(1), (4, 6)),
    "max_dim": (lambda x: x.max(1)[0], (4, 6)),
    "logsumexp": (lambda x: x.logsumexp(1), (4, 6)),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), (4, 6)),
    "norm_1": (lambda x: torch.linalg.vector_norm(x, 1, dim=-1), (4, 6)),
    "topk": (lambda x: x.topk(2, 1)[0], (4, 6)),
    "sort": (lambda x: x.sort(1)[0], (4, 6)),
    "prod": (torch.prod, (4, 6)),
    "prod_dim": (lambda x: x.prod(-1), (4, 6)),
    "prod_summed": (lambda x: x.prod(1).sum(), (4, 6)),
    "prod_middle": (lambda x: x.prod(1, keepdim=True), (4, 6)),
    "prod_permuted": (lambda x: (x.transpose(1, 2) * 2).prod(1), (4, 6)),
    "prod_of_zero": (lambda x: (x * (torch.arange(6) != 2)).prod(2), (4, 6)),
    "prod_of_one": (lambda x: x[:, :, :1].contiguous().prod(2), (4, 6)),
    "cdist": (torch.cdist, (4, 6), (5, 6)),
    "cdist_1": (lambda x, y: torch.cdist(x, y, 1.0), (4, 6), (5, 6)),
    "cdist_of_columns": (
        lambda x, y: torch.cdist(x.transpose(1, 2), y).transpose(1, 2),
        (6, 4),
        (5, 6),
    ),
    "cdist_broadcast": (lambda x, y: torch.cdist(x, y[:1]), (4, 6), (5, 6)),
    "cdist_summed": (lambda x, y: torch.cdist(x, y).sum(), (4, 6), (5, 6)),
    "cdist_of_many": (torch.cdist, (30, 6), (5, 6)),
    "softmax": (lambda x: x.softmax(-1), (4, 6)),
    "softmax_middle": (lambda x: x.softmax(1), (4, 6)),
    "log_softmax": (lambda x: x.log_softmax(-1), (4, 6)),
    "softmax_transposed": (lambda x: x.transpose(1, 2).softmax(-1), (4, 6)),
    "layer_norm": (lambda x: F.layer_norm(x, (6,)), (4, 6)),
    "layer_norm_transposed": (lambda x: F.layer_norm(x.transpose(1, 2), (4,)), (4, 6)),
    "group_norm": (lambda x: F.group_norm(x, 2), (4, 6, 6)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (6,), w[0]), (4, 6), (6,)),
    "rms_norm_of_nothing": (
        lambda x, w: F.rms_norm(x[:, :0] * 2, (6,), w[0]),
        (4, 6),
        (6,),
    ),
    "rms_norm_plain": (lambda x: F.rms_norm(x, (4, 6), eps=1e-5), (4, 6)),
    "rms_norm_summed": (lambda x, w: F.rms_norm(x, (6,), w[0]).sum(2), (4, 6), (6,)),
    "rms_norm_bfloat16": (
        lambda x, w: F.rms_norm(x.bfloat16(), (6,), w[0].bfloat16()).float(),
        (4, 6),
        (6,),
    ),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1) * 2, (4, 6)),
    "repeat_interleave_of_columns": (
        lambda x: x.repeat_interleave(3, 2).transpose(1, 2).contiguous() * 2,
        (4, 6),
    ),
    "repeat_interleave_summed": (lambda x: x.repeat_interleave(2, 1).sum(2), (4, 6)),
    "repeat_interleave_once": (lambda x: x.repeat_interleave(1, -1) * 2, (4, 6)),
    "repeat_interleave_flat": (lambda x: x.repeat_interleave(3) * 2, (4, 6)),
    "max_other": (torch.max, (4, 6), (4, 6)),
    "min_other_broadcast": (lambda x, y: torch.min(x, y), (4, 6), (1, 6)),
    "bmm": (torch.matmul, (4, 6), (6, 5)),
    "bmm_transposed": (lambda x, y: x @ y.transpose(1, 2), (30, 6), (25, 6)),
    "matmul_heads": (lambda x, y: x @ y, (3, 40, 20), (3, 20, 30)),
    "matmul_heads_transposed": (
        lambda x, y: x.transpose(1, 2) @ y.permute(0, 2, 3, 1),
        (40, 3, 20),
        (30, 3, 20),
    ),
    # Matrices in columns have gradients in columns.
    "linear_of_columns": (
        lambda x: F.linear(F.gelu(x.t().contiguous()).t(), torch.ones(5, 6)),
        (6,),
    ),
    "linear_of_columns_biased": (
        lambda x: F.linear(F.gelu(x.t().contiguous()).t(), torch.ones(5, 6), torch.ones(5)),
        (6,),
    ),
    "linear_of_places": (
        lambda x: F.linear(F.gelu(x).flatten(2).transpose(1, 2), torch.ones(5, 4), torch.ones(5)),
        (4, 3, 3),
    ),
    "linear_of_places_unbiased": (
        lambda x: F.linear(F.gelu(x).flatten(2).transpose(1, 2), torch.ones(5, 4)),
        (4, 3, 3),
    ),
    # Of rows of rows the result is a view, which a write replaces the gradient of.
    "linear_of_rows_in_place": (
        lambda x, w: F.relu(F.linear(F.gelu(x), w[0], torch.ones(5)), True),
        (3, 6),
        (5, 6),
    ),
    "linear_of_rows_twice_in_place": (
        lambda x: F.linear(F.gelu(x), torch.ones(5, 6), torch.ones(5)).neg_().sigmoid_(),
        (3, 6),
    ),
    "linear_of_rows_times_rows": (
        lambda x, y: F.linear(F.gelu(x), torch.ones(5, 6), torch.ones(5)).mul_(y),
        (3, 6),
        (3, 5),
    ),
    "linear_by_weight_of_places": (
        lambda x, w: F.linear(F.gelu(x).flatten(2).transpose(1, 2), w[0]),
        (4, 3, 3),
        (5, 4),
    ),
    "linear_by_weight_of_columns": (
        lambda x, w: F.linear(F.gelu(x.t().contiguous()).t(), w[0]),
        (6,),
        (5, 6),
    ),
    "matmul_of_places": (
        lambda x: F.gelu(x).flatten(2).transpose(1, 2) @ torch.ones(4, 5),
        (4, 3, 3),
    ),
    "matmul_of_columns": (lambda x: F.gelu(x.t().contiguous()).t() @ torch.ones(6, 5), (6,)),
    "matmul_by_columns": (lambda x: torch.ones(5, 6) @ F.gelu(x).t(), (6,)),
    "linear_by_square": (lambda x: F.linear(torch.ones(9, 6), F.gelu(x)), (6,)),
    "addmm_of_columns": (
        lambda x: torch.addmm(torch.ones(5), F.gelu(x.t().contiguous()).t(), torch.ones(6, 5)),
        (6,),
    ),
    # Large enough for oneDNN.
    "linear_of_bfloat16": (
        lambda x, w, b: F.linear(*halve(x, w[0], b[0])).float(),
        (40,),
        (33, 40),
        (33,),
    ),
    "linear_of_bfloat16_rows": (
        lambda x, w, b: F.linear(*halve(x, w[0], b[0])).float(),
        (7, 40),
        (33, 40),
        (33,),
    ),
    "linear_of_bfloat16_columns": (
        lambda x, w: F.linear(*halve(x.transpose(1, 2), w[0])).float(),
        (40, 7),
        (33, 40),
    ),
    "linear_of_bfloat16_to_one": (
        lambda x, w: F.linear(*halve(x, w[0])).float(),
        (17, 300),
        (1, 300),
    ),
    "bmm_of_bfloat16": (lambda x, y: torch.bmm(*halve(x, y)).float(), (17, 33), (33, 16)),
    "matmul_of_bfloat16": (
        lambda x, y: torch.matmul(*halve(x, y)).transpose(1, 2).float(),
        (17, 33),
        (33, 16),
    ),
    "matmul_of_bfloat16_transposed": (
        lambda x, y: torch.matmul(*halve(x.transpose(1, 2), y.transpose(1, 2))).float(),
        (33, 17),
        (16, 33),
    ),
    "addmm_of_bfloat16": (
        lambda x, w, b: torch.addmm(*halve(b[0], x, w[0])).float(),
        (40,),
        (40, 64),
        (64,),
    ),
    "einsum_outer": (lambda x, y: torch.einsum("bi,bj->bij", x, y), (2,), (3,)),
    "einsum_elements": (lambda x, y: torch.einsum("bi,bi->bi", x, y), (3,), (3,)),
    "einsum_of_itself": (lambda x: torch.einsum("bi,bj->bij", x, x), (3,)),
    "einsum_turned": (lambda x, y: torch.einsum("bi,bj->bji", x, y), (2,), (3,)),
    "einsum_outer_of_one": (
        lambda x, y: torch.einsum("bi,bj->bij", x * 2, y.detach()).transpose(1, 2) * 2,
        (2,),
        (3,),
    ),
    "einsum_of_three": (
        lambda x, y, z: torch.einsum("bi,bj,bk->bijk", x, y, z),
        (2,),
        (3,),
        (4,),
    ),
    "linear_of_float16": (
        lambda x, w, b: F.linear(x.half(), w[0].half(), b[0].half()).float(),
        (7, 40),
        (33, 40),
        (33,),
    ),
    "linear_of_float16_unbiased": (
        lambda x, w: F.linear(x.half(), w[0].half()).float(),
        (40,),
        (33, 40),
    ),
    "bmm_of_float16": (
        lambda x, y: torch.bmm(x.half(), y.half().transpose(1, 2)).float(),
        (17, 33),
        (16, 33),
    ),
    "matmul_of_float16": (
        lambda x, y: torch.matmul(x.half(), y.half()).transpose(1, 2).float(),
        (3, 4),
        (4, 5),
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (4, 6, 6)),
    "max_pool2d_ceil": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), (4, 6, 6)),
    "max_pool2d_channels_last": (
        lambda x: F.max_pool2d(x.to(memory_format=torch.channels_last), 2),
        (4, 6, 6),
    ),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (4, 6, 6)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (4, 6)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), (4, 6)),
    "adaptive_1": (lambda x: F.adaptive_avg_pool2d(x, 1), (4, 6, 6)),
    "adaptive_2": (lambda x: F.adaptive_avg_pool2d(x, 2), (4, 6, 6)),
    "adaptive_1d": (lambda x: F.adaptive_avg_pool1d(x, 2), (4, 6)),
    "adaptive_3d": (lambda x: F.adaptive_avg_pool3d(x, 2), (2, 4, 4, 4)),
    "upsample_nearest": (lambda x: F.interpolate(x, scale_factor=2.0), (4, 5, 5)),
    "upsample_bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (4, 5, 5)),
    "upsample_bicubic": (lambda x: F.interpolate(x, size=(9, 7), mode="bicubic"), (4, 5, 5)),
    "upsample_volume": (lambda x: F.interpolate(x, scale_factor=2.0), (4, 2, 3, 3)),
    **{
        f"upsample_{mode}_antialias": (
            lambda x, mode=mode: F.interpolate(x, size=(4, 7), mode=mode, antialias=True),
            (4, 5, 5),
        )
        for mode in ("bilinear", "bicubic")
    },
    "upsample_channels_last": (
        lambda x: F.interpolate(
            x.to(memory_format=torch.channels_last), scale_factor=2.0, mode="bilinear"
        ),
        (4, 5, 5),
    ),
    "mse": (F.mse_loss, (4, 6), (4, 6)),
    "mse_none": (lambda x, y: F.mse_loss(x, y, reduction="none"), (4, 6), (4, 6)),
    "mse_of_number": (lambda x, y: F.mse_loss(x, y.mean()), (4, 6), (4, 6)),
    "mse_of_double": (lambda x, y: F.mse_loss(x, y.double()), (4, 6), (4, 6)),
    "mse_of_double_number": (lambda x, y: F.mse_loss(y.double().mean(), x), (4, 6), (4, 6)),
    "mse_of_rows": (
        lambda x, y: F.mse_loss(x.transpose(1, 2), y, reduction="none"),
        (4, 6),
        (6, 1),
    ),
    "l1": (F.l1_loss, (4, 6), (4, 6)),
    "smooth_l1_of_number": (
        lambda x, y: F.smooth_l1_loss(x.half(), y.mean(), beta=0.5, reduction="sum"),
        (4, 6),
        (4, 6),
    ),
    "smooth_l1_of_beta_0": (lambda x, y: F.smooth_l1_loss(x, y, beta=0.0), (4, 6), (4, 1)),
    "huber_of_row": (F.huber_loss, (4, 6), (1, 6)),
    "smooth_l1": (F.smooth_l1_loss, (4, 6), (4, 6)),
    "huber": (lambda x, y: F.huber_loss(x, y, reduction="sum"), (4, 6), (4, 6)),
    "bce": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach()), (4, 6), (4, 6)),
    "bce_logits": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach()), (4, 6), (4, 6)),
    "bce_logits_sum": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach(), reduction="sum"),
        (4, 6),
        (4, 6),
    ),
    "l1_detached": (lambda x, y: F.l1_loss(x, y.detach()), (4, 6), (4, 6)),
    "l1_sum": (lambda x, y: F.l1_loss(x, y.detach(), reduction="sum"), (4, 6), (4, 6)),
    "cross_entropy": (F.cross_entropy, (7,), ("int 7",)),
    "cross_entropy_sum": (lambda x, t: F.cross_entropy(x, t, reduction="sum"), (7,), ("int 7",)),
    "cross_entropy_none": (lambda x, t: F.cross_entropy(x, t, reduction="none"), (7,), ("int 7",)),
    "cross_entropy_weights": (lambda x, t: F.cross_entropy(x, t, torch.ones(7)), (7,), ("int 7",)),
    "cross_entropy_made_target": (lambda x, t: F.cross_entropy(x, t + 0), (7,), ("int 7",)),
    "cross_entropy_made_pixels": (
        lambda x, t: F.cross_entropy(x, t + 0, torch.arange(7) / 7.0),
        (7, 4, 4),
        ("int 7", 4, 4),
    ),
    "nll_made_target": (lambda x, t: F.nll_loss(x.log_softmax(1), t + 0), (7,), ("int 7",)),
    "cross_entropy_strided_line": (
        lambda x, t: F.cross_entropy(x, t[..., 0]),
        (7, 4),
        ("int 7", 4, 2),
    ),
    "cross_entropy_strided_pixels": (
        lambda x, t: F.cross_entropy(x, t[..., 0], (torch.arange(14) / 14.0)[::2]),
        (7, 4, 4),
        ("int 7", 4, 4, 2),
    ),
    "cross_entropy_strided_weights": (
        lambda x, t: F.cross_entropy(x, t, (torch.arange(14) / 14.0)[::2]),
        (7,),
        ("int 7",),
    ),
    "nll_strided_pixels": (
        lambda x, t: F.nll_loss(x, t[..., 0], reduction="sum"),
        (7, 4, 4),
        ("int 7", 4, 4, 2),
    ),
    "cross_entropy_smooth": (
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        (7,),
        ("int 7",),
    ),
    **{
        f"cross_entropy_smooth_{name}": (
            lambda x, t, options=options: F.cross_entropy(x, t, label_smoothing=0.1, **options),
            (7,),
            ("int 7",),
        )
        for name, options in {
            "sum": {"reduction": "sum"},
            "none": {"reduction": "none"},
            "weights": {"weight": torch.arange(7) / 7.0},
            "weights_sum": {"weight": torch.arange(7) / 7.0, "reduction": "sum"},
            "weights_none": {"weight": torch.arange(7) / 7.0, "reduction": "none"},
            "ignoring": {"ignore_index": 2},
        }.items()
    },
    "cross_entropy_smooth_pixels": (
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        (7, 4, 4),
        ("int 7", 4, 4),
    ),
    "cross_entropy_smooth_line": (
        lambda x, t: F.cross_entropy(x, t + 0, label_smoothing=0.1, reduction="sum"),
        (7, 4),
        ("int 7", 4),
    ),
    "cross_entropy_smooth_times_two": (
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1) * 2,
        (7,),
        ("int 7",),
    ),
    "cross_entropy_smooth_made_pixels": (
        lambda x, t: F.cross_entropy(
            x, t + 0, torch.arange(7) / 7.0, label_smoothing=0.1, reduction="none"
        ),
        (7, 4, 4),
        ("int 7", 4, 4),
    ),
    **{
        f"cross_entropy_probabilities_{name}": (
            lambda x, t, options=options: F.cross_entropy(x, t.detach().softmax(1), **options),
            (7,),
            (7,),
        )
        for name, options in {
            "mean": {},
            "sum": {"reduction": "sum"},
            "none": {"reduction": "none"},
            "smooth": {"label_smoothing": 0.1},
            "weights": {"weight": torch.arange(7) / 7.0},
            "weights_none": {
                "weight": torch.arange(7) / 7.0,
                "reduction": "none",
                "label_smoothing": 0.2,
            },
        }.items()
    },
    "cross_entropy_probabilities_pixels": (
        lambda x, t: F.cross_entropy(x, t.detach()),
        (7, 4, 4),
        (7, 4, 4),
    ),
    "ctc": (lambda x, t, n: ctc(x, t, n), (6, 5), ("int 4", 3), ("int 3",)),
    "ctc_sum": (lambda x, t, n: ctc(x, t, n, reduction="sum"), (6, 5), ("int 4", 3), ("int 3",)),
    "ctc_none": (lambda x, t, n: ctc(x, t, n, reduction="none"), (6, 5), ("int 4", 3), ("int 3",)),
    "ctc_finite": (
        lambda x, t, n: ctc(x, t, n, zero_infinity=True),
        (6, 5),
        ("int 4", 3),
        ("int 3",),
    ),
    **{
        f"ctc_of_full_lengths_{name}": (
            lambda x, t, options=options: F.ctc_loss(
                x.log_softmax(2).transpose(0, 1),
                t + 1,
                torch.full((x.shape[0],), 6),
                torch.full((x.shape[0],), 2),
                **options,
            ),
            (6, 5),
            ("int 4", 3),
        )
        for name, options in {
            "mean": {},
            "sum": {"reduction": "sum"},
            "none": {"reduction": "none"},
            "finite": {"zero_infinity": True},
            "finite_none": {"zero_infinity": True, "reduction": "none"},
            "finite_sum": {"zero_infinity": True, "reduction": "sum"},
        }.items()
    },
    "ctc_longest": (lambda x, t, n: ctc(x, t, n * 0 + 2), (16, 5), ("int 4", 3), ("int 3",)),
    "cross_entropy_pixels": (F.cross_entropy, (7, 4, 4), ("int 7", 4, 4)),
    "cross_entropy_line": (F.cross_entropy, (7, 4), ("int 7", 4)),
    "nll": (lambda x, t: F.nll_loss(x.log_softmax(1), t), (7,), ("int 7",)),
    "nll_pixels": (lambda x, t: F.nll_loss(x.log_softmax(1), t), (7, 4, 4), ("int 7", 4, 4)),
    "nll_line": (lambda x, t: F.nll_loss(x.log_softmax(1), t), (7, 4), ("int 7", 4)),
    "embedding": (lambda x, i: F.embedding(i, x[0]), (9, 4), ("int 9", 3)),
    "gates": (
        lambda x: torch.cat([gate.sigmoid_() * 2 for gate in (x * 2).unsafe_chunk(2, 1)], 1),
        (4, 6),
    ),
    **{
        f"embedding_bag_{name}": (
            lambda x, i, w, options=options: F.embedding_bag(i, x[0], **options(w)),
            (9, 4),
            ("int 9", 3),
            (3,),
        )
        for name, options in {
            "sum": lambda w: {"mode": "sum"},
            "mean": lambda w: {"mode": "mean"},
            "max": lambda w: {"mode": "max"},
            "padded": lambda w: {"mode": "mean", "padding_idx": 2},
            "sum_padded": lambda w: {"mode": "sum", "padding_idx": 2},
            "weights": lambda w: {"mode": "sum", "per_sample_weights": w.detach()},
        }.items()
    },
    "index_mask": (lambda x, i: x[i > 1], (4, 6), ("int 4", 4)),
    "index_mask_of_all": (lambda x, i: x[i >= 0], (4, 6), ("int 4", 4)),
    "index_mask_of_elements": (lambda x, i: x[i >= 0], (4, 6), ("int 4", 4, 6)),
    "index_mask_of_samples": (lambda x, i: x[i >= 0], (4, 6), ("int 4",)),
    "index_mask_of_places": (lambda x, i: x.transpose(1, 2)[i >= 0], (6, 4), ("int 4", 4)),
    "index_mask_loss": (
        lambda x, y, i: F.smooth_l1_loss(x[i > 0], y[i > 0].detach()),
        (4, 6),
        (4, 6),
        ("int 4", 4),
    ),
    "index_mask_classes": (
        lambda x, t, i: F.cross_entropy(x[i > 0], t[i > 0]),
        (4, 6),
        ("int 6", 4),
        ("int 4", 4),
    ),
    "broadcast_tensors_alike": (
        lambda x, y: sum(t.square().mean() for t in torch.broadcast_tensors(x, y)),
        (4, 6),
        (4, 6),
    ),
    "broadcast_tensors": (lambda x, y: torch.mul(*torch.broadcast_tensors(x, y)), (4, 6), (1, 6)),
    "dropout_eval": (lambda x: F.dropout(x, 0.5, False), (4, 6)),
    "dropout_train": (lambda x: F.dropout(x, 0.5, True), (4, 6)),
    "dropout_transposed": (lambda x: F.dropout(x.transpose(1, 2), 0.3, True), (4, 6)),
    "dropout_in_place": (lambda x: F.dropout(F.gelu(x), 0.3, True, True), (4, 6)),
    "dropout_flattened": (lambda x: F.dropout(torch.relu(x).flatten(1), 0.3, True), (4, 6)),
    "dropout_channels": (lambda x: F.dropout2d(x, 0.3, True), (4, 6, 6)),
    "batch_norm_train": (lambda x: F.batch_norm(x, None, None, training=True), (4, 6, 6)),
    "batch_norm_train_statistics": (
        lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
        (4, 6, 6),
    ),
    "batch_norm_train_rows": (
        lambda x: F.batch_norm(x.flatten(1), None, None, training=True),
        (4, 6),
    ),
    "batch_norm_train_rows_frozen": (
        lambda x: F.batch_norm(
            x.flatten(1), None, None, torch.ones(24), torch.zeros(24), training=True
        ),
        (4, 6),
    ),
    # As the neck of a network for search, of which the bias is frozen.
    "batch_norm_train_rows_frozen_bias": (
        lambda x, w: F.batch_norm(
            x.flatten(1), None, None, w.flatten(1).mean(0), torch.zeros(24), training=True
        ),
        (4, 6),
        (4, 6),
    ),
    "batch_norm_train_rows_by_bias": (
        lambda x, b: F.batch_norm(
            x.detach().flatten(1), None, None, None, b.flatten(1).mean(0), training=True
        ),
        (4, 6),
        (4, 6),
    ),
    "batch_norm_eval_rows": (
        lambda x: F.batch_norm(x.flatten(1), torch.zeros(24), torch.ones(24)),
        (4, 6),
    ),
    "batch_norm_eval_rows_by_weight": (
        lambda x: F.batch_norm(
            x.flatten(1), torch.zeros(24), torch.ones(24), torch.ones(24), torch.zeros(24)
        ),
        (4, 6),
    ),
    "batch_norm_eval_transposed": (
        lambda x: F.batch_norm(x.transpose(1, 2), torch.zeros(6), torch.ones(6)),
        (4, 6),
    ),
    "batch_norm_train_transposed": (
        lambda x: F.batch_norm(x.transpose(1, 2), None, None, training=True),
        (4, 6),
    ),
    "batch_norm_eval_images_transposed": (
        lambda x: F.batch_norm(x.transpose(2, 3), torch.zeros(4), torch.ones(4)),
        (4, 6, 5),
    ),
    "batch_norm_train_channels_last": (
        lambda x: F.batch_norm(
            x.contiguous(memory_format=torch.channels_last), None, None, training=True
        ),
        (4, 6, 6),
    ),
    "batch_norm_train_mixed": (
        lambda x: F.batch_norm(
            x.contiguous(memory_format=torch.channels_last), None, None, training=True
        ).contiguous(),
        (4, 6, 6),
    ),
}


def relayout(function, columns):
    """The function of operands in rows or columns, whose gradient arrives in
    the other. Views around the operands copy a gradient that is in columns."""

    def run(*operands):
        operands = [x.reshape(-1, 24).reshape(-1, 4, 6) for x in operands]
        if columns:
            operands = [x.transpose(1, 2) for x in operands]
        y = function(*operands)
        return y.contiguous() if columns else y.transpose(1, 2).contiguous()

    return run


def is_of_three_dims(function, *operands):
    try:
        return function(*operands).dim() == 3
    except RuntimeError:
        return False


# Which strides the gradient has is a matter of the order of the operands.
CASES |= {
    f"{name}_in_{layout}": (relayout(function, layout == "columns"), *extents)
    for name, (function, *extents) in list(CASES.items())
    if set(extents) == {(4, 6)}
    for layout, shape in {"rows": (2, 4, 6), "columns": (2, 6, 4)}.items()
    if is_of_three_dims(function, *(torch.randn(shape) for _ in extents))
}
