"""Multilayer perceptrons on an A100: mlp-gpu-dev.csv."""

import time

import torch
from torch import nn

from gpu_capture import BATCH
from gpu_jobs import MIB, Process, Program, Rows, Trainer, WithLoss, list_tensors

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


class MLPTrainer(Trainer):
    """Labels come as int64; those of a single class are cast to float32 for the loss."""

    def __init__(self, process, program, is_binary):
        loss = "koila.binary_cross" if is_binary else "koila.cross_entropy"
        super().__init__(process, program, "adam", loss)
        self.is_binary, self.cast_bytes = is_binary, 0

    def load(self, *sizes):
        super().load(*sizes)
        self.cast_bytes = sizes[-1] // 2 if self.is_binary else 0

    def prepare_labels(self):
        if self.cast_bytes:
            inputs, labels = self.batch
            self.batch = [inputs, self.process.allocate(self.cast_bytes)]
            self.process.free([labels])
            self.cast_bytes = 0


class MLPJob:
    """60 seconds of Adam over 4,096 samples, after one forward pass of two samples."""

    SAMPLES = 4096
    #: Of a safe figure, beside what is expected.
    spare_bytes = 0

    def __init__(self, row, device):
        self.row, self.batch = row, int(row["batch"])
        start = time.perf_counter()
        with torch.device("meta"):
            model = make_mlp(row)
        model.train()
        self.construction_seconds = time.perf_counter() - start
        self.sizes = list_tensors(model)
        width, classes = int(row["input"]), int(row["output"])
        is_binary = classes == 1
        criterion = nn.BCEWithLogitsLoss() if is_binary else nn.CrossEntropyLoss()
        inputs = torch.empty(BATCH, width, device="meta")
        self.is_binary = is_binary
        labels = (
            torch.empty(BATCH, 1, device="meta")
            if is_binary
            else torch.zeros(BATCH, dtype=torch.int64, device="meta")
        )
        specs = [f"float32[B,{width}]", "float32[B,1]" if is_binary else f"int64[B]{{0:{classes}}}"]
        batches = {self.batch, self.SAMPLES % self.batch} - {0}
        self.program = Program(WithLoss(model, criterion), (inputs, labels), specs, device, batches)
        self.summary = Program(model, (inputs,), specs[:1], device)
        self.width = width

    def run(self, capacity):
        process = Process(capacity=capacity, goes_by_address=True)
        for size in self.sizes:
            process.allocate(size)
        given = process.allocate(2 * self.width * 4)
        left = process.play(self.summary.list_events(2, "forward-with-grad"))
        process.free(block.number for block in left)
        process.free([given])
        trainer = MLPTrainer(process, self.program, self.is_binary)
        whole, rest = divmod(self.SAMPLES, self.batch)
        epoch = [self.batch] * min(whole, 3) + [rest] * bool(rest)
        for size in epoch * 3:
            trainer.load(size * self.width * 4, size * 8)
            trainer.step(size)
        return process.reserved

    @property
    def programs(self):
        return [self.program, self.summary]


class MLPRows(Rows):
    """mlp-gpu-dev.csv: the constant of one half of the rows is fitted on the other half."""

    COLUMNS = frozenset({"linear_widths", "measured_mib"})
    DEVICE = "a100-sxm4-40gb@torch-2.6"

    @staticmethod
    def model(row):
        return tuple(row.values())

    @staticmethod
    def make(row, device):
        return MLPJob(row, device or MLPRows.DEVICE)

    @staticmethod
    def measured(row):
        return int(row["measured_mib"]) * MIB

    @staticmethod
    def left_out(row, index):
        return index % 2
