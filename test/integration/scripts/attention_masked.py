"""Classifies padded texts with attention of its own, then with scaled_dot_product_attention."""

# koila: tiles
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import koila

torch.manual_seed(17)
WORDS, LENGTH, WIDTH, HEADS, CLASSES = 40, 20, 32, 4, 3
lengths = torch.randint(5, LENGTH + 1, (288,))
texts = torch.randint(1, WORDS, (288, LENGTH)) * (torch.arange(LENGTH) < lengths[:, None])
labels = (texts < WORDS // 4).sum(1) % CLASSES
train_set = TensorDataset(texts[:192], labels[:192])


class Attention(nn.Module):
    def __init__(self, fused, dropout=0.1):
        super().__init__()
        self.fused, self.dropout = fused, dropout
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        p = self.dropout if self.training else 0.0
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, mask[:, None, None, :], dropout_p=p)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
            scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
            y = F.dropout(scores.softmax(dim=-1), p, self.training) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, WIDTH))


class Classifier(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.attention = nn.ModuleList(Attention(fused) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, texts):
        mask = texts != 0
        x = self.words(texts) + self.places.weight
        for attention, norm in zip(self.attention, self.norms, strict=True):
            x = x + attention(norm(x), mask)
        return self.head((x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True))


results = {"weights": {}}
for fused in (False, True):
    model = Classifier(fused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, y in DataLoader(train_set, batch_size=64, shuffle=True):
        x, y = koila.lazy(x, y, batch=0)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    results[f"losses_{fused}"] = torch.stack(losses).tolist()
    model.eval()
    with torch.no_grad():
        logits = model(koila.lazy(texts[192:], batch=0))
    results[f"certain_{fused}"], predicted = (t.numpy() for t in logits.softmax(1).max(dim=1))
    accuracy = (predicted == labels[192:].numpy()).mean()
    print(f"fused={fused}: loss {sum(losses) / len(losses):.4f}, accuracy {accuracy:.3f}")
    results["weights"][f"fused={fused}"] = model.state_dict()
