"""Cases of backward_oracle.py: operators that PyTorch composes of others, and those
whose gradients are made in one layout."""

import torch
import torch.nn.functional as F


@torch.jit.script
def split_list(x):
    """A list, which tracing keeps."""
    return [x[:, :2] * 2, x[:, 2:]]


def read_lists(x, y):
    (first, rest), (other, _) = split_list(x), split_list(y)
    return first * other + rest.sum(1, keepdim=True) * other


CASES = {
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
    "kl_of_trained_target": (
        lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        (4, 6),
        (4, 6),
    ),
    "kl_log_of_trained_target": (
        lambda x, y: F.kl_div(x, y.log_softmax(-1), log_target=True, reduction="none"),
        (4, 6),
        (4, 6),
    ),
    "bce_of_trained_target": (
        lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        (4, 6),
        (4, 6),
    ),
    "bce_logits_of_trained_target": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        (4, 6),
        (4, 6),
    ),
    **{
        f"{name}_{kind}": (
            lambda x, w, b, norm=norm, dtype=dtype: norm(
                x.to(dtype), w[0].to(dtype), b[0].to(dtype)
            ).float(),
            extents,
            extents[:1] if name == "group_norm" else extents[-1:],
            extents[:1] if name == "group_norm" else extents[-1:],
        )
        for kind, dtype in (("bfloat16", torch.bfloat16), ("half", torch.float16))
        for name, extents, norm in (
            ("layer_norm", (4, 40), lambda x, w, b: F.layer_norm(x, (40,), w, b)),
            ("group_norm", (4, 6, 6), lambda x, w, b: F.group_norm(x, 2, w, b)),
        )
    },
    "layer_norm_mixed": (
        lambda x, w, b: F.layer_norm(x.bfloat16(), (40,), w[0], b[0]).float(),
        (4, 40),
        (40,),
        (40,),
    ),
    "batch_norm_bfloat16": (
        lambda x, w, b: F.batch_norm(
            x.bfloat16(), torch.zeros(4), torch.ones(4), w[0], b[0], training=True
        ).float(),
        (4, 6, 6),
        (4,),
        (4,),
    ),
    "softmax_bfloat16": (lambda x: x.bfloat16().softmax(1).float(), (40, 6)),
    "log_softmax_bfloat16": (lambda x: x.bfloat16().log_softmax(-1).float(), (4, 60)),
    "triplet": (F.triplet_margin_loss, (6,), (6,), (6,)),
    "triplet_of_half": (
        lambda x, y, z: F.triplet_margin_loss(x, y.half(), z),
        (6, 4),
        (6, 4),
        (6, 4),
    ),
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
    # Indices that name whole rows.
    "scatter_rows": (
        lambda x, i, y: x.scatter_reduce(
            0, i[:, None].expand(-1, 32), y, "amax", include_self=False
        ),
        (32,),
        ("int 1",),
        (32,),
    ),
    "scatter_rows_sum": (
        lambda x, i, y: x.scatter_reduce(0, i[:, None].expand(-1, 32), y, "sum"),
        (32,),
        ("int 1",),
        (32,),
    ),
    "gather_rows": (
        lambda x, i: x.gather(0, i[:, None].expand(-1, 32)),
        (32,),
        ("int 1",),
    ),
    "lists": (read_lists, (4, 6), (4, 6)),
    # Both gradients of the product are added to views: they go when its node ends.
    "mul_stacked": (lambda x, y: torch.stack([x, y, x * y]), (4, 6), (4, 6)),
    "einsum_heads": (
        lambda x, y: torch.einsum("bihd,bjhd->bhij", x, y),
        (4, 2, 6),
        (5, 2, 6),
    ),
    "einsum_sums_right": (
        lambda x, y: torch.einsum("bed,bke->bd", x, y),
        (4, 6),
        (2, 4),
    ),
    "einsum_sums_left": (
        lambda x, y: torch.einsum("bikd,bdj->bij", x, y),
        (4, 2, 6),
        (6, 5),
    ),
    "einsum_sums_third": (
        lambda x, y, z: torch.einsum("bij,bjk,bklm->bil", x, y, z),
        (4, 6),
        (6, 3),
        (3, 5, 2),
    ),
    "einsum_mix": (
        lambda x, y: torch.einsum("bhij,bjhd->bihd", x, y),
        (2, 4, 5),
        (5, 2, 6),
    ),
}
