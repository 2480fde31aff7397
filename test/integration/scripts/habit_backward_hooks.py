"""Full backward hooks of the modules log how large the gradients are that reach each layer."""

# koila: whole: a hook is code of the user's that is given the gradient of the whole batch
import torch
from torch import nn

import koila

torch.manual_seed(13)
results = {"loss": [], "flow": {}}


class Tagger(nn.Module):
    def __init__(self, letters=30, dim=32, tags=5):
        super().__init__()
        self.embed = nn.Embedding(letters, dim)
        self.layers = nn.ModuleList(nn.Conv1d(dim, dim, 3, padding=1) for _ in range(3))
        self.out = nn.Linear(dim, tags)

    def forward(self, text):
        h = self.embed(text).transpose(1, 2)
        for layer in self.layers:
            h = h + torch.relu(layer(h))
        return self.out(h.transpose(1, 2))


def log_flow(name):
    def hook(module, grad_input, grad_output):
        flow = results["flow"].setdefault(name, [])
        flow.append((grad_output[0].norm().item(), grad_output[0].abs().max().item()))

    return hook


model = Tagger()
for i, layer in enumerate(model.layers):
    layer.register_full_backward_hook(log_flow(f"layer {i}"))

# The tag of a letter is that of its class, shifted by the letter before it.
text = torch.randint(30, (288, 40))
tags = (text % 5 + (text.roll(1, dims=1) > 15)) % 5
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(3):
    chosen = slice(step * 96, (step + 1) * 96)
    x, y = koila.lazy(text[chosen], tags[chosen], batch=0)
    optimizer.zero_grad()
    loss = criterion(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    results["loss"].append(loss.item())
    print(step, loss.item(), {name: flow[-1][0] for name, flow in results["flow"].items()})
results["weights"] = model.state_dict()
