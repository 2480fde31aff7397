"""EmbeddingBags of what users saw and of weighted genres score lists of candidates."""

# koila: tiles
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import koila

torch.manual_seed(4)
MOVIES, GENRES, CANDIDATES = 120, 12, 16


class Sessions(Dataset):
    def __init__(self, count):
        self.history = torch.randint(1, MOVIES, (count, 15))
        self.history[:, 9:] *= torch.rand(count, 6) < 0.6
        self.genres = torch.randint(GENRES, (count, 4))
        self.weights = torch.rand(count, 4) + 0.1
        self.candidates = torch.randint(1, MOVIES, (count, CANDIDATES))
        liked = (self.candidates % GENRES - self.genres[:, :1]).abs() + self.history[:, :1] % 3
        self.clicked = liked.argmin(1)

    def __len__(self):
        return len(self.clicked)

    def __getitem__(self, i):
        sample = {"history": self.history[i], "genres": (self.genres[i], self.weights[i])}
        return {**sample, "candidates": self.candidates[i], "clicked": self.clicked[i]}


class Ranker(nn.Module):
    def __init__(self, dim=24, hidden=48):
        super().__init__()
        self.movie = nn.Embedding(MOVIES, dim)
        self.history = nn.EmbeddingBag(MOVIES, dim, mode="mean", padding_idx=0)
        self.genre = nn.EmbeddingBag(GENRES, dim, mode="sum")
        first, second = nn.Linear(3 * dim, hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(
            first, nn.ReLU(), nn.Dropout(0.1), second, nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, batch):
        genres, weights = batch["genres"]
        user = torch.cat([self.history(batch["history"]), self.genre(genres, None, weights)], 1)
        movies = self.movie(batch["candidates"])
        pairs = torch.cat([user.unsqueeze(1).expand(-1, movies.size(1), -1), movies], dim=-1)
        return self.mlp(pairs).squeeze(-1)


model = Ranker()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
results = {"history": []}
for batch in DataLoader(Sessions(512), batch_size=192):
    batch = koila.lazy(batch, batch=0)
    scores = model(batch)
    loss = nn.functional.cross_entropy(scores, batch["clicked"])
    hits = (scores.argmax(1) == batch["clicked"]).sum().item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    results["history"].append((loss.item(), hits))
ranks = []
model.eval()
with torch.no_grad():
    for batch in DataLoader(Sessions(200), batch_size=128):
        batch = koila.lazy(batch, batch=0)
        order = model(batch).argsort(dim=1, descending=True)
        ranks.append((order == batch["clicked"][:, None]).float().argmax(1) + 1)
ranks = torch.cat(ranks)
results["mrr"], results["ranks"] = (1 / ranks).mean().item(), ranks.numpy()
print(f"loss {results['history'][-1][0]:.4f}, mean reciprocal rank {results['mrr']:.4f}")
results["weights"] = model.state_dict()
