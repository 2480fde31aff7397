"""Training jobs on a GPU as they were run by those who measured them, over byte counts.

A job allocates what its script does (weights, batches, the state of the optimizer) from
the simulated caching allocator, and plays the events of steps that koila predicts. No
kernel runs and no GPU is read: programs are traced on meta tensors.
"""

import dataclasses
import time

from torch import nn

import gpu_capture
from koila import _compiler
from koila._C import CachingAllocator

#: More than any card has: the job says how much it would take.
UNLIMITED = 1 << 50
MIB = 1 << 20
#: What nvidia-smi can show at most on an A100-SXM4-40GB.
A100_BYTES = 40536 * MIB


class Program:
    """A module that is traced on meta tensors, and the events of its steps by batch. Those
    of all ``batches`` that jobs will ask for are listed at once: the program is read once."""

    def __init__(self, module, inputs, specs, device, batches=()):
        start = time.perf_counter()
        self.script = gpu_capture.trace(module.to("meta"), inputs)
        self.capture_seconds = time.perf_counter() - start
        self.specs = specs
        self.device = device
        self.batches = frozenset(batches)
        self.doubts = set()
        self._events = {}
        self._shares, self._ahead = {}, 0.0

    def list_events(self, batch, mode, **options):
        rest = mode, *sorted(options.items())
        key = (batch, rest)
        if key not in self._events:
            start = time.perf_counter()
            batches = sorted({batch, *self.batches})
            report, listed = _compiler.list_events(
                self.script,
                self.specs,
                batch={"B": batch},
                samples=batches,
                mode=mode,
                device=self.device,
                # What is not known depends on the program.
                report=not self._events,
                **options,
            )
            for entry in report.get("inexact", ()):
                self.doubts.add(f"{entry['op']}: {entry['reason']}")
            seconds = time.perf_counter() - start
            self._ahead += seconds
            for each in listed["batches"]:
                self._events[each["batch"], rest] = each["events"]
                self._shares[each["batch"], rest] = seconds / len(batches)
        self._ahead -= self._shares.pop(key, 0)
        return self._events[key]

    def take_ahead(self):
        """Seconds since the last call that were spent for other batches, less those that
        others have spent for this one."""
        taken, self._ahead = self._ahead, 0.0
        return taken

    def list_step(self, batch, optimizer):
        """Forward and backward pass of weights without gradients, and the step of the
        optimizer: the first, and a later one, whose state is there."""
        events = self.list_events(batch, "train", grads="absent", optimizer=optimizer)
        name = f"{optimizer.split('(')[0]}.step()"
        own = [event for event in events if event["op"] != name]
        first = [event for event in events if event["op"] == name]
        freed = {event["id"] for event in first if event["action"] == "free"}
        return own, first, [event for event in first if event["id"] in freed]


@dataclasses.dataclass
class Left:
    """A block that events leave."""

    number: int
    kind: str
    op: str


class OutOfMemory(Exception):
    """The simulated card has no room left, also without cached blocks."""


class Process:
    """A process with a caching allocator; streams are numbers, 0 the default one.
    ``searches`` says of an allocation whether cuDNN then looks for its fastest kernel, with
    torch.backends.cudnn.benchmark: what is cached goes after that, by Conv_v8.cpp."""

    def __init__(self, settings="", goes_by_address=False, capacity=UNLIMITED, searches=None):
        self.allocator = CachingAllocator(settings, capacity, goes_by_address)
        self.searches = searches
        self._shared = set()

    def allocate(self, size, stream=0):
        number = self.allocator.allocate(size, stream)
        if number is None:
            raise OutOfMemory
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
                if self.searches is not None and self.searches(event):
                    self.allocator.empty_cache()
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

    def prepare_labels(self):
        """What the script does with the labels between the forward pass and the loss; is
        called more than once a step."""

    def step(self, batch):
        own, first, later = self.program.list_step(batch, self.optimizer)
        if self.mode == 0:
            self._drop_gradients()

        def drop(event):
            if self.mode == 1 and event["op"].endswith("(backward)"):
                self._drop_gradients()
            if event["op"].startswith(self.loss):
                self.process.free(self.outputs)
                self.outputs = []
                self.prepare_labels()
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


class Unpredicted(Exception):
    """Why the job of a row has no prediction."""


class WithLoss(nn.Module):
    """The loss, and what the model gave."""

    def __init__(self, model, criterion):
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, inputs, labels):
        outputs = self.model(inputs)
        return self.criterion(outputs, labels), outputs


class Rows:
    """A set of measurements; each has a subclass, which is told by the columns of its file."""

    COLUMNS: frozenset[str]

    @staticmethod
    def model(row):
        """Rows of a model have one program."""
        return row["model"]

    @staticmethod
    def expect(rows):
        """These come, in this order."""

    @staticmethod
    def make(row, device):
        """The job of a row, on the card that is named or its own. Unpredicted says why
        there is none."""
        raise NotImplementedError

    @staticmethod
    def measured(row):
        """Bytes; None where the job ran out of memory."""
        raise NotImplementedError

    @staticmethod
    def usable(row):
        """A job that takes more runs out of memory."""
        return A100_BYTES

    @staticmethod
    def capacity(row):
        """What the allocator can have, where jobs came close to it: it gives cached blocks
        back then and asks again."""
        return UNLIMITED

    @staticmethod
    def left_out(row, index):
        """A constant is fitted on rows for which this is another."""
        raise NotImplementedError

    @staticmethod
    def card(row):
        """Rows of a card have one constant."""
        return "A100-SXM4-40GB"

    @staticmethod
    def scores_bytes(row):
        """Whether the same job takes the same bytes when it runs again."""
        return True
