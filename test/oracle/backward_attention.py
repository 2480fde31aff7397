"""Cases of backward_oracle.py: attention."""

import torch.nn.functional as F

from backward_cases import halve


def attend(*tensors, **options):
    query, key, value = tensors
    return F.scaled_dot_product_attention(query, key, value, **options)


CASES = {
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
    # What its steps give is added to what is there.
    "attention_of_itself": (lambda x: x + attend(2 * x, x, x, dropout_p=0.2), (2, 9, 8)),
    "attention_of_what_is_added": (
        lambda q, x: x + attend(q, x.tanh(), x, dropout_p=0.2),
        (2, 9, 8),
        (2, 9, 8),
    ),
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
    "attention_bias": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m[:1]),
        (2, 9, 8),
        (2, 7, 8),
        (2, 7, 8),
        (2, 9, 7),
    ),
}
