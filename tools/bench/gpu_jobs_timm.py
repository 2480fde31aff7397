"""Training jobs of timm on an A100: timm-gpu-dev.csv."""

import functools
import time

import torch
from torch import nn

import gpu_libraries
from gpu_capture import BATCH, construct, declare_torchvision
from gpu_convolutions import Convolutions
from gpu_jobs import MIB, Process, Program, Rows, Trainer, list_tensors
from koila._errors import KoilaError

#: The list of models is that of this version; later ones have other sizes.
REQUIREMENT = "timm==1.0.9"
SMOOTHING, DECAY = 0.1, 2e-5
OPTIMIZER = f"sgd(momentum=0.9,nesterov=true,weight_decay={DECAY})"


class WithSmoothedLoss(nn.Module):
    """The loss alone: the script holds nothing else of a forward pass."""

    def __init__(self, model):
        super().__init__()
        from timm.loss import LabelSmoothingCrossEntropy

        self.model, self.criterion = model, LabelSmoothingCrossEntropy(SMOOTHING)

    def forward(self, images, labels):
        return self.criterion(self.model(images), labels)


class TimmProgram(Program):
    """The optimizer of timm has two groups of weights, one after the other: the first
    does not decay."""

    def __init__(self, model, image, classes, device, batches):
        from timm.optim.optim_factory import param_groups_weight_decay

        module = WithSmoothedLoss(model)
        inputs = (
            torch.empty(BATCH, *image, device="meta"),
            torch.zeros(BATCH, dtype=torch.int64, device="meta"),
        )
        self.convolutions = Convolutions(module)
        shape = ",".join(map(str, image))
        specs = [f"float32[B,{shape}]", f"int64[B]{{0:{classes}}}"]
        super().__init__(module, inputs, specs, device, batches)
        skipped = model.no_weight_decay() if hasattr(model, "no_weight_decay") else {}
        steady, _ = param_groups_weight_decay(model, DECAY, skipped)
        steady = {id(weight) for weight in steady["params"]}
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.decays = [id(weight) not in steady for weight in weights]
        self.bytes = [weight.numel() * weight.element_size() for weight in weights]

    def list_step(self, batch, optimizer):
        own, first, later = super().list_step(batch, optimizer)
        return own, self._by_group(first), self._by_group(later)

    def _by_group(self, events):
        """Of a step in which all weights decay: it makes a decayed gradient for each
        weight, and then its momentum if there is none."""
        count, weights = len(self.bytes), {}
        for event in events:
            if event["action"] == "alloc":
                index = len(weights) % count
                if event["bytes"] != self.bytes[index]:
                    raise KoilaError("the step of the optimizer has weights in another order")
                weights[event["id"]] = index, len(weights) < count
        groups: list = [[], []]
        for event in events:
            index, is_decayed = weights[event["id"]]
            if self.decays[index] or not is_decayed:
                groups[self.decays[index]].append(event)
        return groups[0] + groups[1]


#: Batches of the rows of each model.
_batches: dict[str, set[int]] = {}


@functools.lru_cache(maxsize=2)
def make_program(name, image, classes, device):
    """Bytes that Module.to() moves, the program, and the seconds to construct it."""
    gpu_libraries.use(REQUIREMENT)
    declare_torchvision()
    import timm

    start = time.perf_counter()
    model = construct(lambda: timm.create_model(name, pretrained=False))
    if model.default_cfg["input_size"] != image or model.num_classes != classes:
        raise KoilaError("the model has another input or other classes than the row")
    model.train().to("meta")
    seconds = time.perf_counter() - start
    program = TimmProgram(model, image, classes, device, _batches.get(name, ()))
    return list_tensors(model), program, seconds


class PrefetchLoader:
    """Batches come over a stream of their own, as bytes, and become float32 there. The
    next one comes before the one in use goes."""

    STREAM = 1

    def __init__(self, process, pixels, batch):
        self.process, self.pixels, self.batch = process, pixels, batch
        # Mean and deviation of the channels.
        process.allocate(3 * 4)
        process.allocate(3 * 4)
        self.used: list[int] = []
        self.ahead = self._load()

    def _load(self):
        whole = self.pixels * self.batch
        image, labels, floats = (
            self.process.allocate(size, self.STREAM) for size in (whole, 8 * self.batch, 4 * whole)
        )
        self.process.free([image])
        return [labels, floats]

    def advance(self):
        following = self._load()
        self.process.free(self.used)
        self.used, self.ahead = self.ahead, following


class TimmJob:
    """Steps of train.py with its defaults, until their blocks repeat."""

    STEPS = 4

    def __init__(self, row, device):
        self.batch = int(row["batch"])
        image = tuple(int(extent) for extent in row["input"].split("x"))
        self.pixels = image[0] * image[1] * image[2]
        before = make_program.cache_info().misses
        arguments = row["model"], image, int(row["classes"]), device
        self.sizes, self.program, seconds = make_program(*arguments)
        self.construction_seconds = seconds if make_program.cache_info().misses > before else None

    def run(self, capacity):
        # The script sets torch.backends.cudnn.benchmark.
        searches = self.program.convolutions.start_search()
        process = Process(capacity=capacity, goes_by_address=True, searches=searches)
        for size in self.sizes:
            process.allocate(size)
        loader = PrefetchLoader(process, self.pixels, self.batch)
        # Of what a step returns the loss is held until the next one is there.
        trainer = Trainer(process, self.program, OPTIMIZER, loss="")
        trainer.mode = 2
        for _ in range(self.STEPS):
            loader.advance()
            trainer.step(self.batch)
        return process.reserved + self.program.convolutions.bound_workspace(self.batch)

    @property
    def spare_bytes(self):
        """The result, the gradient of the input and that of the weight have each a search:
        at worst none of their workspaces fits into the block of another."""
        return 2 * self.program.convolutions.bound_workspace(self.batch)

    @property
    def programs(self):
        return [self.program]


class TimmRows(Rows):
    """timm-gpu-dev.csv: the constant of a family is fitted on the others."""

    COLUMNS = frozenset({"family", "classes", "oom", "measured_mib"})
    DEVICE = "a100-sxm4-40gb@torch-2.6"

    @staticmethod
    def expect(rows):
        _batches.clear()
        for row in rows:
            _batches.setdefault(row["model"], set()).add(int(row["batch"]))

    @staticmethod
    def make(row, device):
        return TimmJob(row, device or TimmRows.DEVICE)

    @staticmethod
    def measured(row):
        return None if row["oom"] == "1" else int(row["measured_mib"]) * MIB

    @staticmethod
    def left_out(row, index):
        return row["family"]
