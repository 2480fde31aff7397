"""A graph network on batches of dense adjacency matrices (bmm, baddbmm) with masked nodes."""

# koila: tiles
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(19)
NODES, FEATURES, WIDTH = 12, 5, 48
# Molecules of 5 to 12 atoms; what is wanted is the energy of their bonds.
count = 5 + torch.arange(480) % 8
mask = (torch.arange(NODES) < count[:, None]).float()
atoms = torch.randn(480, NODES, FEATURES) * mask[..., None] * (0.5 + torch.rand(480, 1, 1))
bonds = (torch.rand(480, NODES, NODES) < 0.3).float().triu(1)
bonds = (bonds + bonds.transpose(1, 2)) * mask[:, :, None] * mask[:, None, :]
energy = torch.einsum("bif,bij,bjf->b", atoms, bonds, atoms) / 10


class GraphLayer(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.own = nn.Linear(fan_in, fan_out)
        self.neighbour = nn.Linear(fan_in, fan_out, bias=False)
        self.norm = nn.LayerNorm(fan_out)

    def forward(self, x, adjacency):
        return torch.relu(self.norm(torch.baddbmm(self.own(x), adjacency, self.neighbour(x))))


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([GraphLayer(FEATURES, WIDTH), GraphLayer(WIDTH, WIDTH)])
        self.readout = nn.Linear(3 * WIDTH, 1)

    def forward(self, x, adjacency, mask):
        adjacency = adjacency / adjacency.sum(dim=2, keepdim=True).clamp(min=1)
        for layer in self.layers:
            x = layer(x, adjacency) * mask.unsqueeze(2)
        two_steps = torch.bmm(adjacency, torch.bmm(adjacency, x))
        pooled = torch.cat([x.sum(1), x.max(dim=1).values, two_steps.sum(1)], dim=1)
        return self.readout(pooled).squeeze(1)


data = TensorDataset(atoms, bonds, mask, energy)
train_set, test_set = torch.utils.data.random_split(data, [352, 128])
model = GraphNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.003)
results = {"mae": [], "loss": []}
for step, batch in enumerate(DataLoader(train_set, batch_size=128)):
    x, a, m, target = koila.lazy(batch, batch=0)
    output = model(x, a, m)
    loss = nn.functional.huber_loss(output, target)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    results["loss"].append(loss.item())
    results["mae"].append((output.detach() - target).abs().mean().item())
    print("step", step, "loss", round(loss.item(), 4), "mae", round(results["mae"][-1], 4))

with torch.no_grad():
    x, a, m, target = koila.lazy(next(iter(DataLoader(test_set, batch_size=128))), batch=0)
    predicted = model.eval()(x, a, m)
    residual = ((predicted - target) ** 2).sum()
    results["r2"] = (1 - residual / ((target - target.mean()) ** 2).sum()).item()
    results["predicted"] = predicted.numpy()
results["weights"] = model.state_dict()
