"""Products of embeddings are trained by BPR with sampled negatives, and then rank all items."""

# koila: tiles
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(8)
USERS, ITEMS, NEGATIVES, TOP = 128, 160, 32, 10

# Users like items of their kind; the last one that each user has bought is for the test.
kind = torch.randint(8, (USERS,))
bought = (kind[:, None] + 8 * torch.rand(USERS, 20).argsort(1)) % ITEMS
seen = torch.zeros(USERS, ITEMS, dtype=torch.bool)
seen[torch.arange(USERS)[:, None], bought[:, :7]] = True
users, items = torch.arange(USERS).repeat_interleave(7), bought[:, :7].flatten()


class MatrixFactorization(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, dim), nn.Embedding(ITEMS, dim)
        self.bias = nn.Embedding(ITEMS, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, users, items):
        u = self.user(users).unsqueeze(1) if items.dim() > users.dim() else self.user(users)
        return (u * self.item(items)).sum(-1) + self.bias(items).squeeze(-1)


def bpr_loss(positive, negative):
    return -F.logsigmoid(positive.unsqueeze(1) - negative).mean()


model = MatrixFactorization()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05, eps=1e-4)
results, epoch_loss, batches = {}, 0.0, 0
for u, i in DataLoader(TensorDataset(users, items), batch_size=256, shuffle=True):
    u, i = koila.lazy(u, i, batch=0)
    j = torch.randint(ITEMS, (u.size(0), NEGATIVES))
    positive, negative = model(u, i), model(u, j)
    loss = bpr_loss(positive, negative) + 1e-3 * model.user(u).pow(2).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    epoch_loss += loss.item()
    batches += 1
    with torch.no_grad():
        results["auc"] = (positive[:, None] > negative).float().mean().item()
results["loss"] = epoch_loss / batches

with torch.inference_mode():
    u, target = koila.lazy(torch.arange(USERS), bought[:, 7], batch=0)
    scores = model.user(u) @ model.item.weight.t() + model.bias.weight.squeeze(1)
    scores = scores.masked_fill(seen[u], float("-inf"))
    top = scores.topk(TOP).indices
    results["hit_rate"] = (top == target[:, None]).any(dim=1).float().mean().item()
    results["recommended"] = top.tolist()
    results["ranks"] = (scores > scores.gather(1, target[:, None])).sum(1).numpy()
print(f"loss {results['loss']:.4f}, hit rate@{TOP} {results['hit_rate']:.3f}")
results["weights"] = model.state_dict()
