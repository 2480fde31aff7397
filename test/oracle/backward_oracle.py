#!/usr/bin/env python3
"""Compares the backward rule of single operators with PyTorch's allocator.

Usage: backward_oracle.py --counter LIBRARY [--koila-opt PATH] [--batches 1,2,5]
           [--threads T] [--only NAME...] [--every N] [--verbose]

Each case is a function of tensors that weights have scaled; the mean of the
squares of what it gives is the loss. As in backward_nodes.py a hook before each
autograd node reads the allocator, and koila's report has to name the same bytes.
A case of which koila says that its figure is exact must not differ; one whose
figure is a bound must not take more.
"""

import argparse
import collections
import pathlib
import sys
import tempfile
import warnings

import torch
import torch.nn.functional as F

import backward_functions
import backward_nodes
from counter import Counter


def run_cell(cell, width, states=1):
    """Two steps of a cell, whose weights are operands."""

    def run(x, h, w, u):
        w, u = w[0].repeat(width, 1), u[0].repeat(width, 1)
        state = (h, h) if states == 2 else h
        for step in range(2):
            state = cell(x[:, step], state, w, u)
        return torch.cat(state, 1) if states == 2 else state

    return run


def run_lstm(layers=1, directions=1, first=True, result=0, biased=True):
    """Of several layers all weights are the same."""

    def run(x, h, w, u, v, b):
        state = h.transpose(0, 1).contiguous()
        weights = []
        for cell in range(layers * directions):
            weights += [(w if cell < directions else v)[0], u[0]]
            weights += [b[0], b[0] * 2] if biased else []
        if not first:
            x = x.transpose(0, 1)
        made = torch.lstm(
            x, [state, state * 2], weights, biased, layers, 0.0, True, directions == 2, first
        )
        return (
            made[result]
            if result is not None
            else torch.cat([made[0].flatten(), made[1].flatten()])
        )

    return run, (6, 5), (layers * directions, 4), (16, 5), (16, 4), (16, 4 * directions), (16,)


def run_gru(layers=1, result=0):
    """Of several layers the weights of all but the first are the same."""

    def run(x, h, w, u, v, b):
        weights = []
        for layer in range(layers):
            weights += [(v if layer else w)[0], u[0], b[0], b[0] * 2]
        state = h.detach().transpose(0, 1).contiguous()
        return torch.gru(x, state, weights, True, layers, 0.0, True, False, True)[result]

    return run, (6, 5), (layers, 4), (12, 5), (12, 4), (12, 4), (12,)


def halve(*tensors):
    return [tensor.bfloat16() for tensor in tensors]


def attend(*tensors, **options):
    query, key, value = tensors
    return F.scaled_dot_product_attention(query, key, value, **options)


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
    "attention": (F.scaled_dot_product_attention, (2, 9, 8), (2, 7, 8), (2, 7, 8)),
    "attention_dropout": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.2),
        (2, 9, 8),
        (2, 7, 8),
        (2, 7, 8),
    ),
    "attention_dropout_masked": (
        lambda q, k, v, m: F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), m, dropout_p=0.2
        ),
        (9, 2, 8),
        (7, 2, 8),
        (7, 2, 8),
        (2, 9, 7),
    ),
    "attention_dropout_time_first": (
        lambda q, k, v: (
            F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), dropout_p=0.2
            )
            .permute(2, 0, 1, 3)
            .contiguous()
            .view(9, -1, 16)
            .transpose(0, 1)
        ),
        (9, 2, 8),
        (7, 2, 8),
        (7, 2, 8),
    ),
    "attention_dropout_causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2),
        (2, 9, 8),
        (2, 9, 8),
        (2, 9, 8),
    ),
    "attention_causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (2, 9, 8),
        (2, 9, 8),
        (2, 9, 8),
    ),
    # 8 queries to a key and value; by way of matmul; both in half types.
    **{
        f"attention_{name}": (
            lambda q, k, v, halves=halves, options=options: attend(
                *(halve(q, k, v) if halves else (q, k, v)), **options
            ).float(),
            (8, 9, 8),
            (heads, 7, 8),
            (heads, 7, 8),
        )
        for name, halves, heads, options in (
            ("grouped", False, 1, {"enable_gqa": True}),
            ("grouped_dropout", False, 4, {"enable_gqa": True, "dropout_p": 0.2}),
            ("bfloat16", True, 8, {}),
            ("bfloat16_causal", True, 8, {"is_causal": True}),
            ("bfloat16_grouped", True, 2, {"enable_gqa": True}),
            ("bfloat16_dropout", True, 8, {"dropout_p": 0.2}),
            ("bfloat16_dropout_causal", True, 8, {"dropout_p": 0.2, "is_causal": True}),
            ("bfloat16_grouped_dropout", True, 4, {"enable_gqa": True, "dropout_p": 0.2}),
        )
    },
    "attention_bfloat16_bias": (
        lambda q, k, v, m: attend(*halve(q, k, v), attn_mask=m[:1].bfloat16()).float(),
        (2, 9, 8),
        (2, 7, 8),
        (2, 7, 8),
        (2, 9, 7),
    ),
    "attention_bias_whole": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        (2, 9, 8),
        (2, 7, 8),
        (2, 7, 8),
        (2, 9, 7),
    ),
    # Gradients of some of the operands alone.
    **{
        f"attention_dropout_of_{which}": (
            lambda q, k, v, which=which: attend(
                *(
                    tensor if name in which else tensor.detach()
                    for name, tensor in (("q", q), ("k", k), ("v", v))
                ),
                dropout_p=0.2,
            ),
            (2, 9, 8),
            (2, 7, 8),
            (2, 7, 8),
        )
        for which in ("q", "k", "v", "qk", "kv")
    },
    "attention_rows": (
        lambda q, k, v: (
            F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
            .transpose(1, 2)
            .reshape(-1, 9, 16)
        ),
        (9, 2, 8),
        (7, 2, 8),
        (7, 2, 8),
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
    "upsample_channels_last": (
        lambda x: F.interpolate(
            x.to(memory_format=torch.channels_last), scale_factor=2.0, mode="bilinear"
        ),
        (4, 5, 5),
    ),
    "mse": (F.mse_loss, (4, 6), (4, 6)),
    "mse_none": (lambda x, y: F.mse_loss(x, y, reduction="none"), (4, 6), (4, 6)),
    "l1": (F.l1_loss, (4, 6), (4, 6)),
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
    "ctc_longest": (lambda x, t, n: ctc(x, t, n * 0 + 2), (16, 5), ("int 4", 3), ("int 3",)),
    "cross_entropy_pixels": (F.cross_entropy, (7, 4, 4), ("int 7", 4, 4)),
    "cross_entropy_line": (F.cross_entropy, (7, 4), ("int 7", 4)),
    "nll": (lambda x, t: F.nll_loss(x.log_softmax(1), t), (7,), ("int 7",)),
    "nll_pixels": (lambda x, t: F.nll_loss(x.log_softmax(1), t), (7, 4, 4), ("int 7", 4, 4)),
    "nll_line": (lambda x, t: F.nll_loss(x.log_softmax(1), t), (7, 4), ("int 7", 4)),
    "embedding": (lambda x, i: F.embedding(i, x[0]), (9, 4), ("int 9", 3)),
    "lstm_cell": (run_cell(torch.lstm_cell, 4, 2), (2, 5), (3,), (3, 5), (3, 3)),
    "gru_cell": (run_cell(torch.gru_cell, 3), (2, 5), (3,), (3, 5), (3, 3)),
    "rnn_tanh_cell": (run_cell(torch.rnn_tanh_cell, 1), (2, 5), (3,), (3, 5), (3, 3)),
    "rnn_relu_cell": (run_cell(torch.rnn_relu_cell, 1), (2, 5), (3,), (3, 5), (3, 3)),
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
    "lstm": run_lstm(),
    "lstm_time_first": run_lstm(first=False),
    "lstm_unbiased": run_lstm(biased=False),
    "lstm_state": run_lstm(result=1),
    "lstm_cell_state": run_lstm(result=2),
    "lstm_both": run_lstm(result=None),
    "lstm_layers": run_lstm(layers=3),
    "lstm_bidirectional": run_lstm(directions=2),
    "lstm_layers_bidirectional": run_lstm(layers=2, directions=2),
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

# Operators that PyTorch composes of others, and those whose gradients are made in
# one layout.
CASES |= {
    **{
        f"{name}_{reduction}": (
            lambda x, y, loss=loss, reduction=reduction: loss(x, y.detach(), reduction=reduction),
            (4, 6),
            (4, 6),
        )
        for name, loss, reduction in (
            ("mse_detached", F.mse_loss, "sum"),
            ("huber_detached", F.huber_loss, "none"),
            ("poisson", F.poisson_nll_loss, "mean"),
            ("soft_margin", F.soft_margin_loss, "mean"),
            ("hinge", lambda x, y, **k: F.hinge_embedding_loss(x, y.sign(), **k), "mean"),
            ("kl", lambda x, y, **k: F.kl_div(x, y.softmax(-1), **k), "batchmean"),
            ("kl_log", lambda x, y, **k: F.kl_div(x, y, log_target=True, **k), "sum"),
        )
    },
    **{
        f"bce_logits_{name}": (
            lambda x, y, options=options: F.binary_cross_entropy_with_logits(
                x, y.detach(), **options
            ),
            (4, 6),
            (4, 6),
        )
        for name, options in {
            "weights": {"weight": torch.arange(6) / 6.0},
            "positives": {"pos_weight": torch.arange(6) / 6.0, "reduction": "sum"},
            "both": {"weight": torch.ones(6), "pos_weight": torch.arange(6) / 6.0},
        }.items()
    },
    "triplet": (F.triplet_margin_loss, (6,), (6,), (6,)),
    "triplet_swap": (
        lambda x, y, z: F.triplet_margin_loss(x, y, z, swap=True, reduction="none"),
        (6,),
        (6,),
        (6,),
    ),
    "margin_ranking": (
        lambda x, y, z: F.margin_ranking_loss(x, y, z.detach().sign()),
        (6,),
        (6,),
        (6,),
    ),
    "cosine_embedding": (
        lambda x, y, z: F.cosine_embedding_loss(x, y, z.detach()[:, 0].sign()),
        (6,),
        (6,),
        (6,),
    ),
    **{
        f"cosine_embedding_{reduction}": (
            lambda x, y, z, reduction=reduction: F.cosine_embedding_loss(
                x, y, z.detach()[:, 0].sign(), margin=0.2, reduction=reduction
            ),
            (6,),
            (6,),
            (6,),
        )
        for reduction in ("none", "sum")
    },
    "multi_margin": (F.multi_margin_loss, (7,), ("int 7",)),
    "cosine_similarity": (lambda x, y: F.cosine_similarity(x, y, -1), (4, 6), (4, 6)),
    "cosine_matrix": (lambda x, y: F.cosine_similarity(x[:, None], y[None], -1), (6,), (6,)),
    "pairwise_distance": (F.pairwise_distance, (6,), (6,)),
    "prelu": (lambda x, w: F.prelu(x, w[0]), (4, 6, 6), (4,)),
    "instance_norm": (
        lambda x, w, b: F.instance_norm(x, weight=w[0], bias=b[0]),
        (4, 6, 6),
        (4,),
        (4,),
    ),
    "group_norm_channels_last": (
        lambda x: F.group_norm(x.to(memory_format=torch.channels_last), 2),
        (4, 6, 6),
    ),
    "group_norm_channels_last_large": (
        lambda x: F.group_norm(x.to(memory_format=torch.channels_last), 2),
        (4, 48, 48),
    ),
    "weight_norm": (lambda v, g: torch._weight_norm(v, g.reshape(-1, 1, 1)), (4, 6), ()),
    "std": (lambda x: x.std(1), (4, 6)),
    "var": (lambda x: x.var((1, 2), keepdim=True), (4, 6)),
    "max_all": (torch.max, (4, 6)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (2, 4, 4, 4)),
    "avg_pool2d_channels_last": (
        lambda x: F.avg_pool2d(x.to(memory_format=torch.channels_last), 2),
        (4, 6, 6),
    ),
    "upsample_linear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"), (4, 6)),
    "pad_channels_last": (
        lambda x: F.pad(x.to(memory_format=torch.channels_last), (1, 2, 1, 0), mode="reflect") * 2,
        (4, 6, 6),
    ),
    "pad_permuted": (lambda x: F.pad(x, (1, 2, 1, 0)).permute(0, 2, 3, 1) * 2, (4, 6, 6)),
    "roll_three": (lambda x: x.roll((1, 1, 1), (1, 2, 3)), (4, 6, 3)),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (4, 5, 5),
        (3, 3, 2),
    ),
    "affine_grid": (
        lambda t: F.affine_grid(t, [t.shape[0], 3, 5, 5], align_corners=False),
        (2, 3),
    ),
    "gather_expanded": (
        lambda x, i: x.gather(1, i[:, :, None].expand(-1, -1, 6)),
        (4, 6),
        ("int 4", 1),
    ),
    **{
        f"scatter_reduce_{reduce}{'' if include else '_alone'}": (
            lambda x, i, y, reduce=reduce, include=include: x.scatter_reduce(
                1, i, y, reduce, include_self=include
            ),
            (6,),
            ("int 6", 3),
            (3,),
        )
        for reduce, include in (("sum", False), ("amax", True), ("amin", False))
    },
    # Both gradients of the product are added to views: they go when its node ends.
    "mul_stacked": (lambda x, y: torch.stack([x, y, x * y]), (4, 6), (4, 6)),
    "gru": run_gru(),
    "gru_layers": run_gru(layers=2),
    "gru_state": run_gru(result=1),
    "attention_bias": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m[:1]),
        (2, 9, 8),
        (2, 7, 8),
        (2, 7, 8),
        (2, 9, 7),
    ),
    "einsum_heads": (
        lambda x, y: torch.einsum("bihd,bjhd->bhij", x, y),
        (4, 2, 6),
        (5, 2, 6),
    ),
    "einsum_mix": (
        lambda x, y: torch.einsum("bhij,bjhd->bihd", x, y),
        (2, 4, 5),
        (5, 2, 6),
    ),
}
CASES |= backward_functions.CASES


def write_shifts(x, y):
    """A volume of shifts, as stereo has it."""
    volume = x.new_zeros(x.shape[0], 3, *x.shape[1:])
    for shift in range(3):
        volume[:, shift, :, shift:] = x[..., shift:] * y[..., : x.shape[2] - shift]
    return volume.tanh()


def write_between(x, y):
    """Views that are made before writes and read after them."""
    x = x * 2
    first, rest = x[:, 0], x[:, 1:]
    first.add_(y[:, 0])
    rest[..., :2].copy_(y[:, 1:, :2])
    return first.sum() + (rest * x[:, 1:]).sum()


def write_half(x, *_):
    x = x * 3
    x[..., :3] *= 2
    x[..., 3:] += 1
    return x * x


def write_before(x, y):
    """Read before a gradient comes to it, and after."""
    z = torch.ones(x.shape[0], 4, 6)
    read = z + x
    z[:, 1] = 2.0
    z[:, 2] = y[:, 0] * 2
    return read + z * y


def write_viewed(x, y):
    x = (x * y).view(-1, 24)
    x.narrow(1, 0, 12).copy_(y.flatten(1)[:, 12:])
    x.relu_()
    return x.view(-1, 4, 6) * y


CASES.update(
    {
        "write_shifts": (write_shifts, (4, 6), (4, 6)),
        "write_between": (write_between, (4, 6), (4, 6)),
        "write_half": (write_half, (4, 6)),
        "write_before": (write_before, (4, 6), (4, 6)),
        "write_viewed": (write_viewed, (4, 6), (4, 6)),
        "write_transposed": (
            lambda x, y: write_between(x.transpose(1, 2) * 2, y.transpose(1, 2)),
            (4, 6),
            (4, 6),
        ),
        "write_masked": (
            lambda x, y: (x * 2).select(1, 0).masked_fill_(y[:, 0] > 0, 0.5) * y[:, 1],
            (4, 6),
            (4, 6),
        ),
        "write_after_linear": (
            lambda x, w, b: write_half(F.linear(x, w[0], b[0])),
            (4, 6),
            (6, 6),
            (6,),
        ),
        "write_broadcast": (
            lambda x, y: write_shifts(x.expand(-1, 4, 6), y) * 2,
            (1, 6),
            (4, 6),
        ),
        "write_detached": (
            lambda x, y: write_half(x.detach()) * y,
            (4, 6),
            (4, 6),
        ),
    }
)


class Program(torch.nn.Module):
    def __init__(self, function, extents):
        super().__init__()
        self.function = function
        self.scales = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(1)) for _ in extents)

    def forward(self, *operands):
        scaled = [
            operand * scale if operand.is_floating_point() else operand
            for operand, scale in zip(operands, self.scales, strict=True)
        ]
        return self.function(*scaled).square().mean().float()


def make_inputs(extents, batch):
    for shape in extents:
        if shape and isinstance(shape[0], str):
            yield torch.randint(int(shape[0].split()[1]), (batch, *shape[1:]))
        else:
            yield torch.randn(batch, *shape)


def make_specs(extents):
    for shape in extents:
        kind, extra = "float32", ""
        if shape and isinstance(shape[0], str):
            kind, extra = "int64", "{0:" + shape[0].split()[1] + "}"
            shape = shape[1:]
        yield f"{kind}[{','.join(map(str, ('B', *shape)))}]{extra}"


def evaluate(name, options, folder, counter):
    """Verdicts by batch."""
    function, *extents = CASES[name]
    torch.manual_seed(0)
    file = f"{folder}/{name}.pt"
    torch.jit.trace(
        Program(function, extents), tuple(make_inputs(extents, 3)), check_trace=False
    ).save(file)
    program = torch.jit.load(file)
    for batch in options.batches:
        values = tuple(make_inputs(extents, batch))
        log = backward_nodes.measure(program, values, counter)
        options.batch = batch
        report, predicted = backward_nodes.predict(options, file, list(make_specs(extents)))
        problems = backward_nodes.compare(log, predicted, options.verbose)
        if not report["exact"]:
            bound = all(entry["bound"] for entry in report["inexact"])
            most = max(log.peaks)
            if bound and report["peak_bytes"] < most:
                yield "WRONG", f"{most} B, bound {report['peak_bytes']} B"
            elif bound and problems:
                yield "within", f"{most} B, bound {report['peak_bytes']} B"
            elif bound:
                yield "right", ""
            else:
                yield "inexact", report["inexact"][0]["reason"]
        else:
            yield ("WRONG" if problems else "right"), "; ".join(problems[:3])


def check_floor(names, right):
    """Whether other cases are without a figure than the list says."""
    path = pathlib.Path(__file__).with_name("backward_without_figure.txt")
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    known = set(filter(None, lines))
    # What products of half types hold depends on the processor.
    names = [name for name in names if "float16" not in name]
    for name in sorted(set(names) - right - known):
        print(f"no figure: {name}: no batch of it is right any more")
    for name in sorted(known & right):
        print(f"a figure: {name}: take it out of {path.name}")
    return bool((set(names) - right - known) | (known & right))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--counter", required=True)
    parser.add_argument("--koila-opt", default="koila-opt")
    parser.add_argument(
        "--batches", default="1,2,5", type=lambda text: [int(n) for n in text.split(",")]
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--every", type=int, default=1, help="only each Nth of the cases")
    parser.add_argument(
        "--floor",
        action="store_true",
        help="fail for a case without a right batch that is not "
        "in backward_without_figure.txt, or no longer belongs there",
    )
    parser.add_argument(
        "--list-without", action="store_true", help="print the lines of backward_without_figure.txt"
    )
    parser.add_argument("--verbose", action="store_true")
    parser.set_defaults(control=False)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    torch._C._jit_set_profiling_mode(False)
    counter = Counter(options.counter)
    counts = collections.Counter()
    names = (options.only or list(CASES))[:: options.every]
    right = set()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for batch, (verdict, why) in zip(
                options.batches, evaluate(name, options, folder, counter), strict=True
            ):
                counts[verdict] += 1
                if verdict == "right":
                    right.add(name)
                if verdict != "right":
                    print(f"{name}, batch {batch}: {verdict}: {why}")
    print(
        f"{len(names)} cases: {counts['right']} right, "
        f"{counts['within']} within a bound, {counts['inexact']} inexact, "
        f"{counts['WRONG']} WRONG"
    )
    if options.list_without:
        print("\n".join(sorted(set(names) - right)))
    changed = check_floor(names, right) if options.floor else False
    return 1 if counts["WRONG"] or not counts["right"] or changed else 0


if __name__ == "__main__":
    sys.exit(main())
