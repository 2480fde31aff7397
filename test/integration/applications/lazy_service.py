"""A main thread that trains with koila.lazy while a thread evaluates another model with it."""

# points: 5
# catches: silent, wrong, keeps

import queue
import sys
import threading

import torch
from torch import nn

BUDGET = 1 << 20


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 128), nn.GELU(), nn.Linear(128, 4)
    )


def application(koila, app):
    x = torch.randn(2048, 32, generator=torch.Generator().manual_seed(1))
    y = x[:, :4].cumsum(1)
    student, teacher = make_model(0), make_model(1).eval()
    for weight in student.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    wanted, answers, losses = queue.Queue(), [], []
    together = threading.Barrier(2, timeout=10)

    def evaluate():
        while (rows := wanted.get()) is not None:
            with torch.no_grad():
                batch = koila.lazy(x[rows], budget=BUDGET)
                output = teacher(batch)
                together.wait()  # both have begun, and neither has computed
                answers.append((output.argmax(1).float().mean().item(), output.norm().item()))

    sys.setswitchinterval(1e-4)  # more often than Python does
    worker = threading.Thread(target=evaluate)
    with app.within(2 * BUDGET, strict=True):
        worker.start()
        for step in range(4):
            wanted.put(slice(0, 2048 - 100 * step))
            inputs, target = koila.lazy(x, y, budget=BUDGET)
            optimizer.zero_grad(set_to_none=False)
            loss = nn.functional.mse_loss(student(inputs), target)
            together.wait()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        wanted.put(None)
        worker.join()
    return {"losses": losses, "answers": answers, "weights": student.state_dict()}
