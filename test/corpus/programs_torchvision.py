"""Programs of torchvision: all families of classifiers, three of segmentation,
two of video, one of optical flow. Layers and widths are cut where the family
allows it."""

from registry import program

IMAGE = "float32[B,3,64,64]"


def small_head(nn, features):
    return nn.Sequential(
        nn.Dropout(), nn.Linear(features, 32), nn.ReLU(inplace=True), nn.Linear(32, 10)
    )


@program
def tv_alexnet():
    import torch.nn as nn
    from torchvision import models

    model = models.AlexNet(num_classes=10)
    model.classifier = small_head(nn, 256 * 6 * 6)
    return model, [IMAGE]


@program
def tv_vgg11_bn():
    import torch.nn as nn
    from torchvision.models import vgg

    layers = vgg.make_layers([16, "M", 32, "M", 64, 64, "M"], batch_norm=True)
    model = vgg.VGG(nn.Identity(), num_classes=1, init_weights=False)
    model.features, model.classifier = layers, small_head(nn, 64 * 7 * 7)
    return model, [IMAGE]


@program
def tv_resnet_basic():
    from torchvision.models import resnet

    return resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], 10), [IMAGE]


@program
def tv_resnet_bottleneck():
    from torchvision.models import resnet

    return resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], 10, width_per_group=16), [IMAGE]


@program
def tv_resnext():
    from torchvision.models import resnet

    return resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], 10, groups=4, width_per_group=4), [IMAGE]


@program
def tv_densenet():
    from torchvision import models

    return models.DenseNet(8, (2, 2, 2, 2), 16, num_classes=10), [IMAGE]


@program
def tv_densenet_checkpointed():
    """Blocks that concatenate inside of the checkpointed function."""
    from torchvision import models

    return models.DenseNet(8, (2, 2), 16, num_classes=10, memory_efficient=True), [IMAGE]


@program
def tv_googlenet():
    from torchvision import models

    return models.GoogLeNet(10, aux_logits=False, init_weights=False, transform_input=True), [IMAGE]


@program
def tv_inception_v3():
    from torchvision import models

    return models.Inception3(10, aux_logits=False, init_weights=False), ["float32[B,3,80,80]"]


@program
def tv_mobilenet_v2():
    from torchvision import models

    return models.mobilenet_v2(width_mult=0.35, num_classes=10), [IMAGE]


@program
def tv_mobilenet_v3_small():
    from torchvision import models

    return models.mobilenet_v3_small(num_classes=10), [IMAGE]


@program
def tv_mobilenet_v3_large():
    from torchvision import models

    return models.mobilenet_v3_large(reduced_tail=True, num_classes=10), [IMAGE]


@program
def tv_shufflenet():
    from torchvision import models

    return models.ShuffleNetV2([2, 2, 2], [16, 24, 48, 96, 128], 10), [IMAGE]


@program
def tv_squeezenet():
    from torchvision import models

    return models.squeezenet1_1(num_classes=10), [IMAGE]


@program
def tv_mnasnet():
    from torchvision import models

    return models.mnasnet0_5(num_classes=10), [IMAGE]


@program
def tv_efficientnet_b0():
    from torchvision import models

    return models.efficientnet_b0(num_classes=10), [IMAGE]


@program
def tv_efficientnet_v2():
    """One fused block and one with squeeze and excitation."""
    from torchvision.models import efficientnet as e

    settings = [e.FusedMBConvConfig(4, 3, 2, 16, 24, 2), e.MBConvConfig(4, 3, 2, 24, 32, 2)]
    return e.EfficientNet(settings, 0.2, num_classes=10, last_channel=64), [IMAGE]


@program
def tv_regnet_x():
    from torchvision.models import regnet

    parameters = regnet.BlockParams.from_init_params(
        depth=4, w_0=16, w_a=16.0, w_m=2.0, group_width=8
    )
    return regnet.RegNet(parameters, 10), [IMAGE]


@program
def tv_regnet_y():
    from torchvision.models import regnet

    parameters = regnet.BlockParams.from_init_params(
        depth=4, w_0=16, w_a=16.0, w_m=2.0, group_width=8, se_ratio=0.25
    )
    return regnet.RegNet(parameters, 10), [IMAGE]


@program
def tv_convnext():
    from torchvision.models import convnext

    settings = [convnext.CNBlockConfig(16, 32, 1), convnext.CNBlockConfig(32, None, 2)]
    return convnext.ConvNeXt(settings, num_classes=10), [IMAGE]


@program
def tv_vit():
    from torchvision import models

    return models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10), ["float32[B,3,32,32]"]


@program
def tv_swin():
    from torchvision import models

    return models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10), [IMAGE]


@program
def tv_swin_padded():
    """Images that the windows do not divide: padded, shifted and cut."""
    from torchvision import models

    return models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [7, 7], num_classes=10), [
        "float32[B,3,60,52]"
    ]


@program
def tv_swin_v2():
    from torchvision import models
    from torchvision.models import swin_transformer as swin

    return models.SwinTransformer(
        [4, 4],
        16,
        [2, 2],
        [2, 4],
        [4, 4],
        num_classes=10,
        block=swin.SwinTransformerBlockV2,
        downsample_layer=swin.PatchMergingV2,
    ), [IMAGE]


@program
def tv_maxvit():
    from torchvision import models

    return models.MaxVit((64, 64), 16, 4, [16, 32], [1, 2], 8, 0.0, num_classes=10), [IMAGE]


def backbone():
    """All four stages of a small ResNet."""
    from torchvision.models import _utils, resnet

    layers = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1])
    return _utils.IntermediateLayerGetter(layers, {"layer4": "out"})


@program
def tv_fcn():
    from torchvision.models.segmentation import fcn

    return fcn.FCN(backbone(), fcn.FCNHead(512, 5)), [IMAGE]


@program
def tv_deeplabv3():
    from torchvision.models.segmentation import deeplabv3

    head = deeplabv3.DeepLabHead(512, 5, (6, 12))
    return deeplabv3.DeepLabV3(backbone(), head), [IMAGE]


@program
def tv_lraspp():
    from torchvision.models import segmentation

    return segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=5
    ), [IMAGE]


@program
def tv_video_r2plus1d():
    from torchvision.models.video import resnet

    model = resnet.VideoResNet(
        resnet.BasicBlock,
        [resnet.Conv2Plus1D] * 4,
        [1, 1, 1, 1],
        resnet.R2Plus1dStem,
        num_classes=10,
    )
    # The last two stages hold nearly all of the parameters.
    model.layer3 = model.layer4 = model.layer2[0].relu
    model.fc = type(model.fc)(128, 10)
    return model, ["float32[B,3,8,32,32]"]


@program
def tv_video_swin():
    from torchvision.models.video import swin_transformer as swin

    return swin.SwinTransformer3d([2, 4, 4], 16, [2, 2], [2, 4], [2, 4, 4], num_classes=10), [
        "float32[B,3,8,32,32]"
    ]


@program
def tv_raft():
    import torch.nn as nn
    from torchvision.models import optical_flow

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.raft = optical_flow.raft_small(weights=None)

        def forward(self, first, second):
            return self.raft(first, second, 2)[-1]

    return Flow(), [IMAGE.replace("64", "128")] * 2


@program
def tv_detection_backbone():
    """A feature pyramid and the head of a region proposal network."""
    import torch.nn as nn
    from torchvision.models import resnet
    from torchvision.models.detection import rpn
    from torchvision.ops import FeaturePyramidNetwork

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1])
            self.pyramid = FeaturePyramidNetwork([64, 128, 256], 32)
            self.head = rpn.RPNHead(32, 3)

        def forward(self, x):
            body = self.body
            x = body.maxpool(body.relu(body.bn1(body.conv1(x))))
            one = body.layer1(x)
            two = body.layer2(one)
            three = body.layer3(two)
            features = self.pyramid({"1": one, "2": two, "3": three})
            return self.head(list(features.values()))

    return Detector(), [IMAGE]
