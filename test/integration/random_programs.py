"""Whole random scripts, which train small networks with koila.lazy.

    program = make(seed, number)      # always the same text
    program.text, program.pieces

A program is a loop over steps of one kind (random_steps.py: supervised,
adversarial, variational, with a teacher, with a second batch), between whose
lines pieces stand (random_pieces.py). What is around them is drawn here: the
network, its optimizer, the batches, the evaluation.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import random_networks as networks
import random_pieces  # noqa: F401  registers its pieces
from random_steps import KINDS, zero
from random_writer import Plan, Writer

_HEAD = '''
"""Random program {number} of seed {seed}: {kind}, {family}, {task}."""
# koila: tiles
import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed({torch_seed})
results = {{}}


def log(name, value):
    results.setdefault(name, []).append(value)

'''
# How the batches of the loop are made.
_BATCHES = (
    ("for step, (x, y) in enumerate(zip(data.split(n), labels.split(n))):",),
    (
        "for step in range(steps):",
        "part = slice(step * n, step * n + n)",
        "x, y = data[part], labels[part]",
    ),
    (
        "for step, index in enumerate(torch.randperm(len(data)).split(n)):",
        "x, y = data[index], labels[index]",
    ),
    ("for step, (x, y) in enumerate(DataLoader(TensorDataset(data, labels), batch_size=n)):",),
    ("for step, (x, y) in enumerate(DataLoader(TensorDataset(data, labels), n, shuffle=True)):",),
    (
        "for step in range(steps):",
        "index = torch.randint(len(data), (n,))",
        "x, y = data[index], labels[index]",
    ),
)
_LAZIES = (
    *(("x, y = koila.lazy(x, y, batch=0)",),) * 6,
    ("x = koila.lazy(x, batch=0)",),
    ("x, y = koila.lazy([x, y], batch=0)",),
    ('batch = koila.lazy({"x": x, "y": y}, batch=0)', 'x, y = batch["x"], batch["y"]'),
)


@dataclass(frozen=True)
class Program:
    number: int
    text: str
    pieces: list[str]


def make(seed: int, number: int) -> Program:
    rng = random.Random(f"{seed}:{number}")
    w = Writer(rng, _plan(rng))
    return _Maker(w).make(seed, number)


def _plan(rng: random.Random) -> Plan:
    kind = rng.choice(list(KINDS))
    net = networks.choose(rng, floats=kind in ("adversarial", "variational"))
    task = "values" if kind == "adversarial" else rng.choice(networks.TASKS)
    outputs = rng.choice((3, 4, 6)) if task == "classes" else rng.choice((2, 3))
    batch = rng.choice((64, 80, 96, 128, 160))
    return Plan(
        kind=kind,
        net=net,
        task=task,
        outputs=outputs,
        batch=batch,
        steps=rng.choice((3, 3, 4)),
        last=rng.choice((batch, batch // 2, batch // 4 + 1)),
        gives_hidden=kind == "supervised" and rng.random() < 0.3,
        bad=rng.random() < 0.12,
        accumulates=kind == "supervised" and rng.random() < 0.2,
        zeroed=rng.choice(("first", "first", "backward", "last")),
    )


class _Maker:
    """Writes one program from its first line to the last."""

    def __init__(self, w: Writer) -> None:
        self.w, self.plan = w, w.plan

    def make(self, seed: int, number: int) -> Program:
        w = self.w
        head = _HEAD.format(
            number=number,
            seed=seed,
            kind=self.plan.kind,
            family=self.plan.net.family,
            task=self.plan.task,
            torch_seed=w.rng.randrange(1000),
        )
        w.line(*head.strip().splitlines(), "", "")
        # Two heads, for means and deviations, where the network encodes.
        heads = 8 if self.plan.kind == "variational" else self.plan.outputs
        w.line(
            *networks.class_lines(self.plan.net, "Net", heads, w.rng, self.plan.gives_hidden),
            "",
            "",
        )
        w.line(f"steps, n = {self.plan.steps}, {self.plan.batch}")
        w.line(
            *networks.data_lines(
                self.plan.net, self.plan.task, w.rng, self.plan.total, self.plan.outputs
            )
        )
        w.line("model = Net()")
        self._optimizer("optimizer", "model")
        self._others()
        self._evaluation()
        self._loop()
        w.line(*w.after_loop)
        w.gap("end", 3)
        w.line('log("evaluated", evaluate(model, 0))')
        w.line('results["weights"] = model.state_dict()')
        if any("write_into" in piece for piece in w.pieces):
            # What a module with such a hook returns may not be written to.
            w.lines[:] = [line for line in w.lines if "register_full_backward_hook" not in line]
        return Program(number, w.text(), [self.plan.kind, self.plan.net.family, *w.pieces])

    # In front of the loop.

    def _optimizer(self, name: str, model: str) -> None:
        # Gradients of reconstructions are sums over many numbers.
        rate = 0.001 if self.plan.kind == "variational" else 0.02
        made = self.w.pick(
            "SGD({0}.parameters(), lr={1})",
            "SGD({0}.parameters(), lr={1}, momentum=0.9)",
            "SGD({0}.parameters(), lr={1}, momentum=0.9, weight_decay=1e-3, nesterov=True)",
            "Adam({0}.parameters(), lr=3e-3)",
            "AdamW({0}.parameters(), lr=5e-3)",
            "RMSprop({0}.parameters(), lr=1e-3)",
        ).format(model, rate)
        self.w.line(f"{name} = torch.optim.{made}")

    def _others(self) -> None:
        """What a kind has beside its model."""
        w = self.w
        size = math.prod(self.plan.net.sample)
        if self.plan.kind == "adversarial":
            w.line(f"generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, {size}))")
            self._optimizer("generator_optimizer", "generator")
        elif self.plan.kind == "variational":
            w.line(f"decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, {size}))")
            w.line("optimizer.add_param_group({'params': list(decoder.parameters())})")
        elif self.plan.kind == "teacher":
            w.line("teacher = copy.deepcopy(model)")
            if w.chance(0.5):
                w.line("teacher.requires_grad_(False)")
        self.scheduler = w.chance(0.2)
        if self.scheduler:
            w.line("scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)")

        if w.chance(0.1):
            w.line(
                w.pick(
                    'model.head.register_forward_hook(lambda m, i, o: log("out", o.mean().item()))',
                    'model.head.register_forward_pre_hook(lambda m, i: log("in", i[0].shape[0]))',
                    'model.head.weight.register_hook(lambda grad: log("hook", grad.norm().item()))',
                    "model.head.bias.register_hook(lambda grad: grad * 0.5)",
                    "model.head.register_full_backward_hook("
                    'lambda m, i, o: log("flow", o[0].norm().item()))',
                )
            )

    def _evaluation(self) -> None:
        w = self.w
        mode = w.pick("@torch.no_grad()", "@torch.inference_mode()", "with torch.no_grad():", "")
        out = "net(x)[1]" if self.plan.gives_hidden else "net(x)"
        w.line("", "")
        if mode.startswith("@"):
            w.line(mode)
        with w.block("def evaluate(net, part):"):
            w.line(
                "net.eval()",
                "x, y = data[part * n : part * n + n], labels[part * n : part * n + n]",
            )
            w.line("x, y = koila.lazy(x, y, batch=0)")
            autocast = w.chance(0.1)
            if mode.startswith("with") or autocast:
                head = mode if mode.startswith("with") else ""
                if autocast:
                    head = 'with torch.autocast("cpu", dtype=torch.bfloat16):'
                with w.block(head):
                    w.line(f"out = {out}{'.float()' if autocast else ''}")
            else:
                w.line(f"out = {out}")
            if w.chance(0.8):
                w.line("net.train()")
            reads = ["out.mean().item()", "out.norm(dim=1).tolist()", "out.detach().numpy()"]
            reads += ["out.detach().std(0)", "[out.sum().item(), len(x)]", "out.detach()"]
            if self.plan.kind != "variational":
                if self.plan.task == "classes":
                    reads += ["F.cross_entropy(out, y).item()"]
                    reads += ["(out.argmax(1) == y).float().mean().item(), out.max().item()"]
                else:
                    reads += ["F.mse_loss(out, y).item()", "(out - y).abs().max().item()"]
            w.line(f"return {w.rng.choice(reads)}")
        w.line("", "")

    # The loop.

    def _loop(self) -> None:
        w = self.w
        begin = len(w.lines)
        head, *take = w.rng.choice(_BATCHES)
        with w.block(head):
            first = len(w.lines)
            w.line(*take)
            if self.plan.bad:
                self._spoil_batch()
                with w.block("try:"):
                    self._step()
                with w.block("except (RuntimeError, IndexError, ValueError) as error:"):
                    w.line('log("bad", (step, type(error).__name__, str(error).splitlines()[0]))')
                    w.line(w.pick("continue", "optimizer.zero_grad()", 'print("skipped", step)'))
            else:
                self._step()
        w.lines[first:first] = ["    " + line for line in w.start_of_step]
        w.lines[begin:begin] = w.before_loop

    def _spoil_batch(self) -> None:
        """Raises by shape or type. What values raise is raised when it is computed,
        which may be later; scripts/ have that."""
        w = self.w
        with w.block(f"if step == {w.pick('1', '2')}:"):
            w.line("x = x[..., :-1]" if self.plan.floats else "x = x.float()")

    def _step(self) -> None:
        w = self.w
        if w.chance(0.4):
            w.line("model.train()")
        if self.plan.zeroed == "first" and not self.plan.accumulates:
            zero(w)
        w.line(*w.rng.choice(_LAZIES))
        place = len(w.lines)
        depth = w.indent()
        w.know("x", "input")
        w.know("y", "labels")
        if w.chance(0.5):
            w.gap("prepared", 2)
        KINDS[self.plan.kind](w)
        if self.scheduler:
            w.line("scheduler.step()")
        if self.plan.zeroed == "last" and not self.plan.accumulates:
            zero(w)
        w.gap("after", 3)
        w.line(*w.end_of_step)
        w.lines[place:place] = [depth + line for line in w.after_lazy]
