"""A frozen backbone with BatchNorm in eval and a trained head; accuracy is read after the step."""

# koila: tiles
import torch
from torch import nn
from torch.nn import functional as F

import koila

torch.manual_seed(3)


def pretrained_backbone():
    net = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )
    for module in (net[1], net[4]):
        nn.init.normal_(module.bias, 0.2, 0.1)
        module.running_mean.normal_(0, 0.1)
        module.running_var.uniform_(0.2, 0.5)
    return net


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = pretrained_backbone().requires_grad_(False)
        self.head = nn.Linear(24 * 4, classes)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()  # the statistics stay those of the pretraining
        return self

    def forward(self, x):
        return self.head(F.dropout(self.backbone(x), 0.1, self.training))


def batches(x, y, size):
    for start in range(0, len(x), size):
        yield koila.lazy(x[start : start + size], y[start : start + size], batch=0)


images = torch.randn(480, 3, 16, 16) * torch.linspace(0.3, 1.5, 480).view(-1, 1, 1, 1)
labels = torch.randint(2, (480,))
images[labels == 1, :, :8] += 1.5
model = Classifier(2).train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02)
logs, scores = [], []
for x, y in batches(images[:320], labels[:320], 128):
    optimizer.zero_grad(set_to_none=True)
    logits = model(x)
    loss = F.cross_entropy(logits, y, label_smoothing=0.05)
    loss.backward()
    optimizer.step()
    logs.append((float(loss), (logits.argmax(-1) == y).float().mean().item()))
    print("loss %.4f, accuracy %.3f" % logs[-1])
model.eval()
with torch.no_grad():
    for x, y in batches(images[320:], labels[320:], 160):
        scores.append(F.softmax(model(x), dim=-1)[:, 1])
scores = torch.cat(scores)
results = {
    "logs": logs,
    "scores": scores,
    "positive": int((scores > 0.5).sum()),
    "weights": model.state_dict(),
}
