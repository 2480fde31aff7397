"""Programs of timm: families that torchvision has not, cut to a few layers
where the family has an option for it."""

from registry import program

IMAGE = "float32[B,3,64,64]"


def create(name, image=64, **options):
    import timm

    model = timm.create_model(name, pretrained=False, num_classes=10, **options)
    return model, [f"float32[B,3,{image},{image}]"]


@program
def timm_convmixer():
    from timm.models import convmixer

    return convmixer.ConvMixer(32, 2, num_classes=10), [IMAGE]


def mixer(**options):
    from timm.models import mlp_mixer

    return mlp_mixer.MlpMixer(10, img_size=64, patch_size=16, num_blocks=2, embed_dim=32, **options)


@program
def timm_mixer():
    return mixer(), [IMAGE]


@program
def timm_resmlp():
    from timm.models import mlp_mixer

    return mixer(block_layer=mlp_mixer.ResBlock, mlp_ratio=4, norm_layer=mlp_mixer.Affine), [IMAGE]


@program
def timm_gmlp():
    from timm.layers import GatedMlp
    from timm.models import mlp_mixer

    return mixer(block_layer=mlp_mixer.SpatialGatingBlock, mlp_ratio=4, mlp_layer=GatedMlp), [IMAGE]


@program
def timm_poolformer():
    from timm.layers import GroupNorm1
    from timm.models import metaformer
    from torch import nn

    return metaformer.MetaFormer(
        num_classes=10,
        depths=(1, 1),
        dims=(16, 32),
        downsample_norm=None,
        mlp_act=nn.GELU,
        mlp_bias=True,
        norm_layers=GroupNorm1,
        layer_scale_init_values=1e-5,
        res_scale_init_values=None,
        use_mlp_head=False,
    ), [IMAGE]


@program
def timm_deit_distilled():
    return create("deit_tiny_distilled_patch16_224", img_size=64, depth=2, embed_dim=48)


@program
def timm_beit():
    return create("beit_base_patch16_224", img_size=64, depth=2, embed_dim=48, num_heads=4)


@program
def timm_levit():
    return create("levit_128s", img_size=64)


@program
def timm_coat():
    return create(
        "coat_lite_tiny", img_size=64, embed_dims=(16, 32, 48, 64), serial_depths=(1, 1, 1, 1)
    )


@program
def timm_xcit():
    return create("xcit_nano_12_p16_224", img_size=64, depth=2, embed_dim=32)


@program
def timm_cait():
    return create("cait_xxs24_224", img_size=64, depth=2, embed_dim=48, num_heads=4)


@program
def timm_efficientformer():
    return create("efficientformer_l1", depths=(1, 1, 1, 2), embed_dims=(16, 24, 32, 48), image=224)


@program
def timm_mobilevit():
    return create("mobilevit_xxs")


@program
def timm_nfnet():
    from timm.models import nfnet

    settings = nfnet.NfCfg(
        depths=(1, 1),
        channels=(32, 64),
        stem_type="3x3",
        group_size=8,
        attn_layer="se",
        attn_kwargs={"rd_ratio": 0.5},
    )
    return nfnet.NormFreeNet(settings, num_classes=10), [IMAGE]


@program
def timm_resnest():
    return create("resnest14d", layers=[1, 1, 1, 1], channels=[16, 24, 32, 48])


@program
def timm_hrnet():
    return create("hrnet_w18_small")


@program
def timm_ghostnet():
    return create("ghostnet_050")


@program
def timm_res2net():
    return create("res2net50_14w_8s", layers=[1, 1, 1, 1], channels=[16, 24, 32, 48])


@program
def timm_pit():
    return create("pit_ti_224", img_size=64, depth=(1, 1, 1))


@program
def timm_twins():
    return create(
        "twins_svt_small",
        img_size=64,
        depths=(1, 1, 1, 1),
        embed_dims=(16, 32, 48, 64),
        num_heads=(1, 2, 3, 4),
    )


@program
def timm_edgenext():
    return create("edgenext_xx_small", depths=(1, 1, 2, 1))


@program
def timm_repvgg():
    return create("repvgg_a0")
