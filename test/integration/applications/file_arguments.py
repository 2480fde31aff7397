"""A TorchScript file with optional tensors, numbers, texts and devices as arguments."""

# points: 11, 12

import json
from typing import Optional

import torch
from torch import nn

BUDGET = 256 << 10


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(3)])
        self.heads = nn.ModuleDict({"few": nn.Linear(32, 4), "many": nn.Linear(32, 64)})

    def forward(
        self,
        x: torch.Tensor,
        mask: Optional[torch.Tensor] = None,  # noqa: UP045 (TorchScript's)
        steps: int = 2,
        scale: float = 0.5,
        normalise: bool = False,
        head: str = "few",
        device: Optional[torch.device] = None,  # noqa: UP045
    ):
        if device is not None:
            x = x.to(device)
        for layer in self.layers:
            x = x + torch.tanh(layer(x)) * scale
        for _ in range(steps):
            x = x + torch.sin(x) * scale
        if mask is not None:
            x = x * mask.unsqueeze(2)
        if normalise:
            x = nn.functional.normalize(x, dim=-1)
        result = x
        for name, module in self.heads.items():
            if name == head:
                result = module(x)
        return result.mean(1)


def application(koila, app):
    torch.manual_seed(0)
    torch.jit.script(Scorer().eval()).save(app.folder / "model.pt")
    calls = {
        "left out": ["float32[B,16,32]"],
        "none": ["float32[B,16,32]", "none"],
        "a mask": ["float32[B,16,32]", "mask=float32[B,16]"],
        "numbers": ["float32[B,16,32]", "none", "5", "0.1", "true"],
        "by name": ["float32[B,16,32]", "normalise=true", "steps=1", 'head="many"'],
        "a device": ["float32[B,16,32]", 'device="cpu"', "mask=float32[B,16]"],
    }
    for name, specs in calls.items():
        inputs = [f"--input={spec}" for spec in specs]
        output = f"{name}.pt".replace(" ", "-")
        report = app.command("report", "model.pt", *inputs, "--batch=256", "--json")
        app.check(not report.code, f"{name}: report: {report.stderr}")
        done = app.command(
            "compile", "model.pt", "-o", output, *inputs, "--batch=256", f"--budget={BUDGET}"
        )
        app.check(not done.code, f"{name}: compile: {done.stderr}", "refused")
        if report.code or done.code:
            continue
        app.check(json.loads(report.stdout)["peak_bytes"], f"{name}: no peak")
        run = app.command("run", "model.pt", output, *inputs, "--batch=256", "--json")
        app.check(not run.code, f"{name}: run: {run.stdout}{run.stderr}")
        if not run.code:
            found = json.loads(run.stdout)
            whole, tiled = (program["measured_peak_bytes"] for program in found["programs"])
            app.check(found["compare"]["equal"], f"{name}: other results")
            app.check(whole > 2 * BUDGET, f"{name}: it fits as it is: {whole:,} bytes")
            app.check(tiled <= BUDGET + 4096, f"{name}: takes {tiled:,} bytes", "silent")
