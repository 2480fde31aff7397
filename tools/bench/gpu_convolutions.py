"""The convolutions of a program that cuDNN computes, by the module that calls each."""

import dataclasses
import math

from torch import nn


@dataclasses.dataclass(frozen=True)
class Convolution:
    """Elements of a sample before and after, and of the weight. Equal ones are computed by
    one plan of cuDNN."""

    input: tuple[int, ...]
    output: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int

    @property
    def is_depthwise(self):
        """PyTorch's own kernel. Source: use_conv_depthwise in native/Convolution.cpp."""
        inner, channels = self.weight[1], self.input[0]
        return inner == 1 and channels > 1 and self.output[0] % channels == 0

    def count_workspace(self, batch):
        """Bytes of input, weight and output in another layout, as float32: kernels for
        tensor cores read channels-last, and cuDNN transforms what is not. A recorded H100
        has this workspace to the byte, and 16 for alignment, wherever it transforms."""
        elements = batch * (math.prod(self.input) + math.prod(self.output)) + math.prod(self.weight)
        return 4 * elements


class Convolutions:
    """Made before the module is traced, which runs each once."""

    def __init__(self, module):
        self._by_module: dict[str, Convolution] = {}
        for name, layer in module.named_modules():
            if isinstance(layer, nn.Conv2d):
                layer.register_forward_hook(self._note(name))

    def _note(self, name):
        def note(layer, args, output):
            self._by_module[name] = Convolution(
                tuple(int(extent) for extent in args[0].shape[1:]),
                tuple(int(extent) for extent in output.shape[1:]),
                tuple(layer.weight.shape),
                layer.stride,
                layer.padding,
                layer.dilation,
                layer.groups,
            )

        return note

    def find(self, event):
        """Of an allocation by a convolution that cuDNN computes; None for others."""
        if not event["op"].startswith("koila._convolution"):
            return None
        found = self._by_module.get(event["location"].get("module", ""))
        return None if found is None or found.is_depthwise else found

    def bound_workspace(self, batch):
        """That of the largest call. It is a segment of its own: after a search nothing is
        cached that it could use."""
        called = [each for each in self._by_module.values() if not each.is_depthwise]
        return max((each.count_workspace(batch) for each in called), default=0)

    def start_search(self):
        """Says of an allocation whether it is the result of a call that cuDNN has not seen
        in this process: for the result, the gradient of the input, that of the weight."""
        seen = set()

        def searches(event):
            found = self.find(event)
            if found is None:
                return False
            is_weight = event.get("left") == "gradient"
            # The gradient of a bias is a sum.
            if is_weight and event["bytes"] != 4 * math.prod(found.weight):
                return False
            key = found, event["op"], is_weight, event["bytes"]
            if key in seen:
                return False
            seen.add(key)
            return True

        return searches
