"""Training jobs of xMem on an RTX 3060, an RTX 4060 and an A100: xmem-dev.csv."""

import functools
import time
from typing import Any

import torch
from torch import nn

import gpu_libraries
from gpu_capture import BATCH, construct, declare_torchvision
from gpu_jobs import Process, Program, Rows, Trainer, Unpredicted, WithLoss, list_tensors

#: Models of the time of these jobs. The libraries that it asks for by version come along.
TRANSFORMERS = "transformers==4.51.3", "huggingface_hub==0.36.2", "tokenizers==0.21.4"
CARDS = {
    "RTX 3060": "rtx-3060", "RTX 4060": "rtx-4060", "A100-SXM4-40GB": "a100-sxm4-40gb",
}  # fmt: skip
RELEASE = "@torch-2.6"
#: What a process has on the card beside the allocator, 300 to 400 MB as PyTorch's forum has
#: it. It is not in the measured figure, which is what came after the first look at the card.
CONTEXT_BYTES = 300 << 20


def make_torchvision(name):
    """A model as the script of xMem makes it: without weights, of 1,000 classes but for
    MobileNetV3, which has settings of torchvision and ten classes."""
    declare_torchvision()
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
        raise Unpredicted(f"the model '{name}' is not known")
    return getattr(models, names[kind])(weights=None), 1000


def make_transformer(name):
    """A model as its published configuration has it, with random weights."""
    gpu_libraries.use(*TRANSFORMERS)
    declare_torchvision()
    import transformers

    gpt2 = transformers.GPT2LMHeadModel, transformers.GPT2Config
    opt = transformers.OPTForCausalLM, transformers.OPTConfig
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    known: dict[str, tuple[Any, dict[str, Any]]] = {
        "openai-community/gpt2": (gpt2, {}),
        "distilbert/distilgpt2": (gpt2, {"n_layer": 6}),
        "cerebras/Cerebras-GPT-111M": (
            gpt2,
            {
                **no_dropout, "n_embd": 768, "n_layer": 10, "n_head": 12, "n_inner": 3072,
                "n_positions": 2048, "activation_function": "gelu",
            },
        ),
        "facebook/opt-125m": (opt, {}),
        "facebook/opt-350m": (
            opt,
            {
                "hidden_size": 1024, "num_hidden_layers": 24, "ffn_dim": 4096,
                "num_attention_heads": 16, "word_embed_proj_dim": 512,
                "do_layer_norm_before": False,
            },
        ),
    }  # fmt: skip
    if name not in known:
        raise Unpredicted(f"the configuration of '{name}' is not known")
    (model, config), settings = known[name]
    settings = config(**settings)
    return model(settings), settings.vocab_size


class CausalLM(nn.Module):
    """What the model returns, which the script holds until the next forward pass is done:
    loss, logits, and keys and values of each layer."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, mask, labels):
        given = self.model(input_ids=tokens, attention_mask=mask, labels=labels)
        cached = [tensor for layer in given.past_key_values for tensor in layer]
        return given.loss, given.logits, *cached


@functools.lru_cache(maxsize=4)
def make_program(is_cnn, name, device):
    """The model, its program, and the seconds to construct it."""
    start = time.perf_counter()
    make = make_torchvision if is_cnn else make_transformer
    model, classes = construct(lambda: make(name))
    model.train().to("meta")
    seconds = time.perf_counter() - start
    if is_cnn:
        side = CNNJob.SIDE
        images = torch.empty(BATCH, 3, side, side, device="meta")
        labels = torch.empty(BATCH, dtype=torch.int64, device="meta")
        specs = [f"float32[B,3,{side},{side}]", f"int64[B]{{0:{classes}}}"]
        module, inputs = WithLoss(model, nn.CrossEntropyLoss()), (images, labels)
    else:
        tokens = TransformerJob.TOKENS
        inputs = tuple(
            torch.empty(BATCH, tokens, dtype=torch.int64, device="meta") for _ in range(3)
        )
        specs = [f"int64[B,{tokens}]{{0:{limit}}}" for limit in (classes, 2, classes)]
        module = CausalLM(model)
    return model, Program(module, inputs, specs, device), seconds


class Job:
    """Four steps. ``mode`` says when gradients go: 0 before the forward pass, 1 just before
    the backward pass, 2 at the end of a step."""

    STEPS = 4
    #: What the loss starts with; all that a step returns goes with it if empty.
    LOSS = ""
    #: Of a safe figure, beside what is expected.
    spare_bytes = 0

    def __init__(self, row, device, mode):
        self.batch, self.mode = int(row["batch"]), mode
        before = make_program.cache_info().misses
        model, self.program, seconds = make_program(row["family"] == "cnn", row["model"], device)
        self.construction_seconds = seconds if make_program.cache_info().misses > before else None
        self.sizes = list_tensors(model)
        self.weights = [weight.numel() * 4 for weight in model.parameters()]
        self.optimizer = row["optimizer"].lower()

    def run(self, capacity):
        process = Process(capacity=capacity, goes_by_address=True)
        for size in self.sizes:
            process.allocate(size)
        trainer = Trainer(process, self.program, self.optimizer, self.LOSS)
        trainer.mode = self.mode
        # Adagrad makes its state with itself.
        for size in self.weights if self.optimizer == "adagrad" else ():
            process.allocate(size)
        for _ in range(self.STEPS):
            trainer.load(*self.batch_sizes)
            trainer.step(self.batch)
            self.finish(process)
        return process.reserved

    @property
    def batch_sizes(self):
        raise NotImplementedError

    def finish(self, process):
        """What the script does after a step."""

    @property
    def programs(self):
        return [self.program]


class CNNJob(Job):
    """Images of 86 by 86 pixels."""

    SIDE, LOSS = 86, "koila.cross_entropy"

    @property
    def batch_sizes(self):
        return self.batch * 3 * self.SIDE**2 * 4, self.batch * 8

    def finish(self, process):
        # torch.max(outputs, 1): values and where they are.
        process.free([process.allocate(self.batch * 4), process.allocate(self.batch * 8)])


class TransformerJob(Job):
    """Texts cut at 128 tokens and padded to the longest of the batch."""

    TOKENS = 128

    @property
    def batch_sizes(self):
        return [self.batch * self.TOKENS * 8] * 3


class XMemRows(Rows):
    """xmem-dev.csv: a card has a constant, which for a model is fitted on the others."""

    COLUMNS = frozenset({"zero_grad_mode", "ground_bytes"})
    #: From here on the longest text of a batch almost surely has 128 tokens.
    SURE_BATCH = 30

    @staticmethod
    def make(row, device):
        # For rows that do not say, the newest loop clears gradients before the forward
        # pass, and the oldest just before the backward pass: with the first all verdicts
        # are right, with the second not.
        mode = int(row["zero_grad_mode"] or 0)
        kind = CNNJob if row["family"] == "cnn" else TransformerJob
        return kind(row, device or CARDS[row["gpu"]] + RELEASE, mode)

    @staticmethod
    def measured(row):
        return None if row["real_oom"] == "1" else int(row["ground_bytes"])

    @staticmethod
    def scores_bytes(row):
        return row["family"] == "cnn" or int(row["batch"]) >= XMemRows.SURE_BATCH

    @staticmethod
    def usable(row):
        return int(row["gpu_total_bytes"])

    @staticmethod
    def capacity(row):
        return int(row["gpu_total_bytes"]) - CONTEXT_BYTES

    @staticmethod
    def left_out(row, index):
        return row["model"]

    @staticmethod
    def card(row):
        return row["gpu"]
