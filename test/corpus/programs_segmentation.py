"""Programs of segmentation_models_pytorch, with its smallest encoders."""

from registry import program


def create(architecture, encoder="mobilenet_v2", image=64, **options):
    import segmentation_models_pytorch as smp

    model = getattr(smp, architecture)(encoder, encoder_weights=None, classes=3, **options)
    return model, [f"float32[B,3,{image},{image}]"]


@program
def smp_unet():
    return create("Unet", encoder_depth=3, decoder_channels=(32, 16, 8))


@program
def smp_unet_attention():
    return create(
        "Unet",
        encoder_depth=3,
        decoder_channels=(64, 48, 32),
        decoder_attention_type="scse",
        activation="sigmoid",
    )


@program
def smp_fpn():
    return create("FPN", decoder_pyramid_channels=32, decoder_segmentation_channels=32)


@program
def smp_pspnet():
    return create("PSPNet", psp_out_channels=32)


@program
def smp_deeplabv3plus():
    return create("DeepLabV3Plus", decoder_channels=32)


@program
def smp_linknet():
    return create("Linknet", encoder_depth=4)


@program
def smp_segformer():
    return create("Segformer", decoder_segmentation_channels=32)
