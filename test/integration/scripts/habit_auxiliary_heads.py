"""A network with an auxiliary head half way, and a backward call for each of the two losses."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F

import koila

torch.manual_seed(1)
results = {"main": [], "aux": [], "stem gradient": []}


class SmallInception(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.conv = nn.Conv2d(16, 16, 3, padding=1)
        self.aux = nn.Linear(16, classes)
        self.branch1 = nn.Conv2d(16, 12, 1)
        self.branch3 = nn.Conv2d(16, 12, 3, padding=1)
        self.branch5 = nn.Conv2d(16, 8, 5, padding=2)
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        x = F.relu(self.conv(F.relu(self.stem(x), inplace=True)))
        aux = self.aux(x.mean(dim=(2, 3))) if self.training else None
        x = F.relu(torch.cat([self.branch1(x), self.branch3(x), self.branch5(x)], 1))
        return self.head(F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 1).flatten(1)), aux


# Five colours at different brightness.
labels = torch.randint(5, (288,))
images = 2 * torch.randn(5, 3, 1, 1)[labels] * (0.4 + torch.rand(288, 1, 1, 1))
images = images + 0.5 * torch.randn(288, 3, 16, 16)

net = SmallInception()
optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
for step in range(3):
    inputs, targets = images[step * 64 : (step + 1) * 64], labels[step * 64 : (step + 1) * 64]
    inputs, targets = koila.lazy(inputs, targets, batch=0)
    optimizer.zero_grad()
    outputs, aux = net(inputs)
    aux_loss = 0.3 * F.cross_entropy(aux, targets)
    main_loss = F.cross_entropy(outputs, targets)
    aux_loss.backward(retain_graph=True)
    before = net.stem.weight.grad.norm().item()
    main_loss.backward()
    results["stem gradient"].append((before, net.stem.weight.grad.norm().item()))
    optimizer.step()
    results["aux"].append(aux_loss.item())
    results["main"].append(main_loss.item())
    print("[%d] loss: %.3f aux: %.3f" % (step + 1, main_loss.item(), aux_loss.item()))

net.eval()
with torch.no_grad():
    inputs, targets = koila.lazy(images[192:], labels[192:], batch=0)
    outputs, _ = net(inputs)
    results["test loss"] = F.cross_entropy(outputs, targets).item()
    results["logits"] = outputs.numpy()
results["weights"] = net.state_dict()
