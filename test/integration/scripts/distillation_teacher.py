"""Distillation from a wider teacher under no_grad; both losses are read before backward."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F

import koila

torch.manual_seed(12)


def cnn(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width, 4),
    )


class Distiller:
    def __init__(self, teacher, student, temperature=3.0, alpha=0.6):
        self.teacher, self.student = teacher.eval(), student
        self.temperature, self.alpha = temperature, alpha
        self.optimizer = torch.optim.RMSprop(student.parameters(), lr=4e-3)

    def step(self, x, y):
        x, y = koila.lazy(x, y, batch=0)
        with torch.no_grad():
            teacher_logits = self.teacher(x)
        logits = self.student(x)
        hard = F.cross_entropy(logits, y)
        soft = (
            F.kl_div(
                F.log_softmax(logits / self.temperature, dim=1),
                F.softmax(teacher_logits / self.temperature, dim=1),
                reduction="batchmean",
            )
            * self.temperature**2
        )
        loss = self.alpha * soft + (1 - self.alpha) * hard
        log = {"loss": loss.item(), "soft": soft.item(), "hard": hard.item()}
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        log["agree"] = (logits.argmax(1) == teacher_logits.argmax(1)).float().mean().item()
        return log

    @torch.no_grad()
    def compare(self, x):
        x = koila.lazy(x, batch=0)
        teacher, student = self.teacher(x), self.student(x)
        return (F.softmax(teacher, 1) - F.softmax(student, 1)).abs().sum(dim=1)


x = torch.randn(320, 1, 16, 16).cumsum(3) * torch.linspace(0.5, 1.5, 320).view(-1, 1, 1, 1)
y = 2 * (x[:, 0, :8].mean((1, 2)) > 0).long() + (x[:, 0, 8:].mean((1, 2)) > 0).long()
teacher = cnn(24)
with torch.no_grad():
    teacher[-1].weight.mul_(8)
distiller = Distiller(teacher, cnn(12))
history = []
for i in range(0, 256, 128):
    history.append(distiller.step(x[i : i + 128], y[i : i + 128]))
    print({name: round(value, 4) for name, value in history[-1].items()})
gap = distiller.compare(x[256:])
results = {
    "history": history,
    "gap": gap.cpu().numpy(),
    "worst": gap.max().item(),
    "weights": distiller.student.state_dict(),
}
