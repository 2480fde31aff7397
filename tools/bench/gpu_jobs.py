"""Training jobs on a GPU as they were run by those who measured them, over byte counts.

A job allocates what its script does (weights, batches, the state of the optimizer) from
the simulated caching allocator, and plays the events of steps that koila predicts. No
kernel runs and no GPU is read: programs are traced on meta tensors.
"""

import dataclasses
import functools

import torch
from torch import nn

from koila import _compiler
from koila._C import CachingAllocator

#: More than any card has: the job says how much it would take.
UNLIMITED = 1 << 50
MIB = 1 << 20


class Program:
    """A module that is traced on the device of ``inputs``, and the events of its steps by
    batch. On meta tensors nothing is computed, but PyTorch cannot trace convolutions
    there: their kernel of meta tensors reads sizes, which are tensors while it traces."""

    def __init__(self, module, inputs, specs, device):
        where = inputs[0].device
        module = module.to_empty(device=where) if where.type == "cpu" else module.to(where)
        with torch.device(where):
            self.script = torch.jit.trace(module, inputs, check_trace=False)
        self.specs = specs
        self.device = device
        self.doubts = set()
        self._events = {}

    def list_events(self, batch, mode, **options):
        key = batch, mode, *sorted(options.items())
        if key not in self._events:
            report, listed = _compiler.list_events(
                self.script,
                self.specs,
                batch={"B": batch},
                mode=mode,
                device=self.device,
                **options,
            )
            self.doubts |= {f"{entry['op']}: {entry['reason']}" for entry in report["inexact"]}
            self._events[key] = listed["events"]
        return self._events[key]

    def list_step(self, batch, optimizer):
        """Forward and backward pass of weights without gradients, and the step of the
        optimizer: the first, and a later one."""
        first = self.list_events(batch, "train", grads="absent", optimizer=optimizer)
        later = self.list_events(batch, "train", grads="present", optimizer=optimizer)
        name = f"{optimizer.split('(')[0]}.step()"
        own = [event for event in first if event["op"] != name]
        return (
            own,
            [event for event in first if event["op"] == name],
            [event for event in later if event["op"] == name],
        )


@dataclasses.dataclass
class Left:
    """A block that events leave."""

    number: int
    kind: str
    op: str


class Process:
    """A process with a caching allocator; streams are numbers, 0 the default one."""

    def __init__(self, settings="", goes_by_address=False):
        self.allocator = CachingAllocator(settings, UNLIMITED, goes_by_address)
        self._shared = set()

    def allocate(self, size, stream=0):
        number = self.allocator.allocate(size, stream)
        assert number is not None
        return number

    def free(self, numbers):
        for number in numbers:
            self.allocator.free(number)

    def play(self, events, before=None):
        """Blocks that are left. ``before`` is called with each event first."""
        blocks, sizes = {}, {}
        for event in events:
            if before is not None:
                before(event)
            action, block = event["action"], event["id"]
            if action == "share":
                # Autograd's backward passes have a thread of their own.
                key = event["key"], event["op"].endswith("(backward)")
                if key not in self._shared:
                    self._shared.add(key)
                    self.allocate(event["bytes"])
            elif action == "alloc":
                kind = event.get("left", "")
                blocks[block] = Left(self.allocate(event["bytes"]), kind, event["op"])
                sizes[block] = event["bytes"]
            elif block in blocks:
                # Of a lump a part may go before the rest.
                sizes[block] -= event["bytes"]
                if sizes[block] <= 0:
                    self.allocator.free(blocks.pop(block).number)
        return list(blocks.values())

    @property
    def reserved(self):
        return self.allocator.stats()["reserved_bytes"][1]


def list_tensors(module):
    """Bytes of weights and buffers in the order in which Module.to() moves them."""
    seen, sizes = set(), []
    for child in module.children():
        sizes += list_tensors(child)
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and id(tensor) not in seen:
            seen.add(id(tensor))
            sizes.append(tensor.numel() * tensor.element_size())
    return sizes


class Trainer:
    """A loop of steps: gradients go before each, what the last one returned when this
    one has its own."""

    def __init__(self, process, program, optimizer, loss):
        self.process, self.program, self.optimizer = process, program, optimizer
        self.loss = loss
        self.gradients, self.outputs, self.losses, self.batch = [], [], [], []
        self.has_state = False
        #: When gradients go: 0 before the forward pass, 1 before the backward pass,
        #: 2 after the step.
        self.mode = 0

    def load(self, *sizes):
        """A batch on the device; the one before has gone."""
        self.process.free(self.batch)
        self.batch = [self.process.allocate(size) for size in sizes]

    def step(self, batch):
        own, first, later = self.program.list_step(batch, self.optimizer)
        if self.mode == 0:
            self._drop_gradients()

        def drop(event):
            if self.mode == 1 and event["op"].endswith("(backward)"):
                self._drop_gradients()
            if self.outputs and event["op"].startswith(self.loss):
                self.process.free(self.outputs)
                self.outputs = []
            if self.losses and event["op"].endswith("(backward)"):
                self.process.free(self.losses)
                self.losses = []

        left = self.process.play(own, drop)
        self.gradients = [block.number for block in left if block.kind == "gradient"]
        returned = [block for block in left if block.kind != "gradient"]
        self.losses = [block.number for block in returned if block.op.startswith(self.loss)]
        self.outputs = [block.number for block in returned if not block.op.startswith(self.loss)]
        self.process.play(later if self.has_state else first)
        self.has_state = True
        if self.mode == 2:
            self._drop_gradients()

    def _drop_gradients(self):
        self.process.free(self.gradients)
        self.gradients = []


class WithLoss(nn.Module):
    """The loss, and what the model gave."""

    def __init__(self, model, criterion):
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, inputs, labels):
        outputs = self.model(inputs)
        return self.criterion(outputs, labels), outputs


# --- mlp-gpu-dev.csv ---------------------------------------------------------------------------

ACTIVATIONS = {
    "swish": nn.SiLU, "softplus": nn.Softplus, "relu": nn.ReLU, "elu": nn.ELU, "mish": nn.Mish,
    "leaky_relu": nn.LeakyReLU, "prelu": nn.PReLU, "gelu": nn.GELU, "tanh": nn.Tanh,
    "identity": nn.Identity, "selu": nn.SELU,
}  # fmt: skip


def make_mlp(row):
    layers: list[nn.Module] = []
    width = int(row["input"])
    widths = [int(text) for text in row["linear_widths"].split("-")]
    for index, following in enumerate(widths):
        layers.append(nn.Linear(width, following))
        width = following
        if index + 1 == len(widths):
            break
        if row["batchnorm"] == "1":
            layers.append(nn.BatchNorm1d(following))
        layers.append(ACTIVATIONS[row["activation"]]())
        if float(row["dropout"]):
            layers.append(nn.Dropout(float(row["dropout"])))
    layers.append(nn.Softmax(dim=1) if row["last"] == "Softmax" else nn.Sigmoid())
    return nn.Sequential(*layers)


class MLPJob:
    """60 seconds of Adam over 4,096 samples, after one forward pass of two samples."""

    SAMPLES = 4096

    def __init__(self, row, device):
        self.row, self.batch = row, int(row["batch"])
        with torch.device("meta"):
            model = make_mlp(row)
        model.train()
        self.sizes = list_tensors(model)
        width, classes = int(row["input"]), int(row["output"])
        is_binary = classes == 1
        criterion = nn.BCEWithLogitsLoss() if is_binary else nn.CrossEntropyLoss()
        inputs = torch.empty(4, width, device="meta")
        self.is_binary = is_binary
        labels = (
            torch.empty(4, 1, device="meta")
            if is_binary
            else torch.zeros(4, dtype=torch.int64, device="meta")
        )
        specs = [f"float32[B,{width}]", "float32[B,1]" if is_binary else f"int64[B]{{0:{classes}}}"]
        self.program = Program(WithLoss(model, criterion), (inputs, labels), specs, device)
        self.summary = Program(model, (inputs,), specs[:1], device)
        self.loss = "koila.binary_cross" if is_binary else "koila.cross_entropy"
        self.label_bytes = 4 if is_binary else 8
        self.width = width

    def run(self):
        process = Process()
        for size in self.sizes:
            process.allocate(size)
        given = process.allocate(2 * self.width * 4)
        left = process.play(self.summary.list_events(2, "forward-with-grad"))
        process.free(block.number for block in left)
        process.free([given])
        trainer = Trainer(process, self.program, "adam", self.loss)
        whole, rest = divmod(self.SAMPLES, self.batch)
        epoch = [self.batch] * min(whole, 3) + [rest] * bool(rest)
        for size in epoch * 3:
            trainer.load(size * self.width * 4, size * self.label_bytes)
            trainer.step(size)
        return process.reserved

    @property
    def doubts(self):
        return self.program.doubts | self.summary.doubts


# --- xmem-dev.csv ------------------------------------------------------------------------------


@functools.cache
def _declare_operators():
    """The compiled operators of torchvision do not load beside a PyTorch without CUDA;
    its models need their schemas alone."""
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )


def make_torchvision(name):
    """A model as the script of xMem makes it: without weights, of 1,000 classes but for
    MobileNetV3, which has settings of torchvision and ten classes."""
    _declare_operators()
    from torchvision import models
    from torchvision.models import mobilenetv3

    kind = name.removeprefix("Mobe").removeprefix("Mobile")
    if kind.startswith("NetV3"):
        arch = "mobilenet_v3_" + kind.removeprefix("NetV3").lower()
        settings, last = mobilenetv3._mobilenet_v3_conf(arch)
        return mobilenetv3.MobileNetV3(settings, last, num_classes=10), 10
    names = {
        "VGG16": "vgg16", "VGG19": "vgg19", "ResNet101": "resnet101", "ResNet152": "resnet152",
        "NetV2": "mobilenet_v2", "MNASNet": "mnasnet1_0", "ConvNeXtTiny": "convnext_tiny",
        "ConvNeXtBase": "convnext_base", "RegNetX400MF": "regnet_x_400mf",
        "RegNetY400MF": "regnet_y_400mf",
    }  # fmt: skip
    if kind not in names:
        raise KeyError(f"the model '{name}' is not known")
    return getattr(models, names[kind])(weights=None), 1000


class XMemCNNJob:
    """Four steps on images of 86 by 86 pixels. ``mode`` says when gradients go: 0 before
    the forward pass, 1 just before the backward pass, 2 at the end of a step."""

    SIDE, STEPS = 86, 4

    def __init__(self, row, device, mode):
        self.batch, self.mode = int(row["batch"]), mode
        with torch.device("meta"):
            model, classes = make_torchvision(row["model"])
        model.train()
        self.sizes = list_tensors(model)
        self.weights = [weight.numel() * 4 for weight in model.parameters()]
        side = self.SIDE
        inputs = torch.zeros(2, 3, side, side)
        labels = torch.zeros(2, dtype=torch.int64)
        specs = [f"float32[B,3,{side},{side}]", f"int64[B]{{0:{classes}}}"]
        self.program = Program(
            WithLoss(model, nn.CrossEntropyLoss()), (inputs, labels), specs, device
        )
        self.optimizer = row["optimizer"].lower()

    def run(self):
        process = Process()
        for size in self.sizes:
            process.allocate(size)
        trainer = Trainer(process, self.program, self.optimizer, "koila.cross_entropy")
        trainer.mode = self.mode
        # Adagrad makes its state with itself.
        for size in self.weights if self.optimizer == "adagrad" else ():
            process.allocate(size)
        for _ in range(self.STEPS):
            trainer.load(self.batch * 3 * self.SIDE**2 * 4, self.batch * 8)
            trainer.step(self.batch)
            # torch.max(outputs, 1): values and where they are.
            process.free([process.allocate(self.batch * 4), process.allocate(self.batch * 8)])
        return process.reserved

    @property
    def doubts(self):
        return self.program.doubts
